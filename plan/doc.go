// Package plan is the memory and time model. It computes the memory that a run needs on device and host, by purpose,
// from the model and the depths alone. It resolves every "auto" so that the run fits, and bounds the time of a step at
// given rates. `mt plan` prints the plan, and every run makes it before it allocates. The layer kinds (layers.Kind)
// provide the properties of layers.
//
// The plan assigns each layer to a lane by the layer's weight, and by each device's rates if devices differ (Pace). It
// also chooses what each block's forward keeps (saved.go), and which of these tensors wait on the host (travel.go). Run.On
// is one lane's view of the run. Writes bounds a run's disk usage from its steps and limits; a run without that space is
// refused before its first step.
//
// It imports model, layers, device, schedule and host/optim, for their arithmetic only, and base/human: nothing here
// touches a device. Invariant: the pipeline allocates by the functions of this package, so plan and use cannot differ.
package plan
