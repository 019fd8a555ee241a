package plan

import (
	"mt/device"
	"mt/device/op"
	"mt/host/optim"
	"mt/layers/schedule"
	"mt/model"
)

// Request is a run with values left to resolve: zero is "auto" unless the field
// says otherwise.
type Request struct {
	Config *model.Config
	// Act is the compute dtype, resolved already.
	Act   device.DType
	Noise op.Noise // what training adds to embeddings
	// Terms are what losses have beside −log p; Preference is the loss of pairs, where training is on these.
	Terms      op.LossTerms
	Preference op.PreferenceLoss
	// BF16Master says that no lower halves of weights are kept (model.Layout.BF16Master).
	BF16Master bool
	// GradDType is "auto" (or empty), "fp32" or "bf16".
	GradDType string
	// Recompute is "auto" (or empty), "full" or "none".
	Recompute string
	// HiddenStates is where they lie: "auto" (or empty), "device" or "host".
	HiddenStates string
	// Fused says that attention's backward has memory for sums (layers.Spec.Fused).
	Fused            bool
	MicroBatchTokens int
	ChunkTokens      int
	HeadShards       int
	Depths           Depths
	Rows, RowTokens  int // rows of a step, tokens of the longest row
	Positions        int // the longest document that the rotary tables serve; 0: RowTokens
	Order            schedule.Order
	Devices          int // how many lanes; 0: one
	// By lane, where devices differ: what each reaches, and its budget in bytes (0: no limit).
	// nil: all are alike, and have DeviceMemory, which is else the least of them.
	Paces      []Pace
	LaneMemory []int64
	// Lane is the table that the run was begun with, by layer; nil: one is to be made.
	Lane    []int
	Clip    bool
	Unified bool
	// OneMemory says that what the device holds is the host's memory, as with an integrated GPU, also where tiles are copied.
	OneMemory bool
	EvalOnly  bool
	Planes    optim.Planes // what is kept beside the weights, unless EvalOnly
	Optim     string       // the optimizer, as a machine's rates name it
	NSSteps   int          // of optim.Muon; 0: no matrix is updated whole
	// Context is the device memory in bytes that is taken before anything is
	// allocated: the driver, kernels, library workspaces. The budget covers it.
	Context      int64
	DeviceMemory int64  // budget in bytes
	HostMemory   int64  // budget in bytes; with Unified or OneMemory it covers both sides
	HostBy       string // for the error: what limits HostMemory; empty: the user's key
	// StateDir says that states may be on disks, as far as HostMemory asks for it.
	StateDir bool
	// ParamDir says that the tiles of decoder blocks may be there too, where that does not do.
	ParamDir bool
	// Compress says that what is on disks is written in fewer bytes.
	Compress bool
	// Ranks is how many processes divide Rows among them, and Rank which of them is planned, from 0 on;
	// Ranks 0 and 1: alone. Units is how the optimizer cuts a layer.
	Ranks, Rank int
	Units       func(model.Layout) []optim.Unit
}
