package config

// check looks at keys that depend on each other. It returns mistakes, and adds warnings
// about keys that have no effect.
func (c *Config) check() []error {
	var errs []error
	fail := func(key, format string, args ...any) { errs = append(errs, c.Errorf(key, format, args...)) }
	held := c.ValSize > 0 || len(c.EvalDataset) > 0
	if c.ValSize > 0 && len(c.EvalDataset) > 0 {
		fail("val_size", "val_size holds rows of dataset out and eval_dataset brings its own: give one of them")
	}
	if c.CompareBigram && held && c.EvalStrategy == "no" {
		fail("compare_bigram", "compare_bigram compares with the evaluation at the end, and eval_strategy is no: leave one of them out")
	}
	if c.EvalStrategy == "steps" && c.Given("eval_strategy") && !c.Given("eval_steps") {
		c.EvalSteps = c.LoggingSteps // as transformers.TrainingArguments does
	}
	if c.CompareBigram && !held {
		fail("compare_bigram", "compare_bigram compares on held-out data: give eval_dataset or val_size")
	}
	if len(c.InterleaveProbs) > 0 && c.MixStrategy == "concat" {
		fail("interleave_probs", "interleave_probs has no place with mix_strategy concat: set interleave_under or interleave_over")
	} else if n := len(c.InterleaveProbs); n > 0 && n != len(c.Dataset) {
		fail("interleave_probs", "interleave_probs has %d values and dataset %d entries: give each one", n, len(c.Dataset))
	}
	if c.MaskHistory && c.TrainOnPrompt {
		fail("mask_history", "mask_history and train_on_prompt exclude each other")
	}
	c.checkTemplateVars(fail)
	if c.OutputDir == "" {
		fail("output_dir", "output_dir is empty: name a directory")
	}
	if c.LRScheduler == "wsd" && c.MaxSteps > 0 && c.NumDecaySteps > c.MaxSteps {
		fail("num_decay_steps", "num_decay_steps is %d, more than max_steps %d", c.NumDecaySteps, c.MaxSteps)
	}
	c.warnings(held)
	return errs
}

func (c *Config) warnings(held bool) {
	d := Default()
	ignored := func(key, why string) { // a key that repeats its default needs no warning
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
	if c.LRScheduler == "constant" && c.MinLRRatio > 0 {
		ignored("min_lr_ratio", "lr_scheduler_type is constant")
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

// CheckGradSlabs returns a UsageError where pipeline.grad_slabs is too small for
// clipping: the norm needs every gradient of a step, so each of the layers needs a slab
// of its own. A grad_slabs of auto always fits.
func (c *Config) CheckGradSlabs(layers int) error {
	n := c.Pipeline.GradSlabs
	if n == 0 || n >= layers || c.MaxGradNorm == 0 {
		return nil
	}
	return c.Errorf("pipeline.grad_slabs", "pipeline.grad_slabs is %d, and with clipping every layer of the model keeps "+
		"its gradient until the norm is known: %d slabs. Leave it out, or need less: `max_grad_norm: 0` updates a "+
		"layer as its gradient lands, `grad_dtype: bf16` halves the slabs", n, layers)
}
