package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mt/bench"
	"mt/internal/config"
)

// shapesBench is what the flags of mt bench shapes say.
type shapesBench struct {
	benchOutput
	options bench.ShapesOptions
	change  bench.TrainShape
	sweeps  []string
	memory  string
	copied  bool
}

func (a *app) benchShapes() *cobra.Command {
	b := &shapesBench{}
	c := &cobra.Command{
		Use:   "shapes",
		Short: "Training steps of a model made deeper and wider",
		Long: `Bench shapes trains a model over random tokens as it gets deeper (more blocks) and
wider (more heads of the same size, and a hidden size and an MLP that grow with them),
and prints tokens a second, FLOP/s and memory of each.

With --alias-layers all blocks share the memory of one. So shapes run that are larger
than the host, at the speed that they would have; what they compute means nothing,
which is said beside every figure. There is no clipping then, as its gradients would
take 4 bytes a parameter, and the learning rate is 0.`,
		Example: `  mt bench shapes
  mt bench shapes --base qwen2.5-7b --device cuda --dtype bf16 --alias-layers --svg shapes.svg`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := b.check(a); err != nil {
				return err
			}
			r, err := bench.Shapes(c.Context(), b.options)
			if err != nil {
				return err
			}
			return a.benchReport("shapes", &b.benchOutput, r)
		},
	}
	f, o := c.Flags(), &b.options
	b.flags(c)
	f.StringVar(&o.Name, "base", "quickstart", strings.Join(shapeNames(), ", "))
	f.StringSliceVar(&b.sweeps, "sweep", []string{"depth", "width"}, "depth, width or both")
	f.Float64SliceVar(&o.Depths, "depths", []float64{1, 1.5, 2, 3, 4, 6}, "how many times as many blocks")
	f.IntSliceVar(&o.Widths, "widths", []int{1, 2, 3, 4}, "how many times as wide")
	f.IntVar(&b.change.Rows, "rows", 0, "rows of a step (default: the base's)")
	f.IntVar(&b.change.SeqLen, "seq-len", 0, "tokens of a row (default: the base's)")
	f.StringVar(&o.DType, "dtype", "fp32", "fp32 or bf16")
	f.StringVar(&o.Ours.Device, "device", "cpu", "cpu or cuda")
	f.StringVar(&b.memory, "device-memory", "", "budget of the device, for example 10GiB (default: all of it)")
	f.StringVar(&o.Ours.Recompute, "recompute", "auto", "auto, full or none")
	f.BoolVar(&o.Ours.AliasLayers, "alias-layers", false, "all blocks share one memory: what is computed means nothing")
	f.BoolVar(&o.Ours.NoClip, "no-clip", false, "without gradient clipping")
	f.BoolVar(&b.copied, "copy", false, "copy tiles as a GPU would instead of binding them in place")
	f.IntVar(&o.Ours.Threads, "threads", 0, "worker threads (default: all cores)")
	f.IntVar(&o.Warmup, "warmup", 1, "steps before those that count")
	f.IntVar(&o.Steps, "steps", 4, "steps that count")
	return c
}

// check completes the options, or says what is wrong with the flags.
func (b *shapesBench) check(a *app) error {
	o := &b.options
	base, ok := bench.TrainShapes()[o.Name]
	if !ok {
		return config.Usagef("bench shapes: --base %q: want %s", o.Name, strings.Join(shapeNames(), ", "))
	}
	for _, s := range b.sweeps {
		if s != "depth" && s != "width" {
			return config.Usagef("bench shapes: --sweep %q: want depth or width", s)
		}
	}
	if !slices.Contains(b.sweeps, "depth") {
		o.Depths = nil
	}
	if !slices.Contains(b.sweeps, "width") {
		o.Widths = nil
	}
	if len(o.Depths)+len(o.Widths) == 0 {
		return config.Usagef("bench shapes: --sweep, --depths and --widths leave no shape")
	}
	for _, d := range o.Depths {
		if !(d > 0 && d <= 1000) {
			return config.Usagef("bench shapes: --depths %g: want numbers above 0, up to 1000", d)
		}
	}
	if err := positive("shapes", "widths", o.Widths); err != nil {
		return err
	}
	if len(o.Widths) > 0 && slices.Max(o.Widths) > 64 {
		return config.Usagef("bench shapes: --widths %d: want numbers up to 64", slices.Max(o.Widths))
	}
	if o.DType != "fp32" && o.DType != "bf16" || o.Steps < 1 || o.Warmup < 1 || o.Ours.Threads < 0 || b.change.Rows < 0 || b.change.SeqLen < 0 {
		return config.Usagef("bench shapes: --dtype is fp32 or bf16, --steps and --warmup at least 1, --threads, --rows and --seq-len not negative")
	}
	if d := o.Ours.Device; d != "cpu" && d != "cuda" {
		return config.Usagef("bench shapes: --device %q: want cpu or cuda", d)
	}
	if r := o.Ours.Recompute; r != "auto" && r != "full" && r != "none" {
		return config.Usagef("bench shapes: --recompute %q: want auto, full or none", r)
	}
	if b.memory != "" {
		n, err := sizeFlag(b.memory)
		if err != nil || n < 1<<20 {
			return config.Usagef("bench shapes: --device-memory %q: want a size such as 10GiB", b.memory)
		}
		o.Ours.DeviceMemory = n
	}
	o.Base, o.Ours.Unified = base.With(b.change), !b.copied
	if a.interactive {
		o.Log = func(what string) { a.stderr.Write([]byte(what + "\n")) }
	}
	return b.benchOutput.check("shapes")
}
