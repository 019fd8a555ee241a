package emu

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Launch selects one launch: the N-th, counted from 1, of the kernels whose names begin with Kernel. Kernel "": every
// kernel. N 0: no launch.
type Launch struct {
	Kernel string
	N      int
}

// libraries maps the names of libraries that Plant accepts to the option that makes the library missing.
var libraries = map[string]func(*Options) *bool{
	"cudart":   func(o *Options) *bool { return &o.WithoutRuntime },
	"cublasLt": func(o *Options) *bool { return &o.WithoutBlasLt },
	"nvml":     func(o *Options) *bool { return &o.WithoutML },
}

// plantable lists the forms of Plant's text, for its error.
const plantable = "hang[:KERNEL[:N]], fault[:KERNEL[:N]], oom[:N or :N MiB] or missing:LIBRARY (cudart, cublasLt or nvml)"

// Plant sets the options for the failure that text names; "": none. Users name it to see how mt
// behaves.
//
//	hang:KERNEL:N     the N-th launch of a kernel whose name begins with KERNEL never ends
//	fault:KERNEL:N    that launch accesses an illegal address: error 700, and the context is lost
//	oom:N             cudaMalloc fails from its N-th call on
//	oom:N MiB         the device has that much memory
//	missing:LIBRARY   cudart, cublasLt or nvml is not installed
//
// Without KERNEL every kernel counts. N defaults to 1. The error for an unknown failure lists the
// valid forms.
func (o *Options) Plant(text string) error {
	if text == "" {
		return nil
	}
	kind, rest, given := strings.Cut(text, ":")
	switch kind {
	case "hang", "fault":
		l, err := launchOf(rest)
		if err != nil {
			return fmt.Errorf("fault %q: %w; it takes %s", text, err, plantable)
		}
		if kind == "hang" {
			o.HangAt = l
		} else {
			o.CrashAt = l
		}
		return nil
	case "oom":
		number, inMiB := strings.CutSuffix(rest, "MiB")
		n, err := strconv.Atoi(strings.TrimSpace(number))
		switch {
		case !given:
			o.FullAt = 1
		case err != nil || n < 1 || n > 1<<30:
			return fmt.Errorf("fault %q: %q is no number of an allocation, from 1 on, and no size such as 64MiB; it takes %s", text, rest, plantable)
		case inMiB:
			o.DeviceMemory = int64(n) << 20
		default:
			o.FullAt = n
		}
		return nil
	case "missing":
		without := libraries[rest]
		if without == nil {
			return fmt.Errorf("fault %q: there is no library %q; it takes %s", text, rest, plantable)
		}
		*without(o) = true
		return nil
	}
	return fmt.Errorf("fault %q: there is no kind %q; it takes %s", text, kind, plantable)
}

// launchOf parses the text KERNEL:N, which selects a launch.
func launchOf(text string) (Launch, error) {
	kernel, number, given := strings.Cut(text, ":")
	if !given {
		return Launch{kernel, 1}, nil
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 {
		return Launch{}, fmt.Errorf("%q is no number of a launch, which are counted from 1", number)
	}
	return Launch{kernel, n}, nil
}

// errPlanted is the error of the launch that Options.CrashAt selects. The options ask for this
// failure, so it does not count as a mistake of the program under test.
var errPlanted = errors.New("an illegal memory access was encountered")

// plant makes o, a launch of the kernel f, hang or crash if Options.HangAt or CrashAt selects it.
// d.mu is held.
func (d *Driver) plant(o *op, f *function) {
	if l := d.opt.HangAt; l.N > 0 && strings.HasPrefix(f.name, l.Kernel) {
		d.hanging++
		o.hung = d.hanging == l.N
	}
	if l := d.opt.CrashAt; l.N > 0 && strings.HasPrefix(f.name, l.Kernel) {
		if d.crashing++; d.crashing == l.N {
			o.run = func() ([]span, error) { return nil, errPlanted }
		}
	}
}

// stopped is called when the kernel o has failed with err. It makes all contexts unusable and, if
// Options.CoreDump says so, writes the core dump. d.mu is held.
func (d *Driver) stopped(o *op, err error) {
	if d.opt.CoreDump != "" {
		dump := fmt.Sprintf("%s\n%v\n", o.what, err)
		if err := os.WriteFile(d.opt.CoreDump, []byte(dump), 0o644); err != nil {
			d.fault(Internal, "core dump: %v", err)
		}
	}
	if errors.Is(err, errPlanted) {
		d.illegalAddress()
		return
	}
	d.badMemory(Kernel, "%s: %v", o, err)
}
