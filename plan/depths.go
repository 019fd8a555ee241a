package plan

// Depths say how many credits each edge of the pipeline starts with.
type Depths struct {
	WeightSlots     int `json:"weight_slots"`     // blocks, or experts, on the device; at least 1
	GradBuffers     int `json:"grad_buffers"`     // layers, or experts, whose gradient is on the device; at least 1
	GradSlabs       int `json:"grad_slabs"`       // landed gradients, without clipping or on their way to a disk; at least 1, with tied embeddings and without clipping 2
	ActivationSlots int `json:"activation_slots"` // layer inputs of one micro-batch on the device; at least 3. With hidden states on the host, there, and of all layers
	BatchesAhead    int `json:"batches_ahead"`    // batches packed ahead; at least 1
	// Of several ranks; alone both are 0.
	ExchangeBuffers int `json:"exchange_buffers,omitempty"` // layers whose gradients come in from all ranks at once; at least 1
	GathersAhead    int `json:"gathers_ahead,omitempty"`    // layers whose tiles are put together from all ranks at once; at least 1
	// Where matrices are updated whole; else 0.
	MatrixBuffers int `json:"matrix_buffers,omitempty"` // of a lane; at least 1
	// Where states are on disks; else 0.
	StateSlots int `json:"state_slots,omitempty"` // layers whose state is in memory; at least 1
}

// Depth is one of the depths, which a user sets by a key.
type Depth struct {
	Name   string // of the key, behind "pipeline."
	Least  int    // a run needs at least so many, and tied embeddings may need more slabs
	Why    string // it cannot be less
	Device bool   // it takes memory of the device
	Of     func(*Depths) *int
}

// Key is the key that sets the depth.
func (d Depth) Key() string { return "pipeline." + d.Name }

// AllDepths are in the order in which a step needs them.
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
