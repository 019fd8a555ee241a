package tune

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"

	"mt/internal/run/config"
	"mt/internal/run/settings"
	"mt/internal/run/trials"
	"mt/internal/testkit"
	"mt/plan"
	"mt/plan/rates"
)

func TestLadder(t *testing.T) {
	for _, tc := range []struct {
		least, most int
		want        string
	}{{1, 1, "[1]"}, {3, 2, "[3]"}, {1, 5, "[1 2 3 4 5]"}, {1, 30, "[1 2 3 4 6 8 12 16 24 30]"}, {3, 9, "[3 4 6 8 9]"}} {
		if got := fmt.Sprint(ladder(tc.least, tc.most)); got != tc.want {
			t.Errorf("%d to %d: %s, want %s", tc.least, tc.most, got, tc.want)
		}
	}
}

// open opens trials of a small model whose weights are copied to the device, with the given device
// memory and the keys in more.
func open(t *testing.T, memory string, more string) *trials.Trials {
	t.Helper()
	c := testkit.Must(config.Parse("t.yaml", []byte(`
model: {model_type: llama, hidden_size: 512, intermediate_size: 1408, num_hidden_layers: 6, num_attention_heads: 8, num_key_value_heads: 4, vocab_size: 2048, max_position_embeddings: 512, tie_word_embeddings: false}
dataset: none
max_seq_len: 256
per_device_train_batch_size: 4
device: cpu
binding: copy
max_grad_norm: 0
device_memory: `+memory+"\n"+more), config.Args{}))(t)
	trials := testkit.Must(trials.OpenTrials(c, settings.Options{Stderr: io.Discard}))(t)
	testkit.Close(t, trials)
	return trials
}

// slower returns the rates of the named GPU, with its link and its updates slower by the given
// factors.
func slower(t *testing.T, name string, link, updates float64) *rates.Machine {
	t.Helper()
	m := testkit.Must(rates.Find(name))(t)
	m.Link.Up, m.Link.Down, m.Link.Both = m.Link.Up/link, m.Link.Down/link, m.Link.Both/link
	m.Host.Update.Rate /= updates
	return m
}

// TestSearch: from depths of 1 and with a hundred predictions, the search comes within 5 % of a full grid's best. The
// machines stall for different reasons and have little memory, so one depth's memory is missing for another. Without
// long tests one machine is tried.
func TestSearch(t *testing.T) {
	testkit.NotShort(t)
	every := testkit.Every(t, 6)
	for i, tc := range []struct {
		gpu           string
		link, updates float64
		memory        string
	}{
		{"rtx-3090", 1, 1, "62MiB"}, {"h100", 4, 1, "90MiB"}, {"h100", 1, 6, "300MiB"}, {"rtx-4090", 3, 3, "75MiB"}, {"a100", 0.3, 1, "62MiB"}, {"gh200", 1, 1, "100MiB"},
	} {
		if i%every != 0 {
			continue
		}
		trials := open(t, tc.memory, "pipeline: {micro_batch_tokens: 256, chunk_tokens: 256, weight_slots: 1, grad_buffers: 1, grad_slabs: 1, activation_slots: 3}")
		m := slower(t, tc.gpu, tc.link, tc.updates)
		start := testkit.Must(trials.Plan(trials.Asked()))(t)
		s := space{dims: spaceOf(start, false)}
		s.predict, s.fits = predictor(trials, m, start, false)
		first := testkit.Must(s.predict(trials.Asked()))(t)
		best, points := grid(t, s, first.Knobs, every)
		t.Logf("case %d: start %.4g ms, best of %d %.4g ms with %+v", i, 1e3*first.Step, points, 1e3*best.Step, best.Knobs)
		for seed := range uint64(2) {
			fresh := search{space: s, ctx: t.Context(), most: 100}
			found := testkit.Must(fresh.run(first, seed))(t)
			if len(found) > 100 || found[0].Step > best.Step/0.95 {
				t.Errorf("case %d, seed %d: %d predictions found %.4g ms with %+v; the best of %d is %.4g ms with %+v, the start takes %.4g ms", i, seed, len(found),
					1e3*found[0].Step, found[0].Knobs, points, 1e3*best.Step, best.Knobs, 1e3*first.Step)
			}
			if best.Step > 0.97*first.Step {
				t.Errorf("case %d: the best of the grid, %.4g ms, is no better than the start, %.4g ms: there is nothing to find", i, 1e3*best.Step, 1e3*first.Step)
			}
		}
	}
}

// grid predicts a whole grid of plans and returns the best one and their number. Unless every is 1,
// it leaves out most values of each knob.
func grid(t *testing.T, s space, from trials.Knobs, every int) (best *Point, points int) {
	t.Helper()
	all := []trials.Knobs{from}
	for _, d := range s.dims {
		var next []trials.Knobs
		for _, k := range all {
			for _, v := range d.values {
				if *d.at(&k) = v; every == 1 || slices.Contains([]int{1, 2, 3, 4, 8, 12, 24}, v) {
					next = append(next, k)
				}
			}
		}
		all = next
	}
	for _, k := range all {
		p := testkit.Must(s.predict(k))(t)
		if p == nil {
			continue
		}
		if points++; best == nil || p.Step < best.Step {
			best = p
		}
	}
	return best, points
}

// TestSameBits: without newBits the search finds no plan that changes the order of sums. With newBits
// it finds some.
func TestSameBits(t *testing.T) {
	testkit.NotShort(t)
	trials := open(t, "100MiB", "")
	m := slower(t, "h100", 1, 1)
	start := testkit.Must(trials.Plan(trials.Asked()))(t)
	for _, newBits := range []bool{false, true} {
		s := search{space: space{dims: spaceOf(start, newBits)}, ctx: t.Context(), most: 60}
		s.predict, s.fits = predictor(trials, m, start, newBits)
		first := testkit.Must(s.predict(trials.Asked()))(t)
		found := testkit.Must(s.run(first, 1))(t)
		others := 0
		for _, p := range found {
			if !sameBits(p.run, start) {
				others++
			}
		}
		if (others > 0) != newBits {
			t.Errorf("new bits %v: %d of %d plans have them", newBits, others, len(found))
		}
	}
	other := *start
	if other.Order++; sameBits(&other, start) {
		t.Error("another order of micro-batches counts as the same bits")
	}
	k := trials.Asked()
	k.MicroBatchTokens = 512
	predict, _ := predictor(trials, m, start, false)
	if p, err := predict(k); p != nil || err != nil {
		t.Errorf("another micro-batch: %+v, %v", p, err)
	}
}

// TestSearchEnds: a cancelled search returns the cause. A search that has reached its number of
// predictions returns the plans found so far.
func TestSearchEnds(t *testing.T) {
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	fake := func(k trials.Knobs) (*Point, error) {
		if k.WeightSlots > 6 {
			return nil, nil // does not fit
		}
		return &Point{Knobs: k, Step: 1 / float64(1+k.WeightSlots), Memory: int64(k.WeightSlots)}, nil
	}
	s := search{space: space{[]dimension{{"pipeline.weight_slots", func(k *trials.Knobs) *int { return &k.WeightSlots }, ladder(1, 32)}}, fake, func(k trials.Knobs) bool { return k.WeightSlots <= 6 }}, ctx: ctx, most: 4,
		progress: func(done, of int) {}}
	start, _ := fake(trials.Knobs{WeightSlots: 1})
	found, err := s.run(start, 1)
	if err != nil || len(found) != 4 || found[0].Knobs.WeightSlots != 4 {
		t.Errorf("%d found, the best %+v; %v", len(found), found[0], err)
	}
	s.most = 100
	if found, err = s.run(start, 1); err != nil || found[0].Knobs.WeightSlots != 6 {
		t.Errorf("the best %+v; %v", found[0], err)
	}
	s.progress = func(done, of int) {
		if done == 3 {
			cancel(stopped)
		}
	}
	if _, err := s.run(start, 1); !errors.Is(err, stopped) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestDescend: if memory suffices, the search raises one knob after the other. If it does not, the
// search lowers one knob to raise another.
func TestDescend(t *testing.T) {
	for _, tc := range []struct{ w, a, room, wantW, wantA int }{{1, 3, 100, 12, 16}, {16, 4, 28, 12, 16}, {4, 16, 20, 12, 8}} {
		predict := func(k trials.Knobs) (*Point, error) {
			if k.WeightSlots+k.ActivationSlots > tc.room {
				return nil, nil
			}
			far := func(v, want int) float64 { return math.Abs(float64(v - want)) }
			return &Point{Knobs: k, Step: 100 + far(k.WeightSlots, 12) + 0.9*far(k.ActivationSlots, 16), Memory: int64(k.WeightSlots)}, nil
		}
		s := search{space: space{[]dimension{{"pipeline.weight_slots", func(k *trials.Knobs) *int { return &k.WeightSlots }, ladder(1, 32)},
			{"pipeline.activation_slots", func(k *trials.Knobs) *int { return &k.ActivationSlots }, ladder(4, 32)}}, predict, func(k trials.Knobs) bool { p, _ := predict(k); return p != nil }}, ctx: t.Context(), most: 1000, seen: map[trials.Knobs]*Point{}}
		start, _ := predict(trials.Knobs{WeightSlots: tc.w, ActivationSlots: tc.a})
		if got, err := s.descend(start); err != nil || got.Knobs.WeightSlots != tc.wantW || got.Knobs.ActivationSlots != tc.wantA {
			t.Errorf("from %d and %d with room for %d: %+v, %v", tc.w, tc.a, tc.room, got.Knobs, err)
		}
	}
	for _, tc := range []struct{ v, way, want int }{{1, 1, 2}, {4, -1, 3}, {5, 1, 6}, {5, -1, 4}, {6, 1, 0}, {1, -1, 0}} {
		if got := beside(ladder(1, 6), tc.v, tc.way); got != tc.want {
			t.Errorf("beside %d by %d: %d, want %d", tc.v, tc.way, got, tc.want)
		}
	}
}

// TestPropose: of equally fast plans only one is proposed, and of the fastest ones also the one
// with the most memory. The start is never proposed.
func TestPropose(t *testing.T) {
	var all []*Point
	for i, step := range []float64{1, 1.0005, 1.001, 1.1, 1.1001, 1.3, 2} {
		all = append(all, &Point{Knobs: trials.Knobs{WeightSlots: i + 1}, Step: step, Memory: int64(100 - 10*(i%3))})
	}
	for _, tc := range []struct {
		start, n int
		want     string
	}{{7, 8, "3 1 2 5 6"}, {3, 8, "1 2 5 6 7"}, {6, 2, "3 1"}, {1, 4, "3 2 5 6"}} {
		var got []int
		for _, p := range propose(all, all[tc.start-1], tc.n) {
			got = append(got, p.Knobs.WeightSlots)
		}
		if text := fmt.Sprint(got); text != "["+tc.want+"]" {
			t.Errorf("%d of them without %d: %s, want %s", tc.n, tc.start, text, tc.want)
		}
	}
}

// TestNamesOfRows: the table marks the start and the best plan by name.
func TestNamesOfRows(t *testing.T) {
	for want, row := range map[string]Row{"start": {Start: true}, "best": {Best: true}, "": {}} {
		if got := row.cells(nil)[0]; got != want {
			t.Errorf("a row is called %q, want %q", got, want)
		}
	}
}

// TestNewBits: the values of micro_batch_tokens double from one row to all tokens of a step.
func TestNewBits(t *testing.T) {
	start := &plan.Run{Limits: plan.Limits{Tokens: 3000}}
	start.RowTokens = 512
	found := map[string][]int{}
	for _, d := range spaceOf(start, true) {
		found[d.key] = d.values
	}
	if got := found["pipeline.micro_batch_tokens"]; !slices.Equal(got, []int{512, 1024, 2048, 3000}) {
		t.Errorf("micro-batches of %v tokens", got)
	}
	if got := found["pipeline.chunk_tokens"]; !slices.Equal(got, []int{1024, 2048, 4096, 8192, 16384, 32768}) {
		t.Errorf("chunks of %v tokens", got)
	}
}
