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

// StartTorch is a NewRunner: it returns when PyTorch is loaded and warm. ctx
// ends the process.
func StartTorch(ctx context.Context, s TrainSetup) (TrainRunner, error) {
	t, err := startTorch(ctx, python(), s)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// startTorch is StartTorch with the interpreter named.
func startTorch(ctx context.Context, python string, s TrainSetup) (*Torch, error) {
	p, err := startPeer(ctx, python, "torch and transformers", torchScript, torchArguments(s)...)
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
	return args
}
