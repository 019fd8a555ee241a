// Package generate writes text with a model: it continues prompts (Text), answers conversations (Chat) and writes the
// samples of a run (Writer).
//
// Run is the engine. It continues tokens layer by layer on the device with a key/value cache, greedily or by sampling.
// Each layer makes the visits of an evaluation pass, which its kind defines. A unified device binds weights in place.
// On other devices each tile is copied into one slot before its visit.
//
// It imports open, device, host, layers, layers/schedule and model; the engine knows no stage of a run. Invariant:
// the same seed gives the same tokens.
package generate
