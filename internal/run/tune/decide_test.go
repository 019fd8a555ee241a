package tune

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"mt/internal/run/trials"
	"mt/internal/testkit"
)

// noisy returns a runner with invented run times: the plan's Step times a random factor. The
// logarithm of the factor has the given deviation and also drifts slowly, as on a machine that
// others use. log receives the name of each run.
func noisy(r *rand.Rand, deviation float64, log *[]string) runner {
	runs := 0
	return func(_ context.Context, p *Point, steps int) (sample, error) {
		runs++
		if log != nil {
			*log = append(*log, fmt.Sprintf("%d×%d", p.Knobs.WeightSlots, steps))
		}
		drift := 1 + 0.5*math.Sin(float64(runs)/20)
		return sample{step: p.Step * drift * math.Exp(deviation*r.NormFloat64())}, nil
	}
}

func contestants(steps ...float64) (all []*contestant) {
	for i, s := range steps {
		all = append(all, &contestant{Point: &Point{Knobs: trials.Knobs{WeightSlots: i + 1}, Step: s}})
	}
	return all
}

// TestHalve: successive halving runs the contestants in the expected order and eliminates the
// slower half in each round.
func TestHalve(t *testing.T) {
	var log []string
	all := contestants(5, 1, 4, 2, 3)
	best, err := halve(t.Context(), all, 2, noisy(rand.New(rand.NewPCG(1, 1)), 0, &log))
	if err != nil || best != all[1] {
		t.Fatalf("%+v, %v", best, err)
	}
	want := "[1×2 2×2 3×2 4×2 5×2 2×2 3×2 4×2 5×2 1×2 2×4 4×4 5×4 4×4 5×4 2×4 2×8 4×8 4×8 2×8]"
	if got := fmt.Sprint(log); got != want || len(log) != runsOf(5) || rounds(5) != 3 {
		t.Errorf("%d runs, %d said, in %d rounds: %s, want %s", len(log), runsOf(5), rounds(5), got, want)
	}
	var left []int
	for _, c := range all {
		left = append(left, c.left)
	}
	if fmt.Sprint(left) != "[1 0 1 3 2]" {
		t.Errorf("left in rounds %v", left)
	}
	if best, err := halve(t.Context(), nil, 1, nil); best != nil || err != nil {
		t.Errorf("nobody: %v, %v", best, err)
	}
	if best, err := halve(t.Context(), all[:1], 1, nil); best != all[0] || err != nil {
		t.Errorf("one alone: %v, %v", best, err)
	}
	stopped := errors.New("stopped")
	if _, err := halve(t.Context(), all, 1, func(context.Context, *Point, int) (sample, error) { return sample{}, stopped }); !errors.Is(err, stopped) {
		t.Errorf("%v", err)
	}
}

// TestHalveWithNoise: with 3 % noise and 50 % drift, the last contestant is nearly always within 5
// % of the fastest one.
func TestHalveWithNoise(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	good := 0
	const times = 300
	for range times {
		all := contestants(1, 1.02, 1.1, 1.2, 1.2, 1.3, 1.5, 2)
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		best := testkit.Must(halve(t.Context(), all, 1, noisy(r, 0.03, nil)))(t)
		if best.Step <= 1.05 {
			good++
		}
	}
	if good < times*9/10 {
		t.Errorf("within 5 %% of the best in %d of %d", good, times)
	}
}

// TestNeverSlower: whatever the noise, a plan that is not faster is called faster in at most 5 % of
// cases. A plan that is 10 % faster is found despite 3 % noise.
func TestNeverSlower(t *testing.T) {
	const times = 2000
	for _, tc := range []struct {
		faster, noise float64
		least, most   float64 // of the cases in which it is called faster
	}{{1, 0.03, 0, 0.05}, {1, 0.5, 0, 0.05}, {0.97, 0.05, 0, 0.02}, {1.1, 0.03, 0.98, 1}, {1.1, 0.1, 0.6, 1}} {
		r := rand.New(rand.NewPCG(5, 6))
		called, pairs := 0, 0
		for range times {
			two := contestants(1, 1/tc.faster)
			f := testkit.Must(pair(t.Context(), two[0], two[1], 8, 1, noisy(r, tc.noise, nil), func() { pairs += 8 }))(t)
			if f.Certain() {
				called++
			}
		}
		if share := float64(called) / times; share < tc.least || share > tc.most {
			t.Errorf("%g times as fast with a noise of %g: called faster in %g of the cases", tc.faster, tc.noise, share)
		}
		if tc.noise > 0.03 && tc.faster > 1 && pairs == 0 {
			t.Errorf("%g times as fast with a noise of %g: never more pairs", tc.faster, tc.noise)
		}
	}
}

func TestCompare(t *testing.T) {
	for n, want := range map[int]int{6: 0, 8: 0, 9: 0, 10: 1, 13: 2, 16: 3, 24: 6} {
		if got := certainRank(n); got != want {
			t.Errorf("of %d values rank %d, want %d", n, got, want)
		}
	}
	ratios := []float64{1.3, 0.9, 1.2, 1.1, 1.25, 1.15, 1.22, 1.05, 1.07, 1.4}
	f := compare(ratios)
	if math.Abs(f.Ratio-1.175) > 1e-12 {
		t.Errorf("the ratio is %g, want 1.175", f.Ratio)
	}
	testkit.Check(t, "ten pairs",
		testkit.Is("least", f.Least, 1.05),
		testkit.Is("most", f.Most, 1.3),
		testkit.Is("pairs", f.Pairs, 10),
		testkit.Is("certain", f.Certain(), true),
		testkit.Is("first ratio given", ratios[0], 1.3),
	)
	if f := compare([]float64{1, 2, 3, 4, 5, 6}); f.Ratio != 3.5 || f.Least != 1 || f.Certain() {
		t.Errorf("%+v", f)
	}
}

// TestPairs: both plans of a pair run equally often, and they take turns in running first.
func TestPairs(t *testing.T) {
	var log []string
	two := contestants(2, 1)
	f, err := pair(t.Context(), two[0], two[1], 6, 3, noisy(rand.New(rand.NewPCG(1, 1)), 0, &log), nil)
	if err != nil || !slices.Equal(log, []string{"1×3", "2×3", "2×3", "1×3", "1×3", "2×3", "2×3", "1×3", "1×3", "2×3", "2×3", "1×3"}) || f.Ratio < 1.9 || f.Ratio > 2.1 || !f.Certain() {
		t.Errorf("%+v, %v, %v", f, log, err)
	}
	stopped := errors.New("stopped")
	if _, err := pair(t.Context(), two[0], two[1], 6, 3, func(context.Context, *Point, int) (sample, error) { return sample{}, stopped }, nil); !errors.Is(err, stopped) {
		t.Errorf("%v", err)
	}
}
