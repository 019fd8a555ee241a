package testkit

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
)

func (n *noted) Fatal(args ...any) {
	n.errors = append(n.errors, fmt.Sprint(args...))
	runtime.Goexit()
}

// TestErrorsEndTests: NoError and Must end the test with the error's text. Without an error the
// test continues, and Must returns the value.
func TestErrorsEndTests(t *testing.T) {
	n := &noted{TB: t}
	var went []int
	for i, f := range []func(){
		func() { NoError(n, nil) },
		func() { NoError(n, errors.New("no disk")) },
		func() { went = append(went, Must(7, nil)(n)) },
		func() { Must(8, errors.New("no value"))(n) },
	} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			f()
			went = append(went, i)
		}()
		<-done
	}
	if want := []string{"no disk", "no value"}; !slices.Equal(n.errors, want) {
		t.Errorf("tests ended with %q, want %q", n.errors, want)
	}
	if want := []int{0, 7, 2}; !slices.Equal(went, want) {
		t.Errorf("%v went on, want %v", went, want)
	}
}

// closer is an io.Closer whose Close returns err.
type closer struct{ err error }

func (c closer) Close() error { return c.err }

// TestClose: an error of closing at the end of a test is reported; a successful close is not.
func TestClose(t *testing.T) {
	n := &noted{TB: t}
	t.Run("a test", func(t *testing.T) {
		n.TB = t
		Close(n, closer{})
		Close(n, closer{errors.New("still busy")})
	})
	if want := []string{"still busy"}; !slices.Equal(n.errors, want) {
		t.Errorf("got %q, want %q", n.errors, want)
	}
}
