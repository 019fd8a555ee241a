// Package open opens what a configuration names: the model, its tokenizer, the data, the devices and the ranks.
//
// It imports settings, ranks and report. Invariant: it allocates no large memory and writes nothing; Close closes
// everything that was opened.
package open
