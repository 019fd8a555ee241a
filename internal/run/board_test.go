package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"mt/checkpoint"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// tracker is a fake MLflow server. It records the steps for which it got a loss and each status of
// the run.
type tracker struct {
	mu      sync.Mutex
	runs    int
	losses  []int // steps
	status  []string
	away    bool // it answers with errors
	refused int
}

func (s *tracker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away && !strings.HasSuffix(r.URL.Path, "search") {
		s.refused++
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	var in struct {
		Status  string
		Metrics []struct {
			Key  string
			Step int
		}
	}
	raw, _ := io.ReadAll(r.Body)
	if err := json.Unmarshal(raw, &in); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	switch filepath.Base(r.URL.Path) {
	case "create":
		s.runs++
		fmt.Fprintf(w, `{"run":{"info":{"run_id":"run%d"}}}`, s.runs)
		return
	case "update":
		s.status = append(s.status, in.Status)
	case "log-batch":
		for _, m := range in.Metrics {
			if m.Key == "loss" {
				s.losses = append(s.losses, m.Step)
			}
		}
	}
	_, _ = io.WriteString(w, "{}")
}

func track(t *testing.T) *tracker {
	t.Helper()
	s := &tracker{}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	for _, v := range []string{"TRACKING_TOKEN", "TRACKING_USERNAME", "EXPERIMENT_NAME", "EXPERIMENT_ID", "RUN_ID"} {
		t.Setenv("MLFLOW_"+v, "")
	}
	t.Setenv("MLFLOW_TRACKING_URI", h.URL)
	return s
}

// TestBoards: MLflow shows an interrupted run as killed. The resumed run continues the same run
// there, and one that fails is shown as failed.
func TestBoards(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	server := track(t)
	s := newScene(t, "report_to: [mlflow, tensorboard]\nmax_steps: 5\n")
	if _, err := s.interrupted(t, func(cancel func()) settings.Hooks { return settings.Hooks{Packing: at(3, false, cancel)} }); !errors.Is(err, settings.ErrResumable) {
		t.Fatal(err)
	}
	first := readFile(t, s.out, settings.BoardsFile)
	out := s.mustTrain(t)
	if again := readFile(t, s.out, settings.BoardsFile); again != first {
		t.Errorf("resumed as %s, was %s", again, first)
	}
	if want := []string{"KILLED", "RUNNING", "FINISHED"}; server.runs != 1 || !slices.Equal(server.status, want) || !slices.Equal(server.losses, []int{1, 2, 3, 4, 5}) {
		t.Errorf("%d runs, %q, losses of %v\n%s", server.runs, server.status, server.losses, out)
	}
	if _, err := s.with("max_steps: 7\nresume_from_checkpoint: false\n").train(t, t.Context(), settings.Hooks{Metrics: func(w io.Writer) io.Writer { return &fullWriter{w, 60} }}); err == nil {
		t.Error("the disk is full and the run is well")
	}
	if last := server.status[len(server.status)-1]; server.runs != 2 || last != "FAILED" {
		t.Errorf("a run that begins anew and fails: %d runs, %s", server.runs, last)
	}
}

// TestAbsentServer: if the MLflow server cannot be reached, the run ends with an error before it
// reads any data.
func TestAbsentServer(t *testing.T) {
	track(t)
	t.Setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
	_, err := newScene(t, "report_to: mlflow\n").train(t, t.Context(), settings.Hooks{Reading: func(string) { t.Error("data is read") }})
	checkError(t, err, true, "report_to: mlflow: http://127.0.0.1:1: ", "connection refused", "or leave mlflow out")
}

// TestServerThatGoesAway: if the MLflow server fails during a run, training continues to the same
// result. The output has one warning and says which numbers the server lacks.
func TestServerThatGoesAway(t *testing.T) {
	t.Cleanup(func() { checkClean(t) })
	server := track(t)
	s := newScene(t, "report_to: mlflow\nlogging_steps: 1\n")
	out, err := s.train(t, t.Context(), settings.Hooks{FS: lazyFS{checkpoint.OS()}, Stepped: func(step int) {
		server.mu.Lock()
		server.away = true
		server.mu.Unlock()
	}})
	if err != nil || strings.Count(out, "503 Service Unavailable") != 1 || !strings.Contains(out, "training goes on, and ") || !strings.Contains(out, "mlflow lacks the numbers of ") || server.refused == 0 {
		t.Errorf("%v, %d requests\n%s", err, server.refused, out)
	}
	alone := s.in(t).with("report_to: none\n")
	alone = alone.with("cache_dir: " + filepath.Dir(alone.out) + "/cache\n")
	alone.mustTrain(t)
	testkit.NoError(t, os.Remove(filepath.Join(s.out, settings.BoardsFile)))
	sameRun(t, s, alone)
}

// TestFullDiskOfEvents: if TensorBoard's event file cannot be written, training continues to the
// same result with one warning. The file ends with a whole record, and a resumed run begins another
// file.
func TestFullDiskOfEvents(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s := newScene(t, "report_to: tensorboard\nlogging_steps: 1\nval_size: 2\neval_steps: 1\nmax_steps: 5\n")
	var records []int64 // where each ends
	full := false
	through := func(to io.Writer) io.Writer {
		return writes(func(p []byte) (int, error) {
			if len(records) == 4 {
				full = true
				n, _ := to.Write(p[:len(p)/2])
				return n, &os.PathError{Op: "write", Path: "events", Err: syscall.ENOSPC}
			}
			n, err := to.Write(p)
			records = append(records, int64(n))
			return n, err
		})
	}
	out, err := s.interrupted(t, func(cancel func()) settings.Hooks {
		return settings.Hooks{Events: through, Packing: at(5, false, cancel)}
	})
	if !errors.Is(err, settings.ErrResumable) || !full || strings.Count(out, "no space left on device") != 1 ||
		!strings.Contains(out, "note: tensorboard: write events: no space left on device; training goes on, and TensorBoard has no numbers from step 2 on") {
		t.Errorf("%v\n%s", err, out)
	}
	var want int64
	for _, n := range records {
		want += n
	}
	if sizes := eventFiles(t, s); !slices.Equal(sizes, []int64{want}) {
		t.Errorf("event files of %v bytes, %d were whole", sizes, want)
	}
	s.mustTrain(t)
	if sizes := eventFiles(t, s); len(sizes) != 2 {
		t.Errorf("event files of %v bytes after a run that goes on", sizes)
	}
	testkit.NoError(t, os.RemoveAll(filepath.Join(s.out, "runs")))
	alone := s.in(t).with("report_to: none\ncache_dir: " + filepath.Dir(s.out) + "/cache2\n")
	alone.mustTrain(t)
	sameRun(t, s, alone)
}

// writes is a function that serves as a writer's Write.
type writes func([]byte) (int, error)

func (w writes) Write(p []byte) (int, error) { return w(p) }

// eventFiles returns the sizes of the event files that the run has written for TensorBoard.
func eventFiles(t *testing.T, s scene) (sizes []int64) {
	t.Helper()
	files := testkit.Must(os.ReadDir(filepath.Join(s.out, "runs")))(t)
	for _, f := range files {
		info := testkit.Must(f.Info())(t)
		sizes = append(sizes, info.Size())
	}
	return sizes
}
