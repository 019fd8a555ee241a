package config

import (
	"fmt"
	"slices"
	"strings"
)

// check returns an error for every key that contradicts another key. It also adds warnings to c about keys that have
// no effect.
func (c *Config) check() []error {
	var errs []error
	fail := func(key, format string, args ...any) { errs = append(errs, c.Errorf(key, format, args...)) }
	held := c.held()
	c.checkSets(fail)
	if c.ValSize > 0 && c.HasEvalData() {
		fail("val_size", "val_size and %s are both given: give one of them (val_size holds out rows of the training data)", c.EvalDataKey())
	}
	if c.CompareBigram && held && c.EvalStrategy == "no" {
		fail("compare_bigram", "compare_bigram needs the evaluation at the end, but eval_strategy is no: remove one of them")
	}
	c.perEpoch(fail)
	c.checkSpecialTokens(fail)
	if c.EvalStrategy == "steps" && c.Given("eval_strategy") && !c.Given("eval_steps") {
		c.EvalSteps = c.LoggingSteps // as transformers.TrainingArguments does
	}
	if c.CompareBigram && !held {
		fail("compare_bigram", "compare_bigram needs held-out data: give eval_dataset or val_size")
	}
	if len(c.InterleaveProbs) > 0 && c.MixStrategy == "concat" {
		fail("interleave_probs", "interleave_probs needs mix_strategy: interleave_under or interleave_over, but mix_strategy is concat")
	} else if n := len(c.InterleaveProbs); n > 0 && n != len(c.Dataset)+len(c.Datasets) {
		fail("interleave_probs", "interleave_probs needs one value per entry of %s (%d), but has %d", c.DataKey(), len(c.Dataset)+len(c.Datasets), n)
	}
	if c.MaskHistory && c.TrainOnPrompt {
		fail("mask_history", "mask_history trains on the last answer of a chat, train_on_prompt on all of it: set only one of them")
	}
	if _, err := c.DeviceList(); err != nil {
		errs = append(errs, err)
	}
	c.checkTemplateVars(fail)
	c.checkScheduler(fail)
	c.checkPreference(fail)
	c.checkAhead(fail)
	c.checkWatching(held, fail)
	if c.OutputDir == "" {
		fail("output_dir", "output_dir is empty: name a directory")
	}
	if c.LRScheduler == "wsd" && c.MaxSteps > 0 && c.NumDecaySteps > c.MaxSteps {
		fail("num_decay_steps", "num_decay_steps is %d, more than max_steps, which is %d: lower num_decay_steps", c.NumDecaySteps, c.MaxSteps)
	}
	if strings.HasPrefix(c.Optim, "muon") && c.LearningRate == 0 && c.MuonLR+c.AdamLR > 0 {
		fail("learning_rate", "learning_rate is 0, but muon_lr and adam_lr follow its schedule: set learning_rate to the larger of the two")
	}
	c.checkGroups(fail)
	if c.MaxSteps > 0 {
		if err := c.CheckAverage(); err != nil {
			fail("ema_update_after_step", "%w", err)
		}
	}
	if len(c.ParamDir) > 0 && len(c.StateDir) == 0 {
		fail("param_dir", "param_dir needs state_dir: give state_dir too (it may be the same directory)")
	}
	if c.Compress == "byteplane" && len(c.StateDir) == 0 {
		fail("compress", "compress: byteplane compresses the data in state_dir and param_dir: give state_dir, or set compress: none")
	}
	if c.Optim == "sgd" { // torch.optim.SGD's defaults; Default has those of torch.optim.Muon
		if !c.Given("momentum") {
			c.Momentum = 0
		}
		if !c.Given("nesterov") {
			c.Nesterov = false
		}
		if c.Nesterov && c.Momentum == 0 {
			fail("nesterov", "nesterov needs momentum, but momentum is 0: set momentum, such as 0.9, or remove nesterov")
		}
	}
	c.warnings(held)
	return errs
}

// CheckAverage returns an error if the weights' moving average (ema_decay) would start only at the last step.
// MaxSteps must be known.
func (c *Config) CheckAverage() error {
	if c.EMADecay == 0 || c.EMAAfter == 0 || c.EMAAfter+1 < c.MaxSteps {
		return nil
	}
	return fmt.Errorf("ema_update_after_step is %d and the run has %d steps, so the average would equal the final weights: lower ema_update_after_step, or remove ema_decay", c.EMAAfter, c.MaxSteps)
}

// checkWatching rejects save_best, early_stopping_patience and sample_steps if the evaluations, checkpoints or prompts
// that they need are missing. held says that the run has held-out data. fail records an error about a key.
func (c *Config) checkWatching(held bool, fail func(key, format string, args ...any)) {
	for _, k := range []struct {
		name  string
		given bool
	}{{"save_best", c.SaveBest}, {"early_stopping_patience", c.EarlyStoppingPatience > 0}} {
		switch {
		case !k.given:
		case !held:
			fail(k.name, "%s needs evaluations, but there is no held-out data: give eval_dataset or val_size", k.name)
		case c.EvalStrategy == "no":
			fail(k.name, "%s needs evaluations, but eval_strategy is no: set eval_strategy to steps or epoch", k.name)
		case c.EvalStrategy == "steps" && c.EvalSteps == 0:
			fail(k.name, "%s needs evaluations during the run, but the only one is at the end: give eval_steps, or set eval_strategy: epoch", k.name)
		}
	}
	if c.SaveBest && c.SaveStrategy == "no" {
		fail("save_best", "save_best needs checkpoints, but save_strategy is no: remove one of them")
	}
	if c.SampleSteps > 0 && len(c.samplePrompts()) == 0 {
		fail("sample_steps", "sample_steps needs prompts: give sample_prompts")
	}
}

// checkAhead reports keys that mt does not support beside train_mtp.
func (c *Config) checkAhead(fail func(key, format string, args ...any)) {
	for _, k := range []struct {
		key   string
		given bool
	}{{preferenceKey, len(c.DPO) > 0}, {"sample_prompts", len(c.Samples()) > 0 && len(c.SamplePrompts) > 0}, {"sample_prompt", len(c.Samples()) > 0 && len(c.SamplePrompts) == 0}} {
		if c.TrainMTP && k.given {
			fail(k.key, "%s and train_mtp do not go together: remove one of them", k.key)
		}
	}
}

// samplePrompts returns the prompts that the run continues as samples: those of SamplePrompts, or else the single
// SamplePrompt; nil if neither is given.
func (c *Config) samplePrompts() []string {
	if len(c.SamplePrompts) == 0 && c.SamplePrompt != "" {
		return []string{c.SamplePrompt}
	}
	return c.SamplePrompts
}

// Samples returns the prompts to continue every SampleSteps; nil if SampleSteps is 0.
func (c *Config) Samples() []string {
	if c.SampleSteps == 0 {
		return nil
	}
	return c.samplePrompts()
}

func (c *Config) warnings(held bool) {
	d := Default()
	ignored := func(key, why string) { // warns that the key has no effect, unless its value equals the default
		if k := byName[key]; c.Given(key) && k.print(c) != k.print(d) {
			c.warnf("%s has no effect: %s", key, why)
		}
	}
	if !held {
		ignored("eval_steps", "there is neither eval_dataset nor val_size")
		ignored("eval_strategy", "there is neither eval_dataset nor val_size")
	} else if c.EvalStrategy != "steps" {
		ignored("eval_steps", "eval_strategy is "+c.EvalStrategy)
	}
	for _, key := range unused(c.Optim) {
		ignored(key, "optim is "+c.Optim)
	}
	if c.SaveStrategy != "steps" {
		ignored("save_steps", "save_strategy is "+c.SaveStrategy)
	}
	if c.SaveStrategy == "no" {
		for _, key := range []string{"save_total_limit", "save_only_model", "keep_checkpoints"} {
			ignored(key, "save_strategy is no: there are no checkpoints")
		}
	}
	if c.SaveOnlyModel || c.SaveStrategy == "no" {
		ignored("optimizer_zstd", "the optimizer's state is not saved")
	}
	if !c.TrainMTP {
		ignored("mtp_loss_weight", "train_mtp is false")
	}
	if c.EMADecay == 0 {
		ignored("ema_update_after_step", "ema_decay is 0")
	}
	if c.EarlyStoppingPatience == 0 {
		ignored("early_stopping_threshold", "early_stopping_patience is 0")
	}
	if c.SampleSteps == 0 {
		ignored("sample_prompts", "sample_steps is 0")
	}
	if !slices.Contains([]string{"linear", "cosine", cosineWarmup, "wsd"}, c.LRScheduler) {
		ignored("min_lr_ratio", "lr_scheduler_type is "+c.LRScheduler)
	}
	if c.LRScheduler != "wsd" {
		ignored("num_decay_steps", "lr_scheduler_type is "+c.LRScheduler)
		ignored("decay_ratio", "lr_scheduler_type is "+c.LRScheduler)
	} else if c.NumDecaySteps > 0 {
		ignored("decay_ratio", "num_decay_steps is given")
	}
	if c.WarmupSteps > 0 && c.WarmupRatio > 0 {
		ignored("warmup_ratio", "warmup_steps is given")
	}
	if c.MaxSteps > 0 {
		ignored("num_train_epochs", "max_steps is given")
	}
}

// CheckGradSlabs returns a UsageError if pipeline.grad_slabs is too small for clipping by the global norm. The norm
// needs every gradient of a step, so each layer needs its own slab unless its gradient can wait on a disk. 0 (auto)
// is always accepted.
func (c *Config) CheckGradSlabs(layers int) error {
	n := c.Pipeline.GradSlabs
	if n == 0 || n >= layers || !c.WaitsForNorm() || len(c.StateDir) > 0 {
		return nil
	}
	return c.Errorf("pipeline.grad_slabs", "pipeline.grad_slabs is %d, but clipping needs %d: every layer of the model keeps "+
		"its gradient until the norm is known. Remove the key, or lower the need: `clip: layerwise` and `max_grad_norm: 0` update a "+
		"layer when its gradient lands, `grad_dtype: bf16` halves the slabs, and with `state_dir` gradients wait on a disk", n, layers)
}

// unused returns the optimizer keys that the optimizer named optim does not read.
func unused(optim string) []string {
	muons, adams := []string{"muon_lr", "adam_lr", "ns_steps", "adjust_lr_fn"}, []string{"adam_beta1", "adam_beta2", "adam_epsilon"}
	switch optim {
	case "muon", "muon_8bit":
		return nil
	case "sgd":
		return append(muons, adams...)
	case "lion", "lion_8bit":
		return append(muons, "momentum", "nesterov", "adam_epsilon")
	}
	return append(muons, "momentum", "nesterov")
}
