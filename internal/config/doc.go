// Package config is what a user says about a run: the defaults, a YAML file and
// command-line flags, read strictly, in that order of precedence, into one
// Config; and the resolved Config written back as YAML.
//
// It may import data, for variables in paths, model and internal/files; cmd, bench and internal/train import it.
//
// Invariant: the table in keys.go is the only place that knows a key's name,
// aliases, limits and part; reading, flags, printing, comparison and help walk
// it, so that parsing what was printed gives an equal Config.
package config
