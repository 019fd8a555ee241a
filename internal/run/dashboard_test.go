package run

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"mt/internal/run/save"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// seen is what one viewer of a dashboard has received about a run.
type seen struct {
	steps int // lines
	ended bool
}

// watching reads the events of a dashboard until the last one and returns what a viewer sees.
func watching(events io.ReadCloser) (s seen) {
	defer events.Close()
	in := bufio.NewScanner(events)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		s.steps += strings.Count(in.Text(), `"grad_norm":`)
		s.ended = s.ended || in.Text() == "event: end"
	}
	return s
}

// TestDashboard: a run shows itself until its end while viewers come and go, and computes the same as without
// viewers.
func TestDashboard(t *testing.T) {
	testkit.NotShort(t)
	plain := newScene(t, "")
	plain.mustTrain(t)
	s := plain.in(t).with("dashboard: 0\n")
	saw := make(chan seen, 1)
	out, err := s.train(t, t.Context(), settings.Hooks{Serving: func(url string, _ net.Listener) {
		for _, stays := range []bool{false, true} {
			resp, err := http.Get(strings.Replace(url, "/?", "/events?", 1))
			switch {
			case err != nil:
				t.Error(err)
				close(saw)
				return
			case stays:
				go func() { saw <- watching(resp.Body) }()
			default:
				_ = resp.Body.Close()
			}
		}
	}})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := <-saw; got.steps != 8 || !got.ended {
		t.Errorf("of 8 steps the viewer saw %+v", got)
	}
	if !strings.Contains(out, "dashboard: http://127.0.0.1:") || strings.Contains(out, "note:") && strings.Contains(out, "dashboard is gone") {
		t.Errorf("what was said:\n%s", out)
	}
	// A run with a dashboard also writes the timeline of its last step, which the page shows. The
	// plain run has no such file.
	if err := os.Remove(filepath.Join(s.out, settings.TimelineFile)); err != nil {
		t.Error(err)
	}
	sameRun(t, s, plain)
}

// TestDashboardFails: if the dashboard's listener fails during a run, the run prints a note and
// computes the same.
func TestDashboardFails(t *testing.T) {
	s := newScene(t, "dashboard: 0\n")
	var j *save.Output
	out, err := s.train(t, t.Context(), settings.Hooks{Planned: func(run any) { of := run.(*save.Output); j = of }, Serving: func(_ string, l net.Listener) {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		for j.DeferredNotes.Count() == 0 {
			runtime.Gosched()
		}
	}})
	if err != nil || strings.Count(out, "note: the dashboard is gone, and the run goes on: ") != 1 {
		t.Errorf("%v\n%s", err, out)
	}
	if n := len(s.metrics(t)); n != 8 {
		t.Errorf("%d lines of 8 steps", n)
	}
}

// TestDashboardRefused: if the dashboard cannot listen on its address, the run ends with an error
// of the config before it reads any data. A plan does not listen.
func TestDashboardRefused(t *testing.T) {
	testkit.NotShort(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	defer l.Close()
	unread := settings.Hooks{Reading: func(what string) { t.Errorf("%s is read", what) }}
	taken := newScene(t, "dashboard: "+l.Addr().String()+"\n")
	_, err = taken.train(t, t.Context(), unread)
	checkError(t, err, true, "run.yaml:", "dashboard: "+l.Addr().String()+" is in use; give another port, or 0 for a free one")
	_, err = newScene(t, "dashboard: http://box\n").train(t, t.Context(), unread)
	checkError(t, err, true, "run.yaml:", `dashboard: "http://box" is no address`)
	if err := DryRun(t.Context(), taken.config(t), settings.Options{Stdout: new(strings.Builder), Stderr: new(strings.Builder)}); err != nil {
		t.Errorf("a plan beside a port in use: %v", err)
	}
}
