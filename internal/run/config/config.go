package config

import (
	"strconv"

	"github.com/dustin/go-humanize"

	"mt/data"
)

// Bytes is an amount of memory. Zero is "auto" where a key allows that.
type Bytes int64

// String is b in the binary unit that shows it well: "10 GiB".
func (b Bytes) String() string {
	if b < 0 {
		return "-" + humanize.IBytes(uint64(-b))
	}
	return humanize.IBytes(uint64(b))
}

// exact is b as it stands in a config file, to the byte.
func (b Bytes) exact() string {
	units := []string{"", "KiB", "MiB", "GiB", "TiB"}
	n, u := int64(b), 0
	for u < len(units)-1 && n != 0 && n%1024 == 0 {
		n /= 1024
		u++
	}
	return strconv.FormatInt(n, 10) + units[u]
}

// Toggle is a switch that can be left to mt.
type Toggle string

// The values of a Toggle.
const (
	Auto Toggle = "auto"
	On   Toggle = "true"
	Off  Toggle = "false"
)

// ModelRef says which model to train. Exactly one field is set once a model was
// given.
type ModelRef struct {
	// Path is a local Hugging Face directory or a Hub id, see ModelDir. Its weights are
	// loaded.
	Path string
	// Preset names an architecture, trained from scratch.
	Preset string
	// Inline is a config.json written into the config file, trained from
	// scratch. Its values are nil, bool, int64, float64, string, []any and
	// map[string]any.
	Inline map[string]any
}

// Set says whether a model was given.
func (m ModelRef) Set() bool { return m.Path != "" || m.Preset != "" || m.Inline != nil }

// Pipeline holds the depths of the pipeline's edges. Zero is "auto".
type Pipeline struct {
	WeightSlots      int // device buffers that hold a layer's weights, at least 1
	GradBuffers      int // device buffers that gradients are summed in, at least 1
	GradSlabs        int // host buffers that gradients land in, at least 1
	ActivationSlots  int // device buffers of one micro-batch's hidden states, at least 3
	BatchesAhead     int // batches packed before they are asked for, at least 1
	ExchangeBuffers  int // of several ranks: host buffers that other ranks' gradients come in, at least 1
	MatrixBuffers    int // of muon: buffers that a matrix is in between host and device, of each device, at least 1
	StateSlots       int // host buffers that hold a layer's state while that is on a disk, at least 1
	GathersAhead     int // of several ranks: layers whose weights are exchanged at once, at least 1
	MicroBatchTokens int // tokens of a micro-batch, which goes through a layer in one launch, at least 1
	ChunkTokens      int // tokens that everything but attention works on at a time, at least 1
	HeadShards       int // ranges of the vocabulary that the head is cut into, at least 1
}

// Config is everything a user can say about a run. Field comments give the key
// where the name does not; the table in keys.go gives meaning and limits.
type Config struct {
	Model            ModelRef // model_name_or_path or model
	AddTokens        []string
	NewSpecialTokens []string
	// SpecialTokens are tokens by their names, see NamedTokens, and a list of more.
	SpecialTokens       map[string]any
	ResizeVocab         bool
	ResizeVocabMultiple int // resize_vocab_to_multiple_of

	Dataset       []string // files, directories, globs
	DatasetDir    string   // folder that relative names of Dataset and EvalDataset are in
	DatasetFormat string   // one of data.Formats
	// Datasets and EvalDatasets are data sets with keys of their own, in place of Dataset
	// and EvalDataset.
	Datasets, EvalDatasets []data.Set
	// The names of the columns that rows have; empty: the usual ones.
	TextColumn, MessagesColumn, PromptColumn, ResponseColumn string

	EvalDataset   []string
	ValSize       float64 // below 1 a share of the rows, else their number; 0: none
	MaxSeqLen     int     // tokens of a row
	Packing       Toggle
	TrainOnPrompt bool
	MaskHistory   bool
	Template      string // chat template: a file, a built-in name; empty: the model's
	SkipBadRows   bool
	MaxSamples    int64 // of each of Dataset; 0: all
	// MixStrategy is concat, interleave_under or interleave_over, InterleaveProbs
	// the share of each of Dataset, if given.
	MixStrategy     string
	InterleaveProbs []float64
	Shuffle         bool
	CacheDir        string // token caches; empty: the user's cache folder

	// ChatTemplateKwargs are variables of the chat template: nil, bool, int64,
	// float64, string, []any and map[string]any. EnableThinking is one of them.
	ChatTemplateKwargs map[string]any
	EnableThinking     Toggle

	PerDeviceTrainBatchSize   int
	GradientAccumulationSteps int
	MaxSteps                  int     // 0: NumTrainEpochs decides
	NumTrainEpochs            float64 // passes over the data

	LearningRate  float64
	LRScheduler   string  // a name of schedulers (lr_scheduler_type)
	WarmupSteps   int     // counts when above 0
	WarmupRatio   float64 // of all steps, rounded up; counts when WarmupSteps is 0
	MinLRRatio    float64 // the lowest rate divided by LearningRate; see lowest
	NumDecaySteps int     // wsd: steps of the decay; 0: DecayRatio decides
	DecayRatio    float64 // wsd: of all steps, rounded up
	// LRSchedulerKwargs are numbers of the schedule, by the names Transformers has for them.
	LRSchedulerKwargs map[string]any
	Optim             string  // adamw, adamw_8bit, adamw_4bit, lion, lion_8bit, muon, sgd
	MuonLR            float64 // 0: LearningRate
	AdamLR            float64 // 0: LearningRate
	Momentum          float64 // muon, sgd
	Nesterov          bool
	NSSteps           int
	AdjustLR          string // adjust_lr_fn: original, match_rms_adamw
	AdamBeta1         float64
	AdamBeta2         float64
	AdamEpsilon       float64
	WeightDecay       float64
	MaxGradNorm       float64 // 0: no clipping
	Clip              string  // what MaxGradNorm bounds: global, layerwise
	LRGroups          []LRGroup
	EMADecay          float64 // of the average of weights that is kept; 0: none is
	EMAAfter          int     // ema_update_after_step
	// Freeze and Unfrozen are regular expressions; see model.Freeze.
	Freeze, Unfrozen []string
	// LabelSmoothing and ZLoss are what the losses of training have beside −log p; see op.LossTerms.
	LabelSmoothing, ZLoss float64
	NoiseAlpha            float64 // of op.Noise; 0: embeddings get none
	// DPO makes a run one that learns from pairs; see Preference.
	DPO map[string]any

	OutputDir          string
	OverwriteOutputDir bool
	SaveStrategy       string   // steps, epoch, no
	SaveSteps          Interval // 0: only at the end
	SavesPerEpoch      int      // 0: SaveSteps decides; check makes SaveSteps of it
	SaveOnlyModel      bool     // checkpoints without moments
	KeepCheckpoints    bool     // once the final model is written
	SaveTotalLimit     int      // checkpoints kept; 0: all
	SaveDType          string
	OptimizerZstd      bool
	Resume             string // resume_from_checkpoint: "auto", "false" or a directory
	ResetData          bool
	ResetOptimizer     bool
	LoggingSteps       Interval
	EvalStrategy       string   // steps, epoch, no
	EvalSteps          Interval // 0: at the end only
	EvalsPerEpoch      int      // 0: EvalSteps decides; check makes EvalSteps of it
	ReportTo           []string
	Trace              string // a file; empty: none
	Dashboard          string // an address; "auto": the default one; empty: none
	MaxNonfiniteSteps  int
	Seed               int64
	SamplePrompt       string
	CompareBigram      bool

	RunName                string // for boards; empty: the last folder of OutputDir
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
	AttentionKernels   string // auto, portable, sm90a
	DeviceRates        string // auto, or what rates.Find understands
	Devices            string // auto, a number, or a list of GPUs such as [0, 2]; see DeviceList
	Threads            int    // 0: all cores
	Pipeline           Pipeline

	// SchedulePosition says over which steps the learning rate's schedule lies.
	SchedulePosition SchedulePosition

	// Warnings are for the user to see, once, before the run starts.
	Warnings []string

	file    string               // the config file's name, for errors about the whole
	sources map[string]keySource // where each key was given, by canonical name
}

// keySource is where a key was given and how it was spelled there.
type keySource struct {
	spelled string
	pos     Pos
}

// Default is the configuration before any key is given. A key that has the name of one
// of transformers.TrainingArguments has the default of that, except logging_steps.
func Default() *Config {
	return &Config{
		ResizeVocabMultiple: 64, DatasetFormat: "auto", MixStrategy: "concat", MaxSeqLen: 2048, Packing: Auto, EnableThinking: Auto, Shuffle: true,
		PerDeviceTrainBatchSize: 8, GradientAccumulationSteps: 1, NumTrainEpochs: 3,
		LearningRate: 5e-5, LRScheduler: "linear", DecayRatio: 0.1,
		Optim: "adamw", Momentum: 0.95, Nesterov: true, NSSteps: 5, AdjustLR: "original", AdamBeta1: 0.9, AdamBeta2: 0.999, AdamEpsilon: 1e-8, MaxGradNorm: 1, Clip: "global",
		OutputDir: "trainer_output", SaveStrategy: "steps", SaveSteps: 500, KeepCheckpoints: true, EvalStrategy: "steps", SaveDType: "bf16", Resume: "auto",
		LoggingSteps: 10, MaxNonfiniteSteps: 3, Seed: 42,
		SampleMaxNewTokens: 200, SampleTemperature: 0.7, SampleTopP: 0.95,
		Device: "auto", ComputeDType: "auto", GradDType: "auto", MasterDType: "fp32", Recompute: "auto", HiddenStates: "auto", Binding: "auto", MicroBatchOrder: "auto", MatMul: "heuristic", AttentionKernels: "auto", Compress: "none", Devices: "1", DeviceRates: "auto", PeerCopies: true,
		sources: map[string]keySource{},
	}
}

// RowsPerStep is the number of rows of one optimizer update: only the product
// of per_device_train_batch_size and gradient_accumulation_steps counts.
func (c *Config) RowsPerStep() int { return c.PerDeviceTrainBatchSize * c.GradientAccumulationSteps }

// WaitsForNorm says whether no layer is updated before the norm of all gradients is known.
func (c *Config) WaitsForNorm() bool { return c.MaxGradNorm > 0 && c.Clip == "global" }

// Given says whether the user gave the key, by canonical name
// ("pipeline.weight_slots"), in the file or as a flag.
func (c *Config) Given(key string) bool {
	_, ok := c.sources[key]
	return ok
}
