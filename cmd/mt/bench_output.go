package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"mt/bench"
	"mt/device"
	"mt/internal/run/config"
)

// benchDevice holds the flags of those mt bench commands that measure a device.
type benchDevice struct {
	on     bench.OnDevice
	json   bool
	memory string
	dtypes []string
}

// ratesFlag is the help text of --rates.
const ratesFlag = "what figures are predicted with: a GPU, GPU+HOST, or a file of mt doctor --save (default: the profile of this GPU)"

func (b *benchDevice) flags(c *cobra.Command, dtype bool) {
	f := c.Flags()
	f.BoolVar(&b.json, "json", false, "print JSON")
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

// check completes the options and returns the dtypes to measure. It returns a UsageError for invalid flags. name is
// the benchmark's name in errors.
func (b *benchDevice) check(a *app, name string) (dtypes []device.DType, err error) {
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

// sizeFlag parses the value of a size flag, such as 64MiB, and returns the number of bytes, at
// least 1.
func sizeFlag(s string) (int64, error) {
	n, err := humanize.ParseBytes(s)
	if err != nil || n < 1 || n > 1<<62 {
		return 0, fmt.Errorf("%q is no size", s)
	}
	return int64(n), nil
}

// positive returns a UsageError unless all numbers that a flag gives are at least 1. name is the command, and flag the
// flag, in the error.
func positive(name, flag string, numbers []int) error {
	for _, n := range numbers {
		if n < 1 {
			return config.Usagef("bench %s: --%s %s: want numbers of at least 1", name, flag, strings.Trim(fmt.Sprint(numbers), "[]"))
		}
	}
	return nil
}
