package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"mt/bench"
	"mt/device"
	"mt/internal/config"
)

// benchOutput says where the figures of a benchmark go.
type benchOutput struct {
	json   bool
	svg    string // file
	report string // directory
	at     time.Time
}

func (b *benchOutput) flags(c *cobra.Command) {
	c.Flags().BoolVar(&b.json, "json", false, "print JSON")
	c.Flags().StringVar(&b.svg, "svg", "", "draw the figures into this file too")
	c.Flags().StringVar(&b.report, "report", "", "write a dated report with machine, command and versions into this directory too")
}

// check refuses, before anything is measured, what could not be written afterwards.
func (b *benchOutput) check(name string) error {
	b.at = time.Now()
	if b.svg != "" {
		if info, err := os.Stat(filepath.Dir(b.svg)); err != nil || !info.IsDir() {
			return config.Usagef("bench %s: --svg %s: there is no directory %s; make it first", name, b.svg, filepath.Dir(b.svg))
		}
		if info, err := os.Stat(b.svg); err == nil && info.IsDir() {
			return config.Usagef("bench %s: --svg %s is a directory: name a file in it", name, b.svg)
		}
	}
	if b.report != "" {
		if info, err := os.Stat(b.report); err == nil && !info.IsDir() {
			return config.Usagef("bench %s: --report %s is a file: name a directory", name, b.report)
		}
	}
	return nil
}

// benchReport prints r as a table or as JSON, draws it and dates it.
func (a *app) benchReport(name string, b *benchOutput, r bench.Report) error {
	if b.svg != "" {
		var picture bytes.Buffer
		if err := r.Chart().WriteSVG(&picture); err != nil {
			return err
		}
		if err := os.WriteFile(b.svg, picture.Bytes(), 0o644); err != nil {
			return fmt.Errorf("bench %s: --svg: %w", name, err)
		}
	}
	if b.report != "" {
		d := bench.Dated{Name: name, Command: append([]string{"mt"}, a.args...), Version: thisVersion().String(), At: b.at}
		path, err := d.Write(b.report, r)
		if err != nil {
			return err
		}
		fmt.Fprintln(a.stderr, "report:", path)
	}
	return a.report(r, b.json)
}

// benchDevice are the flags of a benchmark that measures a device.
type benchDevice struct {
	benchOutput
	on     bench.OnDevice
	memory string
	dtypes []string
}

// ratesFlag explains --rates.
const ratesFlag = "what figures are predicted with: a GPU, GPU+HOST, or a file of mt doctor --save (default: the profile of this GPU)"

func (b *benchDevice) flags(c *cobra.Command, dtype bool) {
	b.benchOutput.flags(c)
	f := c.Flags()
	f.StringVar(&b.on.Device, "device", "cpu", "cpu or cuda")
	f.StringVar(&b.memory, "device-memory", "", "budget of the device, for example 10GiB (default: all of it)")
	f.IntVar(&b.on.Threads, "threads", 0, "worker threads of the CPU (default: all cores)")
	f.StringVar(&b.on.Rates, "rates", "", ratesFlag)
	f.IntVar(&b.on.Runs, "runs", 5, "how often each piece of work is timed")
	f.DurationVar(&b.on.Most, "most", 2*time.Second, "slow work is timed fewer times than --runs, within this time")
	if dtype {
		f.StringSliceVar(&b.dtypes, "dtype", nil, "fp32, bf16 or both (default: fp32 on a CPU, both on a GPU)")
	}
}

// check completes the options, or says what is wrong with the flags.
func (b *benchDevice) check(a *app, name string) (dtypes []device.DType, err error) {
	if err := b.benchOutput.check(name); err != nil {
		return nil, err
	}
	switch {
	case b.on.Device != "cpu" && b.on.Device != "cuda":
		return nil, config.Usagef("bench %s: --device %q: want cpu or cuda", name, b.on.Device)
	case b.on.Runs < 1 || b.on.Threads < 0 || b.on.Most <= 0:
		return nil, config.Usagef("bench %s: --runs %d, --threads %d, --most %s: want at least 1 run, no negative number of threads and some time",
			name, b.on.Runs, b.on.Threads, b.on.Most)
	}
	if b.memory != "" {
		if b.on.DeviceMemory, err = sizeFlag(b.memory); err != nil {
			return nil, config.Usagef("bench %s: --device-memory %q: want a size such as 10GiB", name, b.memory)
		}
	}
	for _, s := range b.dtypes {
		switch s {
		case "fp32":
			dtypes = append(dtypes, device.F32)
		case "bf16":
			dtypes = append(dtypes, device.BF16)
		default:
			return nil, config.Usagef("bench %s: --dtype %q: want fp32 or bf16", name, s)
		}
	}
	if a.interactive {
		b.on.Log = func(what string) { fmt.Fprintln(a.stderr, what) }
	}
	return dtypes, nil
}

// sizeFlag reads a size of at least one byte, such as 64MiB.
func sizeFlag(s string) (int64, error) {
	n, err := humanize.ParseBytes(s)
	if err != nil || n < 1 || n > 1<<62 {
		return 0, fmt.Errorf("%q is no size", s)
	}
	return int64(n), nil
}

// positive checks that all numbers of a flag are at least 1.
func positive(name, flag string, numbers []int) error {
	for _, n := range numbers {
		if n < 1 {
			return config.Usagef("bench %s: --%s %s: want numbers of at least 1", name, flag, strings.Trim(fmt.Sprint(numbers), "[]"))
		}
	}
	return nil
}
