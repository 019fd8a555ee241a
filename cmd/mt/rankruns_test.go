package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"mt/internal/testkit"
)

// rankConfig is diskConfig for runs of several ranks, with state that must be gathered on rank 0.
const rankConfig = diskConfig + "compute_dtype: bf16\nsave_dtype: fp32\n"

// rankScene creates a folder with a config file and its data, and returns its path.
func rankScene(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var rows strings.Builder
	for i := range 11 {
		fmt.Fprintf(&rows, "{\"input_ids\": [%d, %d, %d, 7, %d]}\n", i, i+3, i*4, 48-i*2-1)
	}
	for name, text := range map[string]string{"run.yaml": rankConfig, "rows.jsonl": rows.String()} {
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// startRanks starts `mt train run.yaml` as n ranks in dir. Each rank writes its process id to a file there.
func startRanks(t *testing.T, dir string, n int, more ...string) *testkit.RunningRanks {
	t.Helper()
	return startRanksBy(t, dir, n, "", more...)
}

// ownFolders gives each rank its own copy of configuration and data, so that no rank sees the others' out, as on hosts
// without a shared disk.
const ownFolders = `own=host${PMI_RANK:-$OMPI_COMM_WORLD_RANK}; mkdir -p $own && cp run.yaml rows.jsonl $own && cd $own && `

// startRanksBy is startRanks with a shell script in front of each rank.
func startRanksBy(t *testing.T, dir string, n int, script string, more ...string) *testkit.RunningRanks {
	t.Helper()
	program := testkit.Must(os.Executable())(t)
	args := append([]string{"-c", "echo $$ > pid.$$ && " + script + `exec "$0" "$@"`, program, "train", "run.yaml"}, more...)
	return testkit.StartRanks(t, dir, n, []string{asCommand + "=1"}, "sh", args...)
}

// trained returns the files of a run, without parts that depend on time or on the number of
// restarts.
func trained(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := tree(t, filepath.Join(dir, "out"))
	maps.DeleteFunc(all, func(name, _ string) bool { return strings.HasPrefix(name, "rank-") })
	return all
}

// lossesOf returns the losses in metrics.jsonl of a run in dir.
func lossesOf(t *testing.T, dir string) (out []float64) {
	t.Helper()
	raw := testkit.Must(os.ReadFile(filepath.Join(dir, "out", "metrics.jsonl")))(t)
	for line := range strings.Lines(string(raw)) {
		var at struct{ Loss *float64 }
		testkit.NoError(t, json.Unmarshal([]byte(line), &at))
		if at.Loss != nil {
			out = append(out, *at.Loss)
		}
	}
	return out
}

// TestTrainOnRanks: two and three processes train like one, up to the last bits of sums. One rank prints and writes.
// Runs with the same number of ranks give the same bits.
func TestTrainOnRanks(t *testing.T) {
	testkit.NotShort(t)
	alone := rankScene(t)
	t.Chdir(alone)
	must(t, "train", "run.yaml")
	want := lossesOf(t, alone)
	for n := 2; n <= 3; n++ {
		var first map[string]string
		for range 2 {
			dir := rankScene(t)
			r := startRanks(t, dir, n).Wait(t)
			if r.Code != exitDone || strings.Count(r.Stdout, "model written to out") != 1 || strings.Count(r.Stderr, "step 3/3  loss ") != 1 {
				t.Fatalf("%d ranks: exit code %d\n%s%s", n, r.Code, r.Stdout, r.Stderr)
			}
			got := lossesOf(t, dir)
			if len(got) != len(want) {
				t.Fatalf("%d ranks: losses %v, want %v", n, got, want)
			}
			for i := range got {
				if d := got[i]/want[i] - 1; d > 1e-3 || d < -1e-3 { // bf16 has 4e-3, and few sums round differently
					t.Errorf("%d ranks: losses %v, want %v", n, got, want)
				}
			}
			left := trained(t, dir)
			if first == nil {
				first = left
			}
			for _, problem := range differences(left, first) {
				t.Errorf("%d ranks again: %s", n, problem)
			}
			if _, err := os.Stat(filepath.Join(dir, "out", "rank-1.log")); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestQuickstartOnRanks: the quickstart example, shortened, trains on two and on three ranks.
func TestQuickstartOnRanks(t *testing.T) {
	testkit.LongOnly(t) // TestTrainOnRanks trains on ranks by default
	program := testkit.Must(os.Executable())(t)
	for n := 2; n <= 3; n++ {
		dir := t.TempDir()
		r := testkit.RunRanks(t, n, []string{asCommand + "=1"}, program, "train", "../../examples/quickstart.yaml", "--output-dir", dir+"/out", "--cache-dir", dir,
			"--dataset", "${GOROOT}/src/fmt/*.go", "--max-steps", "6", "--logging-steps", "2", "--sample-steps", "4", "--val-size", "8", "--warmup-steps", "1")
		for _, want := range []string{"held-out loss ", "--- sample ---", "model written to "} {
			if r.Code != exitDone || strings.Count(r.Stdout, want) != 1 {
				t.Fatalf("%d ranks: exit code %d, not once %q\n%s%s", n, r.Code, want, r.Stdout, r.Stderr)
			}
		}
	}
}

// TestRanksAreStopped: a signal to mpirun ends the run after a save. The resumed run ends with the same bits.
func TestRanksAreStopped(t *testing.T) {
	testkit.NotShort(t)
	const n = 2
	program := testkit.Must(os.Executable())(t)
	more := []string{"--max-steps", "400", "--save-steps", "0", "--eval-strategy", "no"}
	whole := rankScene(t)
	if r := startRanks(t, whole, n, more...).Wait(t); r.Code != exitDone {
		t.Fatalf("exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM} {
		dir := rankScene(t)
		// The exit code of each rank goes to a file, because MPICH's mpirun may return 0 after a signal.
		script := `trap : INT TERM; "$0" "$@"; code=$?; echo $code > code.$$; exit $code`
		run := testkit.StartRanks(t, dir, n, []string{asCommand + "=1"}, "sh", append([]string{"-c", script, program, "train", "run.yaml"}, more...)...)
		for !strings.Contains(run.Said(), "step 2/400") {
			time.Sleep(time.Millisecond)
		}
		testkit.NoError(t, run.Signal(s))
		r := run.Wait(t)
		codes, err := filepath.Glob(filepath.Join(dir, "code.*"))
		if err != nil || len(codes) != n {
			t.Errorf("%s: codes %v, %v", s, codes, err)
		}
		for _, name := range codes {
			if code := strings.TrimSpace(readText(t, name)); code != fmt.Sprint(exitInterrupted) {
				t.Errorf("%s: a rank has ended with %s", s, code)
			}
		}
		if r.Code != exitInterrupted && r.Code != exitDone || !strings.Contains(r.Stderr, "of 400 is saved in out/checkpoint-") || strings.Count(r.Stderr, "run the same command again to go on") != 1 {
			t.Fatalf("%s: exit code %d\n%s%s", s, r.Code, r.Stdout, r.Stderr)
		}
		if r := startRanks(t, dir, n, more...).Wait(t); r.Code != exitDone || !strings.Contains(r.Stderr, "resuming from out/checkpoint-") {
			t.Fatalf("%s, gone on: exit code %d\n%s%s", s, r.Code, r.Stdout, r.Stderr)
		}
		got, want := trained(t, dir), trained(t, whole)
		for name := range got {
			if strings.HasPrefix(name, "checkpoint-") && !strings.HasPrefix(name, "checkpoint-400") {
				delete(got, name) // it depends on where the run stopped
			}
		}
		for _, problem := range differences(got, want) {
			t.Errorf("%s: %s", s, problem)
		}
	}
}

// TestRanksThatFail: a problem of all ranks is reported once, a problem of one rank with its number. No rank is left
// waiting.
func TestRanksThatFail(t *testing.T) {
	testkit.NotShort(t)
	dir := rankScene(t)
	for wrong, says := range map[string]string{"--learning-rate=fast": "--learning-rate", "--dry-run": "--dry-run is for one process"} {
		r := startRanks(t, dir, 2, wrong).Wait(t)
		if r.Code != exitUsage || strings.Count(r.Stderr, says) != 1 {
			t.Errorf("%s: exit code %d\n%s%s", wrong, r.Code, r.Stdout, r.Stderr)
		}
	}
	program := testkit.Must(os.Executable())(t)
	// The second rank to start changes its learning rate.
	script := `if mkdir first 2>/dev/null; then exec "$0" "$@"; fi; exec "$0" "$@" --learning-rate 0.02`
	r := testkit.StartRanks(t, dir, 2, []string{asCommand + "=1"}, "sh", "-c", script, program, "train", "run.yaml").Wait(t)
	if r.Code != exitUsage || strings.Count(r.Stderr, "learning_rate is ") != 1 || !strings.Contains(r.Stderr, " on rank 1 on ") {
		t.Errorf("another learning rate: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "out", "metrics.jsonl")); err == nil {
		t.Error("the run has begun to write")
	}
}

var rankKillCount = flag.Int("rank-kills", 0, "how often TestRankKills kills (tools/rankkills.sh); 0 for some")

// TestRankKills kills (-9) one rank of a run and of its resumed runs at random moments, repeatedly. All other ranks
// end, and the final run has the bits of an undisturbed one. In every second round the ranks do not share an output
// directory.
func TestRankKills(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("runs are slow under the race detector")
	}
	const n = 2
	more := []string{"--max-steps", "30", "--save-steps", "3"}
	undisturbed := rankScene(t)
	began := time.Now()
	if r := startRanks(t, undisturbed, n, more...).Wait(t); r.Code != exitDone {
		t.Fatalf("exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	took, want := time.Since(began), trained(t, undisturbed)
	count := *rankKillCount
	if count == 0 {
		count = testkit.Count(t, 10, 3)
	}
	draw := rand.New(rand.NewPCG(*faultSeed, 2))
	for kills, stories := 0, 0; kills < count || stories < 2; stories++ {
		dir := rankScene(t)
		script, left, story := "", dir, ""
		if stories%2 == 1 {
			script, left, story = ownFolders, filepath.Join(dir, "host0"), "\nin folders of their own"
		}
		for range 1 + draw.IntN(4) {
			after := time.Duration(draw.Int64N(int64(took)))
			killed, r := killOne(t, dir, n, script, after, draw.IntN(n), more)
			story += fmt.Sprintf("\nkilled after %v: %t, exit code %d", after, killed, r.Code)
			if killed {
				kills++
			}
			if strings.Contains(r.Stderr, "\ngoroutine ") {
				t.Errorf("what Go prints hides why the other rank has ended:\n%s", r.Stderr)
			}
			if r.Code == exitDone {
				break
			}
		}
		if r := startRanksBy(t, dir, n, script, more...).Wait(t); r.Code != exitDone {
			t.Fatalf("exit code %d after%s\n%s%s", r.Code, story, r.Stdout, r.Stderr)
		}
		for _, problem := range differences(trained(t, left), want) {
			t.Errorf("%s after%s", problem, story)
		}
		if t.Failed() {
			return
		}
	}
}

// killOne starts n ranks and kills one of them, number which, after the given time if it still
// runs. It waits until all have ended.
func killOne(t *testing.T, dir string, n int, script string, after time.Duration, which int, more []string) (killed bool, r testkit.RanksResult) {
	t.Helper()
	old := testkit.Must(filepath.Glob(filepath.Join(dir, "pid.*")))(t)
	for _, name := range old {
		testkit.NoError(t, os.Remove(name))
	}
	run := startRanksBy(t, dir, n, script, more...)
	time.Sleep(after)
	if names, _ := filepath.Glob(filepath.Join(dir, "pid.*")); which < len(names) {
		if pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Ext(names[which]), ".")); err == nil {
			killed = syscall.Kill(pid, syscall.SIGKILL) == nil
		}
	}
	return killed, run.Wait(t)
}

func readText(t *testing.T, name string) string {
	t.Helper()
	raw := testkit.Must(os.ReadFile(name))(t)
	return string(raw)
}
