// Package config reads what a user says about a run into one Config, strictly:
// the defaults, a YAML file and command-line flags, each of which wins over
// those before it. It also writes the resolved Config back as YAML.
//
// It may import data, for variables in paths and the formats of rows,
// base/files and, in tests, model; cmd, bench and internal/run import it.
//
// Invariant: the table in keys.go is the only place that knows a key's name,
// aliases, limits and part; reading, flags, printing, comparison and help walk
// it, so that parsing what was printed gives an equal Config.
package config
