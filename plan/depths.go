package plan

// Depths has the depths of the pipeline: the number of slots, slabs or buffers of each kind.
type Depths struct {
	WeightSlots     int `json:"weight_slots"`     // tiles of blocks or experts on the device; at least 1
	GradBuffers     int `json:"grad_buffers"`     // gradients of layers or experts being summed on the device; at least 1
	GradSlabs       int `json:"grad_slabs"`       // landed gradients, without clipping or on their way to a disk; at least 1, or 2 with tied embeddings and no clipping
	ActivationSlots int `json:"activation_slots"` // layer inputs of one micro-batch on the device; at least 3. With hidden states on the host: host buffers for all layers
	BatchesAhead    int `json:"batches_ahead"`    // batches packed ahead; at least 1
	// ExchangeBuffers and GathersAhead are for runs with several ranks; both are 0 for a single
	// rank.
	ExchangeBuffers int `json:"exchange_buffers,omitempty"` // layers whose gradients are exchanged at once; at least 1
	GathersAhead    int `json:"gathers_ahead,omitempty"`    // layers whose tiles are gathered from all ranks at once; at least 1
	// MatrixBuffers is 0 unless an optimizer such as Muon updates matrices whole.
	MatrixBuffers int `json:"matrix_buffers,omitempty"` // for each lane; at least 1
	// StateSlots is 0 unless some state is on disk.
	StateSlots int `json:"state_slots,omitempty"` // layers with their state in memory; at least 1
}

// Depth describes a field of Depths and the field's configuration key.
type Depth struct {
	Name   string // name of the key, after "pipeline."
	Least  int    // minimum for a run; tied embeddings may need more slabs
	Why    string // reason for the minimum
	Device bool   // each buffer needs device memory
	Of     func(*Depths) *int
}

// Key returns the key that sets the depth.
func (d Depth) Key() string { return "pipeline." + d.Name }

// AllDepths lists the depths in the order in which a step uses them.
var AllDepths = []Depth{
	{"weight_slots", 1, "a block runs from one", true, func(d *Depths) *int { return &d.WeightSlots }},
	{"grad_buffers", 1, "a gradient is summed in one", true, func(d *Depths) *int { return &d.GradBuffers }},
	{"grad_slabs", 1, "a gradient has to land somewhere, and with tied embeddings the head's waits in its slab for the embedding's", false, func(d *Depths) *int { return &d.GradSlabs }},
	{"activation_slots", minActSlots, "one is read, one written, one arriving", true, func(d *Depths) *int { return &d.ActivationSlots }},
	{"batches_ahead", 1, "a step needs a batch", false, func(d *Depths) *int { return &d.BatchesAhead }},
	{"exchange_buffers", 1, "gradients of other ranks come in somewhere", false, func(d *Depths) *int { return &d.ExchangeBuffers }},
	{"gathers_ahead", 1, "weights are put together layer by layer", false, func(d *Depths) *int { return &d.GathersAhead }},
	{"matrix_buffers", 1, "a matrix is handed over in one", false, func(d *Depths) *int { return &d.MatrixBuffers }},
	{"state_slots", 1, "a state is updated in one", false, func(d *Depths) *int { return &d.StateSlots }},
}
