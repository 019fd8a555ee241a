// Package generate continues a prompt with a model: layer by layer through the
// device with a key/value cache, greedily or by sampling.
//
// It imports device, host, layers, model and schedule. Which stages a layer has, its kind
// says, as for an evaluation. Weights are bound in place on a
// unified device, else each layer is copied into one slot as its turn comes.
// Invariant: the same seed gives the same tokens.
package generate
