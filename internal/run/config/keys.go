package config

import (
	"math"
	"strings"

	"mt/data"
)

// Part names the part of a run that a key decides. Resuming compares the checkpoint's config with the run's config
// part by part.
type Part string

// The parts of a run. Keys without a part may differ freely between a checkpoint and the run that resumes it.
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

// key is one row of the table.
type key struct {
	name    string
	aliases []string
	part    Part
	doc     string
	field   func(*Config) any // returns a pointer: string, int, int64, float64, Interval, bool, Bytes, []string, []float64, []data.Set, []LRGroup, Toggle, ModelRef, map[string]any

	choices   []string          // allowed values of a string; nil: any
	spellings map[string]string // other tools' names of choices, mapped to ours
	auto      bool              // numbers: "auto" is allowed and stored as 0
	limit     limit             // range of a number
	commas    bool              // lists: text splits at every comma; false: commas inside a glob's braces do not split
	patterns  bool              // lists: text holds regular expressions; commas inside brackets do not split
	whole     bool              // lists: text is a single item, commas included
	vars      bool              // paths: expand ${NAME} and a leading ~
	anew      bool              // if left to mt, every start chooses it again from the machine it finds; the choice changes no result
}

// limit is the allowed range of a number. why gives the reason, for error messages.
type limit struct {
	min, max float64
	open     bool // min itself is excluded
	below    bool // max itself is excluded
	why      string
}

// aboutMax reports whether why explains max; otherwise it explains min.
func (l limit) aboutMax() bool { return l.below || l.open && !math.IsInf(l.max, 1) }

func atLeast(min float64, why string) limit { return limit{min: min, max: math.Inf(1), why: why} }

func between(min, max float64, why string) limit { return limit{min: min, max: max, why: why} }

var positive = limit{max: math.Inf(1), open: true}

// section is a group of keys, as printed.
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
		{name: modelKey, aliases: []string{"model", "base_model"}, part: PartModel,
			doc:   "a Hugging Face directory or Hub id; `model:` also takes a preset or an inline config, trained from scratch",
			field: func(c *Config) any { return &c.Model }},
		{name: "add_tokens", part: PartModel, commas: true, doc: "tokens to add to the vocabulary",
			field: func(c *Config) any { return &c.AddTokens }},
		{name: "new_special_tokens", aliases: []string{"add_special_tokens"}, part: PartModel, commas: true,
			doc:   "special tokens to add, which are no text: a decoded answer is without them",
			field: func(c *Config) any { return &c.NewSpecialTokens }},
		{name: specialTokensKey, part: PartModel, doc: "which tokens begin and end texts and so on, as `{eos_token: \"<|im_end|>\", pad_token: ..., additional_special_tokens: [...]}`; those that the vocabulary does not have are added",
			field: func(c *Config) any { return &c.SpecialTokens }},
		{name: "resize_vocab", part: PartModel, doc: "give the embedding and the head more rows where the tokenizer has more tokens",
			field: func(c *Config) any { return &c.ResizeVocab }},
		{name: "resize_vocab_to_multiple_of", part: PartModel, doc: "what resize_vocab rounds the number of rows up to",
			limit: between(1, 1<<16, ""), field: func(c *Config) any { return &c.ResizeVocabMultiple }},
	}},
	{"Data", dataKeys},
	{"Length of the run", []key{
		{name: "per_device_train_batch_size", aliases: []string{"micro_batch_size", "batch_size"}, part: PartRows,
			doc:   "rows of a step, times gradient_accumulation_steps; only the product counts",
			limit: between(1, 1<<20, ""), field: func(c *Config) any { return &c.PerDeviceTrainBatchSize }},
		{name: "gradient_accumulation_steps", part: PartRows, doc: "see per_device_train_batch_size",
			limit: between(1, 1<<20, ""), field: func(c *Config) any { return &c.GradientAccumulationSteps }},
		{name: "max_steps", aliases: []string{"num_steps"}, part: PartSchedule,
			doc:   "steps of the run; -1: num_train_epochs decides",
			limit: atLeast(-1, "-1 leaves it to num_train_epochs"), field: func(c *Config) any { return &c.MaxSteps }},
		{name: "num_train_epochs", aliases: []string{"num_epochs"}, doc: "passes over the data, when max_steps is not given",
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
	{name: "dataset", part: PartDataset, doc: "files, directories (of one with splits: train), globs, names of dataset_info.json, or data sets of the Hub in the local cache; `${NAME}` is the environment's",
		field: func(c *Config) any { return &c.Dataset }},
	{name: "datasets", part: PartDataset, doc: "data sets with keys of their own, in place of dataset: a list of mappings such as `{path: ORG/NAME, type: alpaca, split: 'train[:10%]'}`",
		field: func(c *Config) any { return &c.Datasets }},
	{name: "dataset_dir", part: PartDataset, doc: "folder that relative names in dataset and eval_dataset are in, and dataset_info.json",
		field: func(c *Config) any { return &c.DatasetDir }},
	{name: "dataset_format", part: PartDataset, doc: "how rows are written; auto: by a file's name (.jsonl, .json, .csv, .tsv, .parquet, .arrow, also .gz, .bz2, .xz or .zst; all else is text) " +
		"and the columns of its first row: messages, conversations, instruction and output, prompt and completion (or response), input_ids, text, or chosen and rejected",
		choices: data.Formats, spellings: map[string]string{"json": "jsonl", "openai": "messages", "chatml": "messages", "prompt-completion": "prompt_completion", "tsv": "csv"},
		field: func(c *Config) any { return &c.DatasetFormat }},
	{name: "text_column", aliases: []string{"dataset_text_field"}, part: PartDataset, doc: "column of rows that are text; empty: `text`",
		field: func(c *Config) any { return &c.TextColumn }},
	{name: "messages_column", part: PartDataset, doc: "column of a chat's messages; empty: `messages`, `conversations` or `conversation`",
		field: func(c *Config) any { return &c.MessagesColumn }},
	{name: "prompt_column", part: PartDataset, doc: "column of prompts; empty: `prompt`, or Alpaca's `instruction`",
		field: func(c *Config) any { return &c.PromptColumn }},
	{name: "response_column", part: PartDataset, doc: "column of the answers to them; empty: `completion`, `response` or `output`",
		field: func(c *Config) any { return &c.ResponseColumn }},
	{name: "mix_strategy", part: PartDataset, doc: "several data sets one after the other, or a row of each in turn until the first (under) or the last (over) has come to its end",
		choices: data.Mixes, field: func(c *Config) any { return &c.MixStrategy }},
	{name: "interleave_probs", part: PartDataset, doc: "share of each of dataset when they are interleaved; empty: equal",
		limit: limit{max: 1, open: true, why: "shares sum up to 1"}, field: func(c *Config) any { return &c.InterleaveProbs }},
	{name: "max_samples", part: PartDataset, doc: "documents taken of each of dataset at most, from its start; 0: all",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.MaxSamples }},
	{name: "skip_bad_rows", part: PartDataset, doc: "count rows that cannot be read and go on; else the first is an error",
		field: func(c *Config) any { return &c.SkipBadRows }},
	{name: "eval_dataset", doc: "held-out data, as dataset; of a directory with splits: validation, else test",
		field: func(c *Config) any { return &c.EvalDataset }},
	{name: "eval_datasets", aliases: []string{"test_datasets"}, part: PartDataset, doc: "held-out data sets with keys of their own, in place of eval_dataset, as datasets",
		field: func(c *Config) any { return &c.EvalDatasets }},
	{name: "val_size", aliases: []string{"val_set_size", "split_dataset_ratio"}, part: PartDataset,
		doc:   "rows of dataset held out instead: below 1 their share, else their number",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.ValSize }},
	{name: "max_seq_len", aliases: []string{"cutoff_len", "sequence_len", "max_length"}, part: PartDataset,
		doc:   "tokens of a row; of a pair of answers, of the prompt with either of them",
		limit: between(2, 1<<30, "a token is predicted from those before it"), field: func(c *Config) any { return &c.MaxSeqLen }},
	{name: "packing", aliases: []string{"sample_packing"}, part: PartDataset,
		doc: "fill rows with several documents; auto: for text and chat, not for pairs", field: func(c *Config) any { return &c.Packing }},
	{name: "train_on_prompt", aliases: []string{"train_on_inputs"}, part: PartDataset,
		doc: "prompts of chats are supervised too", field: func(c *Config) any { return &c.TrainOnPrompt }},
	{name: "mask_history", part: PartDataset, doc: "only the assistant's last turn of a chat is supervised",
		field: func(c *Config) any { return &c.MaskHistory }},
	{name: "template", part: PartDataset, doc: "chat template: a Jinja file, a directory or Hub id with a tokenizer whose template is taken, the Jinja text itself, or a name that mt has: chatml, stanford_alpaca, or LLaMA-Factory's, such as qwen3, llama3 and default; empty: the model's",
		field: func(c *Config) any { return &c.Template }},
	{name: "chat_template_kwargs", part: PartDataset, doc: "variables handed to the chat template, as `{enable_thinking: false}`; a row's own win",
		field: func(c *Config) any { return &c.ChatTemplateKwargs }},
	{name: "enable_thinking", part: PartDataset, doc: "short for `chat_template_kwargs: {enable_thinking: ...}`; auto: the template's own default",
		field: func(c *Config) any { return &c.EnableThinking }},
	{name: "shuffle", part: PartDataset, doc: "false: rows in file order",
		field: func(c *Config) any { return &c.Shuffle }},
	{name: "seed", part: PartDataset, doc: "order of rows, new weights, samples",
		limit: between(0, 1<<53, ""), field: func(c *Config) any { return &c.Seed }},
	{name: "cache_dir", doc: "where token caches are kept; empty: the user's cache folder",
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
	{name: "optim", aliases: []string{"optimizer"}, part: PartOptimizer, doc: "the optimizer",
		choices: []string{"adamw", "adamw_8bit", "adamw_4bit", "lion", "lion_8bit", "muon", "muon_8bit", "sgd"}, spellings: optimizers,
		field: func(c *Config) any { return &c.Optim }},
	{name: "muon_lr", part: PartUpdate, doc: "muon: the highest rate of matrices; 0: learning_rate",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.MuonLR }},
	{name: "adam_lr", part: PartUpdate, doc: "muon: the highest rate of all else, which AdamW updates; 0: learning_rate",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.AdamLR }},
	{name: "momentum", part: PartUpdate, doc: "muon, sgd: what of the momentum stays in a step; of sgd 0 where it is not given",
		limit: limit{max: 1, below: true, why: "at 1 it never changes"}, field: func(c *Config) any { return &c.Momentum }},
	{name: "nesterov", part: PartUpdate, doc: "muon, sgd: a step looks ahead by the gradient; of sgd false where it is not given",
		field: func(c *Config) any { return &c.Nesterov }},
	{name: "ns_steps", part: PartUpdate, doc: "muon: Newton-Schulz iterations of a matrix",
		limit: between(1, 99, ""), field: func(c *Config) any { return &c.NSSteps }},
	{name: "adjust_lr_fn", part: PartUpdate, doc: "muon: how a matrix's rate follows from its shape, as in torch.optim.Muon",
		choices: []string{"original", "match_rms_adamw"}, field: func(c *Config) any { return &c.AdjustLR }},
	{name: "adam_beta1", part: PartUpdate, doc: "decay of the first moment; lion: its share in what the sign is taken of",
		limit: limit{max: 1, below: true, why: "at 1 a moment never changes"}, field: func(c *Config) any { return &c.AdamBeta1 }},
	{name: "adam_beta2", part: PartUpdate, doc: "decay of the second moment; lion: of its moment",
		limit: limit{max: 1, below: true, why: "at 1 a moment never changes"}, field: func(c *Config) any { return &c.AdamBeta2 }},
	{name: "adam_epsilon", part: PartUpdate, doc: "added to the root of the second moment",
		limit: positive, field: func(c *Config) any { return &c.AdamEpsilon }},
	{name: "freeze", part: PartModel, patterns: true, doc: "tensors that are not trained, by regular expressions that their names in the checkpoint match somewhere, such as `model\\.layers\\.[0-7]\\.` or `embed_tokens`. They stream and take 2 bytes a parameter (4 in fp32), no state and no gradient, and below the lowest layer that is trained there is no backward",
		field: func(c *Config) any { return &c.Freeze }},
	{name: "unfrozen_parameters", part: PartModel, patterns: true, doc: "the tensors that are trained, as freeze has them; all others are frozen",
		field: func(c *Config) any { return &c.Unfrozen }},
	{name: "weight_decay", part: PartUpdate, doc: "decoupled, but for sgd; tensors of two or more dimensions",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.WeightDecay }},
	{name: "max_grad_norm", aliases: []string{"clip_grad_norm"}, part: PartUpdate,
		doc:   "largest norm of all gradients; 0: no clipping, and layers update as gradients land",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.MaxGradNorm }},
	{name: "clip", part: PartUpdate, doc: "what max_grad_norm bounds. global: the norm of all gradients together, for which all of them wait; layerwise: that of each layer by itself, so that layers update as gradients land",
		choices: []string{"global", "layerwise"}, field: func(c *Config) any { return &c.Clip }},
	{name: "label_smoothing_factor", part: PartUpdate, doc: "the share of each target that goes to all tokens of the vocabulary alike, as in torch.nn.CrossEntropyLoss; the loss of steps has it, that of evaluations does not",
		limit: limit{max: 1, below: true, why: "at 1 nothing is learned from the targets"}, field: func(c *Config) any { return &c.LabelSmoothing }},
	{name: "z_loss_coef", part: PartUpdate, doc: "what the squared log-sum-exp of a token's logits is multiplied by and added to its loss (1e-4 in PaLM); the loss of steps has it, that of evaluations does not",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.ZLoss }},
	{name: "neftune_noise_alpha", part: PartUpdate, doc: "NEFTune (arXiv 2310.05914): embeddings of a document of L tokens get noise between ±alpha/√(L·hidden_size) in training, and none in evaluation and generation; 5 to 15 are usual. The noise follows from seed, step and place in the step alone",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.NoiseAlpha }},
	{name: preferenceKey, part: PartUpdate, doc: "train on pairs of answers by DPO: `{beta: 0.1, loss_type: sigmoid, label_smoothing: 0, rpo_alpha: 0, reference_model: DIR}`, of which those that are left out have these values, and reference_model the model that training starts from; loss_type is sigmoid, hinge or ipo. Empty: training is on tokens",
		field: func(c *Config) any { return &c.DPO }},
	{name: "learning_rate", part: PartSchedule, doc: "the highest rate of the schedule",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.LearningRate }},
	{name: groupsKey, part: PartUpdate, doc: "tensors with learning rates of their own, as `[{name: embed, modules: [embed_tokens], lr: 1e-5}]`: those that match one of modules, as freeze has expressions, take lr in place of learning_rate (and of muon_lr and adam_lr), under the same schedule, and weight_decay, if the group has one",
		field: func(c *Config) any { return &c.LRGroups }},
	{name: "lr_scheduler_type", aliases: []string{"lr_scheduler"}, part: PartSchedule,
		doc: "how the rate falls after warm-up (wsd: it stays, then decays); cosine_with_min_lr is cosine with a min_lr", choices: schedulers,
		spellings: map[string]string{"constant_with_warmup": "constant", "cosine_with_min_lr": "cosine",
			"warmup_stable_decay": "wsd"},
		field: func(c *Config) any { return &c.LRScheduler }},
	{name: kwargsKey, part: PartSchedule, doc: "numbers of the schedule, as `{num_cycles: 3}`, with Transformers' names and defaults. cosine: num_cycles (0.5), min_lr or min_lr_rate; cosine_warmup_with_min_lr: these, and warmup_lr_rate; cosine_with_restarts: num_cycles (1); polynomial: power (1.0), lr_end (1e-7); inverse_sqrt: timescale (the steps of warm-up, else 10000)",
		field: func(c *Config) any { return &c.LRSchedulerKwargs }},
	{name: "warmup_steps", part: PartSchedule, doc: "steps over which the rate rises from 0",
		limit: atLeast(0, "a share of the steps is warmup_ratio"), field: func(c *Config) any { return &c.WarmupSteps }},
	{name: "warmup_ratio", part: PartSchedule, doc: "the same as a share of all steps, when warmup_steps is 0",
		limit: between(0, 1, ""), field: func(c *Config) any { return &c.WarmupRatio }},
	{name: "min_lr_ratio", part: PartSchedule, doc: "where the rate ends, over learning_rate",
		limit: between(0, 1, ""), field: func(c *Config) any { return &c.MinLRRatio }},
	{name: "num_decay_steps", part: PartSchedule, doc: "wsd: steps of the decay; 0: decay_ratio decides",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.NumDecaySteps }},
	{name: "decay_ratio", part: PartSchedule, doc: "wsd: the decay as a share of all steps",
		limit: between(0, 1, ""), field: func(c *Config) any { return &c.DecayRatio }},
	{name: "ema_decay", part: PartUpdate, doc: "what stays in each update of an exponential moving average of the weights, such as 0.999, which the run keeps beside them at 4 bytes a parameter and saves as a model in `ema` in output_dir; 0: none is kept",
		limit: limit{max: 1, below: true, why: "at 1 it never changes"}, field: func(c *Config) any { return &c.EMADecay }},
	{name: "ema_update_after_step", part: PartUpdate, doc: "updates after which the average begins, as the weights are after the next one",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.EMAAfter }},
	{name: "max_nonfinite_steps", part: PartOutput, doc: "skipped steps in a row after which the run fails",
		limit: atLeast(1, ""), field: func(c *Config) any { return &c.MaxNonfiniteSteps }},
}

var outputKeys = []key{
	{name: "output_dir", vars: true, doc: "model, checkpoints, metrics.jsonl and config.yaml",
		field: func(c *Config) any { return &c.OutputDir }},
	{name: "overwrite_output_dir", doc: "write into an output_dir that holds a model, or other files in the way, that no run of mt made",
		field: func(c *Config) any { return &c.OverwriteOutputDir }},
	{name: "save_strategy", part: PartOutput, doc: "when checkpoints are written: after every save_steps, or every epoch, and at the end; no: never, and an interrupted run is lost",
		choices: []string{"steps", "epoch", "no"}, spellings: map[string]string{"false": "no"}, field: func(c *Config) any { return &c.SaveStrategy }},
	{name: "save_steps", part: PartOutput, doc: "steps between checkpoints; 0: only the one at the end",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.SaveSteps }},
	{name: "saves_per_epoch", part: PartOutput, doc: "checkpoints in each of num_train_epochs: save_steps as that share of all steps",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.SavesPerEpoch }},
	{name: "save_only_model", part: PartOutput, doc: "checkpoints without the optimizer's state, of which none is written at the end: nothing can be resumed",
		field: func(c *Config) any { return &c.SaveOnlyModel }},
	{name: "keep_checkpoints", part: PartOutput, doc: "false: with the final model written there are no checkpoints any more, and the run cannot be lengthened",
		field: func(c *Config) any { return &c.KeepCheckpoints }},
	{name: "save_total_limit", part: PartOutput, doc: "checkpoints kept; 0: all",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.SaveTotalLimit }},
	{name: "save_dtype", part: PartOutput, doc: "type of the saved weights", choices: []string{"bf16", "fp32"}, spellings: dtypes,
		field: func(c *Config) any { return &c.SaveDType }},
	{name: "optimizer_zstd", part: PartOutput, doc: "compress the optimizer's state in checkpoints",
		field: func(c *Config) any { return &c.OptimizerZstd }},
	{name: "resume_from_checkpoint", vars: true, doc: "auto: the newest in output_dir, if any; false: start afresh; or a directory",
		field: func(c *Config) any { return &c.Resume }},
	{name: "reset_data", doc: "go on with the checkpoint's weights and moments from the first row of dataset, which may be other data; once",
		field: func(c *Config) any { return &c.ResetData }},
	{name: "reset_optimizer", doc: "go on with the checkpoint's weights and with moments of zero; once",
		field: func(c *Config) any { return &c.ResetOptimizer }},
	{name: "logging_steps", part: PartOutput, doc: "steps between lines of metrics.jsonl; loss and speed there are means over them",
		limit: positive, field: func(c *Config) any { return &c.LoggingSteps }},
	{name: "eval_strategy", aliases: []string{"evaluation_strategy"}, part: PartOutput, doc: "when held-out data is evaluated: after every eval_steps (logging_steps where only this key is given), or every epoch, and at the end; no: never",
		choices: []string{"steps", "epoch", "no"}, spellings: map[string]string{"false": "no"}, field: func(c *Config) any { return &c.EvalStrategy }},
	{name: "eval_steps", part: PartOutput, doc: "steps between evaluations, with held-out data; 0: at the end only",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.EvalSteps }},
	{name: "evals_per_epoch", part: PartOutput, doc: "evaluations in each of num_train_epochs: eval_steps as that share of all steps",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.EvalsPerEpoch }},
	{name: "save_best", aliases: []string{"load_best_model_at_end"}, part: PartOutput, doc: "write a checkpoint at every evaluation, keep that of the lowest eval_loss beside save_total_limit, and make it the final model",
		field: func(c *Config) any { return &c.SaveBest }},
	{name: "early_stopping_patience", part: PartOutput, doc: "evaluations in a row without a lower eval_loss after which the run ends; 0: it does not end early",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.EarlyStoppingPatience }},
	{name: "early_stopping_threshold", part: PartOutput, doc: "by how much eval_loss must be lower to count, in nats per token",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.EarlyStoppingThreshold }},
	{name: "report_to", doc: "what is written beside metrics.jsonl. tensorboard: event files in output_dir/runs; mlflow: the server of MLFLOW_TRACKING_URI; all: each of them, mlflow where a server is named",
		choices: []string{"none", "tensorboard", "mlflow", "all"}, field: func(c *Config) any { return &c.ReportTo }},
	{name: "run_name", doc: "the run's name for mlflow; empty: that of output_dir's last folder",
		field: func(c *Config) any { return &c.RunName }},
	{name: "trace", doc: "a file to write the run's timeline into, for ui.perfetto.dev; compressed where its name ends in .gz; empty: none",
		field: func(c *Config) any { return &c.Trace }},
	{name: dashboardKey, doc: "serve a page that shows the run while it is under way; true: at port 8383 of this machine; or PORT, HOST or HOST:PORT",
		field: func(c *Config) any { return &c.Dashboard }},
	{name: "sample_prompt", doc: "at the end, print how the model continues this; empty: nothing",
		field: func(c *Config) any { return &c.SamplePrompt }},
	{name: "sample_steps", part: PartOutput, doc: "every so many steps, print how the model continues each of sample_prompts and append it to samples.jsonl; 0: never",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.SampleSteps }},
	{name: "sample_prompts", whole: true, doc: "what is continued; with chats, what the user says; empty: sample_prompt",
		field: func(c *Config) any { return &c.SamplePrompts }},
	{name: "sample_max_new_tokens", doc: "how long a sample is at most, in tokens",
		limit: between(1, 1<<20, ""), field: func(c *Config) any { return &c.SampleMaxNewTokens }},
	{name: "sample_temperature", doc: "how freely samples are drawn; 0: the most likely token each time",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.SampleTemperature }},
	{name: "sample_top_k", doc: "draw among the k most likely tokens; 0: among all",
		limit: atLeast(0, ""), field: func(c *Config) any { return &c.SampleTopK }},
	{name: "sample_top_p", doc: "draw among the most likely tokens that make up this share; 0 or 1: among all",
		limit: between(0, 1, ""), field: func(c *Config) any { return &c.SampleTopP }},
	{name: "compare_bigram", doc: "at the end, print the held-out loss of a bigram model of the same data",
		field: func(c *Config) any { return &c.CompareBigram }},
}

var machineKeys = []key{
	{name: "device", part: PartNumerics, doc: "where layers are computed; auto: a GPU that can be used, else the CPU",
		choices: []string{"auto", "cpu", "cuda"}, field: func(c *Config) any { return &c.Device }},
	{name: devicesKey, aliases: []string{"gpus"}, doc: "how many devices layers are shared out to: a number; auto: every GPU; or which GPUs, such as [0, 2], as CUDA_VISIBLE_DEVICES leaves them; on the CPU, so many that share its cores",
		field: func(c *Config) any { return &c.Devices }},
	{name: "device_rates", doc: "how fast each of several devices is that differ: a file of mt doctor --save or a GPU that mt knows for each, with commas between them, as in rtx-4090,rtx-3090; layers are shared out in proportion; auto: by the devices' names",
		field: func(c *Config) any { return &c.DeviceRates }},
	{name: "peer_copies", doc: "devices copy to each other where they can; false: what passes between them goes through the host",
		field: func(c *Config) any { return &c.PeerCopies }},
	{name: "compute_dtype", part: PartNumerics, doc: "activations and products; auto: fp32 on cpu, bf16 on cuda",
		choices: []string{"auto", "bf16", "fp32"}, spellings: dtypes, field: func(c *Config) any { return &c.ComputeDType }},
	{name: "grad_dtype", part: PartNumerics, doc: "gradients on the link and on the host; auto: fp32 where that fits",
		choices: []string{"auto", "bf16", "fp32"}, spellings: dtypes, field: func(c *Config) any { return &c.GradDType }},
	{name: "master_dtype", part: PartModel, doc: "the master weights that updates move; bf16: no lower halves are kept, and every update rounds by chance; needs compute_dtype: bf16",
		choices: []string{"bf16", "fp32"}, spellings: dtypes, field: func(c *Config) any { return &c.MasterDType }},
	{name: "matmul", part: PartNumerics, doc: "by which algorithm cuBLASLt computes a matrix product; heuristic: its first proposal; timed: of up to eight, the fastest when the shape is first used",
		choices: []string{"heuristic", "timed"}, field: func(c *Config) any { return &c.MatMul }},
	{name: "attention_kernels", part: PartNumerics, doc: "which kernels of a GPU compute attention, where both can; sm90a: those for H100, H200 and GH200 alone, with a driver for CUDA 12.4 or newer; portable: those for all GPUs; fused: these, with all gradients by one kernel, which is faster and takes up to 160 MiB or a group of heads more; auto: sm90a where all devices run them, else fused",
		choices: []string{"auto", "fused", "portable", "sm90a"}, field: func(c *Config) any { return &c.AttentionKernels }},
	{name: "recompute", doc: "what the backward computes again; full: all it reads; none: as little as can be; auto: chosen block by block, by the memory that there is", anew: true,
		choices: []string{"auto", "full", "none"}, field: func(c *Config) any { return &c.Recompute }},
	{name: "hidden_states", doc: "where the inputs of layers lie; host: the device has chunks of tokens and one group of key/value heads at a time, so that a row may be longer than fits on it; auto: on the device, unless a row of more than 16,384 tokens does not fit there", anew: true,
		choices: []string{"auto", "device", "host"}, field: func(c *Config) any { return &c.HiddenStates }},
	{name: "device_memory", doc: "device memory to use at most, such as 10GiB", auto: true, anew: true,
		limit: atLeast(1<<20, "is a unit missing, as in 10GiB?"), field: func(c *Config) any { return &c.DeviceMemory }},
	{name: "host_memory", doc: "host memory to use at most; with an integrated GPU, such as GB10, what the GPU takes counts too", auto: true, anew: true,
		limit: atLeast(1<<20, "is a unit missing, as in 100GiB?"), field: func(c *Config) any { return &c.HostMemory }},
	{name: "state_dir", vars: true, commas: true, doc: "directories on fast disks, for the lower halves and moments of layers that host_memory has no room for, and with clipping for gradients that wait for the norm; empty: all are in memory",
		field: func(c *Config) any { return &c.StateDir }},
	{name: "param_dir", vars: true, commas: true, doc: "directories on fast disks, for the weights of decoder blocks where host_memory has no room even for them; with state_dir; empty: all are in memory",
		field: func(c *Config) any { return &c.ParamDir }},
	{name: "compress", doc: "byteplane: states and weights in state_dir and param_dir are written in fewer bytes, for some of the host's cores; no bit is lost",
		choices: []string{"none", "byteplane"}, field: func(c *Config) any { return &c.Compress }},
	{name: "threads", doc: "worker threads; auto: one a core", auto: true, anew: true,
		limit: between(1, 4096, "somebody has to work"), field: func(c *Config) any { return &c.Threads }},
	{name: "binding", doc: "weights used in place or copied to the device; auto: unified on cpu and on a GPU without memory of its own that reads the host's as fast",
		choices: []string{"auto", "unified", "copy"}, field: func(c *Config) any { return &c.Binding }},
	{name: "synchronous_updates", doc: "wait for all updates of a step before the next forward",
		field: func(c *Config) any { return &c.SynchronousUpdates }},
	{name: "micro_batch_order", part: PartNumerics, doc: "in which order layers take the micro-batches. zigzag: each in the reverse order of the one before, so that less travels; lanes: all in one order, whose bits are the same on any number of devices; auto: zigzag on one device, lanes on several",
		choices: []string{"auto", "zigzag", "lanes"}, field: func(c *Config) any { return &c.MicroBatchOrder }},
	{name: "pipeline.weight_slots", doc: "device buffers for a layer's weights", auto: true,
		limit: between(1, maxDepthValue, "a layer computes from the slot its weights were brought to"),
		field: func(c *Config) any { return &c.Pipeline.WeightSlots }},
	{name: "pipeline.grad_buffers", doc: "device buffers that gradients are summed in", auto: true,
		limit: between(1, maxDepthValue, "a layer's gradient is summed on the device"),
		field: func(c *Config) any { return &c.Pipeline.GradBuffers }},
	{name: "pipeline.grad_slabs", doc: "host buffers that gradients land in; with clipping one a layer, but for those that wait in state_dir, which share as many", auto: true,
		limit: between(1, maxDepthValue, "a gradient has to land somewhere"),
		field: func(c *Config) any { return &c.Pipeline.GradSlabs }},
	{name: "pipeline.activation_slots", doc: "device buffers of one micro-batch's hidden states", auto: true, anew: true,
		limit: between(3, maxDepthValue, "one is read, one is written, one is arriving"),
		field: func(c *Config) any { return &c.Pipeline.ActivationSlots }},
	{name: "pipeline.exchange_buffers", doc: "host buffers that gradients of other ranks come in; of several ranks", auto: true,
		limit: between(1, maxDepthValue, "gradients of other ranks come in somewhere"),
		field: func(c *Config) any { return &c.Pipeline.ExchangeBuffers }},
	{name: "pipeline.matrix_buffers", doc: "muon: buffers that a matrix is in while host and device work on it, of each device", auto: true,
		limit: between(1, maxDepthValue, "a matrix is handed over in one"),
		field: func(c *Config) any { return &c.Pipeline.MatrixBuffers }},
	{name: "pipeline.state_slots", doc: "host buffers for the state of layers that are in state_dir, while it is read, updated and written", auto: true,
		limit: between(1, maxDepthValue, "a state is updated in memory"),
		field: func(c *Config) any { return &c.Pipeline.StateSlots }},
	{name: "pipeline.gathers_ahead", doc: "layers whose updated weights ranks exchange at once; of several ranks", auto: true,
		limit: between(1, maxDepthValue, "weights are put together layer by layer"),
		field: func(c *Config) any { return &c.Pipeline.GathersAhead }},
	{name: "pipeline.batches_ahead", doc: "batches packed before they are asked for", auto: true,
		limit: between(1, maxDepthValue, "a step needs a batch"),
		field: func(c *Config) any { return &c.Pipeline.BatchesAhead }},
	{name: "pipeline.micro_batch_tokens", part: PartNumerics, doc: "tokens that go through a layer at once, whole rows", auto: true,
		limit: between(1, 1<<30, "a micro-batch has at least one row"),
		field: func(c *Config) any { return &c.Pipeline.MicroBatchTokens }},
	{name: "pipeline.chunk_tokens", part: PartNumerics, doc: "tokens that all but attention works on at once", auto: true,
		limit: between(1, 1<<30, "a chunk has at least one token"),
		field: func(c *Config) any { return &c.Pipeline.ChunkTokens }},
	{name: "pipeline.head_shards", part: PartNumerics, doc: "ranges of the vocabulary that the head is cut into; auto: 1 where it fits", auto: true,
		limit: between(1, maxDepthValue, "a head has at least one part"),
		field: func(c *Config) any { return &c.Pipeline.HeadShards }},
}

const devicesKey = "devices"

// maxDepthValue is far above any useful depth and far below any overflow.
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

// anyConfig is a Config for finding out the types of its fields. Its values are never read.
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
