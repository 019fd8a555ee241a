package layers

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"mt/device"
	"mt/device/cpu"
	"mt/device/op"
	"mt/internal/testkit"
	"mt/internal/testkit/reference"
	"mt/layers/schedule"
	"mt/model"
)

// devices lists the devices on which tests run: a plain Go device that checks everything (toy), and
// the CPU device.
var devices = []struct {
	name string
	open func(t *testing.T) device.Device
}{
	{"toy", func(*testing.T) device.Device { return newToy() }},
	{"cpu", func(t *testing.T) device.Device { return openCPU(t, 2) }},
}

func openCPU(t *testing.T, threads int) device.Device {
	t.Helper()
	dev := testkit.Must(cpu.New(cpu.Options{Threads: threads}))(t)
	testkit.Close(t, dev)
	return dev
}

// config returns a configuration of the smallest model with two blocks, changed by edit.
func config(edit func(c *model.Config)) *model.Config {
	c := &model.Config{VocabSize: 11, HiddenSize: 12, IntermediateSize: 10, NumLayers: 2, NumHeads: 2, NumKVHeads: 2,
		HeadDim: 6, MaxPositions: 64, RMSNormEps: 1e-5, Rope: model.Rope{Type: "default", Theta: 100}}
	edit(c)
	return c
}

var configs = []struct {
	name string
	cfg  *model.Config
}{
	{"plain", config(func(*model.Config) {})},
	{"llama bias", config(func(c *model.Config) { c.QKVBias, c.OBias, c.MLPBias, c.NumKVHeads = true, true, true, 1 })},
	{"qwen2 tied", config(func(c *model.Config) { c.QKVBias, c.TieEmbeddings = true, true })},
	{"qwen3", config(func(c *model.Config) { c.QKNorm, c.HiddenSize, c.NumHeads, c.HeadDim = true, 10, 4, 4 })},
	{"odd sizes", config(func(c *model.Config) {
		c.HiddenSize, c.NumHeads, c.NumKVHeads, c.IntermediateSize, c.VocabSize = 9, 3, 3, 7, 13
	})},
	{"everything", config(func(c *model.Config) {
		c.QKVBias, c.OBias, c.MLPBias, c.QKNorm, c.TieEmbeddings = true, true, true, true, true
		c.HiddenSize, c.NumHeads, c.NumKVHeads, c.HeadDim, c.IntermediateSize = 11, 4, 2, 6, 9
		c.Rope = model.Rope{Type: "llama3", Theta: 50, Factor: 4, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 16}
	})},
	{"gemma3", config(func(c *model.Config) {
		c.NormOffset, c.SandwichNorms, c.QKNorm, c.TieEmbeddings = 1, true, true, true
		c.EmbedScale, c.EmbedRounded, c.Activation, c.AttnScale = math.Sqrt(12), true, model.GELUTanh, 0.3
		c.SlidingWindow, c.Sliding = 3, []bool{true, false}
		c.LocalRope = &model.Rope{Type: "default", Theta: 20}
	})},
	{"gemma4", config(func(c *model.Config) {
		c.SandwichNorms, c.QKNorm, c.NormsValues, c.LayerScalar, c.KeysAreValues = true, true, true, true, true
		c.EmbedScale, c.EmbedRounded, c.TieEmbeddings = math.Sqrt(12), true, true
		c.Activation, c.AttnScale, c.HeadDim, c.GlobalHeadDim, c.GlobalKVHeads = model.GELUTanh, 1, 4, 6, 1
		c.SlidingWindow, c.Sliding = 3, []bool{true, false}
		c.Rope, c.LocalRope = model.Rope{Type: "proportional", Theta: 100, Partial: 0.7, Dim: 6}, &model.Rope{Type: "default", Theta: 20}
	})},
	{"per-layer inputs", config(func(c *model.Config) {
		c.SandwichNorms, c.PerLayerSize, c.PerLayerVocab, c.Activation, c.LayerScalar = true, 5, c.VocabSize+2, model.GELUTanh, true
	})},
	{"shared keys and values", config(func(c *model.Config) {
		c.SandwichNorms, c.QKNorm, c.NormsValues, c.DoubleWide, c.NumLayers, c.SharedKV = true, true, true, true, 3, 1
		c.EmbedScale, c.EmbedRounded, c.TieEmbeddings = math.Sqrt(12), true, true
		c.HeadDim, c.GlobalHeadDim, c.GlobalKVHeads, c.AttnScale = 4, 6, 1, 0.3
		c.RMSNormEps = 0.1 // norms of few elements would magnify rounding
		c.SlidingWindow, c.Sliding = 3, []bool{true, false, true}
		c.Rope, c.LocalRope = model.Rope{Type: "proportional", Theta: 100, Partial: 0.7, Dim: 6}, &model.Rope{Type: "default", Theta: 20}
	})},
	{"shared keys that are values", config(func(c *model.Config) {
		c.SandwichNorms, c.QKNorm, c.NormsValues, c.KeysAreValues, c.NumLayers, c.SharedKV = true, true, true, true, 3, 2
		c.RMSNormEps = 0.1
	})},
	{"capped", config(func(c *model.Config) {
		c.SandwichNorms, c.AttnSoftcap, c.LogitSoftcap, c.SlidingWindow = true, 1.5, 2, 2
		c.OBias, c.MLPBias, c.HiddenSize, c.NumHeads, c.NumKVHeads = true, true, 10, 4, 2
		c.Rope = model.Rope{Type: "linear", Theta: 100, Factor: 3}
	})},
	{"sinks", config(func(c *model.Config) {
		c.Sinks, c.OBias, c.NumHeads, c.NumKVHeads, c.ClampedSwiGLU = true, true, 4, 2, &model.ClampedSwiGLU{Alpha: 1.7, Limit: 2}
		c.SlidingWindow, c.Sliding = 3, []bool{true, false}
	})},
	{"sinks, normed", config(func(c *model.Config) { c.Sinks, c.QKNorm, c.SandwichNorms, c.AttnSoftcap = true, true, true, 2 })},
	{"olmo2", config(func(c *model.Config) {
		c.OutputNorms, c.QKNorm, c.QKNormWhole, c.OBias = true, true, true, true
		c.NumHeads, c.NumKVHeads, c.HiddenSize = 4, 2, 10
	})},
	{"xielu", config(func(c *model.Config) { c.Activation, c.Ungated, c.MLPBias = model.XIELU, true, true })},
	{"an MLP alone", config(func(c *model.Config) {
		c.Alone, c.Ungated, c.MLPBias, c.Activation = []model.Half{model.BothHalves, model.SecondHalf}, true, true, model.SquaredReLU
	})},
	{"hunyuan", config(func(c *model.Config) {
		c.QKNorm, c.QKNormRotated, c.OBias, c.QKVBias, c.NumHeads, c.NumKVHeads = true, true, true, true, 4, 2
	})},
	{"granite", config(func(c *model.Config) {
		c.EmbedScale, c.ResidualScale, c.AttnScale, c.LogitScale, c.TieEmbeddings = 3, 0.4, 0.2, 0.3, true
		c.RMSNormEps = 0.01 // so that it shows whether it is scaled
	})},
	{"smollm3", config(func(c *model.Config) { c.NoRope, c.QKNorm = []bool{false, true}, true })},
	{"llama4", config(func(c *model.Config) {
		c.NoRope, c.QKNorm, c.QKNormPlain, c.QKNormTurning, c.RopeInterleaved = []bool{false, true}, true, true, true, true
		c.ChunkSize, c.ChunkedAttention, c.QueryScaling = 3, []bool{true, false}, &model.QueryScaling{Scale: 0.7, Every: 3, Ahead: 1}
		c.NumHeads, c.NumKVHeads, c.RMSNormEps = 4, 2, 0.1 // so that it shows where it is added
	})},
	{"tempered, in stretches", config(func(c *model.Config) {
		c.QueryScaling, c.ChunkSize, c.ChunkedAttention = &model.QueryScaling{Scale: 0.4, Every: 2}, 4, []bool{true, true}
		c.Rope = model.Rope{Type: "longrope", Theta: 100, OriginalMaxPositions: 4, ShortFactor: []float64{1, 1.1, 1.5}, LongFactor: []float64{1, 2, 5}}
	})},
	{"head with a bias", config(func(c *model.Config) { c.HeadBias, c.LayerNorm, c.NormBias, c.VocabSize = true, true, true, 13 })},
	{"long scales", config(func(c *model.Config) {
		c.Rope = model.Rope{Type: "longrope", Theta: 100, OriginalMaxPositions: 4, ShortMScale: 1.3, LongMScale: 0.8,
			ShortFactor: []float64{1, 1.1, 1.5}, LongFactor: []float64{1, 2, 5}}
	})},
	{"interleaved", config(func(c *model.Config) {
		c.RopeInterleaved = true
		c.Rope = model.Rope{Type: "default", Theta: 100, Partial: 0.7}
	})},
	{"latent", config(func(c *model.Config) {
		c.HiddenSize, c.NumHeads, c.NumKVHeads, c.HeadDim, c.RopeInterleaved = 9, 3, 3, 7, true
		c.MLA = &model.MLA{QRank: 5, KVRank: 7, NopeDim: 3, RopeDim: 4, ValueDim: 5, NormEps: 1e-3}
	})},
	{"latent with chosen keys", config(func(c *model.Config) {
		c.HiddenSize, c.NumHeads, c.NumKVHeads, c.HeadDim, c.RopeInterleaved = 9, 3, 3, 7, true
		c.MLA = &model.MLA{QRank: 5, KVRank: 7, NopeDim: 3, RopeDim: 4, ValueDim: 5, NormEps: 1e-3,
			Indexer: &model.Indexer{Heads: 8, HeadDim: 6, TopK: 3}} // with so many heads no two scores are equal
	})},
	{"latent of whole queries", config(func(c *model.Config) {
		c.OBias, c.HiddenSize, c.HeadDim, c.NormOffset = true, 9, 7, 0.5
		c.MLA = &model.MLA{KVRank: 5, NopeDim: 3, RopeDim: 4, ValueDim: 7, NormEps: 1e-3}
		c.Rope = model.Rope{Type: "yarn", Theta: 100, Factor: 4, OriginalMaxPositions: 16, MScale: 0.7, MScaleAllDim: 0.9}
	})},
	{"latent with biases and wide values", config(func(c *model.Config) {
		c.HiddenSize, c.NumHeads, c.NumKVHeads, c.HeadDim, c.RopeInterleaved, c.OBias = 12, 3, 3, 7, true, true
		c.MLA = &model.MLA{QRank: 8, KVRank: 8, NopeDim: 3, RopeDim: 4, ValueDim: 10, NormEps: 1e-3, Bias: true}
	})},
	{"latent with biases, of whole queries", config(func(c *model.Config) {
		c.OBias, c.MLPBias, c.HiddenSize, c.HeadDim, c.NormOffset = true, true, 9, 7, 0.5
		c.MLA = &model.MLA{KVRank: 5, NopeDim: 3, RopeDim: 4, ValueDim: 6, NormEps: 1e-3, Bias: true}
	})},
	{"latent with wide values, of whole queries", config(func(c *model.Config) {
		c.NumHeads, c.NumKVHeads, c.HeadDim = 2, 2, 5
		c.MLA = &model.MLA{KVRank: 9, NopeDim: 3, RopeDim: 2, ValueDim: 8, NormEps: 1e-3}
		c.Rope = model.Rope{Type: "yarn", Theta: 100, Factor: 4, OriginalMaxPositions: 16, MScale: 0.7, MScaleAllDim: 0.9}
	})},
	{"normed embedding", config(func(c *model.Config) {
		c.NormOffset, c.SandwichNorms, c.FinalNormPlain, c.EmbedNorm, c.OutputNormEps = 1, true, true, true, 1e-2
		c.QKNorm, c.QKNormPlain, c.OutputGate, c.NoRope, c.HiddenSize = true, true, true, []bool{false, true}, 16
	})},
	{"gate by the exact gelu", config(func(c *model.Config) { c.Activation, c.MLPBias = model.GELU, true })},
	{"output gate", config(func(c *model.Config) {
		c.OutputGate, c.QKVBias, c.NumHeads, c.NumKVHeads, c.HiddenSize = true, true, 4, 2, 14
	})},
	{"recurrent", recurrentConfig()},
	{"short convolution", shortConvConfig(false)},
	{"Mamba-2", mamba2Config(false)},
	{"biased Mamba-2", mamba2Config(true)},
	{"Mamba-2 beside attention", besideConfig()},
	{"biased short convolution", shortConvConfig(true)},
	{"KDA", kdaConfig()},
	{"starcoder2", config(func(c *model.Config) {
		c.LayerNorm, c.NormBias, c.Ungated, c.Activation, c.TieEmbeddings = true, true, true, model.GELUTanh, true
		c.QKVBias, c.OBias, c.MLPBias, c.NumKVHeads, c.SlidingWindow = true, true, true, 1, 3
	})},
	{"gpt2", config(func(c *model.Config) {
		c.LearnedPositions, c.MaxPositions, c.LayerNorm, c.NormBias, c.Ungated, c.Activation = true, 15, true, true, true, model.GELUTanh
		c.OBias, c.MLPBias, c.TieEmbeddings = true, true, true // without rotation a bias of k changes nothing: its gradient is noise
	})},
	{"pythia", config(func(c *model.Config) {
		c.LayerNorm, c.NormBias, c.Ungated, c.Activation, c.Parallel = true, true, true, model.GELU, true
		c.QKVBias, c.OBias, c.MLPBias = true, true, true
		c.Rope.Partial = 0.4
	})},
	{"cohere2", config(func(c *model.Config) {
		c.LayerNorm, c.Parallel, c.SharedNorm, c.TieEmbeddings, c.RopeInterleaved = true, true, true, true, true
		c.HiddenSize, c.NumHeads, c.NumKVHeads, c.IntermediateSize = 11, 4, 2, 9
	})},
	{"phi3", config(func(c *model.Config) {
		c.HeadDim, c.SlidingWindow, c.MaxPositions = 8, 5, 5
		c.Rope = model.Rope{Type: "longrope", Theta: 100, Partial: 0.75, OriginalMaxPositions: 4,
			ShortFactor: []float64{1, 1.1, 1.5}, LongFactor: []float64{1, 2, 5}}
	})},
}

// sequences returns random documents of the given lengths. Some tokens have no target; the last
// token of a document never has one.
func sequences(vocab int, seed uint64, lengths ...int) []reference.Sequence {
	rng := rand.New(rand.NewPCG(seed, 3))
	var out []reference.Sequence
	for _, n := range lengths {
		s := reference.Sequence{}
		for i := range n {
			s.IDs = append(s.IDs, int32(rng.IntN(vocab)))
			target := int32(rng.IntN(vocab))
			if i == n-1 && n > 1 || rng.IntN(5) == 0 {
				target = op.IgnoreIndex
			}
			s.Targets = append(s.Targets, target)
		}
		out = append(out, s)
	}
	return out
}

// spec returns the Spec of most tests. Its chunk sizes divide no micro-batch evenly, so that last
// chunks are short.
func spec(cfg *model.Config, keep Keep, act device.DType) Spec {
	return Spec{Config: cfg, Act: act, Keep: KeepIn(cfg.NumLayers, keep), MaxTokens: 13, ChunkTokens: 4, HeadChunk: 3, Positions: 13}
}

// micro returns two micro-batches of documents of different lengths, with 13 and 7 tokens.
func micro(cfg *model.Config) [][]reference.Sequence {
	return [][]reference.Sequence{sequences(cfg.VocabSize, 1, 5, 1, 7), sequences(cfg.VocabSize, 2, 3, 4)}
}

func onEach(t *testing.T, f func(t *testing.T, dev device.Device, cfg *model.Config)) {
	for _, d := range devices {
		for _, c := range configs {
			t.Run(d.name+"/"+c.name, func(t *testing.T) {
				switch {
				case d.name == "toy" && c.name != "everything": // who calls a device is tried, not the device
					testkit.LongOnly(t)
				case c.name != "plain" && c.name != "everything" && c.name != "recurrent":
					testkit.NotShort(t)
				}
				f(t, d.open(t), c.cfg)
			})
		}
	}
}

// TestGradientsEqualFiniteDifferences: losses equal those of a reference model in float64. The
// gradient of every parameter equals the finite differences of the reference's loss: along a random
// direction of the whole tensor, which detects any wrong element, and at single elements.
func TestGradientsEqualFiniteDifferences(t *testing.T) {
	for _, c := range configs {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "everything" {
				testkit.NotShort(t)
			}
			mbs := micro(c.cfg)
			grads := map[string]map[string][]float64{} // by device
			var weights reference.Weights
			for _, d := range devices {
				r := newRig(t, d.open(t), spec(c.cfg, KeepNothing, device.F32), nil)
				b := r.batch(mbs...)
				got := r.step(b)
				checkLoss(t, d.name, got.losses, b.supervised, reference.Loss(c.cfg, r.ref, slices.Concat(mbs...)))
				grads[d.name], weights = got.grads, r.ref
			}
			loss := func() float64 { return reference.Loss(c.cfg, weights, slices.Concat(mbs...)) }
			rng := rand.New(rand.NewPCG(5, 5))
			for _, name := range slices.Sorted(maps.Keys(weights)) {
				if strings.HasSuffix(name, ".layer_scalar") || strings.Contains(name, ".indexer.") {
					continue // never trained
				}
				x := weights[name]
				for _, dir := range directions(rng, len(x)) {
					want := reference.Derivative(func(s float64) float64 { return reference.Perturbed(loss, x, dir, s) })
					for dev, g := range grads {
						checkGradient(t, dev+" "+name, g[name], dir, want)
					}
				}
			}
		})
	}
}

func checkLoss(t *testing.T, dev string, losses []float64, supervised int, want float64) {
	t.Helper()
	var sum float64
	for _, v := range losses {
		sum += v
	}
	// The bound allows fp32 through two blocks: some tens of roundings of 6e-8 each.
	if mean := sum / float64(supervised); !(math.Abs(mean-want) <= 2e-6*want) {
		t.Errorf("%s: loss %.9g, reference %.9g", dev, mean, want)
	}
}

// TestLossesOfReLU: losses of models with ReLU equal the reference's. Finite differences would step
// over the points where ReLU's slope changes, so the tests of its operations check the gradients
// instead.
func TestLossesOfReLU(t *testing.T) {
	for _, cfg := range []*model.Config{
		config(func(c *model.Config) { c.Activation, c.NumKVHeads = model.ReLU, 1 }),
		config(func(c *model.Config) { c.Ungated, c.Activation, c.MLPBias = true, model.ReLU, true }),
	} {
		mbs := micro(cfg)
		for _, d := range devices {
			r := newRig(t, d.open(t), spec(cfg, KeepNothing, device.F32), nil)
			b := r.batch(mbs...)
			checkLoss(t, d.name, r.step(b).losses, b.supervised, reference.Loss(cfg, r.ref, slices.Concat(mbs...)))
		}
	}
}

// directions returns directions in which to change n values for finite differences: a random one of
// length about one, and four unit vectors.
func directions(rng *rand.Rand, n int) [][]float64 {
	all := make([]float64, n)
	for i := range all {
		all[i] = rng.NormFloat64() / math.Sqrt(float64(n))
	}
	out := [][]float64{all}
	for range 4 {
		one := make([]float64, n)
		one[rng.IntN(n)] = 1
		out = append(out, one)
	}
	return out
}

// gradientBound is the allowed error of a gradient in fp32, relative to the gradient's norm. About fifty operations
// lie between a weight and the loss, and as many on the way back, each with a relative error of 2⁻²⁴ or a little more.
// As a random walk this is √100·2⁻²⁴ = 6e-7; the bound is ten times that, for sums that cancel.
const gradientBound = 6e-6

func checkGradient(t *testing.T, what string, got, dir []float64, want float64) {
	t.Helper()
	if len(got) != len(dir) {
		t.Fatalf("%s: gradient of %d elements, weight of %d", what, len(got), len(dir))
	}
	var norm, along float64
	for i, g := range got {
		norm += g * g
		along += dir[i] * g
	}
	norm = math.Sqrt(norm)
	if !(math.Abs(along-want) <= gradientBound*norm) { // NaN fails
		t.Errorf("%s: %.9g along a direction, finite difference %.9g, norm %.3g", what, along, want, norm)
	}
}

// TestKeepChangesNothing: losses and gradients have the same bits whatever the forward keeps for
// the backward, and whether or not an evaluation came before.
func TestKeepChangesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, dev device.Device, cfg *model.Config) {
		for _, act := range []device.DType{device.F32, device.BF16} {
			var want result
			var bytes int64 = -1
			for keep := KeepNothing; keep <= KeepInputs+2; keep++ {
				sp := spec(cfg, keep, act)
				if keep > KeepInputs { // blocks differ
					sp.Keep = []Keeps{{KeepInputs, KeepAll}, {KeepQKV, KeepAttention}}[keep-KeepInputs-1]
				}
				r := newRig(t, dev, sp, nil)
				b := r.batch(micro(cfg)...)
				got := r.step(b)
				if losses := r.evaluate(b); !reflect.DeepEqual(losses, got.losses) {
					t.Errorf("%s keep %d: evaluation's losses %v, training's %v", act, keep, losses, got.losses)
				}
				if keep == KeepNothing {
					want = got
				}
				if saved := KindOf(model.Block).SavedBytes(r.spec, 0, keep, 13); keep <= KeepInputs && saved <= bytes {
					t.Errorf("%s keep %d: %d bytes, the level before %d", act, keep, saved, bytes)
				} else {
					bytes = saved
				}
				compareBits(t, fmt.Sprintf("%s keep %d", act, keep), got, want)
			}
		}
	})
}

func compareBits(t *testing.T, what string, got, want result) {
	t.Helper()
	same := func(name string, a, b []float64) {
		t.Helper()
		for i := range b {
			if math.Float64bits(a[i]) != math.Float64bits(b[i]) || math.IsNaN(a[i]) {
				t.Fatalf("%s: %s[%d] is %v, want %v", what, name, i, a[i], b[i])
			}
		}
	}
	same("losses", got.losses, want.losses)
	for name := range want.grads {
		same(name, got.grads[name], want.grads[name])
	}
}

// distance returns |a − b| / |b|, with Euclidean norms.
func distance(a, b []float64) float64 {
	var diff, norm float64
	for i := range b {
		diff += (a[i] - b[i]) * (a[i] - b[i])
		norm += b[i] * b[i]
	}
	if diff == 0 { // all of b may be 0
		return 0
	}
	return math.Sqrt(diff / norm)
}

// TestChunkSizes: the number of tokens that a launch processes at once changes losses and gradients
// only by the order of sums.
func TestChunkSizes(t *testing.T) {
	onEach(t, func(t *testing.T, dev device.Device, cfg *model.Config) {
		var want result
		for i, chunk := range []int{0, 1, 5, 13, 100} {
			sp := spec(cfg, KeepQKV, device.F32)
			sp.ChunkTokens, sp.HeadChunk = chunk, chunk
			r := newRig(t, dev, sp, nil)
			got := r.step(r.batch(micro(cfg)...))
			if i == 0 {
				want = got
			}
			for name := range want.grads {
				// Both gradients are within gradientBound of the exact one.
				if d := distance(got.grads[name], want.grads[name]); !(d <= gradientBound) {
					t.Errorf("chunk %d: %s differs by %g", chunk, name, d)
				}
			}
		}
	})
}

// TestBF16: losses and gradients in bf16 are close to those in fp32 for the same weights.
func TestBF16(t *testing.T) {
	onEach(t, func(t *testing.T, dev device.Device, cfg *model.Config) {
		half := newRig(t, dev, spec(cfg, KeepAttention, device.BF16), nil)
		full := newRig(t, dev, spec(cfg, KeepAttention, device.F32), half.ref)
		got, want := half.step(half.batch(micro(cfg)...)), full.step(full.batch(micro(cfg)...))
		// An activation is rounded by up to 2⁻⁹ at about 50 places, forward and backward through two blocks: √50·2⁻⁹ =
		// 1.4 %, and half as much again for sums that cancel. One small tensor alone may cancel more: 8 %.
		const bound, one = 0.02, 0.08
		if d := distance(got.losses, want.losses); !(d <= bound) {
			t.Errorf("losses differ by %g", d)
		}
		var all, allWant []float64
		for _, name := range slices.Sorted(maps.Keys(want.grads)) {
			all, allWant = append(all, got.grads[name]...), append(allWant, want.grads[name]...)
			if d := distance(got.grads[name], want.grads[name]); !(d <= one) {
				t.Errorf("%s differs by %g", name, d)
			}
		}
		if d := distance(all, allWant); !(d <= bound) {
			t.Errorf("the whole gradient differs by %g", d)
		}
	})
}

// TestHeadInPlace: the head gives the same gradient dx if it overwrites its input x with it as if
// dx has its own memory.
func TestHeadInPlace(t *testing.T) {
	onEach(t, func(t *testing.T, dev device.Device, cfg *model.Config) {
		r := newRig(t, dev, spec(cfg, KeepNothing, device.F32), nil)
		b := r.batch(micro(cfg)...)
		mb, last := b.mbs[0], len(r.layouts)-1
		run := func(inPlace bool) []float64 {
			x := r.tensor(device.F32, mb.Tokens*r.spec.HiddenWidth())
			r.tpl.EmbedForward(r.s, OnDevice(x), b.table, mb, 0, device.Mem{})
			dx := x
			if !inPlace {
				dx = r.tensor(device.F32, mb.Tokens*r.spec.HiddenWidth())
			}
			g := BindGrads(r.layouts[last], r.alloc(4*r.layouts[last].GradElems))
			r.tpl.HeadForwardBackward(r.s, r.weights[last], g, OnDevice(dx), OnDevice(x), r.tensor(device.F32, mb.Tokens), mb,
				r.alloc(r.spec.WorkspaceBytes()), 1, true)
			return r.get(dx.Slice(0, int64(mb.Tokens*cfg.HiddenSize)))
		}
		apart, inPlace := run(false), run(true)
		r.checkGuards()
		compareBits(t, "dx", result{losses: inPlace}, result{losses: apart})
	})
}

// TestCachedEqualsWhole: generation through the cache gives the logits of the whole sequence in one
// forward. Its prompt comes in two pieces, the rest token by token.
func TestCachedEqualsWhole(t *testing.T) {
	onEach(t, func(t *testing.T, dev device.Device, cfg *model.Config) {
		const tokens = 12
		r := newRig(t, dev, spec(cfg, KeepAll, device.F32), nil)
		ids := sequences(cfg.VocabSize, 9, tokens)[0].IDs
		want := reference.Logits(cfg, r.ref, ids)
		ws := r.alloc(r.spec.ForwardWorkspaceBytes())
		var caches []device.Mem
		for block := range cfg.NumLayers {
			caches = append(caches, r.alloc(r.spec.CacheBytes(block, tokens)))
		}
		var got []float64
		start := 0
		for _, n := range []int{6, 4, 1, 1} {
			got = append(got, r.generate(ids, start, n, caches, ws)...)
			start += n
		}
		r.checkGuards()
		if d := distance(got, want); !(d <= gradientBound) {
			t.Errorf("logits differ by %g", d)
		}
	})
}

// generate returns the logits of n tokens from token start on. The tokens before them are in the
// caches.
func (r *rig) generate(ids []int32, start, n int, caches []device.Mem, ws device.Mem) []float64 {
	cfg := r.spec.Config
	b := r.batch([]reference.Sequence{{IDs: ids[start : start+n]}})
	step := CacheStep{Tokens: n, Start: start, CuQ: r.ints(0, int32(n)), CuK: r.ints(0, int32(start+n))}
	q, k := r.spec.CachedChunkBounds(start, n)
	step.ChunkBoundsQ, step.ChunkBoundsK = r.ints(q...), r.ints(k...)
	var pos []int32
	for i := range n {
		pos = append(pos, int32(cfg.RopeShift(len(ids))+start+i))
	}
	step.Pos = r.ints(pos...)
	x, y := r.tensor(device.F32, n*r.spec.HiddenWidth()), r.tensor(device.F32, n*r.spec.HiddenWidth())
	r.tpl.EmbedForward(r.s, OnDevice(x), b.table, b.mbs[0], 0, device.Mem{})
	for i, l := range r.layouts[1 : len(r.layouts)-1] {
		mb := b.mbs[0]
		mb.Pos = step.Pos
		r.launch(i+1, schedule.Generate, Launch{In: OnDevice(x), Out: OnDevice(y), MicroBatch: mb, Cached: step, Cache: caches[l.Block], Workspace: ws})
		x, y = y, x
	}
	logits := r.tensor(device.F32, n*cfg.VocabSize)
	r.tpl.HeadLogits(r.s, r.weights[len(r.weights)-1], logits, x, n, ws)
	out := r.get(logits)
	if limit := cfg.LogitSoftcap; limit > 0 {
		for i := range out {
			out[i] = limit * math.Tanh(out[i]/limit)
		}
	}
	return out
}
