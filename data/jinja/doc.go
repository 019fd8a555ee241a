// Package jinja renders the chat templates of model directories, byte for byte as Transformers does. A template is
// Jinja text in chat_template.jinja or tokenizer_config.json. Transformers runs it in an immutable sandbox of Jinja
// 3.1 with trim_blocks, lstrip_blocks, loop controls and {% generation %}. The package also reports which bytes of
// the result belong to which message.
//
// It imports base/files alone. A template cannot read files or the environment, and its only clock is the one the
// caller sets. Each rendering has a budget of steps, bytes and depth; a template that exceeds the budget fails with
// an error.
//
// A failing template panics with a private type. Parse and Render turn this panic into an *Error, so no panic
// leaves the package.
//
// Invariant: Render neither changes nor keeps its arguments, so any number of goroutines may use a Template.
package jinja
