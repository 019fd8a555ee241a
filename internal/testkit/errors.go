package testkit

import (
	"io"
	"testing"
)

// NoError ends the test with err, unless err is nil.
func NoError(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// Must returns a function that returns v, or ends the test with err, unless err is nil: Must(os.ReadFile(path))(t).
func Must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
		return v
	}
}

// Close closes c when the test ends. An error of closing fails the test.
func Close(t testing.TB, c io.Closer) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
