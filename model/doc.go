// Package model describes architectures: config.json, the table of parameters by layer, tensor names as Hugging Face
// writes them, and presets. It also draws the initial weights of a model that is trained from scratch.
//
// It imports base/files alone. Invariant: the parameter table is the only place
// that knows tensor names; everything else walks the table.
package model
