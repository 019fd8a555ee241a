package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"mt/bench"
	"mt/device"
	"mt/device/conformance/operations"
	"mt/internal/config"
	"mt/internal/machine"
	"mt/internal/selftest"
)

// selfTest is what the flags of mt doctor --selftest say.
type selfTest struct {
	wanted bool
	small  bool // the sizes of training are small on a GPU too
	device string
	report string // file for the report so far, after every part; empty: none
	repeat int    // how many times more the table is run beside copies
	only   string // operations whose cases of the table are run, with commas between them; empty: all
}

// define gives set the flags of the self test.
func (t *selfTest) define(set *pflag.FlagSet) {
	set.BoolVar(&t.wanted, "selftest", false, "test the device")
	set.BoolVar(&t.small, "small", false, "with --selftest: all sizes small, for tools under which a GPU is slow")
	set.StringVar(&t.report, "report", "", "with --selftest: write the report so far to this file, as JSON, after every part")
	set.StringVar(&t.only, "only", "", "with --selftest: of the table of operations run these alone, as Attention,MatMul")
	set.IntVar(&t.repeat, "repeat", 0, "with --selftest: run the table of operations so many times more beside copies, and compare the bits")
}

// selfTest tests a device and prints what it found. After the report it returns an
// error if a check has failed.
func (a *app) selfTest(ctx context.Context, t selfTest, asJSON bool) (err error) {
	cpu, err := machine.Open(machine.Options{Device: "cpu"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cpu.Close()) }()
	dev := cpu
	if t.device != "cpu" {
		gpu, none := machine.Open(machine.Options{Device: "cuda"})
		switch {
		case none == nil:
			dev = gpu
			defer func() { err = errors.Join(err, gpu.Close()) }()
		case t.device == "cuda":
			return fmt.Errorf("doctor: %w", none)
		}
	}
	own, err := ownProducts(dev)
	if err != nil {
		return fmt.Errorf("doctor: %w", err)
	}
	if own != nil {
		defer func() { err = errors.Join(err, own.Close()) }()
	}
	o := selftest.Options{Device: dev, CPU: cpu, Own: own, Small: t.small || dev.Kind() == "cpu" || machine.Emulated(), Train: selftest.TrainSteps(ctx),
		Progress: func(what string) { fmt.Fprintln(a.stderr, "self test:", what) }}
	if o.Cases, err = t.cases(); err != nil {
		return err
	}
	if o.Repeat = t.repeat; o.Repeat < 0 {
		return config.Usagef("doctor: --repeat %d: want a number of times", o.Repeat)
	}
	o.Save = t.save
	if o.Rates, _, err = bench.RatesOf("", dev); err != nil {
		return fmt.Errorf("doctor: %w", err)
	}
	r, failed := selftest.Run(ctx, o)
	if n, ok := dev.(interface{ Notes() []string }); ok {
		r.Notes = n.Notes()
	}
	if err := errors.Join(t.save(r), a.report(r, asJSON)); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("doctor: %w", failed)
	}
	if !r.OK {
		return fmt.Errorf("doctor: %d of %d checks of %s failed", r.Failed(), len(r.Checks), dev.Name())
	}
	return nil
}

// cases accepts the cases of the operations that --only names; nil: all.
func (t selfTest) cases() (func(name string) bool, error) {
	if t.only == "" {
		return nil, nil
	}
	wanted := strings.Split(t.only, ",")
	for _, op := range wanted {
		if !slices.Contains(operations.Names(), op) {
			return nil, config.Usagef("doctor: --only: no operation is called %q (known: %s)", op, strings.Join(operations.Names(), ", "))
		}
	}
	return func(name string) bool {
		op, _, _ := strings.Cut(name, "/")
		return slices.Contains(wanted, op)
	}, nil
}

// save puts the report so far in place of the one in the file, if one was asked for.
func (t selfTest) save(r *selftest.Report) error {
	if t.report == "" {
		return nil
	}
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	next := t.report + ".part"
	if err := os.WriteFile(next, append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("doctor: --report: %w", err)
	}
	return os.Rename(next, t.report)
}

// ownProducts opens the GPU dev once more, with matrix products by mt's own kernels. It is nil where there
// is no library that dev uses in their place.
func ownProducts(dev device.Device) (device.Device, error) {
	if d, ok := dev.(interface{ CuBLASLt() int }); !ok || d.CuBLASLt() == 0 {
		return nil, nil
	}
	return machine.Open(machine.Options{Device: "cuda", OwnMatMul: true})
}
