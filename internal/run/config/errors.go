package config

import (
	"errors"
	"fmt"
	"strings"

	"mt/base/human"
)

// Pos is the position of a value: a place in a file, or a flag.
type Pos struct {
	File      string
	Line, Col int    // from 1
	Flag      string // "--learning-rate"; File, Line and Col are then zero
}

// String formats p: "train.yaml:3:7" or "--learning-rate".
func (p Pos) String() string {
	if p.Flag != "" {
		return p.Flag
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}

// UsageError is a mistake in a command line or a config file: exit code 2.
type UsageError struct{ err error }

func (e *UsageError) Error() string { return e.err.Error() }

// Unwrap returns the error that %w wrapped.
func (e *UsageError) Unwrap() error { return errors.Unwrap(e.err) }

// Usagef formats a UsageError like fmt.Errorf.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

func (p Pos) errorf(format string, args ...any) error {
	return &UsageError{fmt.Errorf("%s: %w", p, fmt.Errorf(format, args...))}
}

// IsUsage reports whether err wraps a UsageError.
func IsUsage(err error) bool {
	var u *UsageError
	return errors.As(err, &u)
}

// Errorf returns a UsageError about a key. key is the canonical name, not an alias; a key of an inline model is
// "model.hidden_size". The text begins with the key's position: "train.yaml:3:7: ..." or "--dataset: ...". For a key
// that was not given the text begins with the file and the key: "train.yaml: dataset: ...". %w wraps, as in
// fmt.Errorf.
func (c *Config) Errorf(key, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	o, given := c.sources[key]
	named := strings.Contains(err.Error(), key)
	switch {
	case given && (named || o.pos.Flag != ""):
		return Usagef("%s: %w", o.pos, err)
	case given:
		return Usagef("%s: %s: %w", o.pos, o.spelled, err)
	case c.file != "" && named:
		return Usagef("%s: %w", c.file, err)
	case c.file != "":
		return Usagef("%s: %s: %w", c.file, key, err)
	case named:
		return Usagef("%w", err)
	}
	return Usagef("%s: %w", key, err)
}

// Require returns a UsageError for the first of keys that was not given. Only "model" and "dataset" can be required.
func (c *Config) Require(keys ...string) error {
	for _, k := range keys {
		switch {
		case k == "model" && !c.Model.Set():
			return c.missing("no model: give model_name_or_path (a Hugging Face directory), " +
				"or model (a preset's name or an inline config) to train from scratch")
		case k == "dataset" && len(c.Dataset)+len(c.Datasets) == 0:
			return c.missing("no dataset: give dataset (files, directories or globs), or datasets")
		}
	}
	return nil
}

func (c *Config) missing(msg string) error {
	if c.file != "" {
		return Usagef("%s: %s", c.file, msg)
	}
	return Usagef("%s", msg)
}

// suggest returns `; did you mean "near"?` for the nearest of names, or "" if none is near.
func suggest(s string, names []string) string { return human.Suggest(s, names) }
