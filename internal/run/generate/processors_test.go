package generate

import (
	"math"
	"slices"
	"testing"
)

// TestProcessors: each processor changes the logits of its own tokens and no others.
func TestProcessors(t *testing.T) {
	no := float32(math.Inf(-1))
	const prompt = 3
	ends := []int32{1, 4, -1, 3} // 4 and −1 are outside the vocabulary
	for _, c := range []struct {
		name   string
		o      Options
		ids    []int32
		logits []float32
		want   []float32
	}{
		{"penalty: signs", Options{RepetitionPenalty: 2}, []int32{2, 1, 0}, []float32{3, -1, 0, 5}, []float32{1.5, -2, 0, 5}},
		{"penalty: each id once", Options{RepetitionPenalty: 1.5}, []int32{3, 3, 1, 3, 1}, []float32{3, -2, 7, 6}, []float32{3, -3, 7, 4}},
		{"penalty: a reward", Options{RepetitionPenalty: 0.5}, []int32{0, 1, 1}, []float32{3, -1, 2, -4}, []float32{6, -0.5, 2, -4}},
		{"penalty 1", Options{RepetitionPenalty: 1}, []int32{0, 1, 2}, []float32{3, -1, 2, -4}, []float32{3, -1, 2, -4}},
		{"minimum: before the first", Options{MinNewTokens: 2, Stop: ends}, []int32{0, 0, 0}, []float32{1, 2, 3, 4}, []float32{1, no, 3, no}},
		{"minimum: before the last", Options{MinNewTokens: 2, Stop: ends}, []int32{0, 0, 0, 2}, []float32{4, 3, -2, 1}, []float32{4, no, -2, no}},
		{"minimum: reached", Options{MinNewTokens: 2, Stop: ends}, []int32{0, 0, 0, 2, 2}, []float32{1, 2, 3, 4}, []float32{1, 2, 3, 4}},
		{"suppressed", Options{SuppressTokens: []int32{0, 2}}, []int32{1}, []float32{1, 2, -3, 4}, []float32{no, 2, no, 4}},
		{"suppressed: the last", Options{SuppressTokens: []int32{3, 3}}, []int32{3}, []float32{-1, 2, 3, 4}, []float32{-1, 2, 3, no}},
		{"suppressed: outside", Options{SuppressTokens: []int32{-1, 4}}, []int32{1}, []float32{1, 2, 3, 4}, []float32{1, 2, 3, 4}},
		{"all", Options{RepetitionPenalty: 4, MinNewTokens: 1, Stop: []int32{1}, SuppressTokens: []int32{2}}, []int32{0, 2, 0}, []float32{2, 2, 2, 2}, []float32{0.5, no, no, 2}},
	} {
		got := slices.Clone(c.logits)
		for _, p := range processors(c.o, prompt) {
			p(c.ids, got)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	for _, o := range []Options{{}, {RepetitionPenalty: 1, MinP: 0.1, Stop: ends}, {SuppressTokens: []int32{}}} {
		if n := len(processors(o, prompt)); n != 0 {
			t.Errorf("%d processors although none is asked for: %+v", n, o)
		}
	}
}

// TestRunProcesses: in Run, the processors see the whole prompt and all tokens of the answer so
// far.
func TestRunProcesses(t *testing.T) {
	r := newRig(t, kinds[0], true)
	r.MaxNewTokens = 12
	prompt := randomPrompt(7)
	free := run(t, r.Options, prompt)
	const penalty = 3
	r.RepetitionPenalty = penalty
	ids := slices.Clone(prompt)
	for range r.MaxNewTokens {
		logits := r.logitsAfter(ids)
		for i, l := range logits {
			if slices.Contains(ids, int32(i)) {
				logits[i] = min(l/penalty, l*penalty)
			}
		}
		ids = append(ids, int32(slices.Index(logits, slices.Max(logits))))
	}
	if got := run(t, r.Options, prompt); !slices.Equal(got, ids[len(prompt):]) || slices.Equal(got, free) {
		t.Errorf("with a repetition penalty: %v, want %v; without one %v", got, ids[len(prompt):], free)
	}
	r.RepetitionPenalty, r.Stop = 1, free[:1]
	for n := range 3 {
		r.MinNewTokens = n
		if got := run(t, r.Options, prompt); len(got) < n || slices.Contains(got[:n], free[0]) || n == 0 && len(got) > 0 {
			t.Errorf("at least %d tokens: %v with the end %d", n, got, free[0])
		}
	}
	r.MinNewTokens, r.Stop = 0, nil
	r.SuppressTokens = slices.DeleteFunc(everyToken(), func(id int32) bool { return id == 9 })
	if got, want := run(t, r.Options, prompt), slices.Repeat([]int32{9}, r.MaxNewTokens); !slices.Equal(got, want) {
		t.Errorf("all tokens but one suppressed: %v, want %v", got, want)
	}
}
