package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"mt/device"
	"mt/internal/config"
	"mt/internal/doctor/measure"
	"mt/internal/machine"
	"mt/plan/rates"
)

// OnDevice says which device is measured and how. Zero fields take their default.
type OnDevice struct {
	Device       string // cpu (default) or cuda
	DeviceMemory int64  // budget in bytes; 0: what the device has
	Threads      int    // of the CPU; 0: all cores
	Runs         int    // of each piece of work; default 5
	// Most bounds what one piece of work takes in all its runs; default 2 s. Slow work
	// runs fewer times, but once.
	Most time.Duration
	Log  func(string) // told what is measured next; may be nil
	// Rates are what figures are predicted with, as rates.Find takes it; empty: the profile of the GPU.
	Rates string
}

// Where is what rates were measured on, in JSON beside them.
type Where struct {
	Device   string  `json:"device"`
	Cores    int     `json:"cores"`
	Emulated bool    `json:"emulated,omitempty"` // of --device cuda: the figures are those of an emulator
	Load     float64 `json:"load_before"`        // threads that ran or wanted to before the start
	// PredictedFor names the machine that figures are predicted for; where there is none, Unpredicted says why.
	PredictedFor string `json:"predicted_for,omitempty"`
	Unpredicted  string `json:"unpredicted,omitempty"`

	machine *rates.Machine // nil: nothing is predicted
}

// String is the line above a table.
func (w Where) String() string {
	s := fmt.Sprintf("%s, %d cores of the host", w.Device, w.Cores)
	if w.Emulated {
		s += "; AN EMULATOR: these are no rates of a GPU"
	}
	if w.PredictedFor != "" {
		s += "; predicted for " + w.PredictedFor
	}
	return s
}

// with opens the device, runs f with a meter on it, and closes both.
func (o OnDevice) with(what string, f func(m *measure.Meter, w Where) error) (err error) {
	w := Where{Cores: cores(), Load: loadNow(), Emulated: o.Device == "cuda" && machine.Emulated()}
	defer func() {
		if err != nil {
			err = fmt.Errorf("bench %s: %w", what, err)
		}
	}()
	dev, err := machine.Open(machine.Options{Device: o.Device, Threads: o.Threads, MemoryLimit: config.Bytes(o.DeviceMemory)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	w.Device = dev.Name()
	if w.machine, w.Unpredicted, err = RatesOf(o.Rates, dev); err != nil {
		return err
	}
	if w.machine != nil {
		w.PredictedFor = w.machine.Name
	}
	m, err := measure.New(dev, o.options())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	return f(m, w)
}

// cores is how many cores of the host are used.
func cores() int { return runtime.GOMAXPROCS(0) }

func (o OnDevice) options() measure.Options {
	return measure.Options{Runs: o.Runs, Most: o.Most}
}

// next says what is measured next. The error is that of a ctx that is done.
func (o OnDevice) next(ctx context.Context, format string, args ...any) error {
	if o.Log != nil && ctx.Err() == nil {
		o.Log(fmt.Sprintf(format, args...))
	}
	return ctx.Err()
}

// scale is how large the work is where nobody says it: 0 for an emulator, which takes
// a minute for what a GPU does in a millisecond, 1 for a CPU, 2 for a GPU.
func (o OnDevice) scale() int {
	switch {
	case o.Device != "cuda":
		return 1
	case machine.Emulated():
		return 0
	}
	return 2
}

// dtypes are the compute types that a device is measured in, where none is asked for: a
// CPU computes in fp32, a GPU in bf16 and in fp32.
func (o OnDevice) dtypes(asked []device.DType) []device.DType {
	switch {
	case len(asked) > 0:
		return asked
	case o.Device == "cuda":
		return []device.DType{device.BF16, device.F32}
	}
	return []device.DType{device.F32}
}

// rateOf is the rate of an amount of work, from the times of its runs.
func rateOf(amount float64, t measure.Seconds) Sample {
	return Sample{Median: amount / t.Median, Min: amount / t.Most, Max: amount / t.Least}
}

// outOfMemory says whether err is that of a device that is full: such shapes are left out.
func outOfMemory(err error) bool {
	var full *device.OutOfMemory
	return errors.As(err, &full)
}
