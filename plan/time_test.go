package plan

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"mt/device"
	"mt/host/optim"
	"mt/internal/testkit"
)

// sevenB requests steps of 128k tokens of a 7B model on a GPU with 76 GiB. The rates are typical of
// an H100 and a good host.
func sevenB() (Request, Rates) {
	q := Request{Planes: optim.AdamW{}.Planes, Config: qwen(3584, 18944, 28, 28, 4), Rows: 128, RowTokens: 1024, Act: device.BF16, Clip: true, DeviceMemory: 76 << 30,
		Recompute: "full", GradDType: "fp32"}
	return q, Rates{MatMul: 700e12, Host: 100e9, Link: 50e9}
}

func near(got, want, rel float64) bool { return math.Abs(got-want) <= rel*math.Abs(want) }

// TestBoundOfSevenB: the bound equals figures worked out by hand. 7.07e9 parameters are in matrix
// products. Attention is 28·28·128 = 100,352 elements wide (blocks, heads, head size), and a query
// attends to 512.5 positions on average.
func TestBoundOfSevenB(t *testing.T) {
	q, rates := sevenB()
	q.Positions = 8192 // tables that reach further than rows change nothing
	r := resolve(t, q)
	b := testkit.Must(Time(r, rates))(t)
	params := float64(q.Config.Params())
	forward := 131072 * (2*float64(q.Config.MatrixParams()) + 4*100352*512.5) / 700e12
	// The embedding gets gradients for at most 131,072 rows, one per token of a step, of its
	// 152,064.
	optimizer := (28*params - 4*(152064-131072)*3584) / 100e9
	first := (24*152064+4*131072)*3584.0/100e9 + 131072*3584.0*(4+2)/50e9
	if !near(b.Forward, forward, 1e-6) || !near(b.Optimizer, optimizer, 1e-3) || !near(b.First, first, 1e-3) {
		t.Errorf("forward %g, optimizer %g, first %g; by hand %g, %g, %g", b.Forward, b.Optimizer, b.First, forward, optimizer, first)
	}
	// A full recompute repeats q, k, v, attention, its output projection, gate and up. It does not
	// repeat the down projection and the head.
	again := 131072 * (2*28*3584*(4608+3584+2*18944) + 4*100352*512.5) / 700e12
	if !near(b.Backward, 2*forward+again, 1e-6) {
		t.Errorf("backward %g, by hand %g", b.Backward, 2*forward+again)
	}
	if b.Step != b.Backward+max(b.Forward, b.Optimizer-r.UpdateBytes(0, r.Gradients()[0])/100e9)+b.First || b.Tokens != 131072 {
		t.Errorf("the parts do not make the step: %+v", b)
	}
	if b.HidingTokens < 80_000 || b.HidingTokens > 110_000 {
		t.Errorf("%d tokens hide the optimizer", b.HidingTokens)
	}
}

// TestBoundCountsWhatIsUsed: FLOPs count only the experts that a token passes, and only the
// positions within the attention window.
func TestBoundCountsWhatIsUsed(t *testing.T) {
	q, _ := sevenB()
	q.Config.SlidingWindow = 256
	if f, _ := resolve(t, q).flops(); !near(f, 131072*(2*float64(q.Config.MatrixParams())+4*100352*(256*257/2+768*256)/1024), 1e-9) {
		t.Errorf("with a window the forward is %g FLOPs", f)
	}
	// A token's products in a block: q, k, v and o, the router, and 8 of 128 experts.
	q.Config = a3b()
	block := 2048.0*(4096+2*512) + 4096*2048 + 2048*128 + 8*3*2048*768
	want := 131072 * (2*(48*block+151936*2048) + 4*48*4096*512.5)
	forward, backward := resolve(t, q).flops()
	if !near(forward, want, 1e-9) {
		t.Errorf("with experts the forward is %g FLOPs, by hand %g", forward, want)
	}
	// With nothing kept, the backward recomputes a block's products except the experts' down
	// projections.
	again := 131072 * (2*48*(2048.0*(4096+2*512)+2048*128+8*2*2048*768) + 4*48*4096*512.5)
	if !near(backward, 2*want+again, 1e-9) {
		t.Errorf("with experts the backward is %g FLOPs, by hand %g", backward, 2*want+again)
	}
}

// TestHidingTokens: HidingTokens is the number of tokens in a step that hides the optimizer's updates. The matrix
// products that run during the updates then take as long as the updates, and with fewer tokens they are shorter.
func TestHidingTokens(t *testing.T) {
	for _, clip := range []bool{false, true} {
		q, rates := sevenB()
		q.Clip = clip
		at := func(rows int) (beside, hidden float64, tokens int64) {
			q.Rows = rows
			r := resolve(t, q)
			b := testkit.Must(Time(r, rates))(t)
			forward, backward := r.flops()
			beside = forward / rates.MatMul
			if !clip {
				beside += backward / rates.MatMul
			}
			return beside, b.Optimizer - r.UpdateBytes(0, r.Gradients()[0])/rates.Host, b.HidingTokens
		}
		_, _, tokens := at(64)
		if beside, hidden, _ := at(int(tokens/1024 + 1)); beside < hidden {
			t.Errorf("clip %t: %d tokens take %g s beside %g s of updates", clip, tokens, beside, hidden)
		}
		if beside, hidden, _ := at(int(tokens/1024 - 1)); beside >= hidden {
			t.Errorf("clip %t: fewer than %d tokens take %g s beside %g s of updates", clip, tokens, beside, hidden)
		}
	}
}

// TestBoundOfTheLink: steps of few tokens take as long as copying tiles and gradients, except on a
// unified device. More weight slots save transfers. A head in parts adds only the traffic of its
// second sweep to the device.
func TestBoundOfTheLink(t *testing.T) {
	q, rates := sevenB()
	q.Rows, q.RowTokens = 1, 128
	small := resolve(t, q)
	b, _ := Time(small, rates)
	up, again, down := small.transfers()
	if b.Forward != up/50e9 || b.Backward != down/50e9 || !near(up, 2*7.07e9, 0.01) || again >= up {
		t.Errorf("%+v of %g, %g and %g bytes", b, up, again, down)
	}
	q.HeadShards = 3
	cut := resolve(t, q)
	if cutUp, _, cutDown := cut.transfers(); !near(cutUp, up, 1e-4) || cutDown != down {
		t.Errorf("a cut head moves %g up and %g down, a whole one %g and %g", cutUp, cutDown, up, down)
	}
	q.HeadShards, q.Unified = 0, true
	inPlace, err := Time(resolve(t, q), Rates{MatMul: rates.MatMul, Host: rates.Host})
	if err != nil || inPlace.Forward >= b.Forward || inPlace.Backward >= b.Backward {
		t.Errorf("in place %+v (%v), over a link %+v", inPlace, err, b)
	}
	q.Unified, q.EvalOnly = false, true
	if eval, _ := Time(resolve(t, q), rates); eval.Step != eval.Forward || eval.Optimizer != 0 {
		t.Errorf("an evaluation: %+v", eval)
	}
}

// TestBoundIsPrinted: Bound is printed as text and as JSON. Without rates Time returns an error.
func TestBoundIsPrinted(t *testing.T) {
	q, rates := sevenB()
	r := resolve(t, q)
	b, err := Time(r, rates)
	testkit.NoError(t, err)
	var out bytes.Buffer
	b.Write(&out)
	t.Log("\n" + out.String())
	for _, want := range []string{"forward", "at 700 TFLOP/s", "optimizer", "at 100 GB/s", "first layer", "step at least", "hide the optimizer"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the bound does not say %q", want)
		}
	}
	raw, err := json.Marshal(b)
	if err != nil || !strings.Contains(string(raw), `"step_seconds":`) || !strings.Contains(string(raw), `"matmul_flops":700000000000000`) {
		t.Errorf("%s (%v)", raw, err)
	}
	for _, bad := range []Rates{{}, {MatMul: 1, Host: 1}, {MatMul: 1, Host: -1, Link: 1}, {MatMul: math.NaN(), Host: 1, Link: 1}} {
		if _, err := Time(r, bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
