package main

import (
	"context"
	"errors"
	"fmt"

	"mt/internal/machine"
	"mt/internal/selftest"
)

// selfTest is what the flags of mt doctor --selftest say.
type selfTest struct {
	wanted bool
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
	o := selftest.Options{Device: dev, CPU: cpu, Train: selftest.TrainSteps(ctx),
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
