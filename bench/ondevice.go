package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"mt/device"
	"mt/internal/doctor/measure"
	"mt/internal/run/config"
	"mt/internal/run/machine"
	"mt/plan/rates"
)

// OnDevice selects the measured device and the effort. Zero fields mean the defaults.
type OnDevice struct {
	Device       string // cpu (default) or cuda
	DeviceMemory int64  // most bytes to use on the device; 0: all its memory
	Threads      int    // CPU threads; 0: all cores
	Runs         int    // runs of each measurement; default 5
	// Most bounds the total time of the runs of one measurement; default 2 s. A slow measurement runs fewer times than
	// Runs, but at least once.
	Most time.Duration
	Log  func(string) // is called with the name of each measurement before it runs; may be nil
	// Rates selects the rates for predictions, in the syntax of rates.Find; "": the profile of the GPU.
	Rates string
}

// Where describes the machine whose rates were measured. JSON reports include it.
type Where struct {
	Device   string  `json:"device"`
	Cores    int     `json:"cores"`
	Emulated bool    `json:"emulated,omitempty"` // the figures of --device cuda come from an emulator
	Load     float64 `json:"load_before"`        // load average of the last minute before the start
	// PredictedFor names the machine whose rates give the predictions. If there is none, Unpredicted is the reason.
	PredictedFor string `json:"predicted_for,omitempty"`
	Unpredicted  string `json:"unpredicted,omitempty"`

	machine *rates.Machine // nil: nothing is predicted
}

// String returns the description that is printed above a table.
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

// with opens the device, calls f with a meter on the device and the machine's description, and closes both. what names
// the benchmark in errors.
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

// cores returns the number of host cores in use.
func cores() int { return runtime.GOMAXPROCS(0) }

func (o OnDevice) options() measure.Options {
	return measure.Options{Runs: o.Runs, Most: o.Most}
}

// next logs the measurement that runs next. If ctx is done, it logs nothing and returns the error of ctx.
func (o OnDevice) next(ctx context.Context, format string, args ...any) error {
	if o.Log != nil && ctx.Err() == nil {
		o.Log(fmt.Sprintf(format, args...))
	}
	return ctx.Err()
}

// scale returns the index of the default sizes of work: 0 for an emulator, 1 for a CPU, 2 for a GPU. An emulator needs
// a minute for what takes a GPU a millisecond.
func (o OnDevice) scale() int {
	switch {
	case o.Device != "cuda":
		return 1
	case machine.Emulated():
		return 0
	}
	return 2
}

// dtypes returns asked or, if that is empty, the default: fp32 on a CPU, bf16 and fp32 on a GPU.
func (o OnDevice) dtypes(asked []device.DType) []device.DType {
	switch {
	case len(asked) > 0:
		return asked
	case o.Device == "cuda":
		return []device.DType{device.BF16, device.F32}
	}
	return []device.DType{device.F32}
}

// rateOf returns the rates of runs that each do this amount of work. t has the times of the runs.
func rateOf(amount float64, t measure.Seconds) Sample {
	return Sample{Median: amount / t.Median, Min: amount / t.Most, Max: amount / t.Least}
}

// outOfMemory reports whether err says that the device's memory is full. Benchmarks leave out shapes that do not fit.
func outOfMemory(err error) bool {
	var full *device.OutOfMemory
	return errors.As(err, &full)
}
