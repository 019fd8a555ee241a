package bench

import (
	"context"
	_ "embed" // for torchScript
	"strconv"
)

//go:embed peers/torch_cpu.py
var torchScript string

// Torch is PyTorch in a process of its own, which trains the shape it was
// started with. It speaks the protocol described in peers/torch_cpu.py.
type Torch struct{ *peer }

// StartTorch is a NewRunner: it returns when PyTorch is loaded and warm. It runs
// operation by operation ("eager"). ctx ends the process.
func StartTorch(ctx context.Context, s TrainSetup) (TrainRunner, error) {
	return newTorch(ctx, s)
}

// StartTorchCompile is StartTorch with the model compiled by torch.compile, which
// takes a minute or more before the first step and needs a C++ compiler.
func StartTorchCompile(ctx context.Context, s TrainSetup) (TrainRunner, error) {
	return newTorch(ctx, s, "--compile")
}

func newTorch(ctx context.Context, s TrainSetup, flags ...string) (TrainRunner, error) {
	t, err := startTorch(ctx, python(), s, flags...)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Parameters are those of the model that PyTorch says it trains.
func (t *Torch) Parameters() int64 {
	n, _ := t.about["parameters"].(float64)
	return int64(n)
}

// startTorch is newTorch with the interpreter named.
func startTorch(ctx context.Context, python string, s TrainSetup, flags ...string) (*Torch, error) {
	p, err := startPeer(ctx, python, "torch and transformers", torchScript, append(torchArguments(s), flags...)...)
	if err != nil {
		return nil, err
	}
	return &Torch{p}, nil
}

// torchArguments are the flags that say what s says.
func torchArguments(s TrainSetup) []string {
	args := []string{"--serve", "--dtype", s.DType, "--threads", strconv.Itoa(s.Threads), "--warmup", strconv.Itoa(s.Warmup)}
	for _, f := range []struct {
		name  string
		value int
	}{
		{"hidden-size", s.Shape.HiddenSize},
		{"intermediate-size", s.Shape.IntermediateSize},
		{"num-hidden-layers", s.Shape.Layers},
		{"num-attention-heads", s.Shape.Heads},
		{"num-key-value-heads", s.Shape.KVHeads},
		{"vocab-size", s.Shape.VocabSize},
		{"rows", s.Shape.Rows},
		{"seq-len", s.Shape.SeqLen},
	} {
		args = append(args, "--"+f.name, strconv.Itoa(f.value))
	}
	if s.Shape.HeadDim > 0 {
		args = append(args, "--head-dim", strconv.Itoa(s.Shape.HeadDim))
	}
	if s.Shape.AttentionBias {
		args = append(args, "--attention-bias", "1")
	}
	return args
}
