package config

import "mt/data"

// DataSpec is what c says about its dataset. The tokenizer, the vocabulary and
// the model's directory are left to the caller.
func (c *Config) DataSpec() data.Spec {
	s := c.dataSpec(c.Dataset)
	s.MixStrategy, s.InterleaveProbs = c.MixStrategy, c.InterleaveProbs
	s.MaxSamples = c.MaxSamples
	if len(c.EvalDataset) == 0 {
		s.ValSize = c.ValSize
	}
	return s
}

// EvalSpec is DataSpec for eval_dataset, whose rows are all for evaluation.
func (c *Config) EvalSpec() data.Spec { return c.dataSpec(c.EvalDataset) }

func (c *Config) dataSpec(paths []string) data.Spec {
	s := data.Spec{Paths: paths, Dir: c.DatasetDir, Format: c.DatasetFormat, Template: c.Template,
		MaskHistory: c.MaskHistory, TrainOnPrompt: c.TrainOnPrompt, SkipBadRows: c.SkipBadRows,
		MaxSeqLen: c.MaxSeqLen, Seed: c.Seed, Shuffle: c.Shuffle, CacheDir: c.CacheDir, Threads: c.Threads}
	if c.Packing != Auto {
		packing := c.Packing == On
		s.Packing = &packing
	}
	return s
}
