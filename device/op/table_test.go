package op

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"mt/device"
)

// direct is a device without streams: Do runs an operation of its table at once or, with hold,
// keeps the call for later.
type direct struct {
	device.Device
	table Table[*direct]
	seen  []float32
	errs  []error
	held  []Call[*direct]
	hold  bool
}

func (d *direct) Do(_ device.Stream, o device.Op) {
	c, err := d.table.Take(o)
	switch {
	case err != nil:
		d.errs = append(d.errs, err)
	case d.hold:
		d.held = append(d.held, c)
	default:
		if err := c.Run(d); err != nil {
			d.errs = append(d.errs, err)
		}
	}
}

func newDirect() *direct {
	d := &direct{}
	Add(&d.table, func(on *direct, a *Scale) error {
		on.seen = append(on.seen, a.Factor)
		return nil
	})
	return d
}

// TestCallsAreCopies: each call has its own copy of the arguments, even if many calls wait to run.
// Changing the caller's struct later changes none of them.
func TestCallsAreCopies(t *testing.T) {
	d := newDirect()
	d.hold = true
	a := &Scale{Factor: 1}
	d.Do(nil, a)
	a.Factor = 2
	d.Do(nil, a)
	a.Factor = 9
	Do(d, nil, Scale{Factor: 3})
	Do(d, nil, Scale{Factor: 4})
	for i := range d.held {
		if err := d.held[i].Run(d); err != nil {
			t.Error(err)
		}
	}
	if want := []float32{1, 2, 3, 4}; !slices.Equal(d.seen, want) {
		t.Errorf("operations saw %v, want %v", d.seen, want)
	}
	if d.held[0].None() || !(Call[*direct]{}).None() {
		t.Error("None tells calls and no calls apart wrongly")
	}
}

// TestArgumentsAreHeld: a call's copy of the arguments is not reused before the call has run, and
// the caller's struct not before Do returns, even if other operations are enqueued in between.
func TestArgumentsAreHeld(t *testing.T) {
	d := &direct{}
	Add(&d.table, func(on *direct, a *Scale) error {
		if a.N == 0 {
			Do(on, nil, Scale{N: 1, Factor: 7})
		}
		on.seen = append(on.seen, a.Factor)
		return nil
	})
	for range 3 {
		Do(nested{d}, nil, Scale{Factor: 2})
	}
	if want := []float32{7, 2, 5, 2, 7, 2, 5, 2, 7, 2, 5, 2}; !slices.Equal(d.seen, want) {
		t.Errorf("operations saw %v, want %v", d.seen, want)
	}
}

// nested is a device whose Do runs the operation, then another one, then the operation again with N
// changed. So operations are enqueued while the caller's struct is in use.
type nested struct{ *direct }

func (n nested) Do(s device.Stream, o device.Op) {
	n.direct.Do(s, o)
	Do(n.direct, nil, Scale{N: 1, Factor: 5})
	o.(*Scale).N = 1
	n.direct.Do(s, o)
}

// TestTakeAndRunErrors: if the table has no function for an operation, the error names the
// operation. An error of a function reaches the caller.
func TestTakeAndRunErrors(t *testing.T) {
	d, broken := newDirect(), errors.New("broken")
	Do(d, nil, Convert{})
	if len(d.errs) != 1 || !strings.Contains(d.errs[0].Error(), "Convert") {
		t.Errorf("errors %v", d.errs)
	}
	Replace(&d.table, func(*direct, *Scale) error { return broken })
	Do(d, nil, Scale{})
	if len(d.errs) != 2 || d.errs[1] != broken {
		t.Errorf("errors %v", d.errs)
	}
}

// TestTable: Add panics if the table already has the operation, and Replace panics if it does not.
// Changing a clone leaves the original as it was.
func TestTable(t *testing.T) {
	d := newDirect()
	run := func(on *direct, a *Convert) error { return nil }
	clone := d.table.Clone()
	Add(&clone, run)
	if got, was := clone.Names(), d.table.Names(); !slices.Equal(got, []string{"Convert", "Scale"}) || !slices.Equal(was, []string{"Scale"}) {
		t.Errorf("the clone has %v, what it is of %v", got, was)
	}
	for name, f := range map[string]func(){
		"op: the table has Convert already": func() { Add(&clone, run) },
		"op: the table has no Convert":      func() { Replace(&d.table, run) },
	} {
		func() {
			defer func() {
				if got := recover(); got != name {
					t.Errorf("panic %v, want %q", got, name)
				}
			}()
			f()
		}()
	}
}

// TestNothingIsAllocated: after the first call, enqueueing and running an operation allocates
// nothing. Race builds reuse no values (see pooled) and skip the check.
func TestNothingIsAllocated(t *testing.T) {
	d := &direct{}
	var sum float32
	var first *Scale
	Add(&d.table, func(_ *direct, a *Scale) error {
		sum += a.Factor
		if first == nil {
			first = a
		}
		if !pooled && first == a && sum > 2 {
			t.Error("arguments were used again")
		}
		return nil
	})
	n := testing.AllocsPerRun(1000, func() { Do(d, nil, Scale{Factor: 2}) })
	if pooled && n != 0 || !pooled && n < 2 {
		t.Errorf("%v allocations an operation", n)
	}
}
