package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"mt/device"
	"mt/device/conformance"
)

// tester runs the cases of package conformance outside of go test. It has those methods of
// *testing.T that cases call.
type tester struct {
	name   string
	found  []string          // errors of this case
	starts func(name string) // called before a case
	report func(name string, errors []string)
}

// stopped is the value with which Fatal panics, to end a case at once.
type stopped struct{}

// Helper implements operations.Reporter.
func (t *tester) Helper() {}

// Errorf implements operations.Reporter.
func (t *tester) Errorf(format string, args ...any) {
	t.found = append(t.found, fmt.Sprintf(format, args...))
}

// Fatal implements operations.Reporter.
func (t *tester) Fatal(args ...any) {
	t.found = append(t.found, fmt.Sprint(args...))
	panic(stopped{})
}

// Run implements operations.T. A panic of the device becomes an error of the case.
func (t *tester) Run(name string, f func(*tester)) bool {
	sub := &tester{name: name}
	t.starts(name)
	func() {
		defer func() {
			switch cause := recover().(type) {
			case nil, stopped:
			default:
				sub.found = append(sub.found, fmt.Sprintf("panic: %v", cause))
			}
		}()
		f(sub)
	}()
	t.report(name, sub.found)
	return len(sub.found) == 0
}

// opCheck sums up the results of all cases of one operation in one dtype. worst is the largest
// error.
type opCheck struct {
	cases, failed int
	worst         float64
	errors        []string
}

// usable returns an error if dev cannot compute any more, like a GPU after a kernel fault.
func usable(dev device.Device) error {
	s, err := dev.NewStream("alive")
	if err != nil {
		return err
	}
	return errors.Join(s.Sync(), s.Close())
}

// table runs the cases of the operation table that want accepts on dev. A case is one operation on small inputs, whose
// results package conformance checks. It returns the results by operation and dtype. It calls starts before each case.
// If a case leaves dev unusable, table stops and returns the case's name (lost) and error (why).
func table(dev device.Device, want func(name string) bool, starts func(name string)) (sums map[string]*opCheck, lost, why string) {
	sums = map[string]*opCheck{}
	of := func(name string) *opCheck {
		parts := strings.SplitN(name, "/", 3)
		op := parts[0] + " " + parts[1]
		if sums[op] == nil {
			sums[op] = &opCheck{}
		}
		return sums[op]
	}
	t := &tester{starts: starts, report: func(name string, errors []string) {
		c := of(name)
		c.cases++
		if len(errors) > 0 {
			c.failed++
			c.errors = append(c.errors, name+": "+errors[0])
			if usable(dev) != nil {
				lost, why = name, errors[0]
			}
		}
	}}
	for name, r := range conformance.SomeOperations(t, dev, func(name string) bool { return lost == "" && want(name) }) {
		c := of(name)
		c.worst = max(c.worst, r.Worst)
	}
	return sums, lost, why
}

// ran reports whether got has results for the operation and the dtype to which the case called name belongs.
func ran(got map[string]*opCheck, name string) bool {
	parts := strings.SplitN(name, "/", 3)
	return got[parts[0]+" "+parts[1]] != nil
}

// operations runs the cases of the operation table that want selects, on dev and on the CPU device. The report shows
// the CPU's error beside dev's, as the usual size of errors. `of` names the kernels; it is appended to the names of the
// checks.
func (r *SelfTestReport) operations(dev, cpu device.Device, want func(name string) bool, of string) {
	got, lost, why := table(dev, want, func(name string) { r.starts(name + of) })
	if lost != "" {
		r.lose("faulted", why)
	}
	beside, _, _ := table(cpu, func(name string) bool { return want(name) && ran(got, name) }, func(string) {})
	for _, op := range slices.Sorted(maps.Keys(got)) {
		g, b := got[op], beside[op]
		if b == nil {
			b = &opCheck{}
		}
		c := Check{Name: op + of, OK: true, Detail: fmt.Sprintf("%d cases, worst error %.2f of what is allowed; %s %.2f", g.cases, g.worst, cpu.Kind(), b.worst)}
		for _, e := range g.errors {
			c.errorf("%s", e)
		}
		r.add(c)
	}
}

// busyBytes is the size in bytes of each copy that runs on another stream while operations are repeated.
const busyBytes = 1 << 20

// repeat runs the selected cases of the operation table o.Repeat more times, while another stream copies continuously
// in both directions. It fails if the bits of an output change, which reveals a kernel that races with itself or with
// a copy. When ctx is cancelled, it ends between two repetitions.
func (r *SelfTestReport) repeat(ctx context.Context, o *SelfTestOptions) (err error) {
	first, err := r.bits(o, "")
	if err != nil {
		return err
	}
	end, err := keepCopying(o.Device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	c := Check{Name: "repeated operations", OK: true, Detail: fmt.Sprintf("%d cases, %d times more beside copies", len(first), o.Repeat)}
	for i := range o.Repeat {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		again, err := r.bits(o, fmt.Sprintf(", repetition %d", i+1))
		if err != nil {
			return err
		}
		for name, got := range again {
			if was, ok := first[name]; ok && got != was {
				c.errorf("%s: repetition %d has other bits than the first time", name, i+1)
				delete(first, name) // report each case once
			}
		}
	}
	r.add(c)
	return nil
}

// bits returns a hash of the outputs of each selected case, by the case's name. It ignores wrong outputs, which an
// earlier part of the test has reported. It returns an error for a case that leaves the device unusable. `when` says in
// the report which repetition this is.
func (r *SelfTestReport) bits(o *SelfTestOptions, when string) (map[string]uint64, error) {
	var lost error
	t := &tester{starts: func(name string) { r.starts(name + when) }, report: func(name string, found []string) {
		if len(found) > 0 && usable(o.Device) != nil {
			lost = fmt.Errorf("%s%s: %s", name, when, found[0])
		}
	}}
	want, out := o.cases(partTable, ""), map[string]uint64{}
	for name, result := range conformance.SomeOperations(t, o.Device, func(name string) bool { return lost == nil && want(name) }) {
		out[name] = result.Hash
	}
	return out, lost
}

// keepCopying starts to copy in both directions on its own stream and returns. The copies go on until end is called.
// end returns their error.
func keepCopying(dev device.Device) (end func() error, err error) {
	p, err := newPair(dev, "copies", busyBytes)
	if err != nil {
		return nil, err
	}
	enough, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-enough:
				failed <- nil
				return
			default:
			}
			p.s.CopyH2D(p.up, p.from)
			p.s.CopyD2H(p.to, p.up)
			if err := p.s.Sync(); err != nil {
				failed <- fmt.Errorf("copies beside operations: %w", err)
				return
			}
		}
	}()
	return func() error {
		close(enough)
		return errors.Join(<-failed, p.free())
	}, nil
}
