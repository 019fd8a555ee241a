package testkit

import (
	"fmt"
	"slices"
	"testing"
)

// noted is a testing.TB that records the errors reported to it.
type noted struct {
	testing.TB
	errors []string
}

func (n *noted) Helper() {}

func (n *noted) Error(args ...any) { n.errors = append(n.errors, fmt.Sprint(args...)) }

func (n *noted) Errorf(format string, args ...any) {
	n.errors = append(n.errors, fmt.Sprintf(format, args...))
}

// TestCheck: Check reports each fact whose value is wrong, by name, and no other.
func TestCheck(t *testing.T) {
	n := &noted{TB: t}
	Check(n, "a head",
		Is("rows", int64(6), 6),
		Is("columns", 12, 13),
		Is("tied", false, false),
		Is("reference", true, false),
		Is("rate", 5.0, 5),
		Is("share", 5, 5.5),
		Is("sign", int8(-1), uint8(255)),
		Is("names", []string{"a"}, []string{"a"}),
		Is("text", "1", 1),
		Is("letter", "A", 65),
		Is("zero", 0.0, 0),
		Is("nothing", nil, nil),
	)
	want := []string{
		"a head: columns is 12, want 13",
		"a head: reference is true, want false",
		"a head: share is 5, want 5.5",
		"a head: sign is -1, want 255",
		"a head: text is 1, want 1",
		"a head: letter is A, want 65",
	}
	if !slices.Equal(n.errors, want) {
		t.Errorf("got %q\nwant %q", n.errors, want)
	}
}
