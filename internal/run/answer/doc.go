// Package answer writes text with a model: it continues prompts and answers conversations, and makes the
// samples of a run.
//
// It imports open and internal/generate.
package answer
