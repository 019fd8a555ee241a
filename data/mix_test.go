package data

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sets writes one data set for each number in rows, with that many rows. Row k of data set i has
// the ids [i, k].
func sets(t *testing.T, rows ...int) Spec {
	dir := t.TempDir()
	var paths []string
	for i, n := range rows {
		var b strings.Builder
		for k := range n {
			fmt.Fprintf(&b, "{\"input_ids\":[%d,%d]}\n", i, k)
		}
		paths = append(paths, write(t, dir, fmt.Sprintf("%d.jsonl", i), b.String()))
	}
	return idsSpec(t, 8, 1<<20, paths...)
}

// mixed returns the rows in order, each written as "set.row".
func mixed(d *Dataset) []string {
	out := []string{}
	for i := range d.Rows() {
		ids := d.Row(i).IDs
		out = append(out, fmt.Sprintf("%d.%d", ids[0], ids[1]))
	}
	return out
}

func TestMixInTurn(t *testing.T) {
	for strategy, want := range map[string]string{
		"":                 "0.0 0.1 0.2 1.0 1.1",
		"concat":           "0.0 0.1 0.2 1.0 1.1",
		"interleave_under": "0.0 1.0 0.1 1.1",
		"interleave_over":  "0.0 1.0 0.1 1.1 0.2 1.0",
	} {
		s := sets(t, 3, 2)
		s.MixStrategy = strategy
		if got := strings.Join(mixed(mustOpen(t, s)), " "); got != want {
			t.Errorf("%s: %s, want %s", strategy, got, want)
		}
	}
	s := sets(t, 1, 3) // the first comes to its end before the second has had a turn
	s.MixStrategy = "interleave_under"
	if got, want := strings.Join(mixed(mustOpen(t, s)), " "), "0.0 1.0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestMixByShares: documents are drawn from the data sets with the probabilities interleave_probs,
// each data set in its own order, until the first or the last has ended. The seed decides the
// sequence.
func TestMixByShares(t *testing.T) {
	s := sets(t, 150, 1000)
	s.MixStrategy, s.InterleaveProbs, s.Seed = "interleave_under", []float64{0.25, 0.75}, 5
	d := mustOpen(t, s)
	got := mixed(d)
	var next [2]int
	for _, row := range got {
		set := int(row[0] - '0')
		if row != fmt.Sprintf("%d.%d", set, next[set]) {
			t.Fatalf("row %s comes when %d.%d is due", row, set, next[set])
		}
		next[set]++
	}
	if next[0] != 150 && next[1] != 1000 || got[len(got)-1] != "0.149" && got[len(got)-1] != "1.999" {
		t.Errorf("it ends after %v rows, with %s", next, got[len(got)-1])
	}
	// The number of rows from the first set is binomial with probability 0.25. The bound is five
	// standard deviations.
	share, n := float64(next[0])/float64(len(got)), float64(len(got))
	if bound := 5 * math.Sqrt(0.25*0.75/n); math.Abs(share-0.25) > bound {
		t.Errorf("the first set's share is %.3f, want 0.25 ± %.3f", share, bound)
	}
	again := mustOpen(t, s)
	if !slices.Equal(mixed(again), got) || again.ID() != d.ID() {
		t.Error("the same seed gives another mix")
	}
	if r := d.Report(); len(r.Sets) != 2 || r.Sets[0].Used != int64(next[0]) || r.Sets[1].Used != int64(next[1]) || r.Sets[1].Documents != 1000 || r.Sets[1].Tokens != 2000 {
		t.Errorf("report %+v", r)
	}
	s.Seed = 6
	if d := mustOpen(t, s); slices.Equal(mixed(d), got) || d.ID() == again.ID() {
		t.Error("another seed gives the same mix")
	}
	s.MixStrategy = "interleave_over"
	over := mixed(mustOpen(t, s))
	for _, last := range []string{"0.149", "1.999"} {
		if !slices.Contains(over, last) {
			t.Errorf("over: %s does not come", last)
		}
	}
	if !slices.Contains(over[slices.Index(over, "0.149")+1:], "0.0") {
		t.Error("over: the first set does not begin again")
	}
}

// TestMixResumes: a sampler of the same mix, opened later, gives the same steps as the first.
func TestMixResumes(t *testing.T) {
	s := sets(t, 40, 20)
	s.MixStrategy, s.InterleaveProbs, s.Shuffle = "interleave_over", []float64{0.5, 0.5}, true
	first := mustOpen(t, s).Sampler(7)
	again := mustOpen(t, s).Sampler(7)
	for n := 2 * first.StepsPerEpoch(); n > 0; n-- {
		if !equalRows(first.Step(n), again.Step(n)) {
			t.Fatalf("step %d differs", n)
		}
	}
}

// TestMaxSamples: max_samples takes documents from the start of each data set.
func TestMaxSamples(t *testing.T) {
	for _, tt := range []struct {
		rows []int
		want string
	}{{[]int{5}, "0.0 0.1 0.2"}, {[]int{5, 2}, "0.0 0.1 0.2 1.0 1.1"}} {
		s := sets(t, tt.rows...)
		s.MaxSamples = 3
		if got := strings.Join(mixed(mustOpen(t, s)), " "); got != tt.want {
			t.Errorf("%v rows: %s, want %s", tt.rows, got, tt.want)
		}
	}
}

// TestMixOfText: texts of interleaved data sets are packed in the order of the mix.
func TestMixOfText(t *testing.T) {
	dir := t.TempDir()
	a := write(t, dir, "a.jsonl", "{\"text\":\"aaa\"}\n{\"text\":\"bb\"}")
	b := write(t, dir, "b.jsonl", "{\"text\":\"x\"}\n{\"text\":\"yy\"}")
	s := textSpec(t, 5, a, b)
	s.MixStrategy = "interleave_under"
	if got, want := texts(mustOpen(t, s).All()), []string{"aaa$x", "$bb$y", "y$"}; !slices.Equal(got, want) {
		t.Errorf("packed %q, want %q", got, want)
	}
	s.Packing = set(false)
	if got, want := texts(mustOpen(t, s).All()), []string{"aaa$", "x$", "bb$", "yy$"}; !slices.Equal(got, want) {
		t.Errorf("not packed %q, want %q", got, want)
	}
}

func TestMixErrors(t *testing.T) {
	tests := []struct {
		change func(*Spec)
		want   []string
	}{
		{func(s *Spec) { s.MixStrategy = "shuffle" }, []string{`mix_strategy "shuffle"`, "interleave_under"}},
		{func(s *Spec) { s.InterleaveProbs = []float64{0.5, 0.5} }, []string{"mix_strategy is concat"}},
		{func(s *Spec) { s.MixStrategy, s.InterleaveProbs = "interleave_under", []float64{1} }, []string{"1 values and dataset 2"}},
		{func(s *Spec) { s.MixStrategy, s.InterleaveProbs = "interleave_under", []float64{0.5, 0.2} }, []string{"sum up to 0.7"}},
		{func(s *Spec) { s.MixStrategy, s.InterleaveProbs = "interleave_under", []float64{1.5, -0.5} }, []string{"has 1.5"}},
		{func(s *Spec) { s.MixStrategy, s.InterleaveProbs = "interleave_over", []float64{1e-12, 1} }, []string{"3e+12 documents", "raise its share"}},
		{func(s *Spec) {
			s.MixStrategy, s.Paths[1] = "interleave_over", filepath.Join(filepath.Dir(s.Paths[1]), "empty.jsonl")
		}, []string{"empty.jsonl", "gives none of its 0 documents"}},
	}
	for _, tt := range tests {
		s := sets(t, 3, 2)
		write(t, filepath.Dir(s.Paths[0]), "empty.jsonl", "")
		tt.change(&s)
		_, err := Open(s)
		wantError(t, err, tt.want...)
	}
}
