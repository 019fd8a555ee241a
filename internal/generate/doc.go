// Package generate continues a prompt with a model: layer by layer through the
// device with a key/value cache, greedily or by sampling.
//
// It imports device, host, layers, model and schedule. A layer goes through the visits that
// its kind gives it for an evaluation. Weights are bound in place on a unified device; on
// others each tile is copied into the same slot as its turn comes.
// Invariant: the same seed gives the same tokens.
package generate
