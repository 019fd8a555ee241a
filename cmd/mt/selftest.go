package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"mt/bench"
	"mt/device"
	"mt/internal/doctor"
	"mt/internal/run/config"
	"mt/internal/run/machine"
)

// selfTest holds the flags of mt doctor --selftest.
type selfTest struct {
	wanted    bool
	small     bool // use small sizes on a GPU too
	inProcess bool // without child processes
	device    string
	report    string        // file for the intermediate report; "": none
	repeat    int           // number of repetitions of the operation table beside copies
	only      string        // comma-separated operations and parts to run; "": all
	limit     time.Duration // time limit per case
	child     int           // number of the first part of the test to run, in a child process
}

// define adds the self-test flags to set.
func (t *selfTest) define(set *pflag.FlagSet) {
	set.BoolVar(&t.wanted, "selftest", false, "test the device")
	set.BoolVar(&t.small, "small", false, "with --selftest: all sizes small, for tools under which a GPU is slow")
	set.BoolVar(&t.inProcess, "in-process", false, "with --selftest: start no processes, for debuggers and sanitizers; a device that is lost, or hangs, ends the test")
	set.StringVar(&t.report, "report", "", "with --selftest: write the report so far to this file, as JSON, while the test runs")
	set.StringVar(&t.only, "only", "", "with --selftest: run these operations and parts alone, as MatMul,Attention/bf16,copies; an unknown name lists all")
	set.IntVar(&t.repeat, "repeat", 0, "with --selftest: run the table of operations so many times more beside copies, and compare the bits")
	set.DurationVar(&t.limit, "limit", time.Minute, "with --selftest: how long a case may take; one that takes longer hangs, and is killed")
	set.IntVar(&t.child, "child", -1, "begin with this unit, and write messages to a parent process")
	if err := set.MarkHidden("child"); err != nil {
		panic(err) // the flag is defined above
	}
}

// grace is the time that a child process of a self test gets to exit.
const grace = 20 * time.Second

// selfTest tests a device in child processes and prints the report. It returns an error if a check failed.
func (a *app) selfTest(ctx context.Context, t selfTest, asJSON bool) error {
	o := doctor.SelfTestOptions{Repeat: t.repeat, Save: t.save, Progress: func(what string) { fmt.Fprintln(a.stderr, "self test:", what) }}
	var err error
	if o.Choice, err = doctor.Choose(t.only); err != nil {
		return config.Usagef("doctor: --only: %v", err)
	}
	if t.repeat < 0 {
		return config.Usagef("doctor: --repeat %d: want a number of times", t.repeat)
	}
	if t.limit <= 0 {
		return config.Usagef("doctor: --limit %v: want a time, such as 90s", t.limit)
	}
	if t.child >= 0 {
		return a.selfTestChild(ctx, t, o)
	}
	var r *doctor.SelfTestReport
	if t.inProcess {
		opened, closing, none := t.open(ctx, a.stderr, o)
		if none != nil {
			return fmt.Errorf("doctor: %w", none)
		}
		r, err = doctor.SelfTest(ctx, opened)
		err = errors.Join(err, closing())
	} else {
		program, none := os.Executable()
		if none != nil {
			return fmt.Errorf("doctor: %w", none)
		}
		r, err = doctor.SuperviseSelfTest(ctx, o, doctor.Processes{Limit: t.limit, Grace: grace, Stderr: a.stderr,
			Command: func(kind string, from int) *exec.Cmd { return exec.Command(program, t.childArgs(kind, from)...) }})
	}
	if r.Device != "" { // otherwise nothing was tested
		if err := a.report(r, asJSON); err != nil {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("doctor: %w", err)
	}
	if !r.OK {
		return fmt.Errorf("doctor: %d of %d checks of %s failed", r.Failed(), len(r.Checks), r.Device)
	}
	return nil
}

// childArgs returns the command line of a child process that runs the units of the test from number `from` on, on a
// device of the given kind. kind "" means the kind that the user asked for.
func (t selfTest) childArgs(kind string, from int) []string {
	return []string{"doctor", "--selftest", "--device", cmp.Or(kind, t.device), fmt.Sprintf("--small=%t", t.small), "--repeat", strconv.Itoa(t.repeat),
		"--only=" + t.only, "--child", strconv.Itoa(from)}
}

// selfTestChild runs in a child process of a self test and tests the device. Only the parent decides when the child
// ends. So the child ignores signals, which a terminal or timeout(1) sends to both processes, and exits when the
// parent closes its standard input.
func (a *app) selfTestChild(ctx context.Context, t selfTest, o doctor.SelfTestOptions) error {
	signal.Ignore(stopSignals()...)
	go func() {
		_, _ = io.Copy(io.Discard, a.stdin)
		os.Exit(exitFailed)
	}()
	return doctor.ServeSelfTest(ctx, a.stdout, t.child, func() (doctor.SelfTestOptions, func() error, error) { return t.open(ctx, a.stderr, o) })
}

// open adds the devices that t selects to o. The devices report hanging work on stderr. closing closes them.
func (t selfTest) open(ctx context.Context, stderr io.Writer, o doctor.SelfTestOptions) (_ doctor.SelfTestOptions, closing func() error, err error) {
	var opened []device.Device
	closing = func() error { return machine.CloseAll(opened) }
	defer func() {
		if err != nil {
			err = errors.Join(err, closing())
		}
	}()
	add := func(m machine.Options) (device.Device, error) {
		dev, err := machine.Open(m)
		if err == nil {
			opened = append([]device.Device{dev}, opened...) // close the newest first
		}
		return dev, err
	}
	hangs := func(text string) { fmt.Fprintln(stderr, "note:", text) }
	if o.CPU, err = add(machine.Options{Device: "cpu"}); err != nil {
		return o, closing, err
	}
	o.Device = o.CPU
	if t.device != "cpu" {
		gpu, none := add(machine.Options{Device: "cuda", Hang: hangs})
		if none == nil {
			o.Device = gpu
		} else if t.device == "cuda" {
			return o, closing, none
		}
	}
	if d, ok := o.Device.(interface{ CuBLASLt() int }); ok && d.CuBLASLt() != 0 && o.NeedsOwn() {
		if o.Own, err = add(machine.Options{Device: "cuda", OwnMatMul: true, Hang: hangs}); err != nil {
			return o, closing, err
		}
	}
	if o.Rates, _, err = bench.RatesOf("", o.Device); err != nil {
		return o, closing, err
	}
	o.Small, o.Train = t.small || o.Device.Kind() == "cpu" || machine.Emulated(), doctor.TrainSteps(ctx)
	return o, closing, nil
}

// save atomically replaces the report file, if one was requested.
func (t selfTest) save(r *doctor.SelfTestReport) error {
	if t.report == "" {
		return nil
	}
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	next := t.report + ".next" // bench/gpu.sh uses PART.json.part for the printed output
	if err := os.WriteFile(next, append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("doctor: --report: %w", err)
	}
	return os.Rename(next, t.report)
}
