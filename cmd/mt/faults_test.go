package main

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

var (
	faultCount = flag.Int("faults", -1, "how many of the faults TestDiskFaults makes, 0 for all (tools/faults.sh), -1 for some")
	faultSeed  = flag.Uint64("fault-seed", 0, "which of them, and where TestRandomKills kills; 0 for the usual ones (MT_LONG=all: others each time)")
)

// drawSeed returns the seed for drawing faults or kills. A failing test prints how to repeat the draw.
func drawSeed(t *testing.T) uint64 {
	seed := *faultSeed
	if seed == 0 {
		seed = testkit.Seed()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("go test ./cmd/mt -run '^%s$' -args -fault-seed %d draws the same", t.Name(), seed)
		}
	})
	return seed
}

// diskFault is one test case of TestDiskFaults: a run of a scene (an initial state of the
// directory) in which the fault hits one system call.
type diskFault struct {
	scene string
	of    numbered
	fault ioFault
	call  ioCall // as in the undisturbed run; the spoiled run's N-th call may differ
}

func (f diskFault) String() string { return fmt.Sprintf("%s, %s of %s", f.scene, f.fault, f.call) }

// spoils lists the faults to inject, such as an error or a short write, each with the system calls
// to which it can happen.
var spoils = []struct {
	fault ioFault
	of    numbered
}{
	{failEIO, allCalls},
	{failENOSPC, writingCalls},
	{shortWrite, writingCalls},
	{killBefore, changingCalls},
	{killAmid, writingCalls},
	{killAfter, changingCalls},
}

// TestDiskFaults: no failing system call on files damages results. The runs are a first run with
// its saves, evaluations and model, a resumed run, and a run that replaces an older model. In each,
// one call fails or is cut short, or the run is killed there. Afterwards:
//
// - The run has failed with a message that names the file and the error, or it is unharmed.
// - The existing checkpoints and models are complete.
// - The same command, run again, ends with the same bits as an undisturbed run.
func TestDiskFaults(t *testing.T) {
	if testkit.Race {
		t.Skip("runs are slow under the race detector, and make the same system calls without it")
	}
	testkit.NotShort(t)
	t.Parallel()
	seed, lab := drawSeed(t), newLab(t)
	var all []diskFault
	for _, name := range slices.Sorted(maps.Keys(diskScenes)) {
		lab.undisturbed(t, name)
		for _, s := range spoils {
			for i, c := range lab.trace(t, name, s.of) {
				if isHint(c) && i%50 > 0 {
					continue // skip half of these identical calls
				}
				all = append(all, diskFault{name, s.of, s.fault, c})
			}
		}
	}
	n := *faultCount
	if n < 0 {
		n = testkit.Count(t, 160, 36)
	}
	chosen := choose(all, n, seed)
	t.Logf("%d of %d faults", len(chosen), len(all))
	t.Run("each", func(t *testing.T) {
		for worker := range 4 {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for i := worker; i < len(chosen); i += 4 {
					lab.suffer(t, chosen[i])
				}
			})
		}
	})
}

// digits matches the numbers that distinguish the files of layers and steps.
var digits = regexp.MustCompile(`[0-9]+`)

// wentWrong are faults after which an earlier version of mt did the wrong thing. Each is always
// tested.
var wentWrong = []string{
	"a resumed run, fail:EIO of newfstatat out/checkpoint-2/model.safetensors", // an older checkpoint was used
	// After these faults the error named no file, or a file that does not exist yet.
	"a first run, fail:EIO of newfstatat out",
	"a first run, fail:EIO of statfs .",
	// After these faults the run took a finished run for an unfinished one.
	"a run over an old model, fail:EIO of read out/trainer_state.json",
	"a run over an old model, fail:EIO of pread64 out/model.safetensors",
	"a run over an old model, fail:EIO of read out/checkpoint-2/trainer_state.json",
}

// choose draws n of the faults for a test run; n = 0: all. It first takes one call of each fault in
// wentWrong, or every call of it if n is at least 100. The rest is divided equally among the kinds
// of calls on each kind of file, as far as there are enough.
func choose(all []diskFault, n int, seed uint64) []diskFault {
	if n <= 0 || n >= len(all) {
		return all
	}
	r := rand.New(rand.NewPCG(seed, 0))
	kinds := map[string][]diskFault{}
	tried := map[string]int{} // calls by faults of wentWrong
	var out []diskFault
	for _, i := range r.Perm(len(all)) {
		f := all[i]
		if name := fmt.Sprintf("%s, %s of %s %s", f.scene, f.fault, f.call.Name, f.call.Path); slices.Contains(wentWrong, name) && (tried[name] == 0 || n >= 100) {
			tried[name]++
			out = append(out, f)
			continue
		}
		kind := string(f.fault) + f.call.Name + digits.ReplaceAllString(filepath.Base(f.call.Path), "")
		kinds[kind] = append(kinds[kind], f)
	}
	for round := 0; len(out) < n; round++ {
		names := slices.Sorted(maps.Keys(kinds))
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for _, name := range names {
			if round < len(kinds[name]) && len(out) < n {
				out = append(out, kinds[name][round])
			}
		}
	}
	return out
}

// suffer runs one test case in a directory of its own: it injects the fault, checks for damage, and
// then repeats the command without a fault.
func (lab *lab) suffer(t *testing.T, f diskFault) {
	t.Helper()
	dir := lab.prepared(t, f.scene)
	defer os.RemoveAll(dir)
	got := lab.run(t, dir, f.of, f.fault, f.call.N)
	met := got.Spoiled()
	if met == nil {
		if got.Code != exitDone {
			t.Errorf("%s: not met, and exit code %d\n%s", f, got.Code, got.Stderr)
		}
		return // the run made fewer calls than the undisturbed one
	}
	seenFrom(dir, got.Calls)
	f.call = *met
	problems := slices.Concat(lab.verdict(f, got), lab.damage(f.scene, dir))
	if told := isHousekeeping(f.call) && strings.Contains(got.Stderr, "input/output error") || lacksPicture(got); got.Code == exitDone && !told {
		problems = append(problems, differences(tree(t, dir), lab.want[f.scene])...)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s\n%s", f, problem, end(got.Stderr))
	}
	again := lab.run(t, dir, noCalls, noFault, 0)
	if again.Code != exitDone {
		t.Errorf("%s: the run again: exit code %d\n%s", f, again.Code, end(again.Stderr))
		return
	}
	for _, problem := range differences(tree(t, dir), lab.want[f.scene]) {
		t.Errorf("%s: after the run again %s\n%s---\n%s", f, problem, end(got.Stderr), end(again.Stderr))
	}
}

// seenFrom returns calls with their file names relative to dir, so that runs in different
// directories are comparable.
func seenFrom(dir string, calls []ioCall) []ioCall {
	for i := range calls {
		for _, path := range []*string{&calls[i].Path, &calls[i].Path2} {
			if rel, err := filepath.Rel(dir, *path); err == nil && filepath.IsLocal(rel) {
				*path = rel
			}
		}
	}
	return calls
}

// end returns the last lines of a run's output.
func end(text string) string {
	lines := slices.Collect(strings.Lines(text))
	return strings.Join(lines[max(0, len(lines)-4):], "")
}

// verdict returns the problems with the end of a run with an injected fault. Examples are a stack
// trace, or an error that does not name the file.
func (lab *lab) verdict(f diskFault, got *tracedResult) (problems []string) {
	if strings.Contains(got.Stderr, "goroutine ") || strings.Contains(got.Stderr, "internal error") || strings.Contains(got.Stderr, "panic") {
		problems = append(problems, "it shows a trace")
	}
	says := map[ioFault]string{failEIO: "input/output error", failENOSPC: "no space left on device"}[f.fault]
	killed := f.fault == killBefore || f.fault == killAmid || f.fault == killAfter
	switch {
	case killed && got.Code != 137:
		problems = append(problems, fmt.Sprintf("exit code %d of a killed run", got.Code))
	case killed:
	case f.fault == shortWrite && got.Code != exitDone:
		problems = append(problems, fmt.Sprintf("exit code %d, and the rest could have been written", got.Code))
	case f.fault == shortWrite:
	case got.Code == exitDone && diskScenes[f.scene] != nil && !strings.Contains(got.Stderr, "resuming from out/checkpoint-2, step 2 of 3"):
		problems = append(problems, "it began again without a word")
	case got.Code == exitDone && f.call.Name == "openat" && f.call.Path == "out" && strings.Contains(got.Stderr, says): // to remove its content
	case got.Code == exitDone && !harmless(f) && !lacksPicture(got):
		problems = append(problems, "it says that all went well")
	case got.Code != exitDone && !strings.Contains(got.Stderr, says):
		problems = append(problems, fmt.Sprintf("the error does not say %q", says))
	case got.Code != exitDone && !slices.ContainsFunc(got.Calls, func(c ioCall) bool { return c.Spoiled && names(got.Stderr, c) }):
		problems = append(problems, "the error does not name the file")
	}
	return problems
}

// lacksPicture reports whether a finished run says that it could not draw its loss curve. The next
// run then draws it, so a missing loss.svg is no damage.
func lacksPicture(got *tracedResult) bool {
	return got.Code == exitDone && strings.Contains(got.Stderr, "note: out/loss.svg is not drawn: ")
}

// names reports whether message contains the name of a file on which the system call c works.
func names(message string, c ioCall) bool {
	for _, path := range []string{strings.TrimSuffix(c.Path, " (deleted)"), c.Path2} {
		if path != "" && strings.Contains(message, filepath.Base(path)) {
			return true
		}
	}
	return false
}

// TestStateFaults is TestDiskFaults for the file that keeps optimizer states on disk. Reads and
// writes go through pread and pwrite (engine pool), because a tracer does not see io_uring's.
// host/extents tests the faults of io_uring.
func TestStateFaults(t *testing.T) {
	if testkit.Race {
		t.Skip("runs are slow under the race detector, and make the same system calls without it")
	}
	testkit.NotShort(t)
	t.Parallel()
	seed := drawSeed(t)
	for name, change := range onDisks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stateFaults(t, change, seed)
		})
	}
}

func stateFaults(t *testing.T, change func(*lab), seed uint64) {
	lab := newLab(t)
	change(lab)
	lab.env = []string{"MT_IO=pool"}
	lab.undisturbed(t, firstRun)
	var all []diskFault
	for _, s := range spoils {
		for _, c := range lab.trace(t, firstRun, s.of) {
			if strings.HasPrefix(c.Path, "states") {
				all = append(all, diskFault{firstRun, s.of, s.fault, c})
			}
		}
	}
	for _, name := range []string{"pread64", "pwrite64"} {
		if !slices.ContainsFunc(all, func(f diskFault) bool { return f.call.Name == name && f.fault == failEIO }) {
			t.Errorf("no %s of states is traced", name)
		}
	}
	n := *faultCount
	if n < 0 {
		n = testkit.Count(t, 60, 5)
	}
	chosen := choose(all, n, seed)
	t.Logf("%d of %d faults", len(chosen), len(all))
	for _, f := range chosen {
		lab.suffer(t, f)
	}
}
