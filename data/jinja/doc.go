// Package jinja renders chat templates: the Jinja text that a model directory
// carries in chat_template.jinja or tokenizer_config.json, byte for byte as
// Transformers renders it (an immutable sandbox of Jinja 3.1 with trim_blocks,
// lstrip_blocks, loop controls and {% generation %}), and tells which bytes of
// the result belong to which message.
//
// It imports base/files alone. A template reaches nothing outside: no file, no
// environment, no clock but the one it is given; it runs in a budget of steps,
// bytes and depth, and ends with an error where that is spent.
//
// Inside, a failing template panics with a private type, which Parse and Render
// turn into an *Error; no panic leaves the package.
//
// Invariant: rendering changes nothing it is given and keeps nothing of it, so a
// Template may be used by any number of goroutines.
package jinja
