package plan

import (
	"mt/device"
	"mt/device/op"
	"mt/host/optim"
	"mt/layers/schedule"
	"mt/model"
)

// Request describes a run with open values. A zero value means "auto" unless the field's comment differs.
type Request struct {
	Config *model.Config
	// Act is the compute dtype, already resolved.
	Act   device.DType
	Noise op.Noise // noise added to embeddings in training
	// Terms has the terms of the loss besides −log p. Preference is the loss for training on preference pairs.
	Terms      op.LossTerms
	Preference op.PreferenceLoss
	// AheadWeight is the weight of multi-token prediction's loss, if the model has such a module (model.Config.Ahead).
	AheadWeight float64
	// BF16Master: weights have no lower halves (model.Layout.BF16Master).
	BF16Master bool
	// GradDType is "auto" (or empty), "fp32" or "bf16".
	GradDType string
	// Recompute is "auto" (or empty), "full" or "none".
	Recompute string
	// HiddenStates is the location of hidden states: "auto" (or empty), "device" or "host".
	HiddenStates string
	// Fused gives the backward of attention extra workspace, in which it sums the gradients of keys
	// and values (layers.Spec.Fused).
	Fused            bool
	MicroBatchTokens int
	ChunkTokens      int
	HeadShards       int
	Depths           Depths
	Rows, RowTokens  int // rows in a step, tokens in the longest row
	Positions        int // the longest document that the rotary tables support; 0: RowTokens
	Document         int // the most tokens of a document; 0: RowTokens
	Order            schedule.Order
	AnyOrder         bool // the run may have another order
	Rounds           int  // rounds of a step
	Devices          int  // number of lanes; 0: one
	// Paces and LaneMemory have, by lane, the rates and the memory budget in bytes (0: no limit) if devices differ.
	// One device has Paces if its rates are known. nil: all devices are alike, with budget DeviceMemory. If devices differ, DeviceMemory is the smallest budget.
	Paces      []Pace
	LaneMemory []int64
	// Lane is the assignment of layers to lanes that the run recorded when it began; nil: make one.
	Lane    []int
	Clip    bool
	Unified bool
	// OneMemory: device memory is host memory, as on an integrated GPU, even if tiles are copied.
	OneMemory bool
	EvalOnly  bool
	Planes    optim.Planes // planes beside the weights, unless EvalOnly
	Optim     string       // the optimizer's name in a machine's rates
	NSSteps   int          // Newton-Schulz steps of optim.Muon; 0: no matrix is updated whole
	// Context is the device memory in bytes used before any allocation: driver, kernels, library workspaces. The budget
	// includes it.
	Context      int64
	DeviceMemory int64  // budget in bytes
	HostMemory   int64  // budget in bytes; with Unified or OneMemory it covers host and device
	HostBy       string // for errors: the source of HostMemory; "": the user's key
	// StateDir: state may be on disk, as far as HostMemory requires.
	StateDir bool
	// ParamDir: tiles of decoder blocks may be on disk too, if moving state to disk does not free
	// enough host memory.
	ParamDir bool
	// Compress: data on disk is compressed.
	Compress bool
	// Ranks is the number of processes that divide Rows, and Rank the index of the planned one;
	// Ranks 0 and 1: a single rank. Units returns the optimizer's units of a layer, at whose
	// borders a layer can be divided.
	Ranks, Rank int
	Units       func(model.Layout) []optim.Unit

	shared *shared // nil: the plan shares nothing
}
