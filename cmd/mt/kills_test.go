package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

var killCount = flag.Int("kills", 0, "how often TestRandomKills kills (tools/kills.sh); 0 for some")

// TestRandomKills: a run and its resumed runs are killed by SIGKILL repeatedly, until one is left
// to complete. It ends with the same bits as an undisturbed run. Each kill happens at a drawn
// system call: before it, after part of its bytes, or after it. The disk changes at no other
// moment, so these are all cases.
func TestRandomKills(t *testing.T) {
	if testkit.Race {
		t.Skip("runs are slow under the race detector, and make the same system calls without it")
	}
	count, seed := *killCount, drawSeed(t)
	switch {
	case count > 0:
	case testing.Short():
		count = 3
	default:
		count = testkit.Count(t, 50, 6)
	}
	t.Parallel()
	t.Run("in memory", func(t *testing.T) {
		t.Parallel()
		newLab(t).kills(t, count, seed)
	})
	for name, change := range onDisks {
		t.Run(name, func(t *testing.T) {
			testkit.NotShort(t)
			t.Parallel()
			lab := newLab(t)
			change(lab)
			lab.kills(t, count, seed)
		})
	}
}

// statesOnDisks are keys with which some layers' states do not fit in host memory. Checkpoints link their files.
const statesOnDisks = `recompute: full
pipeline: {state_slots: 1, micro_batch_tokens: 24, activation_slots: 5}
state_dir: states
host_memory: 100786648
`

// gradientsOnDisks are keys with which host memory does not hold all states and gradients of six blocks.
const gradientsOnDisks = `recompute: full
pipeline: {state_slots: 1, micro_batch_tokens: 24, activation_slots: 8, weight_slots: 1, grad_slabs: 1, grad_buffers: 1}
state_dir: states
host_memory: 100815000
`

// weightsOnDisks are keys with which host memory does not hold all weights either.
const weightsOnDisks = `recompute: full
pipeline: {state_slots: 1, micro_batch_tokens: 24, activation_slots: 8, weight_slots: 1}
state_dir: states
param_dir: states
host_memory: 100803648
`

// onDisks lists the ways in which runs of a lab keep data on disks. Each function sets up a lab for
// one of them.
var onDisks = map[string]func(*lab){
	"with states on disks":                 func(lab *lab) { lab.keepOnDisks(2, statesOnDisks, "state") },
	"with states on disks that are copied": func(lab *lab) { lab.keepOnDisks(2, statesOnDisks+"optimizer_zstd: true\n", "state") },
	"with gradients on disks":              func(lab *lab) { lab.keepOnDisks(6, gradientsOnDisks, "state", "grads") },
	"with weights on disks":                func(lab *lab) { lab.keepOnDisks(6, weightsOnDisks, "state", "grads", "params") },
}

// keepOnDisks gives the lab's runs the number of blocks and the keys with which they have state
// files of the kinds in files: state, grads or params.
func (lab *lab) keepOnDisks(blocks int, keys string, files ...string) {
	lab.config = strings.Replace(lab.config, "num_hidden_layers: 2", fmt.Sprintf("num_hidden_layers: %d", blocks), 1) + keys
	lab.onDisks = files
}

// isLink reports whether a call links a state file into a checkpoint.
func isLink(c ioCall) bool {
	return c.Name == "linkat" && strings.HasPrefix(c.Path, "states/") && strings.Contains(c.Path2, "/optimizer/layer-")
}

// kills runs the lab's command count times and kills each run at a call that is drawn with seed.
func (lab *lab) kills(t *testing.T, count int, seed uint64) {
	const scene = firstRun
	lab.undisturbed(t, scene)
	calls := lab.trace(t, scene, writingCalls)
	for _, file := range []string{"state", "grads", "params"} {
		path := "states/mt-" + file + "-0.bin"
		if written := slices.ContainsFunc(calls, func(c ioCall) bool { return c.Path == path }); written != slices.Contains(lab.onDisks, file) {
			t.Fatalf("%s is written: %t; wanted are %v", path, written, lab.onDisks)
		}
	}
	changes := lab.trace(t, scene, changingCalls)
	links := strings.Contains(lab.config, "state_dir") && !strings.Contains(lab.config, "optimizer_zstd")
	if links != slices.ContainsFunc(changes, isLink) {
		t.Fatalf("checkpoints should link states: %t", links)
	}
	most := len(changes)
	r := rand.New(rand.NewPCG(seed, 1))
	kinds := []ioFault{killBefore, killAmid, killAfter}
	for kills := 0; kills < count; {
		dir := lab.prepared(t, scene)
		var story string
		for range 1 + r.IntN(8) {
			f, n := kinds[r.IntN(len(kinds))], 1+r.IntN(most)
			got := lab.run(t, dir, changingCalls, f, n)
			met := got.Spoiled()
			if met == nil { // the run made fewer calls
				if got.Code != exitDone {
					t.Fatalf("exit code %d after%s\n%s", got.Code, story, got.Stderr)
				}
				break
			}
			kills++
			story += fmt.Sprintf("\n%s of %s", f, met)
			if problems := lab.damage(scene, dir); got.Code != 137 || problems != nil {
				t.Fatalf("exit code %d, %q after%s", got.Code, problems, story)
			}
		}
		got := lab.run(t, dir, noCalls, noFault, 0)
		if got.Code != exitDone {
			t.Fatalf("exit code %d after%s\n%s", got.Code, story, got.Stderr)
		}
		for _, problem := range differences(tree(t, dir), lab.want[scene]) {
			t.Errorf("%s after%s", problem, story)
		}
		testkit.NoError(t, os.RemoveAll(dir))
		if t.Failed() {
			t.FailNow()
		}
	}
}
