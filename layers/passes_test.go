package layers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"mt/base/accounts"
	"mt/device"
	"mt/device/op"
	"mt/internal/testkit"
	"mt/model"
)

// passDevice counts the bytes of the operations it is given. Its memory has addresses but no content.
type passDevice struct {
	*toy
	next  uintptr
	bytes map[string]int64
}

func (d *passDevice) Alloc(_ accounts.Purpose, n int64) (device.Mem, error) {
	m := device.Mem{Addr: d.next, Bytes: n}
	d.next += uintptr(n+device.Align) / device.Align * device.Align
	return m, nil
}

// Do counts o. A matrix product counts only the operand C that it adds, and attention counts nothing.
func (d *passDevice) Do(_ device.Stream, o device.Op) {
	if err := o.Check(); err != nil {
		panic(err)
	}
	switch o := o.(type) {
	case *op.MatMul:
		if !o.C.None() && o.C.DType == device.BF16 {
			d.bytes["residual in MatMul"] += o.C.DType.Size() * int64(o.M*o.N)
		}
	case *op.Attention, *op.AttentionBackward:
	default:
		d.bytes[o.Name()] += o.(op.Mover).Bytes()
	}
}

// passStream is a stream that does nothing.
type passStream struct{ device.Stream }

func (passStream) Zero(device.Mem) {}

// TestBytesOfElementwisePasses holds the bytes for each token that the elementwise passes of a block of Qwen2.5-7B
// move in bf16. docs/decisions/2026-11-elementwise-passes.md has the same table.
func TestBytesOfElementwisePasses(t *testing.T) {
	cfg := testkit.Must(model.Preset("qwen2.5-7b"))(t)
	const forward = "GLU 113664, RMSNorm 28672, RoPE 16896, residual in MatMul 14336, sum 173568"
	for _, c := range []struct {
		keep              Keep
		forward, backward string
	}{
		{KeepNothing, forward, "AddBiasGrad 9218, GLUBackward 227328, RMSNorm 43008, RMSNormBackward 57344, RoPE 33792, residual in MatMul 7168, sum 377858"},
		{KeepAttention, forward, "AddBiasGrad 9218, GLUBackward 227328, RMSNorm 43008, RMSNormBackward 57344, RoPE 33792, residual in MatMul 7168, sum 377858"},
		{KeepQKV, forward, "AddBiasGrad 9218, GLUBackward 227328, RMSNorm 28672, RMSNormBackward 57344, RoPE 16896, residual in MatMul 7168, sum 346626"},
		{KeepAll, forward, "AddBiasGrad 9218, GLUBackward 227328, RMSNorm 28672, RMSNormBackward 57344, RoPE 16896, sum 339458"},
		{KeepInputs, forward, "AddBiasGrad 9218, GLUBackward 189440, RMSNormBackward 57344, RoPE 16896, sum 272898"},
	} {
		forward, backward := blockPasses(t, cfg, c.keep)
		if got := inWords(forward); got != c.forward {
			t.Errorf("keep %v, forward: %s\nwant %s", c.keep, got, c.forward)
		}
		if got := inWords(backward); got != c.backward {
			t.Errorf("keep %v, backward: %s\nwant %s", c.keep, got, c.backward)
		}
	}
}

// TestPassBytesSpared: PassBytesSpared is how many bytes for each token the passes of a backward move less at
// KeepInputs than at KeepAll, in blocks with different norms and MLPs.
func TestPassBytesSpared(t *testing.T) {
	for name, change := range map[string]func(*model.Config){
		"plain":           func(*model.Config) {},
		"four norms":      func(c *model.Config) { c.SandwichNorms = true },
		"norms of output": func(c *model.Config) { c.OutputNorms = true },
		"parallel":        func(c *model.Config) { c.LayerNorm, c.Parallel = true, true },
		"one norm":        func(c *model.Config) { c.LayerNorm, c.Parallel, c.SharedNorm = true, true, true },
		"no gate":         func(c *model.Config) { c.Ungated, c.Activation = true, model.GELU },
		"xIELU":           func(c *model.Config) { c.Ungated, c.Activation = true, model.XIELU },
		"beside Mamba-2":  func(*model.Config) {},
	} {
		cfg := testkit.Must(model.Preset("qwen2.5-7b"))(t)
		if change(cfg); name == "beside Mamba-2" {
			cfg = besideConfig()
		}
		sum := func(keep Keep) (n int64) {
			_, backward := blockPasses(t, cfg, keep)
			for _, bytes := range backward {
				n += bytes
			}
			return n
		}
		all, inputs := sum(KeepAll), sum(KeepInputs)
		if spared := (Spec{Config: cfg, Act: device.BF16}).PassBytesSpared(0, KeepInputs); spared == 0 || spared != all-inputs {
			t.Errorf("%s: %d bytes are spared, %d of %d are moved", name, spared, inputs, all)
		}
	}
}

// inWords lists bytes by name, and their sum.
func inWords(bytes map[string]int64) string {
	var sum int64
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(bytes)) {
		fmt.Fprintf(&b, "%s %d, ", name, bytes[name])
		sum += bytes[name]
	}
	return fmt.Sprintf("%ssum %d", b.String(), sum)
}

// blockPasses returns the bytes that passDevice counts for each token in a block's forward and backward, in bf16.
func blockPasses(t *testing.T, cfg *model.Config, keep Keep) (forward, backward map[string]int64) {
	const tokens = 1 << 14
	d := &passDevice{toy: newToy(), next: device.Align}
	tensor := func(dt device.DType, n int) device.Tensor {
		return testkit.Must(d.Alloc(accounts.Workspace, int64(n)*dt.Size()))(t).Tensor(dt, 0, int64(n))
	}
	half := cfg.HeadDim / 2
	sp := Spec{Config: cfg, Act: device.BF16, Keep: KeepIn(cfg.NumLayers, keep), MaxTokens: tokens, Positions: tokens,
		Cos: tensor(device.F32, tokens*half), Sin: tensor(device.F32, tokens*half)}
	tpl, l := New(sp, d), cfg.Layouts(true)[1]
	w := BindWeights(l, testkit.Must(d.Alloc(accounts.Workspace, l.SlotBytes))(t))
	g := BindGrads(l, testkit.Must(d.Alloc(accounts.Workspace, 4*l.GradElems))(t))
	saved := testkit.Must(d.Alloc(accounts.Workspace, sp.savedBytes(sp.dims(0), true, keep, tokens)))(t)
	ws := testkit.Must(d.Alloc(accounts.Workspace, sp.WorkspaceBytes()))(t)
	mb := MicroBatch{Tokens: tokens, Seqs: 1, MaxSeqlen: tokens, Pos: tensor(device.I32, tokens), Cu: tensor(device.I32, 2)}
	x, y := OnDevice(tensor(device.BF16, tokens*cfg.HiddenSize)), OnDevice(tensor(device.BF16, tokens*cfg.HiddenSize))
	count := func(f func(device.Stream)) map[string]int64 {
		d.bytes = map[string]int64{}
		f(passStream{})
		for name := range d.bytes {
			d.bytes[name] /= tokens
		}
		return d.bytes
	}
	return count(func(s device.Stream) { tpl.BlockForward(s, 0, w, y, x, mb, saved, ws) }),
		count(func(s device.Stream) { tpl.BlockBackward(s, 0, w, g, y, x, mb, saved, ws, true) })
}
