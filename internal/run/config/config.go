package config

import (
	"strconv"

	"github.com/dustin/go-humanize"

	"mt/data"
)

// Bytes is an amount of memory. Where a key allows "auto", 0 means auto.
type Bytes int64

// String formats b in a binary unit, rounded: "10 GiB".
func (b Bytes) String() string {
	if b < 0 {
		return "-" + humanize.IBytes(uint64(-b))
	}
	return humanize.IBytes(uint64(b))
}

// exact formats b for a config file, exact to the byte.
func (b Bytes) exact() string {
	units := []string{"", "KiB", "MiB", "GiB", "TiB"}
	n, u := int64(b), 0
	for u < len(units)-1 && n != 0 && n%1024 == 0 {
		n /= 1024
		u++
	}
	return strconv.FormatInt(n, 10) + units[u]
}

// Toggle is a switch with a third value, Auto: mt then chooses.
type Toggle string

// The values of a Toggle.
const (
	Auto Toggle = "auto"
	On   Toggle = "true"
	Off  Toggle = "false"
)

// ModelRef says which model to train. Once a model was given, exactly one field is set.
type ModelRef struct {
	// Path is a local Hugging Face directory or a Hub id (see ModelDir), whose weights are loaded.
	Path string
	// Preset names an architecture to train from scratch.
	Preset string
	// Inline is a config.json inside the config file, to train from scratch. Its values are nil, bool, int64,
	// float64, string, []any and map[string]any.
	Inline map[string]any
}

// Set reports whether a model was given.
func (m ModelRef) Set() bool { return m.Path != "" || m.Preset != "" || m.Inline != nil }

// Pipeline holds the pipeline's depths and sizes. Zero is "auto".
type Pipeline struct {
	WeightSlots      int // device buffers for a layer's weights, at least 1
	GradBuffers      int // device buffers that sum gradients over micro-batches, at least 1
	GradSlabs        int // host buffers that gradients are copied into, at least 1
	Rounds           int // rounds of a step
	ActivationSlots  int // device buffers for one micro-batch's hidden states, at least 3
	BatchesAhead     int // batches packed in advance, at least 1
	ExchangeBuffers  int // several ranks: host buffers for gradients from other ranks, at least 1
	MatrixBuffers    int // muon: buffers per device for matrices on their way between host and device, at least 1
	StateSlots       int // host buffers for layer states that live on disk, at least 1
	GathersAhead     int // several ranks: layers whose weights are gathered from the ranks at the same time, at least 1
	MicroBatchTokens int // tokens of a micro-batch, at least 1; a micro-batch goes through a layer in one launch
	ChunkTokens      int // tokens that all stages but attention process at a time, at least 1
	HeadShards       int // vocabulary ranges that the head is split into, at least 1
}

// Config holds every key of a run. A field's comment gives its key where the key is not the field's name in snake
// case. The table in keys.go has the meanings and limits.
type Config struct {
	Model            ModelRef // model_name_or_path or model
	AddTokens        []string
	NewSpecialTokens []string
	// SpecialTokens maps names to tokens, see NamedTokens, and additional_special_tokens to a list of tokens.
	SpecialTokens       map[string]any
	ResizeVocab         bool
	ResizeVocabMultiple int // resize_vocab_to_multiple_of

	Dataset       []string // files, directories, globs
	DatasetDir    string   // folder for relative names in Dataset and EvalDataset
	DatasetFormat string   // one of data.Formats
	// Datasets and EvalDatasets are data sets with keys of their own. They replace Dataset and EvalDataset.
	Datasets, EvalDatasets []data.Set
	// Column names of the rows; empty: the usual names.
	TextColumn, MessagesColumn, PromptColumn, ResponseColumn string

	EvalDataset   []string
	ValSize       float64 // below 1 a share of the rows, otherwise a number of rows; 0: none
	MaxSeqLen     int     // tokens per row
	Packing       Toggle
	TrainOnPrompt bool
	MaskHistory   bool
	Template      string // chat template: a file or a built-in name; empty: the model's
	SkipBadRows   bool
	MaxSamples    int64 // per entry of Dataset; 0: all
	// MixStrategy is concat, interleave_under or interleave_over. InterleaveProbs has each data set's share; empty:
	// equal shares.
	MixStrategy     string
	InterleaveProbs []float64
	Shuffle         bool
	CacheDir        string // token caches; empty: the user's cache folder

	// ChatTemplateKwargs are variables of the chat template: nil, bool, int64, float64, string, []any and
	// map[string]any. EnableThinking sets one of them.
	ChatTemplateKwargs map[string]any
	EnableThinking     Toggle

	PerDeviceTrainBatchSize   int
	GradientAccumulationSteps int
	MaxSteps                  int     // 0: NumTrainEpochs decides
	NumTrainEpochs            float64 // passes over the data

	LearningRate  float64
	LRScheduler   string  // lr_scheduler_type; one of schedulers
	WarmupSteps   int     // 0: WarmupRatio decides
	WarmupRatio   float64 // share of all steps, rounded up
	MinLRRatio    float64 // lowest learning rate / peak learning rate; see method lowest
	NumDecaySteps int     // wsd: steps of the decay; 0: DecayRatio decides
	DecayRatio    float64 // wsd: share of all steps, rounded up
	// LRSchedulerKwargs are numbers of the schedule under their names in Transformers.
	LRSchedulerKwargs map[string]any
	Optim             string  // adamw, adamw_8bit, adamw_4bit, lion, lion_8bit, muon, sgd
	MuonLR            float64 // 0: LearningRate
	AdamLR            float64 // 0: LearningRate
	Momentum          float64 // momentum coefficient; muon, sgd
	Nesterov          bool
	NSSteps           int
	AdjustLR          string // adjust_lr_fn: original, match_rms_adamw
	AdamBeta1         float64
	AdamBeta2         float64
	AdamEpsilon       float64
	WeightDecay       float64
	MaxGradNorm       float64 // 0: no clipping
	Clip              string  // scope of MaxGradNorm: global, layerwise
	LRGroups          []LRGroup
	EMADecay          float64 // decay of the weights' moving average; 0: no average
	EMAAfter          int     // ema_update_after_step
	// Freeze and Unfrozen are regular expressions for names of tensors. Tensors that match Freeze are not trained, nor
	// are those that match none of Unfrozen if it is given. See model.Freeze.
	Freeze, Unfrozen []string
	// LabelSmoothing and ZLoss are the weights of two terms that the training loss adds to −log p; see op.LossTerms.
	LabelSmoothing, ZLoss float64
	// TrainMTP trains the module for multi-token prediction, whose loss counts MTPLossWeight times.
	TrainMTP      bool
	MTPLossWeight float64
	NoiseAlpha    float64 // alpha of op.Noise, the noise on embeddings; 0: no noise
	// DPO holds the keys under `dpo:` as given; nil: no preference training. Method Preference parses them.
	DPO map[string]any

	OutputDir          string
	OverwriteOutputDir bool
	SaveStrategy       string   // steps, epoch, no
	SaveSteps          Interval // 0: only at the end
	SavesPerEpoch      int      // 0: SaveSteps decides; otherwise check derives SaveSteps from it
	SaveOnlyModel      bool     // checkpoints without optimizer state
	KeepCheckpoints    bool     // keep checkpoints after the final model is written
	SaveTotalLimit     int      // checkpoints kept; 0: all
	SaveDType          string
	OptimizerZstd      bool
	Resume             string // resume_from_checkpoint: "auto", "false" or a directory
	ResetData          bool
	ResetOptimizer     bool
	LoggingSteps       Interval
	EvalStrategy       string   // steps, epoch, no
	EvalSteps          Interval // 0: only at the end
	EvalsPerEpoch      int      // 0: EvalSteps decides; otherwise check derives EvalSteps from it
	ReportTo           []string
	Trace              string // a file; empty: none
	Dashboard          string // an address; "auto": the default one; empty: none
	MaxNonfiniteSteps  int
	Seed               int64
	SamplePrompt       string
	CompareBigram      bool

	RunName                string // name on dashboards and MLflow; empty: the last folder of OutputDir
	SaveBest               bool
	EarlyStoppingPatience  int      // evaluations; 0: off
	EarlyStoppingThreshold float64  // nats per token
	SampleSteps            Interval // 0: never
	SamplePrompts          []string
	SampleMaxNewTokens     int
	SampleTemperature      float64
	SampleTopK             int     // 0: all
	SampleTopP             float64 // 0 or 1: all

	Device             string // auto, cpu, cuda
	ComputeDType       string // auto, bf16, fp32
	GradDType          string // auto, bf16, fp32
	MasterDType        string // bf16, fp32
	DeviceMemory       Bytes  // 0: auto
	HostMemory         Bytes  // 0: auto
	StateDir           []string
	ParamDir           []string
	Recompute          string // auto, full, none
	HiddenStates       string // auto, device, host
	Binding            string // auto, unified, copy
	SynchronousUpdates bool
	PeerCopies         bool
	Compress           string // none, byteplane
	MicroBatchOrder    string // auto, zigzag, lanes
	MatMul             string // heuristic, timed
	AttentionKernels   string // auto, fused, portable, sm90a, sm90a_fused
	DeviceRates        string // auto, or a value that rates.Find understands
	Devices            string // auto, a number, or a list of GPUs such as [0, 2]; see DeviceList
	Threads            int    // 0: all cores
	Pipeline           Pipeline

	// SchedulePosition says at which step the learning-rate schedule starts; see its type.
	SchedulePosition SchedulePosition

	// Warnings are shown to the user once, before the run starts.
	Warnings []string

	file    string               // the config file's name, for errors that have no line
	sources map[string]keySource // canonical name → where the key was given
}

// keySource records where a key was given and the name that the user wrote.
type keySource struct {
	spelled string
	pos     Pos
}

// Default returns the configuration before any key is given. A key that shares its name with a field of
// transformers.TrainingArguments has that field's default, except logging_steps.
func Default() *Config {
	return &Config{
		ResizeVocabMultiple: 64, DatasetFormat: "auto", MixStrategy: "concat", MaxSeqLen: 2048, Packing: Auto, EnableThinking: Auto, Shuffle: true,
		PerDeviceTrainBatchSize: 8, GradientAccumulationSteps: 1, NumTrainEpochs: 3,
		LearningRate: 5e-5, LRScheduler: "linear", DecayRatio: 0.1,
		Optim: "adamw", Momentum: 0.95, Nesterov: true, NSSteps: 5, AdjustLR: "original", AdamBeta1: 0.9, AdamBeta2: 0.999, AdamEpsilon: 1e-8, MTPLossWeight: 0.3, MaxGradNorm: 1, Clip: "global",
		OutputDir: "trainer_output", SaveStrategy: "steps", SaveSteps: 500, KeepCheckpoints: true, EvalStrategy: "steps", SaveDType: "bf16", Resume: "auto",
		LoggingSteps: 10, MaxNonfiniteSteps: 3, Seed: 42,
		SampleMaxNewTokens: 200, SampleTemperature: 0.7, SampleTopP: 0.95,
		Device: "auto", ComputeDType: "auto", GradDType: "auto", MasterDType: "fp32", Recompute: "auto", HiddenStates: "auto", Binding: "auto", MicroBatchOrder: "auto", MatMul: "heuristic", AttentionKernels: "auto", Compress: "none", Devices: "1", DeviceRates: "auto", PeerCopies: true,
		sources: map[string]keySource{},
	}
}

// RowsPerStep returns the number of rows of one optimizer update: per_device_train_batch_size ·
// gradient_accumulation_steps. mt uses the two keys only as this product.
func (c *Config) RowsPerStep() int { return c.PerDeviceTrainBatchSize * c.GradientAccumulationSteps }

// WaitsForNorm reports whether updates wait for the global gradient norm.
func (c *Config) WaitsForNorm() bool { return c.MaxGradNorm > 0 && c.Clip == "global" }

// Given reports whether the user gave the key in the file or as a flag. key is canonical: "pipeline.weight_slots".
func (c *Config) Given(key string) bool {
	_, ok := c.sources[key]
	return ok
}
