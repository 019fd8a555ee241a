package config

import (
	"maps"
	"strings"

	"mt/data"
)

// DataSpec is what c says about its dataset. The tokenizer, the vocabulary and
// the model's directory are left to the caller.
func (c *Config) DataSpec() data.Spec {
	s := c.dataSpec(c.Dataset, c.Datasets)
	s.MixStrategy, s.InterleaveProbs = c.MixStrategy, c.InterleaveProbs
	s.MaxSamples = c.MaxSamples
	if !c.HasEvalData() {
		s.ValSize = c.ValSize
	}
	return s
}

// EvalSpec is DataSpec for eval_dataset, whose rows are all for evaluation.
func (c *Config) EvalSpec() data.Spec {
	s := c.dataSpec(c.EvalDataset, c.EvalDatasets)
	s.Held = true
	return s
}

func (c *Config) dataSpec(paths []string, sets []data.Set) data.Spec {
	s := data.Spec{Pairs: len(c.DPO) > 0, Paths: paths, Sets: sets, Dir: c.DatasetDir, Hub: DatasetDir, Format: c.DatasetFormat, Template: c.templatePlace(),
		Columns:     data.Columns{Text: c.TextColumn, Messages: c.MessagesColumn, Prompt: c.PromptColumn, Response: c.ResponseColumn},
		MaskHistory: c.MaskHistory, TrainOnPrompt: c.TrainOnPrompt, SkipBadRows: c.SkipBadRows,
		MaxSeqLen: c.MaxSeqLen, Seed: c.Seed, Shuffle: c.Shuffle, CacheDir: c.CacheDir, Threads: c.Threads}
	s.TemplateVars = c.TemplateVars()
	if c.Packing != Auto {
		packing := c.Packing == On
		s.Packing = &packing
	}
	return s
}

// templatePlace is template, with the directory in the Hugging Face cache in place of a Hub id.
func (c *Config) templatePlace() string {
	if !strings.Contains(c.Template, "/") || !hubID.MatchString(c.Template) {
		return c.Template
	}
	if dir, err := ModelDir(c.Template); err == nil {
		return dir
	}
	return c.Template
}

// TemplateVars are the variables that the chat template is handed:
// chat_template_kwargs with enable_thinking.
func (c *Config) TemplateVars() map[string]any {
	if c.EnableThinking == Auto {
		return c.ChatTemplateKwargs
	}
	out := map[string]any{}
	maps.Copy(out, c.ChatTemplateKwargs)
	out[thinkingKey] = c.EnableThinking == On
	return out
}

const thinkingKey = "enable_thinking"

// checkTemplateVars refuses variables in chat_template_kwargs that mt sets itself or
// that enable_thinking gives too.
func (c *Config) checkTemplateVars(fail func(key, format string, args ...any)) {
	for _, name := range data.OwnVars {
		if _, given := c.ChatTemplateKwargs[name]; given {
			fail("chat_template_kwargs", "chat_template_kwargs has %s, which mt sets itself; remove it there", name)
		}
	}
	if _, twice := c.ChatTemplateKwargs[thinkingKey]; twice && c.EnableThinking != Auto {
		fail(thinkingKey, "enable_thinking is given and so is chat_template_kwargs.enable_thinking: give one of them")
	}
}
