// Package config builds one Config from the defaults, a YAML file and command-line flags. A flag wins over the file,
// and the file wins over a default. Unknown keys and wrong values are errors. The package also writes the resolved
// Config back as YAML.
//
// It may import data (variables in paths, formats of rows), base/files and, in tests, model. Packages cmd, bench and
// internal/run import it.
//
// Invariant: the table in keys.go is the only place that knows a key's name, aliases, limits and part. Reading,
// flags, printing, comparison and help walk the table, so a printed Config parses to an equal Config.
package config
