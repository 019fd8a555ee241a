package config

import (
	"math"
	"strings"

	"mt/data"
)

// Part names the part of a run that a key decides, such as its schedule. Resuming compares the checkpoint's config
// with the run's config and treats differences according to their part.
type Part string

// The parts of a run. Keys without a part may differ between a checkpoint and the run that resumes it.
const (
	PartModel     Part = "model"     // the weights and their precision
	PartDataset   Part = "dataset"   // the rows and their order
	PartRows      Part = "rows"      // rows of a step
	PartOptimizer Part = "optimizer" // the state kept for each weight
	PartUpdate    Part = "update"    // the arithmetic of an update
	PartSchedule  Part = "schedule"  // the learning rate of each step
	PartOutput    Part = "output"    // what is written, and when
	PartNumerics  Part = "numerics"  // rounding and the order of sums
)

// key is one row of the table of all keys (sections): its names, its field in Config, and the values that it accepts.
type key struct {
	name    string
	aliases []string
	part    Part
	doc     string
	common  bool              // listed by mt train --help; --help-all lists every key
	field   func(*Config) any // pointer to the key's field: string, int, int64, float64, Interval, bool, Bytes, []string, []float64, []data.Set, []LRGroup, Toggle, ModelRef, map[string]any

	choices   []string          // allowed values of a string; nil: any
	spellings map[string]string // other tools' words for choices, mapped to mt's words
	auto      bool              // numbers: "auto" is allowed and stored as 0
	limit     limit             // range of a number
	commas    bool              // lists: text splits at every comma; false: commas inside a glob's braces do not split
	patterns  bool              // lists: text holds regular expressions; commas inside brackets do not split
	whole     bool              // lists: text is a single item, commas included
	vars      bool              // paths: expand ${NAME} and a leading ~
	anew      bool              // auto is resolved again at every start, also of a resumed run, from the machine; the value changes no result
}

// limit is the allowed range of a number, with both bounds included unless open or below says otherwise. why gives the
// reason, for error messages.
type limit struct {
	min, max float64
	open     bool // min itself is excluded
	below    bool // max itself is excluded
	why      string
}

// aboutMax reports whether l.why explains the bound max; otherwise l.why explains min.
func (l limit) aboutMax() bool { return l.below || l.open && !math.IsInf(l.max, 1) }

func atLeast(min float64, why string) limit { return limit{min: min, max: math.Inf(1), why: why} }

func between(min, max float64, why string) limit { return limit{min: min, max: max, why: why} }

var positive = limit{max: math.Inf(1), open: true}

// section is a group of keys under one title in help and printed configs.
type section struct {
	title string
	keys  []key
}

var dtypes = map[string]string{
	"bfloat16": "bf16", "torch.bfloat16": "bf16", "float32": "fp32", "torch.float32": "fp32", "float": "fp32",
}

// sections is the table of all keys, in the order they are printed.
var sections = []section{
	{"Model", []key{
		{name: modelKey, common: true, aliases: []string{"model", "base_model"}, part: PartModel,
			doc:   "Hugging Face directory, or Hub id in the local cache. `model:` also takes a preset or an inline config, trained from scratch",
			field: func(c *Config) any { return &c.Model }},
		{name: "add_tokens", part: PartModel, commas: true, doc: "Tokens to add to the vocabulary",
			field: func(c *Config) any { return &c.AddTokens }},
		{name: "new_special_tokens", aliases: []string{"add_special_tokens"}, part: PartModel, commas: true,
			doc:   "Special tokens to add. Decoded text omits them",
			field: func(c *Config) any { return &c.NewSpecialTokens }},
		{name: specialTokensKey, part: PartModel, doc: "Roles of tokens, such as `{eos_token: \"</s>\", pad_token: ..., additional_special_tokens: [...]}`. Tokens missing from the vocabulary are added",
			field: func(c *Config) any { return &c.SpecialTokens }},
		{name: "resize_vocab", part: PartModel, doc: "Grow the embedding and the head when the tokenizer has more tokens than they have rows",
			field: func(c *Config) any { return &c.ResizeVocab }},
		{name: "resize_vocab_to_multiple_of", part: PartModel, doc: "resize_vocab rounds the number of rows up to a multiple of this number",
			limit: between(1, 1<<16, ""), field: func(c *Config) any { return &c.ResizeVocabMultiple }},
	}},
	{"Data", dataKeys},
	{"Length of the run", []key{
		{name: "per_device_train_batch_size", common: true, aliases: []string{"micro_batch_size", "batch_size"}, part: PartRows,
			doc:   "Rows per step, multiplied by gradient_accumulation_steps. Only the product matters",
			limit: between(1, 1<<20, ""), field: func(c *Config) any { return &c.PerDeviceTrainBatchSize }},
		{name: "gradient_accumulation_steps", common: true, part: PartRows, doc: "Factor of per_device_train_batch_size",
			limit: between(1, 1<<20, ""), field: func(c *Config) any { return &c.GradientAccumulationSteps }},
		{name: "max_steps", common: true, aliases: []string{"num_steps"}, part: PartSchedule,
			doc:   "Number of steps. -1: num_train_epochs decides",
			limit: atLeast(-1, "-1 means that num_train_epochs decides"), field: func(c *Config) any { return &c.MaxSteps }},
		{name: "num_train_epochs", common: true, aliases: []string{"num_epochs"}, doc: "Passes over the data when max_steps is not given",
			limit: positive, field: func(c *Config) any { return &c.NumTrainEpochs }},
	}},
	{"Optimizer and schedule", optimKeys},
	{"Output", outputKeys},
	{"Machine", machineKeys},
}

const (
	modelKey     = "model_name_or_path"
	pipelineKey  = "pipeline"
	dashboardKey = "dashboard"
)

var dataKeys = []key{
	{name: "dataset", common: true, part: PartDataset, doc: "Training data: files, folders (their train split), globs, names of dataset_info.json, or Hub data sets in the local cache. `${NAME}` is an environment variable",
		field: func(c *Config) any { return &c.Dataset }},
	{name: "datasets", part: PartDataset, doc: "Data sets with keys of their own, such as `{path: ORG/NAME, type: alpaca, split: 'train[:10%]'}`. Replaces dataset",
		field: func(c *Config) any { return &c.Datasets }},
	{name: "dataset_dir", part: PartDataset, doc: "Folder of dataset_info.json and of relative names in dataset and eval_dataset",
		field: func(c *Config) any { return &c.DatasetDir }},
	{name: "dataset_format", part: PartDataset, doc: "Format of the rows. auto: file name (.jsonl, .json, .csv, .tsv, .parquet, .arrow, also with .gz, .bz2, .xz or .zst; other files are text), then the first row's columns: messages, conversations, instruction and output, prompt and completion (or response), input_ids, text, or chosen and rejected",
		choices: data.Formats, spellings: map[string]string{"json": "jsonl", "openai": "messages", "chatml": "messages", "prompt-completion": "prompt_completion", "tsv": "csv"},
		field: func(c *Config) any { return &c.DatasetFormat }},
	{name: "text_column", aliases: []string{"dataset_text_field"}, part: PartDataset, doc: "Column of texts. Empty: `text`",
		field: func(c *Config) any { return &c.TextColumn }},
	{name: "messages_column", part: PartDataset, doc: "Column of chat messages. Empty: `messages`, `conversations` or `conversation`",
		field: func(c *Config) any { return &c.MessagesColumn }},
	{name: "prompt_column", part: PartDataset, doc: "Column of prompts. Empty: `prompt`, or Alpaca's `instruction`",
		field: func(c *Config) any { return &c.PromptColumn }},
	{name: "response_column", part: PartDataset, doc: "Column of answers. Empty: `completion`, `response` or `output`",
		field: func(c *Config) any { return &c.ResponseColumn }},
	{name: "mix_strategy", part: PartDataset, doc: "Order of several data sets. concat: one after another; interleave_under, interleave_over: rows of each in turn, until the first or the last data set ends",
		choices: data.Mixes, field: func(c *Config) any { return &c.MixStrategy }},
	{name: "interleave_probs", part: PartDataset, doc: "Share of each data set when interleaved. Empty: equal",
		limit: limit{max: 1, open: true, why: "shares sum to 1"}, field: func(c *Config) any { return &c.InterleaveProbs }},
	{name: "max_samples", part: PartDataset, doc: "Maximum number of documents per data set, from its start. 0: all",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.MaxSamples }},
	{name: "skip_bad_rows", part: PartDataset, doc: "Count and skip unreadable rows. false: the first one is an error",
		field: func(c *Config) any { return &c.SkipBadRows }},
	{name: "eval_dataset", common: true, doc: "Like dataset, for evaluation. A folder with splits gives validation, otherwise test",
		field: func(c *Config) any { return &c.EvalDataset }},
	{name: "eval_datasets", aliases: []string{"test_datasets"}, part: PartDataset, doc: "Like datasets, for evaluation. Replaces eval_dataset",
		field: func(c *Config) any { return &c.EvalDatasets }},
	{name: "val_size", common: true, aliases: []string{"val_set_size", "split_dataset_ratio"}, part: PartDataset,
		doc:   "Rows of dataset held out for evaluation: a share if below 1, otherwise a number",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.ValSize }},
	{name: "max_seq_len", common: true, aliases: []string{"cutoff_len", "sequence_len", "max_length"}, part: PartDataset,
		doc:   "Tokens per row. For pairs of answers: tokens of the prompt with either answer",
		limit: between(2, 1<<30, "a token is predicted from earlier tokens"), field: func(c *Config) any { return &c.MaxSeqLen }},
	{name: "packing", aliases: []string{"sample_packing"}, part: PartDataset,
		doc: "Pack several documents into one row. auto: text and chats, not pairs", field: func(c *Config) any { return &c.Packing }},
	{name: "train_on_prompt", aliases: []string{"train_on_inputs"}, part: PartDataset,
		doc: "Train on the prompts of chats too", field: func(c *Config) any { return &c.TrainOnPrompt }},
	{name: "mask_history", part: PartDataset, doc: "Train only on the assistant's last turn of a chat",
		field: func(c *Config) any { return &c.MaskHistory }},
	{name: "template", common: true, part: PartDataset, doc: "Chat template: a Jinja file, Jinja text, a directory or Hub id with a tokenizer, or a built-in name (chatml, stanford_alpaca, or LLaMA-Factory's, such as qwen3, llama3, default). Empty: the model's",
		field: func(c *Config) any { return &c.Template }},
	{name: "chat_template_kwargs", part: PartDataset, doc: "Variables of the chat template, such as `{enable_thinking: false}`. A row's own variables win",
		field: func(c *Config) any { return &c.ChatTemplateKwargs }},
	{name: "enable_thinking", part: PartDataset, doc: "Short for `chat_template_kwargs: {enable_thinking: ...}`. auto: the template's default",
		field: func(c *Config) any { return &c.EnableThinking }},
	{name: "shuffle", part: PartDataset, doc: "Shuffle the rows. false: file order",
		field: func(c *Config) any { return &c.Shuffle }},
	{name: "seed", part: PartDataset, doc: "Random seed of row order, new weights and samples",
		limit: between(0, 1<<53, ""), field: func(c *Config) any { return &c.Seed }},
	{name: "cache_dir", doc: "Folder of token caches. Empty: the user's cache folder",
		field: func(c *Config) any { return &c.CacheDir }},
}

// optimizers maps names in Hugging Face, PyTorch, torchao, bitsandbytes and DeepSpeed to the mt optimizer with the
// same arithmetic.
var optimizers = map[string]string{
	"adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_hf": "adamw", "torch.optim.adamw": "adamw", "paged_adamw": "adamw",
	"paged_adamw_32bit": "adamw", "bitsandbytes.optim.adamw": "adamw", "bitsandbytes.optim.pagedadamw": "adamw", "deepspeedcpuadam": "adamw",
	"adamw_bnb_8bit": "adamw_8bit", "adamw_torch_8bit": "adamw_8bit", "adamw8bit": "adamw_8bit", "paged_adamw_8bit": "adamw_8bit",
	"torchao.optim.adamw8bit": "adamw_8bit", "bitsandbytes.optim.adamw8bit": "adamw_8bit", "bitsandbytes.optim.pagedadamw8bit": "adamw_8bit",
	"adamw_torch_4bit": "adamw_4bit", "adamw4bit": "adamw_4bit", "torchao.optim.adamw4bit": "adamw_4bit",
	"lion_32bit": "lion", "paged_lion_32bit": "lion", "bitsandbytes.optim.lion": "lion", "deepspeedcpulion": "lion",
	"lion8bit": "lion_8bit", "paged_lion_8bit": "lion_8bit", "bitsandbytes.optim.lion8bit": "lion_8bit",
	"torch.optim.muon": "muon", "torch.optim.sgd": "sgd",
}

var optimKeys = []key{
	{name: "optim", common: true, aliases: []string{"optimizer"}, part: PartOptimizer, doc: "Optimizer",
		choices: []string{"adamw", "adamw_8bit", "adamw_4bit", "lion", "lion_8bit", "muon", "muon_8bit", "sgd"}, spellings: optimizers,
		field: func(c *Config) any { return &c.Optim }},
	{name: "muon_lr", part: PartUpdate, doc: "muon: peak learning rate of matrices. 0: learning_rate",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.MuonLR }},
	{name: "adam_lr", part: PartUpdate, doc: "muon: peak learning rate of all other tensors, which AdamW updates. 0: learning_rate",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.AdamLR }},
	{name: "momentum", part: PartUpdate, doc: "muon, sgd: momentum coefficient. sgd without this key: 0",
		limit: limit{max: 1, below: true, why: "with 1 the momentum never changes"}, field: func(c *Config) any { return &c.Momentum }},
	{name: "nesterov", part: PartUpdate, doc: "muon, sgd: Nesterov momentum. sgd without this key: false",
		field: func(c *Config) any { return &c.Nesterov }},
	{name: "ns_steps", part: PartUpdate, doc: "muon: Newton-Schulz iterations per matrix",
		limit: between(1, 99, ""), field: func(c *Config) any { return &c.NSSteps }},
	{name: "adjust_lr_fn", part: PartUpdate, doc: "muon: scaling of the learning rate by a matrix's shape, as in torch.optim.Muon",
		choices: []string{"original", "match_rms_adamw"}, field: func(c *Config) any { return &c.AdjustLR }},
	{name: "adam_beta1", part: PartUpdate, doc: "Decay of the first moment. lion: share of the momentum in the update's sign",
		limit: limit{max: 1, below: true, why: "with 1 a moment never changes"}, field: func(c *Config) any { return &c.AdamBeta1 }},
	{name: "adam_beta2", part: PartUpdate, doc: "Decay of the second moment. lion: decay of the momentum",
		limit: limit{max: 1, below: true, why: "with 1 a moment never changes"}, field: func(c *Config) any { return &c.AdamBeta2 }},
	{name: "adam_epsilon", part: PartUpdate, doc: "Added to the square root of the second moment",
		limit: positive, field: func(c *Config) any { return &c.AdamEpsilon }},
	{name: "freeze", part: PartModel, patterns: true, doc: "Tensors not to train: regular expressions that match anywhere in a tensor's checkpoint name, such as `model\\.layers\\.[0-7]\\.` or `embed_tokens`. A frozen parameter takes 2 bytes (4 in fp32), no state and no gradient. No backward runs below the lowest trained layer",
		field: func(c *Config) any { return &c.Freeze }},
	{name: "unfrozen_parameters", part: PartModel, patterns: true, doc: "Tensors to train, as regular expressions like those of freeze. All others are frozen",
		field: func(c *Config) any { return &c.Unfrozen }},
	{name: "weight_decay", part: PartUpdate, doc: "Weight decay of tensors with two or more dimensions. Decoupled, except for sgd",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.WeightDecay }},
	{name: "max_grad_norm", common: true, aliases: []string{"clip_grad_norm"}, part: PartUpdate,
		doc:   "Maximum gradient norm for clipping. 0: no clipping; each layer is updated when its gradient arrives",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.MaxGradNorm }},
	{name: "clip", part: PartUpdate, doc: "Norm that max_grad_norm bounds. global: norm of all gradients, which wait for it; layerwise: norm of each layer, which is updated when its gradient arrives",
		choices: []string{"global", "layerwise"}, field: func(c *Config) any { return &c.Clip }},
	{name: "label_smoothing_factor", part: PartUpdate, doc: "Label smoothing, as in torch.nn.CrossEntropyLoss. Evaluations do not use it",
		limit: limit{max: 1, below: true, why: "with 1 the targets have no effect"}, field: func(c *Config) any { return &c.LabelSmoothing }},
	{name: "z_loss_coef", part: PartUpdate, doc: "Coefficient of the squared log-sum-exp of each token's logits, added to the loss (PaLM: 1e-4). Evaluations do not use it",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.ZLoss }},
	{name: "train_mtp", part: PartModel, doc: "Train the module for multi-token prediction (DeepSeek-V3, GLM-4.5, MiMo, Qwen3-Next, Qwen3.5), which predicts the token after the next. It shares embedding and head with the model. false: the module is saved unchanged",
		field: func(c *Config) any { return &c.TrainMTP }},
	{name: "mtp_loss_weight", part: PartUpdate, doc: "With train_mtp: weight of the module's loss in the training loss. The default is that of the first 10T tokens of DeepSeek-V3, which then used 0.1",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.MTPLossWeight }},
	{name: "neftune_noise_alpha", part: PartUpdate, doc: "NEFTune (arXiv 2310.05914): noise of ±alpha/√(L·hidden_size) on the embeddings of a document of L tokens, in training only. Usual: 5 to 15. The noise depends only on seed, step and position in the step",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.NoiseAlpha }},
	{name: preferenceKey, part: PartUpdate, doc: "DPO training on pairs of answers: `{beta: 0.1, loss_type: sigmoid, label_smoothing: 0, rpo_alpha: 0, reference_model: DIR}`. Omitted keys have these values; the default reference_model is the starting model. loss_type: sigmoid, hinge or ipo. Empty: no DPO",
		field: func(c *Config) any { return &c.DPO }},
	{name: "learning_rate", common: true, part: PartSchedule, doc: "Peak learning rate",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.LearningRate }},
	{name: groupsKey, part: PartUpdate, doc: "Learning rates of some tensors, such as `[{name: embed, modules: [embed_tokens], lr: 1e-5}]`. modules: regular expressions like those of freeze. lr replaces learning_rate, muon_lr and adam_lr and follows the same schedule. weight_decay is optional",
		field: func(c *Config) any { return &c.LRGroups }},
	{name: "lr_scheduler_type", common: true, aliases: []string{"lr_scheduler"}, part: PartSchedule,
		doc: "Learning rate schedule after warm-up. wsd: constant, then decay. cosine_with_min_lr: cosine with a min_lr", choices: schedulers,
		spellings: map[string]string{"constant_with_warmup": "constant", "cosine_with_min_lr": "cosine",
			"warmup_stable_decay": "wsd"},
		field: func(c *Config) any { return &c.LRScheduler }},
	{name: kwargsKey, part: PartSchedule, doc: "Parameters of the schedule, such as `{num_cycles: 3}`, with Transformers' names and defaults. cosine: num_cycles (0.5), min_lr or min_lr_rate; cosine_warmup_with_min_lr: also warmup_lr_rate; cosine_with_restarts: num_cycles (1); polynomial: power (1.0), lr_end (1e-7); inverse_sqrt: timescale (the warm-up steps, otherwise 10000)",
		field: func(c *Config) any { return &c.LRSchedulerKwargs }},
	{name: "warmup_steps", part: PartSchedule, doc: "Warm-up steps, during which the learning rate rises from 0",
		limit: atLeast(0, "for a share of all steps give warmup_ratio"), field: func(c *Config) any { return &c.WarmupSteps }},
	{name: "warmup_ratio", common: true, part: PartSchedule, doc: "Warm-up steps as a share of all steps, when warmup_steps is 0",
		limit: between(0, 1, ""), field: func(c *Config) any { return &c.WarmupRatio }},
	{name: "min_lr_ratio", part: PartSchedule, doc: "Final learning rate as a share of learning_rate",
		limit: between(0, 1, ""), field: func(c *Config) any { return &c.MinLRRatio }},
	{name: "num_decay_steps", part: PartSchedule, doc: "wsd: decay steps. 0: decay_ratio decides",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.NumDecaySteps }},
	{name: "decay_ratio", part: PartSchedule, doc: "wsd: decay steps as a share of all steps",
		limit: between(0, 1, ""), field: func(c *Config) any { return &c.DecayRatio }},
	{name: "ema_decay", part: PartUpdate, doc: "Decay of an exponential moving average of the weights, such as 0.999. Takes 4 bytes per parameter; saved as a model in `ema` in output_dir. 0: none",
		limit: limit{max: 1, below: true, why: "with 1 the average never changes"}, field: func(c *Config) any { return &c.EMADecay }},
	{name: "ema_update_after_step", part: PartUpdate, doc: "Updates before the average begins. It begins with the weights after the next update",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.EMAAfter }},
	{name: "max_nonfinite_steps", part: PartOutput, doc: "Consecutive skipped steps after which the run fails. A step is skipped if its loss or gradient is not finite",
		limit: atLeast(1, ""), field: func(c *Config) any { return &c.MaxNonfiniteSteps }},
}

var outputKeys = []key{
	{name: "output_dir", common: true, vars: true, doc: "Folder of the model, checkpoints, metrics.jsonl and config.yaml",
		field: func(c *Config) any { return &c.OutputDir }},
	{name: "overwrite_output_dir", doc: "Write into an output_dir with a model or other conflicting files that mt did not write",
		field: func(c *Config) any { return &c.OverwriteOutputDir }},
	{name: "save_strategy", part: PartOutput, doc: "When to write checkpoints: every save_steps or every epoch, and at the end. no: never; an interrupted run is lost",
		choices: []string{"steps", "epoch", "no"}, spellings: map[string]string{"false": "no"}, field: func(c *Config) any { return &c.SaveStrategy }},
	{name: "save_steps", common: true, part: PartOutput, doc: "Steps between checkpoints. 0: only at the end",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.SaveSteps }},
	{name: "saves_per_epoch", part: PartOutput, doc: "Checkpoints per epoch of num_train_epochs. Sets save_steps",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.SavesPerEpoch }},
	{name: "save_only_model", part: PartOutput, doc: "Write checkpoints without optimizer state, and none at the end. The run cannot be resumed",
		field: func(c *Config) any { return &c.SaveOnlyModel }},
	{name: "keep_checkpoints", part: PartOutput, doc: "false: remove all checkpoints when the final model is written. The run cannot be extended",
		field: func(c *Config) any { return &c.KeepCheckpoints }},
	{name: "save_total_limit", part: PartOutput, doc: "Number of checkpoints to keep. 0: all",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.SaveTotalLimit }},
	{name: "save_dtype", part: PartOutput, doc: "Type of the saved weights. as_read: the final model has every tensor in the format it was read in (fp8 and MXFP4 with new scales); checkpoints are bf16", choices: []string{"bf16", "fp32", "as_read"}, spellings: dtypes,
		field: func(c *Config) any { return &c.SaveDType }},
	{name: "optimizer_zstd", part: PartOutput, doc: "Compress the optimizer state in checkpoints",
		field: func(c *Config) any { return &c.OptimizerZstd }},
	{name: "resume_from_checkpoint", vars: true, doc: "Checkpoint to resume from: a directory. auto: the newest in output_dir, if any; false: none",
		field: func(c *Config) any { return &c.Resume }},
	{name: "reset_data", doc: "Resume with the checkpoint's weights and moments, but start at the first row of dataset, which may be other data. Happens once",
		field: func(c *Config) any { return &c.ResetData }},
	{name: "reset_optimizer", doc: "Resume with the checkpoint's weights and zero moments. Happens once",
		field: func(c *Config) any { return &c.ResetOptimizer }},
	{name: "logging_steps", part: PartOutput, doc: "Steps per line of metrics.jsonl. Loss and speed are means over these steps",
		limit: positive, field: func(c *Config) any { return &c.LoggingSteps }},
	{name: "eval_strategy", aliases: []string{"evaluation_strategy"}, part: PartOutput, doc: "When to evaluate: every eval_steps (default: logging_steps) or every epoch, and at the end. no: never",
		choices: []string{"steps", "epoch", "no"}, spellings: map[string]string{"false": "no"}, field: func(c *Config) any { return &c.EvalStrategy }},
	{name: "eval_steps", common: true, part: PartOutput, doc: "Steps between evaluations. 0: only at the end",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.EvalSteps }},
	{name: "evals_per_epoch", part: PartOutput, doc: "Evaluations per epoch of num_train_epochs. Sets eval_steps",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.EvalsPerEpoch }},
	{name: "save_best", aliases: []string{"load_best_model_at_end"}, part: PartOutput, doc: "Write a checkpoint at every evaluation, keep the one with the lowest eval_loss beside save_total_limit, and make it the final model",
		field: func(c *Config) any { return &c.SaveBest }},
	{name: "early_stopping_patience", part: PartOutput, doc: "Stop after this many consecutive evaluations without a lower eval_loss. 0: never stop early",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.EarlyStoppingPatience }},
	{name: "early_stopping_threshold", part: PartOutput, doc: "Smallest decrease of eval_loss that counts, in nats per token",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.EarlyStoppingThreshold }},
	{name: "report_to", doc: "Loggers beside metrics.jsonl. tensorboard: event files in output_dir/runs; mlflow: the server of MLFLOW_TRACKING_URI; all: both, mlflow only if a server is named",
		choices: []string{"none", "tensorboard", "mlflow", "all"}, field: func(c *Config) any { return &c.ReportTo }},
	{name: "run_name", doc: "Name of the run in MLflow. Empty: the last folder of output_dir",
		field: func(c *Config) any { return &c.RunName }},
	{name: "trace", doc: "File for the run's timeline, for ui.perfetto.dev. A name in .gz is compressed. Empty: none",
		field: func(c *Config) any { return &c.Trace }},
	{name: dashboardKey, common: true, doc: "Serve a live page of the run. true: port 8383 of this machine; or PORT, HOST or HOST:PORT",
		field: func(c *Config) any { return &c.Dashboard }},
	{name: "sample_prompt", doc: "Prompt that the model continues at the end. Empty: none",
		field: func(c *Config) any { return &c.SamplePrompt }},
	{name: "sample_steps", part: PartOutput, doc: "Steps between samples of sample_prompts, which are printed and appended to samples.jsonl. 0: none",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.SampleSteps }},
	{name: "sample_prompts", whole: true, doc: "Prompts to continue; for chats, user messages. Empty: sample_prompt",
		field: func(c *Config) any { return &c.SamplePrompts }},
	{name: "sample_max_new_tokens", doc: "Maximum tokens of a sample",
		limit: between(1, 1<<20, ""), field: func(c *Config) any { return &c.SampleMaxNewTokens }},
	{name: "sample_temperature", doc: "Temperature of samples. 0: always the most likely token",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.SampleTemperature }},
	{name: "sample_top_k", doc: "Sample from the k most likely tokens. 0: all",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.SampleTopK }},
	{name: "sample_top_p", doc: "Sample from the most likely tokens with this total probability. 0 or 1: all",
		limit: between(0, 1, ""), field: func(c *Config) any { return &c.SampleTopP }},
	{name: "compare_bigram", doc: "At the end, print the evaluation loss of a bigram model of the same data",
		field: func(c *Config) any { return &c.CompareBigram }},
}

var machineKeys = []key{
	{name: "device", part: PartNumerics, doc: "Device that computes the layers. auto: a usable GPU, otherwise the CPU",
		choices: []string{"auto", "cpu", "cuda"}, field: func(c *Config) any { return &c.Device }},
	{name: devicesKey, aliases: []string{"gpus"}, doc: "Devices that share the layers: a number, or GPU indices such as [0, 2], counted after CUDA_VISIBLE_DEVICES. auto: all GPUs. On the CPU: devices that share its cores",
		field: func(c *Config) any { return &c.Devices }},
	{name: "device_rates", doc: "Rates of devices that differ, which share the layers in proportion: per device a file of mt doctor --save or a known GPU, as in rtx-4090,rtx-3090. auto: from the devices' names. The plan of one device uses them too",
		field: func(c *Config) any { return &c.DeviceRates }},
	{name: "peer_copies", doc: "Copy directly between devices where possible. false: copy through the host",
		field: func(c *Config) any { return &c.PeerCopies }},
	{name: "compute_dtype", part: PartNumerics, doc: "Type of activations and matrix products. auto: fp32 on cpu, bf16 on cuda",
		choices: []string{"auto", "bf16", "fp32"}, spellings: dtypes, field: func(c *Config) any { return &c.ComputeDType }},
	{name: "grad_dtype", part: PartNumerics, doc: "Type of gradients on the link and on the host. auto: fp32 if it fits",
		choices: []string{"auto", "bf16", "fp32"}, spellings: dtypes, field: func(c *Config) any { return &c.GradDType }},
	{name: "master_dtype", part: PartModel, doc: "Type of the master weights. bf16: no lower halves, stochastic rounding of every update; needs compute_dtype: bf16",
		choices: []string{"bf16", "fp32"}, spellings: dtypes, field: func(c *Config) any { return &c.MasterDType }},
	{name: "matmul", part: PartNumerics, doc: "Choice of the cuBLASLt algorithm. heuristic: its first proposal; timed: the fastest of up to eight, timed when a shape is first used",
		choices: []string{"heuristic", "timed"}, field: func(c *Config) any { return &c.MatMul }},
	{name: "attention_kernels", part: PartNumerics, doc: "Attention kernels of a GPU. sm90a: H100, H200 and GH200 only, driver for CUDA 12.4 or newer; portable: all GPUs; sm90a_fused and fused: the same, with one kernel for all gradients of heads of up to 128, which is faster and takes up to 160 MiB or one group of heads more; auto: sm90a_fused if all devices run them, otherwise fused",
		choices: []string{"auto", "fused", "portable", "sm90a", "sm90a_fused"}, field: func(c *Config) any { return &c.AttentionKernels }},
	{name: "recompute", doc: "Activations that the backward recomputes. full: all; none: as few as possible; auto: by block, from the available memory of device and host", anew: true,
		choices: []string{"auto", "full", "none"}, field: func(c *Config) any { return &c.Recompute }},
	{name: "hidden_states", doc: "Place of the layers' inputs. host: the device holds chunks of tokens and one group of key/value heads at a time, for rows that do not fit on it; auto: device, unless a row of more than 16,384 tokens does not fit", anew: true,
		choices: []string{"auto", "device", "host"}, field: func(c *Config) any { return &c.HiddenStates }},
	{name: "device_memory", doc: "Maximum device memory, such as 10GiB", auto: true, anew: true,
		limit: atLeast(1<<20, "is a unit missing, as in 10GiB?"), field: func(c *Config) any { return &c.DeviceMemory }},
	{name: "host_memory", common: true, doc: "Maximum host memory, such as 100GiB. With an integrated GPU such as GB10 it includes the GPU's memory", auto: true, anew: true,
		limit: atLeast(1<<20, "is a unit missing, as in 100GiB?"), field: func(c *Config) any { return &c.HostMemory }},
	{name: "state_dir", vars: true, commas: true, doc: "Folders on fast disks for state that exceeds host_memory: lower halves, moments, and gradients that wait for clipping. Empty: all in memory",
		field: func(c *Config) any { return &c.StateDir }},
	{name: "param_dir", vars: true, commas: true, doc: "Folders on fast disks for weights of decoder blocks that exceed host_memory. Needs state_dir. Empty: all in memory",
		field: func(c *Config) any { return &c.ParamDir }},
	{name: "compress", doc: "Lossless compression of states and weights in state_dir and param_dir. byteplane: fewer bytes, more work for the host's cores",
		choices: []string{"none", "byteplane"}, field: func(c *Config) any { return &c.Compress }},
	{name: "threads", doc: "Worker threads. auto: one per core", auto: true, anew: true,
		limit: between(1, 4096, "at least one thread computes"), field: func(c *Config) any { return &c.Threads }},
	{name: "binding", doc: "How the device reads weights. unified: in place; copy: from device copies; auto: unified on cpu and on integrated GPUs that read host memory at full speed",
		choices: []string{"auto", "unified", "copy"}, field: func(c *Config) any { return &c.Binding }},
	{name: "synchronous_updates", doc: "Finish all updates of a step before the next forward",
		field: func(c *Config) any { return &c.SynchronousUpdates }},
	{name: "micro_batch_order", part: PartNumerics, doc: "Order of micro-batches from layer to layer. zigzag: reversed each time, with fewer copies; lanes: always the same, with the same bits on any number of devices for the same pipeline.head_shards; auto: lanes on several devices or in several rounds, otherwise zigzag",
		choices: []string{"auto", "zigzag", "lanes"}, field: func(c *Config) any { return &c.MicroBatchOrder }},
	{name: "pipeline.weight_slots", doc: "Device buffers for layer weights", auto: true,
		limit: between(1, maxDepthValue, "a layer needs a slot for its weights"),
		field: func(c *Config) any { return &c.Pipeline.WeightSlots }},
	{name: "pipeline.grad_buffers", doc: "Device buffers for gradient accumulation", auto: true,
		limit: between(1, maxDepthValue, "a layer needs a buffer for its gradient"),
		field: func(c *Config) any { return &c.Pipeline.GradBuffers }},
	{name: "pipeline.grad_slabs", doc: "Host buffers for gradients. With clipping: one per layer, apart from gradients in state_dir, which share this many", auto: true,
		limit: between(1, maxDepthValue, "a gradient needs a host buffer"),
		field: func(c *Config) any { return &c.Pipeline.GradSlabs }},
	{name: "pipeline.activation_slots", doc: "Device buffers for hidden states of one micro-batch", auto: true, anew: true,
		limit: between(3, maxDepthValue, "one is read, one is written, one is arriving"),
		field: func(c *Config) any { return &c.Pipeline.ActivationSlots }},
	{name: "pipeline.rounds", doc: "Rounds of a step. Each takes some of its micro-batches forward and backward through all layers, so blocks keep more for the backward, and weights and gradients cross the link once for each round. More than one needs micro_batch_order: lanes. auto: as many as make steps shorter", auto: true, anew: true,
		limit: between(1, maxDepthValue, "a step has at least one round"),
		field: func(c *Config) any { return &c.Pipeline.Rounds }},
	{name: "pipeline.exchange_buffers", doc: "Host buffers for gradients of other ranks. Several ranks only", auto: true,
		limit: between(1, maxDepthValue, "gradients of other ranks need a host buffer"),
		field: func(c *Config) any { return &c.Pipeline.ExchangeBuffers }},
	{name: "pipeline.matrix_buffers", doc: "muon: buffers per device for matrices that host and device work on", auto: true,
		limit: between(1, maxDepthValue, "a matrix needs a buffer for its update"),
		field: func(c *Config) any { return &c.Pipeline.MatrixBuffers }},
	{name: "pipeline.state_slots", doc: "Host buffers to read, update and write the state of layers in state_dir", auto: true,
		limit: between(1, maxDepthValue, "a state needs a host buffer for its update"),
		field: func(c *Config) any { return &c.Pipeline.StateSlots }},
	{name: "pipeline.gathers_ahead", doc: "Layers whose updated weights ranks exchange at the same time. Several ranks only", auto: true,
		limit: between(1, maxDepthValue, "ranks exchange at least one layer at a time"),
		field: func(c *Config) any { return &c.Pipeline.GathersAhead }},
	{name: "pipeline.batches_ahead", doc: "Batches packed in advance", auto: true,
		limit: between(1, maxDepthValue, "a step needs a batch"),
		field: func(c *Config) any { return &c.Pipeline.BatchesAhead }},
	{name: "pipeline.micro_batch_tokens", part: PartNumerics, doc: "Tokens per micro-batch, in whole rows", auto: true,
		limit: between(1, 1<<30, "a micro-batch has at least one row"),
		field: func(c *Config) any { return &c.Pipeline.MicroBatchTokens }},
	{name: "pipeline.chunk_tokens", part: PartNumerics, doc: "Tokens per chunk of all operations but attention", auto: true,
		limit: between(1, 1<<30, "a chunk has at least one token"),
		field: func(c *Config) any { return &c.Pipeline.ChunkTokens }},
	{name: "pipeline.head_shards", part: PartNumerics, doc: "Shards of the vocabulary in the head. auto: 1 if it fits, and on several devices as many as shorten a step", auto: true,
		limit: between(1, maxDepthValue, "a head has at least one shard"),
		field: func(c *Config) any { return &c.Pipeline.HeadShards }},
}

const devicesKey = "devices"

// maxDepthValue is the largest value of a pipeline key. It is far above any useful depth, and no sum or product with
// it overflows.
const maxDepthValue = 1 << 20

// byName maps canonical names and aliases to keys.
var byName = func() map[string]*key {
	m := map[string]*key{}
	for s := range sections {
		for k := range sections[s].keys {
			p := &sections[s].keys[k]
			m[p.name] = p
			for _, a := range p.aliases {
				m[a] = p
			}
		}
	}
	return m
}()

// eachKey calls f for every key, in printing order.
func eachKey(f func(k *key)) {
	for s := range sections {
		for k := range sections[s].keys {
			f(&sections[s].keys[k])
		}
	}
}

// isPipeline reports whether k stands under `pipeline:`.
func (k *key) isPipeline() bool { return strings.HasPrefix(k.name, pipelineKey+".") }

// anyConfig is a Config that serves only to find out the types of its fields; nothing reads its values.
var anyConfig Config

// isSwitch reports whether the flag of k may stand without a value.
func (k *key) isSwitch() bool {
	if k.name == dashboardKey {
		return true
	}
	switch k.field(&anyConfig).(type) {
	case *bool, *Toggle:
		return true
	}
	return false
}

// isMapping reports whether the value of k is a mapping.
func (k *key) isMapping() bool {
	_, ok := k.field(&anyConfig).(*map[string]any)
	return ok
}
