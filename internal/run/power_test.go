package run

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"mt/checkpoint"
	"mt/checkpoint/powercut"
	"mt/internal/run/config"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// TestPowerCut: after a power cut at any time, the run can be resumed from its output directory and
// nothing is missing. config.yaml is complete, and metrics.jsonl has every line up to the newest
// checkpoint. After the end of the run all its files are on disk.
func TestPowerCut(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	want := newScene(t, "save_steps: 4\nsave_total_limit: 1\nval_size: 2\neval_steps: 4\n")
	want.mustTrain(t)
	for name, before := range map[string]func(t *testing.T, got scene){
		"afresh": nil,
		"resumed": func(t *testing.T, got scene) {
			_, err := got.interrupted(t, func(cancel func()) settings.Hooks { return stopsAfter(3, cancel) })
			if err == nil {
				t.Fatal("the run was not interrupted")
			}
		},
		"with an evaluation to go": func(t *testing.T, got scene) {
			got.mustTrain(t)
			name := filepath.Join(got.out, settings.MetricsFile)
			raw := testkit.Must(os.ReadFile(name))(t)
			lines := strings.SplitAfter(string(raw), "\n")
			if !strings.Contains(lines[len(lines)-2], "eval_loss") {
				t.Fatalf("no evaluation ends\n%s", raw)
			}
			write(t, name, strings.Join(lines[:len(lines)-2], ""))
			testkit.NoError(t, os.Remove(filepath.Join(got.out, settings.EndFile)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := want.in(t)
			root, resumed := filepath.Dir(got.out), before != nil
			if resumed {
				before(t, got)
			}
			var d *powercut.Disk
			cut := cutEvery(t, &d, func(left string) { checkLeft(t, filepath.Join(left, filepath.Base(got.out)), resumed) })
			d = testkit.Must(powercut.New(root, cut))(t)
			if out, err := got.train(t, t.Context(), settings.Hooks{FS: d}); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			cutEvery(t, &d, func(left string) { sameFiles(t, filepath.Join(left, filepath.Base(got.out)), got.out) })("the end")
			sameRun(t, got, want)
		})
	}
}

// cutEvery returns a function for the simulated Disk to call after every operation. It cuts the
// power with every kind of loss and calls check with the directory that is left, unless an earlier
// cut left the same content.
func cutEvery(t *testing.T, d **powercut.Disk, check func(left string)) func(op string) {
	var checked sync.Map
	return func(op string) {
		for _, loss := range powercut.Losses {
			if t.Failed() {
				return
			}
			sum, err := (*d).Digest(loss)
			if err != nil {
				t.Error(err)
			}
			if _, was := checked.LoadOrStore(sum, true); was {
				continue
			}
			left := filepath.Join(t.TempDir(), "left")
			if err := (*d).Cut(loss, left); err != nil {
				t.Error(err)
			}
			check(left)
			if t.Failed() {
				t.Logf("the power is cut after %s; loss %d", op, loss)
			}
			_ = os.RemoveAll(left)
		}
	}
}

// checkLeft checks that config.yaml and metrics.jsonl in an output directory are usable after a
// power cut.
func checkLeft(t *testing.T, dir string, resumed bool) {
	raw, err := os.ReadFile(filepath.Join(dir, settings.ConfigFile))
	if err == nil {
		_, err = config.Parse(settings.ConfigFile, raw, config.Args{})
	}
	if resumed && err != nil || err == nil && !strings.Contains(string(raw), "max_steps: 8") {
		t.Errorf("%s: %v, %q", settings.ConfigFile, err, raw)
	}
	newest, state, skipped, err := checkpoint.Latest(dir, nil)
	if err != nil || resumed && newest == "" {
		t.Errorf("checkpoint %q, %v", newest, err)
	}
	for _, s := range skipped {
		if !s.Unfinished {
			t.Errorf("%s is damaged: %s", s.Dir, s.Why)
		}
	}
	logged := map[int]bool{}
	raw, _ = os.ReadFile(filepath.Join(dir, settings.MetricsFile)) // none before the first checkpoint
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		var m struct{ Step int }
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Errorf("%s: %q", settings.MetricsFile, lines.Text())
		}
		logged[m.Step] = true
	}
	for step := 1; step <= state.Step; step++ {
		if !logged[step] {
			t.Errorf("%s lacks step %d, and there is %s", settings.MetricsFile, step, newest)
		}
	}
}

// sameFiles fails unless two directories have the same files with the same content.
func sameFiles(t *testing.T, got, want string) {
	files := func(dir string) map[string]string {
		out := map[string]string{}
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			raw, err := os.ReadFile(path)
			out[strings.TrimPrefix(path, dir)] = string(raw)
			return err
		})
		if err != nil {
			t.Error(err)
		}
		return out
	}
	g, w := files(got), files(want)
	for name := range w {
		if g[name] != w[name] {
			t.Errorf("%s has %d bytes on disk, of %d", name, len(g[name]), len(w[name]))
		}
	}
	if len(g) != len(w) {
		t.Errorf("%d files, not %d", len(g), len(w))
	}
}
