package model

import (
	"path/filepath"
	"testing"
)

// TestEscaped: a directory whose name looks like a pattern is matched by its escaped name, and others are not.
func TestEscaped(t *testing.T) {
	for _, dir := range []string{"a*b", "a?b", "[ab]", `a\b`, "axb"} {
		for _, other := range []string{"a*b", "a?b", "[ab]", `a\b`, "axb", "a", "b"} {
			if got, err := filepath.Match(escaped(dir), other); err != nil || got != (dir == other) {
				t.Errorf("%s matches %s: %t, %v", escaped(dir), other, got, err)
			}
		}
	}
}
