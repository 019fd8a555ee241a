package main

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"mt/bench"
	"mt/device/cuda"
	"mt/internal/run/config"
	"mt/internal/run/trials"
	"mt/plan"
)

// trainBench holds the flags of mt bench train.
type trainBench struct {
	options   bench.TrainOptions
	ours      trials.SyntheticOptions
	shape     string
	change    bench.TrainShape // replaces the shape's values; 0: keep
	peer      string
	memory    string
	copied    bool
	asJSON    bool
	published bool
}

func (a *app) benchTrain() *cobra.Command {
	b := &trainBench{}
	c := &cobra.Command{
		Use:   "train",
		Short: "Training steps of the whole pipeline, beside PyTorch where it is installed",
		Long: `Bench train times training steps over random tokens. With --peer another system
trains the same model from the same weights, on the same batches, in the same
precision and on the same machine, in turn. Its losses must be ours, or the
comparison is an error. The peers:

  torch          plain PyTorch, operation by operation, where the model fits
  torch-compile  the same through torch.compile, on the CPU; it takes a minute
  fsdp2          PyTorch's FSDP2 with CPU offload
  zero3          DeepSpeed's ZeRO-3 with CPU offload and CPUAdam
  megatrain      MegaTrain's public code, on a GPU

MT_PYTHON names the interpreter that has them; what is not installed says how to
install it. On the CPU both sides stay loaded and warm. On a GPU, which does not
hold both, each turn starts its side anew. --published prints what others have
published, as they count and as we do. docs/peers.md says more.`,
		Example: `  mt bench train --peer torch
  mt bench train --peer fsdp2 --shape tiny
  mt bench train --published
  mt bench train --device cuda --dtype bf16 --shape qwen2.5-7b --blocks 8 --rows 64 --device-memory 10GiB`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if b.published {
				r, err := bench.Published()
				if err != nil {
					return err
				}
				return a.report(r, b.asJSON)
			}
			if err := b.check(); err != nil {
				return err
			}
			if b.peer != "" {
				if err := bench.CheckTrainPeer(c.Context(), b.peer, b.ours.Device); err != nil {
					return config.Usagef("bench train: %w", err)
				}
			}
			r, err := bench.Train(c.Context(), b.options)
			if r != nil { // report the measurements made before an error
				err = errors.Join(err, a.report(r, b.asJSON))
			}
			return err
		},
	}
	b.flags(c)
	return c
}

func (b *trainBench) flags(c *cobra.Command) {
	f, o := c.Flags(), &b.options
	f.StringVar(&b.shape, "shape", "quickstart", strings.Join(shapeNames(), ", "))
	f.IntVar(&b.change.Layers, "blocks", 0, "decoder blocks (default: the shape's)")
	f.IntVar(&b.change.Rows, "rows", 0, "rows of a step (default: the shape's)")
	f.IntVar(&b.change.SeqLen, "seq-len", 0, "tokens of a row (default: the shape's)")
	f.StringVar(&o.DType, "dtype", "fp32", "fp32 or bf16")
	f.StringVar(&b.peer, "peer", "", strings.Join(bench.TrainPeers(), ", ")+", or nothing")
	f.BoolVar(&b.published, "published", false, "print published figures and measure nothing")
	f.StringVar(&b.ours.Device, "device", "cpu", "cpu or cuda")
	f.IntVar(&b.ours.Devices, "devices", 1, "how many of them share the layers; a peer has one")
	f.StringVar(&b.memory, "device-memory", "", "budget of each device, for example 10GiB (default: all of it)")
	f.StringVar(&b.ours.Recompute, "recompute", "auto", "auto, full or none")
	for _, d := range plan.AllDepths {
		if d.Device {
			f.IntVar(d.Of(&b.ours.Depths), strings.ReplaceAll(d.Name, "_", "-"), 0, d.Key()+" (default: automatic)")
		}
	}
	f.IntVar(&b.ours.MicroTokens, "micro-batch-tokens", 0, "pipeline.micro_batch_tokens (default: automatic)")
	f.StringVar(&b.ours.AttentionKernels, "attention-kernels", "auto", "attention_kernels on a GPU: auto, fused, portable, sm90a or sm90a_fused")
	f.BoolVar(&b.ours.TimedMatMul, "timed-matmul", false, "matmul: timed on a GPU: each product by the fastest algorithm of cuBLASLt")
	f.BoolVar(&b.ours.NoClip, "no-clip", false, "without gradient clipping")
	f.BoolVar(&b.ours.Profile, "profile", false, "time every operation on the device")
	f.BoolVar(&b.copied, "copy", false, "copy tiles as a GPU would instead of binding them in place")
	f.StringVar(&o.Rates, "rates", "", ratesFlag)
	f.IntVar(&o.Threads, "threads", 0, "worker threads (default: all cores)")
	f.IntVar(&o.Warmup, "warmup", 3, "steps before the first that counts")
	f.IntVar(&o.Rounds, "rounds", 7, "how often each side runs")
	f.IntVar(&o.Steps, "steps", 5, "steps of a side in a round that count, between one before and one after")
	f.BoolVar(&b.asJSON, "json", false, "print JSON")
}

func shapeNames() []string { return slices.Sorted(maps.Keys(bench.TrainShapes())) }

// check completes the options of mt bench train from its flags. It returns a UsageError for invalid
// flags.
func (b *trainBench) check() error {
	o := &b.options
	shape, ok := bench.TrainShapes()[b.shape]
	if !ok {
		return config.Usagef("bench train: --shape %q: want %s", b.shape, strings.Join(shapeNames(), ", "))
	}
	if o.DType != "fp32" && o.DType != "bf16" || o.Threads < 0 || o.Rounds < 1 || o.Steps < 1 || o.Warmup < 1 {
		return config.Usagef("bench train: --dtype is fp32 or bf16, --threads not negative, --rounds, --steps and --warmup at least 1")
	}
	for _, v := range []int{b.change.Layers, b.change.Rows, b.change.SeqLen} {
		if v < 0 {
			return config.Usagef("bench train: --blocks, --rows and --seq-len are not negative, got %d", v)
		}
	}
	if d := b.ours.Device; d != "cpu" && d != "cuda" {
		return config.Usagef("bench train: --device %q: want cpu or cuda", d)
	}
	if k := b.ours.AttentionKernels; k != "auto" && !slices.Contains(cuda.AttentionChoices, k) {
		return config.Usagef("bench train: --attention-kernels %q: want auto, fused, portable, sm90a or sm90a_fused", k)
	}
	if n := b.ours.Devices; n < 1 || n > 1 && b.ours.Profile {
		return config.Usagef("bench train: --devices %d: want at least 1, and 1 with --profile", n)
	}
	if b.memory != "" {
		n, err := humanize.ParseBytes(b.memory)
		if err != nil || n < 1<<20 || n > 1<<62 {
			return config.Usagef("bench train: --device-memory %q: want a size such as 10GiB", b.memory)
		}
		b.ours.DeviceMemory = int64(n)
	}
	if b.peer != "" {
		var err error
		if o.Peer, o.PeerName, err = bench.TrainPeer(b.peer, b.ours.Device); err != nil {
			return config.Usagef("bench train: %w", err)
		}
	}
	o.Device = b.ours.Device
	o.Fresh = o.Device != "cpu" && o.Peer != nil // a GPU cannot hold both sides at once
	o.Shape = shape.With(b.change)
	b.ours.Unified = !b.copied
	o.Ours = bench.NewOurs(b.ours)
	return nil
}
