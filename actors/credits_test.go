package actors

// Credit is the right to fill something. The table below lists all credits. The model test checks that every taken
// credit comes back. The documentation repeats the table.
type Credit struct {
	Name    string // the thing to fill
	Key     string // the configuration's key; empty: the depth is fixed
	Minimum int
	Owner   string // the actor that keeps the free credits
	Taken   string // the message or work that takes a credit from its owner
	Return  string // the message that returns it
}

// Credits lists every credit in the order in which a launch takes them.
var Credits = []Credit{
	{"weight slot", "weight_slots", 1, "prefetcher", "LayerFetched", "SlotFreed"},
	{"head slot", "", 1, "prefetcher", "LayerFetched", "SlotFreed"},
	{"batch slot", "", 1, "prefetcher", "BatchFetched", "BatchSlotFreed"},
	{"activation slot", "activation_slots", 3, "prefetcher", "ActivationFetched", "ActivationSlotFreed"},
	{"launch ahead", "", 8, "compute", "enqueue", "LaunchPassed"},
	{"gradient buffer", "grad_buffers", 1, "compute", "GradComputed", "GradBufferFreed"},
	{"slab", "grad_slabs", 1, "offloader", "GradLanded", "SlabFreed"},
	{"exchange buffer", "exchange_buffers", 1, "exchanger", "GradExchanged", "ExchangeBufferFreed"},
	{"matrix buffer", "matrix_buffers", 1, "optimizer", "MatrixPrepared", "MatrixApplied"},
	{"state slot", "state_slots", 1, "stager", "StateFetched", "StateUpdated"},
	{"batch", "batches_ahead", 1, "conductor", "BatchWanted", "BatchReady"},
}
