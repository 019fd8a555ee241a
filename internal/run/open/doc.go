// Package open opens what a configuration names: the model, its tokenizer, the data, the devices and the
// ranks.
//
// It imports settings, ranks and report. Invariant: nothing big is allocated and nothing is written; Close
// closes all that was opened.
package open
