package generate

import (
	"math"
	"math/rand"
	"slices"
	"testing"

	"mt/internal/testkit"
)

// madeUp are invented logits of 8 tokens. The tokens by descending likelihood are 3, 0, 6, 1, 7, 2,
// 5, 4.
var madeUp = []float32{2, 0.5, -1, 3, -4, -2, 1, 0}

var byLikelihood = []int32{3, 0, 6, 1, 7, 2, 5, 4}

// shares returns the softmax of madeUp / temperature over the n most likely tokens.
func shares(n int, temperature float64) map[int32]float64 {
	out, sum := map[int32]float64{}, 0.0
	for _, id := range byLikelihood[:n] {
		out[id] = math.Exp(float64(madeUp[id]) / temperature)
		sum += out[id]
	}
	for id := range out {
		out[id] /= sum
	}
	return out
}

// TestDistribution: tokens are drawn as often as the softmax over the tokens that top-k, top-p and
// min-p leave says. No other tokens are drawn.
func TestDistribution(t *testing.T) {
	for _, c := range []struct {
		name        string
		temperature float64
		topK        int
		topP        float64
		minP        float64
		left        int
	}{
		{"all", 1, 0, 0, 0, 8},
		{"cold", 0.5, 0, 1, 0, 8},
		{"hot", 3, 0, 0, 0, 8},
		{"top-k", 1, 3, 0, 0, 3},
		{"top-k of more than there are", 1, 100, 0, 0, 8},
		{"top-k 1", 2, 1, 0, 0, 1},
		// The softmax of madeUp by descending likelihood is 0.587, 0.216, 0.079, 0.048, …, with
		// partial sums 0.587, 0.803, 0.882, 0.931.
		{"top-p keeps the one that passes it", 1, 0, 0.7, 0, 2},
		{"top-p small", 1, 0, 0.1, 0, 1},
		{"top-p of what top-k leaves", 1, 2, 0.75, 0, 2},
		{"top-p of what top-k leaves, less", 1, 2, 0.7, 0, 1},
		// Divided by the largest, the probabilities are 1, 0.368, 0.135, 0.082, 0.050, 0.018, …. At
		// temperature 2 these are their square roots.
		{"min-p", 1, 0, 0, 0.1, 3},
		{"min-p high", 1, 0, 1, 0.3, 2},
		{"min-p hot", 2, 0, 0, 0.1, 6},
		{"min-p 1", 1, 0, 0, 1, 1},
		{"min-p of what top-k leaves", 2, 4, 0, 0.1, 4},
		{"min-p after top-p", 1, 0, 0.7, 0.3, 2}, // before it, top-p would leave one of the two
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSampler(Options{Temperature: c.temperature, TopK: c.topK, TopP: c.topP, MinP: c.minP, Seed: 3})
			const draws = 20000
			seen := map[int32]float64{}
			for range draws {
				id := testkit.Must(s.sample(madeUp))(t)
				seen[id] += 1.0 / draws
			}
			want := shares(c.left, c.temperature)
			for id, share := range seen {
				// The bound is five standard deviations of the share p among draws independent
				// draws: √(p(1−p)/draws).
				if p := want[id]; math.Abs(share-p) > 5*math.Sqrt(p*(1-p)/draws)+1e-9 {
					t.Errorf("token %d: share %.4f, want %.4f", id, share, p)
				}
			}
			for id, p := range want {
				if p > 0.002 && seen[id] == 0 {
					t.Errorf("token %d with share %.4f never came", id, p)
				}
			}
		})
	}
}

// TestGreedySampling: temperature 0 chooses the largest logit, the first of equal ones, and draws
// no random number.
func TestGreedySampling(t *testing.T) {
	for _, c := range []struct {
		logits []float32
		want   int32
	}{{madeUp, 3}, {[]float32{1, 5, 5, 2}, 1}, {[]float32{-3}, 0}, {[]float32{float32(math.Inf(-1)), -9}, 1}} {
		s := newSampler(Options{Seed: 1})
		if got, err := s.sample(c.logits); err != nil || got != c.want {
			t.Errorf("%v: %d, %v, want %d", c.logits, got, err, c.want)
		}
	}
}

// TestTopPAtItsBorder: top-p keeps no further token once the kept ones have exactly the required
// probability.
func TestTopPAtItsBorder(t *testing.T) {
	s := newSampler(Options{Temperature: 1, TopP: 0.5})
	for range 100 {
		if id, err := s.sample([]float32{2, 2, 2, 2}); err != nil || id > 1 {
			t.Fatalf("token %d, %v; want one of the first two of four alike", id, err)
		}
	}
}

// TestMinPAtItsBorder: min-p keeps a token with exactly the required probability.
func TestMinPAtItsBorder(t *testing.T) {
	s, seen := newSampler(Options{Temperature: 1, MinP: 1}), map[int32]bool{}
	for range 100 {
		id := testkit.Must(s.sample([]float32{2, 1.9, 2, 2}))(t)
		seen[id] = true
	}
	if len(seen) != 3 || seen[1] {
		t.Errorf("tokens %v came; want 0, 2 and 3, which are alike", seen)
	}
}

// TestSeededSampling: the same seed draws the same sequence.
func TestSeededSampling(t *testing.T) {
	draw := func(seed int64) (ids []int32) {
		s := newSampler(Options{Temperature: 1, Seed: seed})
		for range 50 {
			id := testkit.Must(s.sample(madeUp))(t)
			ids = append(ids, id)
		}
		return ids
	}
	if a, b := draw(7), draw(7); !slices.Equal(a, b) {
		t.Errorf("seed 7 draws %v and %v", a, b)
	}
	if a, b := draw(7), draw(8); slices.Equal(a, b) {
		t.Errorf("seeds 7 and 8 both draw %v", a)
	}
}

// TestLogitsThatAreNotFinite: NaN or +Inf among the logits is an error. A token with −Inf is never
// drawn.
func TestLogitsThatAreNotFinite(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		for _, temperature := range []float64{0, 1} {
			logits := slices.Clone(madeUp)
			logits[r.Intn(len(logits))] = float32(bad)
			if id, err := newSampler(Options{Temperature: temperature}).sample(logits); err == nil {
				t.Errorf("%v among the logits at temperature %v: token %d", bad, temperature, id)
			}
		}
	}
	s := newSampler(Options{Temperature: 5})
	for range 1000 {
		if id, err := s.sample([]float32{0, float32(math.Inf(-1)), 0}); err != nil || id == 1 {
			t.Fatalf("token %d, %v", id, err)
		}
	}
}
