package main

import (
	"context"
	"errors"
	"fmt"

	"mt/device"
	"mt/internal/machine"
	"mt/internal/selftest"
)

// selfTest is what the flags of mt doctor --selftest say.
type selfTest struct {
	wanted bool
	small  bool // the sizes of training are small on a GPU too
	device string
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
	r, err := selftest.Run(ctx, o)
	if err != nil {
		return fmt.Errorf("doctor: %w", err)
	}
	if n, ok := dev.(interface{ Notes() []string }); ok {
		r.Notes = n.Notes()
	}
	if err := a.report(r, asJSON); err != nil {
		return err
	}
	if !r.OK {
		return fmt.Errorf("doctor: %d of %d checks of %s failed", r.Failed(), len(r.Checks), dev.Name())
	}
	return nil
}

// ownProducts opens the GPU dev once more, with matrix products by mt's own kernels. It is nil where there
// is no library that dev uses in their place.
func ownProducts(dev device.Device) (device.Device, error) {
	if d, ok := dev.(interface{ CuBLASLt() int }); !ok || d.CuBLASLt() == 0 {
		return nil, nil
	}
	return machine.Open(machine.Options{Device: "cuda", OwnMatMul: true})
}
