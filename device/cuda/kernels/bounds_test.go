package kernels_test

import (
	"maps"
	"strings"
	"testing"

	"mt/device"
	"mt/device/cuda/kernels"
	"mt/device/op"
)

// bounded is a Launcher that counts launches and runs none. It stands for a GPU with the given
// shared memory and, if most is above 0, a watchdog.
type bounded struct {
	largest
	shared   int
	most     float64
	seven    bool           // the backward has no memory for sums
	launched map[string]int // launches, by kernel
}

func (b *bounded) Launch(k *kernels.Kernel, _, _ kernels.Dim3, shared int, _ *kernels.Params) {
	b.launched[k.Name]++
	if shared > b.shared {
		b.t.Errorf("%s: %d bytes of shared memory, a block may have %d", k.Name, shared, b.shared)
	}
}

func (b *bounded) SharedBytes() int              { return b.shared }
func (b *bounded) MostWork(device.DType) float64 { return b.most }

// attention launches attention over one sequence, and its backward, with memory for sums unless b.seven is set. It returns
// the number of launches of each kernel whose name starts with prefix.
func (b *bounded) attention(prefix string, tokens, heads, kvHeads, dim int) map[string]int {
	b.dt, b.launched = device.BF16, map[string]int{}
	shape := op.AttentionShape{CuQ: b.ints(2), CuK: b.ints(2), Seqs: 1, TQ: tokens, TK: tokens, MaxQ: tokens, MaxK: tokens, Heads: heads, KVHeads: kvHeads, Dim: dim, Scale: 1}
	q, k, lse := b.act(int64(tokens*heads*dim)), b.act(int64(tokens*kvHeads*dim)), b.f32(int64(tokens*heads))
	sums := device.Tensor{}
	if !b.seven {
		sums = b.f32(int64(shape.SumsLen()))
	}
	kernels.Attention(b, &op.Attention{AttentionShape: shape, O: q, LSE: lse, Q: q, K: k, V: k, QStride: heads * dim, KStride: kvHeads * dim})
	kernels.AttentionBackward(b, &op.AttentionBackward{AttentionShape: shape, DQ: q, DK: k, DV: k, DO: q, O: q, LSE: lse, Delta: lse, Q: q, K: k, V: k,
		QStride: heads * dim, KStride: kvHeads * dim, DQStride: heads * dim, DKStride: kvHeads * dim, Sums: sums})
	out := map[string]int{}
	for name, n := range b.launched {
		if strings.HasPrefix(name, prefix) {
			out[name] = n
		}
	}
	return out
}

// TestGradientsFitSharedMemory: the larger kernel for all gradients runs only if the GPU has enough
// shared memory; otherwise the smaller one runs.
func TestGradientsFitSharedMemory(t *testing.T) {
	for _, tc := range []struct {
		shared, dim int
		want        string
	}{
		{99 << 10, 64, "attention_gradients_d64"}, {99 << 10, 96, "attention_gradients_small_d96"}, {99 << 10, 128, "attention_gradients_small_d128"},
		{163 << 10, 96, "attention_gradients_d96"}, {163 << 10, 128, "attention_gradients_d128"},
	} {
		b := &bounded{largest: largest{limits: limits{t: t}}, shared: tc.shared}
		if got := b.attention("attention_gradients", 256, 4, 2, tc.dim); len(got) != 1 || got[tc.want] != 1 {
			t.Errorf("%d bytes of shared memory, heads of %d: %v, want %s once", tc.shared, tc.dim, got, tc.want)
		}
	}
}

// TestGradientsOfGroupsUnderAWatchdog: a launch for all gradients counts five matrix products for
// each query head. It has no more groups of heads than the watchdog's limit of FLOPs allows.
func TestGradientsOfGroupsUnderAWatchdog(t *testing.T) {
	const tokens, kvHeads, dim = 256, 4, 64
	for _, heads := range []int{4, 8, 32} {
		group := 5 * 2 * float64(heads/kvHeads) * tokens * tokens * dim // FLOPs of a group
		for most, want := range map[float64]int{0: 1, 1: 4, 1.5 * group: 4, 2.5 * group: 2, 3.5 * group: 2, 4 * group: 1} {
			b := &bounded{largest: largest{limits: limits{t: t}}, shared: 99 << 10, most: most}
			if got := b.attention("attention_gradients", tokens, heads, kvHeads, dim); got["attention_gradients_d64"] != want {
				t.Errorf("%d heads, at most %g of a group's FLOPs: launches %v, want %d", heads, most/group, got, want)
			}
		}
	}
}

// TestHopperUnderAWatchdog: a launch of a kernel for sm_90a has no more heads than the watchdog's
// limit of FLOPs allows.
func TestHopperUnderAWatchdog(t *testing.T) {
	const tokens, heads, kvHeads, dim = 256, 8, 2, 128
	const product = 2 * tokens * tokens * dim   // FLOPs of a head
	for most, want := range map[float64][4]int{ // launches of the forward; of keys' and of queries' gradients; of all gradients
		0:             {1, 1, 1, 1},
		17 * product:  {1, 2, 2, 2},
		9.5 * product: {2, 2, 3, 2},
		1:             {8, 2, 8, 2},
	} {
		for seven, want := range map[bool]map[string]int{
			true:  {"attention_sm90a_forward_d128": want[0], "attention_sm90a_dkdv_d128": want[1], "attention_sm90a_dq_d128": want[2]},
			false: {"attention_sm90a_forward_d128": want[0], "attention_sm90a_gradients_d128": want[3]},
		} {
			b := &bounded{largest: largest{limits: limits{t: t, sm90a: true}}, shared: 227 << 10, most: most, seven: seven}
			if got := b.attention("attention_sm90a", tokens, heads, kvHeads, dim); !maps.Equal(got, want) {
				t.Errorf("at most %g of a head's product: launches %v, want %v", most/product, got, want)
			}
		}
	}
}
