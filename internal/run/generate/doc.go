// Package generate writes text with a model: it continues prompts (Text), answers conversations (Chat), and
// makes the samples of a run (Writer).
//
// Run is the engine: it continues tokens layer by layer through the device with a key/value cache,
// greedily or by sampling. A layer goes through the visits that its kind gives it for an evaluation.
// Weights are bound in place on a unified device; on others each tile is copied into the same slot as
// its turn comes.
//
// It imports open, device, host, layers, layers/schedule and model; the engine knows no stage of a run.
// Invariant: the same seed gives the same tokens.
package generate
