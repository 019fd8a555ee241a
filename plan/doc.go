// Package plan is the memory and time model: what a run needs on the device and
// on the host, by purpose. It follows from the model and the depths alone. It also
// resolves every "auto" so that the run fits, and bounds the time of a step at given
// rates. `mt plan` prints it and every run makes it before it allocates. It asks a
// layer's kind (layers.Kind) for what it has to know of the layer.
//
// The plan puts each layer on a lane by the layer's weight, and by each device's rates where devices differ
// (Pace), and chooses what each block's forward keeps (saved.go). Run.On is one lane's view of the run. Writes bounds what a run takes on disk, from its steps
// and limits; a run without that room is refused before its first step.
//
// It imports model, layers, device, schedule and host/optim, for their arithmetic
// only, and base/human: nothing here touches a device. Invariant: the pipeline
// allocates by the functions of this package, so plan and use cannot drift apart.
package plan
