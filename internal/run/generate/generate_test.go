package generate

import (
	"context"
	"errors"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"mt/base/accounts"
	"mt/base/bf16"
	"mt/device"
	"mt/device/cpu"
	"mt/host"
	"mt/internal/testkit"
	"mt/internal/testkit/reference"
	"mt/model"
)

// kind is a small model of one architecture, with the bound on its logits' error.
type kind struct {
	name                 string
	tied, qkNorm, biases bool
	llama3               bool
	longrope             bool // rotary frequencies change after six tokens
	experts              int  // of all blocks but the second; 0: none
	grouped              bool // they stand in groups and have sigmoids for scores, and one more is shared
	softcap              float64
	act                  device.DType
	tolerance            float64 // of a logit, in units of the largest
}

// The tolerances bound the error of logits. fp32 rounds sums of at most 48 products, and angles of
// some hundred turns, to a few 1e-6 each. bf16 rounds every activation to 8 bits, some twenty times
// in succession.
var kinds = []kind{
	{name: "llama", tolerance: 5e-5},
	{name: "llama3-rope-tied", tied: true, llama3: true, tolerance: 5e-5},
	{name: "longrope", longrope: true, tolerance: 5e-5},
	{name: "qwen2", biases: true, tied: true, tolerance: 5e-5},
	{name: "qwen3", qkNorm: true, tolerance: 5e-5},
	{name: "qwen3moe", qkNorm: true, experts: 5, tolerance: 5e-5}, // in bf16 a near tie of the router may fall the other way
	{name: "shared", qkNorm: true, experts: 6, grouped: true, tolerance: 5e-5},
	{name: "capped", softcap: 0.8, tolerance: 5e-5}, // logits go up to three or so
	{name: "llama-bf16", act: device.BF16, tolerance: 0.06},
	{name: "qwen3-tied-bf16", qkNorm: true, tied: true, act: device.BF16, tolerance: 0.06},
}

const vocab = 53

func (k kind) config() *model.Config {
	c := &model.Config{Arch: "LlamaForCausalLM", ModelType: "llama", VocabSize: vocab, HiddenSize: 32, IntermediateSize: 48, NumLayers: 3,
		NumHeads: 4, NumKVHeads: 2, HeadDim: 8, MaxPositions: 64, RMSNormEps: 1e-5, TieEmbeddings: k.tied, QKNorm: k.qkNorm, QKVBias: k.biases,
		Rope: model.Rope{Type: "default", Theta: 10000}}
	c.LogitSoftcap = k.softcap
	if k.experts > 0 {
		c.Arch, c.ModelType, c.NumExperts, c.NumExpertsPerTok, c.MoEIntermediateSize = "Qwen3MoeForCausalLM", "qwen3_moe", k.experts, 2, 24
		c.DecoderSparseStep, c.MLPOnlyLayers, c.NormTopKProb = 1, []int{1}, true
		if k.grouped {
			c.SigmoidScores, c.ChoiceBias, c.RoutedScale, c.SharedSize, c.SharedGate = true, true, 1.5, 40, true
			c.ExpertGroups, c.OpenGroups, c.GroupBest = 3, 2, 2
		}
	}
	if k.llama3 {
		c.Rope = model.Rope{Type: "llama3", Theta: 500, Factor: 4, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 16}
	}
	if k.longrope {
		c.Rope = model.Rope{Type: "longrope", Theta: 500, OriginalMaxPositions: 6, ShortFactor: []float64{1, 1.2, 1.5, 2}, LongFactor: []float64{1, 2, 4, 8}}
	}
	return c
}

// rig is a model on a device, with the same weights in float64 for the reference.
type rig struct {
	Options
	weights reference.Weights
}

func newRig(t *testing.T, k kind, unified bool) rig {
	t.Helper()
	dev := testkit.Must(cpu.New(cpu.Options{Threads: 1, Unified: unified}))(t)
	c := k.config()
	layouts := c.Layouts(k.act == device.BF16)
	store := testkit.Must(host.NewStore(layouts, nil, nil))(t)
	t.Cleanup(func() {
		if u := dev.Usage(); u.Now != [accounts.NumPurposes]int64{} {
			t.Errorf("device memory is left: %v", u.Now)
		}
		if err := errors.Join(store.Close(), dev.Close()); err != nil {
			t.Error(err)
		}
	})
	r := rig{Options: Options{Device: dev, Store: store, Config: c, Act: k.act, Layout: layouts}, weights: reference.Weights{}}
	rnd := rand.New(rand.NewSource(11))
	for _, l := range store.Layers {
		for i, tl := range l.Layout.Tensors {
			for row := 0; row < tl.Rows && !tl.Ref; row++ {
				l.WriteRows(i, row, 1, randomRow(rnd, tl))
			}
			for _, p := range tl.Stored {
				if !tl.Ref {
					r.weights[p.Name] = streamed(l, i, p)
				}
			}
		}
	}
	return r
}

// randomRow returns a row of random weights of a size that keeps activations near 1. Weights of
// norms are near 1.
func randomRow(rnd *rand.Rand, tl model.TensorLayout) []float32 {
	row := make([]float32, tl.Cols)
	for i := range row {
		switch {
		case tl.Dims == 2:
			row[i] = float32(rnd.NormFloat64() / math.Sqrt(float64(tl.Cols)) * 1.5)
		case strings.Contains(string(tl.Role), "bias"):
			row[i] = float32(rnd.NormFloat64())
		default:
			row[i] = float32(1 + rnd.NormFloat64()/4)
		}
	}
	return row
}

// streamed returns a checkpoint tensor with the values that streams compute with: rounded to bf16
// if the layout is split.
func streamed(l *host.LayerState, i int, p model.Stored) []float64 {
	tl := l.Layout.Tensors[i]
	values := make([]float32, p.Rows*tl.Cols)
	l.ReadRows(i, p.Row, p.Rows, values)
	out := make([]float64, len(values))
	for k, v := range values {
		if tl.BF16 {
			v = bf16.Widen(l.HiPlane(i)[p.Row*tl.Cols+k])
		}
		out[k] = float64(v)
	}
	return out
}

// logitsAfter returns the float64 reference's logits after the last of ids.
func (r rig) logitsAfter(ids []int32) []float64 {
	all := reference.Logits(r.Config, r.weights, ids)
	return all[(len(ids)-1)*vocab:]
}

func randomPrompt(n int) []int32 {
	rnd := rand.New(rand.NewSource(int64(n)))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(rnd.Intn(vocab))
	}
	return ids
}

func largest(v []float64) float64 {
	var m float64
	for _, x := range v {
		m = max(m, math.Abs(x))
	}
	return m
}

// TestLogits: decoding with the key/value cache gives the logits of a whole forward. The prompt
// goes through at once, token by token, or in several chunks; without long tests only two models
// use chunks.
func TestLogits(t *testing.T) {
	for _, k := range kinds {
		for _, unified := range []bool{true, false} {
			t.Run(k.name, func(t *testing.T) {
				r := newRig(t, k, unified)
				sizes := [][]int{{1, 1, 1, 5, 1}, {30}}
				if unified && (slices.Contains([]string{"llama", "llama-bf16"}, k.name) || testkit.Every(t, 2) == 1) {
					sizes = append(sizes, []int{chunk + 3, 1}) // the second piece begins inside
				}
				for _, pieces := range sizes {
					total := 0
					for _, n := range pieces {
						total += n
					}
					d := testkit.Must(newDecoder(r.Options, total))(t)
					defer d.close()
					ids, at := randomPrompt(total), 0
					for _, n := range pieces {
						got := testkit.Must(d.forward(ids[at : at+n]))(t)
						at += n
						want := r.logitsAfter(ids[:at])
						for i, w := range want {
							if e := math.Abs(float64(got[i]) - w); !(e <= k.tolerance*largest(want)) {
								t.Fatalf("after %d tokens: logit %d is %v, want %v", at, i, got[i], w)
							}
						}
					}
				}
			})
		}
	}
}

func run(t *testing.T, o Options, prompt []int32) []int32 {
	t.Helper()
	var out []int32
	testkit.NoError(t, Run(context.Background(), o, prompt, func(id int32) { out = append(out, id) }))
	return out
}

// TestGreedy: each token is the most likely one of a whole forward over all tokens before it. In
// bf16 it may be another one whose logit is equal within rounding. Unified and copying devices
// agree.
func TestGreedy(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			var first []int32
			for _, unified := range []bool{true, false} {
				r := newRig(t, k, unified)
				r.MaxNewTokens = 20
				ids := randomPrompt(7)
				got := run(t, r.Options, ids)
				if len(got) != 20 {
					t.Fatalf("%d tokens, want 20", len(got))
				}
				for i, id := range got {
					logits := r.logitsAfter(ids)
					if best := slices.Max(logits); logits[id] < best-2*k.tolerance*largest(logits) {
						t.Fatalf("token %d is %d with logit %v; the largest is %v", i+1, id, logits[id], best)
					}
					ids = append(ids, id)
				}
				if first == nil {
					first = got
				} else if !slices.Equal(got, first) {
					t.Errorf("a device that copies gives %v, a unified one %v", got, first)
				}
			}
		})
	}
}

// TestSeeds: the same seed gives the same text, and other seeds give other texts.
func TestSeeds(t *testing.T) {
	texts := map[int64][]int32{}
	for _, unified := range []bool{true, false} {
		r := newRig(t, kinds[0], unified)
		r.MaxNewTokens, r.Temperature, r.TopK, r.TopP = 15, 1.2, 40, 0.97
		for seed := range int64(4) {
			r.Seed = seed
			got := run(t, r.Options, []int32{1, 2})
			if was, ok := texts[seed]; ok && !slices.Equal(got, was) {
				t.Errorf("seed %d: %v, before %v", seed, got, was)
			}
			texts[seed] = got
		}
	}
	for seed := range int64(3) {
		if slices.Equal(texts[seed], texts[seed+1]) {
			t.Errorf("seeds %d and %d give the same %v", seed, seed+1, texts[seed])
		}
	}
}

// TestStops: generation ends at an id of Stop, which is not emitted, after MaxNewTokens, and when
// ctx is cancelled.
func TestStops(t *testing.T) {
	r := newRig(t, kinds[0], true)
	r.MaxNewTokens = 12
	free := run(t, r.Options, []int32{5})
	stop := free[4]
	r.Stop = []int32{vocab - 1, stop}
	if got, want := run(t, r.Options, []int32{5}), free[:slices.IndexFunc(free, func(id int32) bool { return slices.Contains(r.Stop, id) })]; !slices.Equal(got, want) {
		t.Errorf("with %d as stop: %v, want %v", stop, got, want)
	}
	r.Stop, r.MaxNewTokens = nil, 0
	if got := run(t, r.Options, []int32{5}); len(got) != 0 {
		t.Errorf("no token was asked for and %v came", got)
	}
	r.MaxNewTokens = 12
	ctx, cancel := context.WithCancelCause(context.Background())
	why, n := errors.New("enough"), 0
	err := Run(ctx, r.Options, []int32{5}, func(int32) {
		if n++; n == 3 {
			cancel(why)
		}
	})
	if !errors.Is(err, why) || n != 3 {
		t.Errorf("after %d tokens: %v", n, err)
	}
}

// TestErrors: an invalid prompt or option gives an error that describes it.
func TestErrors(t *testing.T) {
	for want, change := range map[string]func(*Options, *[]int32){
		"prompt is empty":                         func(_ *Options, p *[]int32) { *p = nil },
		"token 53 is not in the vocabulary of 53": func(_ *Options, p *[]int32) { *p = []int32{1, vocab} },
		"token -1 is not in the vocabulary":       func(_ *Options, p *[]int32) { *p = []int32{-1} },
		"-1 new tokens":                           func(o *Options, _ *[]int32) { o.MaxNewTokens = -1 },
		"temperature -0.5":                        func(o *Options, _ *[]int32) { o.Temperature = -0.5 },
		"temperature NaN":                         func(o *Options, _ *[]int32) { o.Temperature = math.NaN() },
		"top-k -2":                                func(o *Options, _ *[]int32) { o.TopK = -2 },
		"top-p 1.5":                               func(o *Options, _ *[]int32) { o.TopP = 1.5 },
		"min-p 1.5":                               func(o *Options, _ *[]int32) { o.MinP = 1.5 },
		"min-p -0.5":                              func(o *Options, _ *[]int32) { o.MinP = -0.5 },
		"min-p NaN":                               func(o *Options, _ *[]int32) { o.MinP = math.NaN() },
		"repetition penalty 0.001":                func(o *Options, _ *[]int32) { o.RepetitionPenalty = 0.001 },
		"repetition penalty 101":                  func(o *Options, _ *[]int32) { o.RepetitionPenalty = 101 },
		"at least -1 new tokens":                  func(o *Options, _ *[]int32) { o.MinNewTokens = -1 },
		"token 1: every logit is −Inf":            func(o *Options, _ *[]int32) { o.SuppressTokens = everyToken() },
		"token 1: the logits are not finite":      func(o *Options, _ *[]int32) { spoil(o.Store) },
	} {
		t.Run(want, func(t *testing.T) {
			r := newRig(t, kinds[0], true)
			r.MaxNewTokens = 1
			prompt := []int32{1}
			change(&r.Options, &prompt)
			err := Run(context.Background(), r.Options, prompt, func(int32) { t.Error("a token came") })
			if err == nil || !strings.HasPrefix(err.Error(), "generate") || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func everyToken() (ids []int32) {
	for id := range int32(vocab) {
		ids = append(ids, id)
	}
	return ids
}

// spoil makes the first weight of the final norm NaN, so that no logit is finite.
func spoil(s *host.Store) {
	s.Layers[len(s.Layers)-1].WriteRows(0, 0, 1, []float32{float32(math.NaN())})
}

// TestDeviceTooSmall: if the device memory does not suffice, Run returns the allocation's error and
// frees everything.
func TestDeviceTooSmall(t *testing.T) {
	r := newRig(t, kinds[0], false)
	small, err := cpu.New(cpu.Options{Threads: 1, MemoryLimit: 100_000})
	testkit.NoError(t, err)
	defer small.Close()
	r.Device, r.MaxNewTokens = small, 4
	err = Run(context.Background(), r.Options, []int32{1}, func(int32) { t.Error("a token came") })
	var lacking *device.OutOfMemory
	if !errors.As(err, &lacking) {
		t.Errorf("got %v", err)
	}
	if u := small.Usage(); u.Now != [accounts.NumPurposes]int64{} {
		t.Errorf("memory is left: %v", u.Now)
	}
}

// locking is a device that counts the tiles that are registered (pinned). If err is set, Register
// fails with it.
type locking struct {
	device.Device
	err   error
	tiles int
}

func (l *locking) Register(memory ...[]byte) error {
	if l.err == nil {
		l.tiles += len(memory)
	}
	return l.err
}

func (l *locking) Unregister(memory ...[]byte) { l.tiles -= len(memory) }

// TestTilesAreRegistered: a decoder registers all tiles of a device that copies them, and
// unregisters them at the end. An error of the registration is returned.
func TestTilesAreRegistered(t *testing.T) {
	r := newRig(t, kinds[0], false)
	dev := &locking{Device: r.Device}
	r.Device = dev
	d := testkit.Must(newDecoder(r.Options, 4))(t)
	if dev.tiles != len(r.Store.Layers) {
		t.Errorf("%d tiles of %d are registered", dev.tiles, len(r.Store.Layers))
	}
	if d.close(); dev.tiles != 0 {
		t.Errorf("%d tiles stay registered", dev.tiles)
	}
	dev.err = errors.New("no more memory can be locked")
	if _, err := newDecoder(r.Options, 4); !errors.Is(err, dev.err) {
		t.Errorf("got %v, want %v", err, dev.err)
	}
}
