package actors

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/testkit"
	"mt/plan"
)

var rewrite = flag.Bool("rewrite", false, "write the transcripts in testdata anew")

// TestTranscripts plays fixed scenarios with all actors' cores. The messages that each core gets,
// and the effects with which it answers, must equal the transcripts in testdata.
func TestTranscripts(t *testing.T) {
	least := plan.Depths{WeightSlots: 1, GradBuffers: 1, GradSlabs: 2, ActivationSlots: 3, BatchesAhead: 1}
	wide := plan.Depths{WeightSlots: 3, GradBuffers: 2, GradSlabs: 3, ActivationSlots: 12, BatchesAhead: 2}
	ofRanks := wide
	ofRanks.ExchangeBuffers, ofRanks.GathersAhead = 2, 2
	leastOfRanks := least
	leastOfRanks.ExchangeBuffers, leastOfRanks.GathersAhead = 1, 1
	ofMatrices := wide
	ofMatrices.MatrixBuffers = 2
	ofDisk := wide
	ofDisk.StateSlots = 2
	ofGradients := ofDisk
	ofGradients.GradSlabs = 1
	for name, cfg := range map[string]worldConfig{
		"clip":               {layers: 4, micro: 2, steps: 2, depths: wide, clip: 1, stopAfter: -1, seed: 1},
		"least-depths":       {layers: 4, micro: 3, steps: 1, depths: least, clip: 1, stopAfter: -1, seed: 2},
		"no-clip-tied":       {layers: 4, micro: 1, steps: 2, depths: least, tied: true, stopAfter: -1, seed: 3},
		"save-and-eval":      {layers: 3, micro: 1, steps: 2, depths: wide, clip: 1, saveSteps: 1, evalSteps: 1, evalPasses: 2, stopAfter: -1, seed: 4},
		"skip":               {layers: 3, micro: 1, steps: 2, depths: wide, clip: 1, skip: map[int]bool{1: true}, stopAfter: -1, seed: 5},
		"head-shards":        {layers: 3, headShards: 2, micro: 2, steps: 2, depths: least, tied: true, evalSteps: 2, evalPasses: 1, stopAfter: -1, seed: 7},
		"experts-ahead":      {layers: 4, experts: 3, micro: 2, steps: 1, depths: wide, clip: 1, evalSteps: 1, evalPasses: 2, stopAfter: -1, seed: 8},
		"experts-on-demand":  {layers: 4, experts: 4, onDemand: true, headShards: 2, micro: 2, steps: 1, depths: least, tied: true, evalSteps: 1, evalPasses: 2, stopAfter: -1, seed: 9},
		"lanes-balanced":     {layers: 6, experts: 2, balanced: true, micro: 2, steps: 1, depths: wide, clip: 1, lane: []int{0, 0, 1, 0, 0, 1}, stopAfter: -1, seed: 14},
		"lanes":              {layers: 4, micro: 2, steps: 1, depths: least, clip: 1, lane: []int{1, 0, 1, 0}, stopAfter: -1, seed: 13},
		"lanes-across":       {layers: 4, micro: 2, steps: 1, depths: wide, clip: 1, lane: []int{1, 0, 1, 0}, reaches: 1<<16 - 1, stopAfter: -1, seed: 14},
		"ranks":              {layers: 4, micro: 2, steps: 2, depths: ofRanks, clip: 1, ranks: 2, saveSteps: 1, evalSteps: 2, evalPasses: 1, skip: map[int]bool{1: true}, stopAfter: -1, seed: 15},
		"ranks-balanced":     {layers: 4, experts: 2, balanced: true, micro: 1, steps: 2, depths: ofRanks, clip: 1, ranks: 2, evalSteps: 2, evalPasses: 1, stopAfter: -1, seed: 18},
		"ranks-no-clip-tied": {layers: 4, micro: 1, steps: 1, depths: leastOfRanks, tied: true, ranks: 2, stopAfter: -1, seed: 16},
		"ranks-stop":         {layers: 3, micro: 1, steps: 5, depths: ofRanks, clip: 1, ranks: 2, stopAfter: 60, seed: 17},
		"matrices":           {layers: 4, micro: 1, steps: 1, depths: ofMatrices, clip: 1, matrices: 3, lane: []int{0, 0, 1, 1}, stopAfter: -1, seed: 18},
		"away":               {layers: 4, micro: 1, steps: 2, depths: ofDisk, clip: 1, stateOnDisk: []bool{false, true, true, true}, saveSteps: 1, skip: map[int]bool{2: true}, stopAfter: -1, seed: 19},
		"linked":             {layers: 4, micro: 1, steps: 2, depths: ofDisk, clip: 1, stateOnDisk: []bool{false, true, true, true}, links: true, saveSteps: 1, skip: map[int]bool{2: true}, stopAfter: -1, seed: 19},
		"gradients":          {layers: 5, micro: 1, steps: 2, depths: ofGradients, clip: 1, stateOnDisk: []bool{false, true, true, true, true}, gradOnDisk: []bool{false, true, true, true, false}, saveSteps: 1, skip: map[int]bool{2: true}, stopAfter: -1, seed: 20},
		"tiles":              {layers: 4, micro: 1, steps: 2, depths: ofDisk, clip: 1, stateOnDisk: []bool{false, true, true, true}, weightsOnDisk: []bool{false, true, true, false}, saveSteps: 1, skip: map[int]bool{2: true}, stopAfter: -1, seed: 19},
		"stop":               {layers: 3, micro: 1, steps: 5, depths: wide, clip: 1, stopAfter: 60, seed: 6},
		"give-up":            {layers: 3, micro: 1, steps: 5, depths: wide, clip: 1, saveSteps: 2, abortAfter: 170, stopAfter: -1, seed: 6},
		"give-up-closed":     {layers: 3, micro: 1, steps: 5, depths: wide, clip: 1, saveSteps: 1, abortAfter: 54, stopAfter: -1, seed: 6},
		"pause":              {layers: 3, micro: 1, steps: 3, depths: wide, clip: 1, saveSteps: 3, evalSteps: 2, evalPasses: 1, pauseAfter: 2, stopAfter: -1, seed: 11},
		"enough":             {layers: 3, micro: 1, steps: 5, depths: wide, clip: 1, evalSteps: 1, evalPasses: 2, enoughAt: 2, stopAfter: -1, seed: 12},
		"stop-in-evaluation": {layers: 3, micro: 1, steps: 5, depths: wide, clip: 1, evalSteps: 1, evalPasses: 3, stopAfter: 100, seed: 10},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cfg)
			w.trace = map[address]*strings.Builder{}
			testkit.NoError(t, w.play())
			for id := range w.cores {
				compareTranscript(t, filepath.Join("testdata", name, at(id).String()+".txt"), w.trace[at(id)])
			}
		})
	}
}

func compareTranscript(t *testing.T, file string, got *strings.Builder) {
	t.Helper()
	if got == nil {
		return // the scenario does not reach this actor
	}
	if *rewrite {
		testkit.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		testkit.NoError(t, os.WriteFile(file, []byte(got.String()), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (go test ./actors -run Transcripts -rewrite makes it)", err)
	}
	if g, w := strings.Split(got.String(), "\n"), strings.Split(string(want), "\n"); got.String() != string(want) {
		for i := range g {
			if i >= len(w) || g[i] != w[i] {
				t.Fatalf("%s:%d: got %q, the transcript ends or says otherwise", file, i+1, g[i])
			}
		}
		t.Fatalf("%s: the transcript goes on after line %d", file, len(g))
	}
}

// record writes a message to actor id, and the effects that follow, into the actor's transcript. If
// the test records no transcripts (trace is nil), it does nothing.
func (w *world) record(id address, msg message, effects []effect) {
	if w.trace == nil {
		return
	}
	b := w.trace[id]
	if b == nil {
		b = &strings.Builder{}
		w.trace[id] = b
	}
	fmt.Fprintf(b, "%s\n", words(msg))
	for _, e := range effects {
		switch e := e.(type) {
		case send:
			fmt.Fprintf(b, "    tell %s: %s\n", e.to, words(e.msg))
		case work:
			fmt.Fprintf(b, "    %s\n", words(e.do))
			for _, s := range e.done {
				fmt.Fprintf(b, "        then tell %s: %s\n", s.to, words(s.msg))
			}
		}
	}
}
