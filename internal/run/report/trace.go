package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"mt/base/files"
	"mt/base/timeline"
	"mt/internal/run/config"
	"mt/internal/run/settings"
)

// timelineEvery is the least time between two writes of TimelineFile while the run lasts. The write at the run's end
// does not wait.
const timelineEvery = 5 * time.Second

// Trace is the observer that records a run's timeline.
type Trace struct {
	noopObserver
	Recorder *timeline.Recorder // nil: no timeline
	file     *timeline.File     // nil: no trace
	shown    time.Time          // when TimelineFile was last written
	shows    bool               // write TimelineFile
	dir      settings.Dir
	note     func(string)
}

// CheckTrace returns an error if the trace cannot be written, or if another kind of file is in its place. It leaves
// the disk unchanged.
func CheckTrace(c *config.Config) error {
	path := c.Trace
	if path == "" {
		return nil
	}
	bad := func(err error) error {
		return c.Errorf("trace", "trace %s: %w; name a new file in a directory that can be written", path, err)
	}
	f, err := files.Open(path)
	var other *files.NotAFile
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// Creating the file is the only sure test.
		made, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err == nil {
			err = errors.Join(made.Close(), os.Remove(path))
		}
		if err != nil {
			return bad(Reason(err))
		}
		return nil
	case errors.As(err, &other):
		return bad(fmt.Errorf("it is %s, not a file", other.What))
	case err == nil:
		defer f.Close()
		err = unix.Access(path, unix.W_OK)
	}
	if err != nil {
		return bad(Reason(err))
	}
	if !timeline.IsTrace(f) {
		return bad(errors.New("there is a file that no run of mt has written as a trace"))
	}
	return nil
}

// Reason returns err without the operation and the path, for messages that already name the path.
func Reason(err error) error {
	var onPath *fs.PathError
	if errors.As(err, &onPath) {
		return onPath.Err
	}
	return err
}

// OpenTrace opens the run's timeline if the key trace is set or shows is true. shows: write TimelineFile into dir.
// through, which may be nil, wraps the trace's file.
func OpenTrace(c *config.Config, dir settings.Dir, shows bool, through func(io.WriteCloser) io.WriteCloser, note func(string)) (*Trace, error) {
	path, t := c.Trace, &Trace{shows: shows, dir: dir, note: note}
	if path == "" && !shows {
		return t, nil
	}
	if path != "" {
		f, err := os.Create(path)
		if err != nil {
			return nil, c.Errorf("trace", "trace %s: %w", path, Reason(err))
		}
		w := io.WriteCloser(f)
		if through != nil {
			w = through(f)
		}
		t.file = timeline.NewFile(w, strings.HasSuffix(path, ".gz"), func(err error) {
			note(fmt.Sprintf("trace %s: %v; training goes on", path, Reason(err)))
		})
	}
	t.Recorder = timeline.New(timeline.Options{Process: "measured", File: t.file, KeepStep: shows})
	return t, nil
}

// Step implements Observer.
func (t *Trace) Step(Step) { t.show(timelineEvery) }

// show writes TimelineFile, unless less time than every has passed since it was last written.
func (t *Trace) show(every time.Duration) {
	if !t.shows || time.Since(t.shown) < every {
		return
	}
	step := t.Recorder.Last()
	if step == nil {
		return
	}
	raw, err := json.Marshal(step)
	if err == nil {
		err = t.dir.WriteWhole(settings.TimelineFile, append(raw, '\n'))
	}
	if err != nil {
		t.note(fmt.Sprintf("write %s: %v; training goes on", settings.TimelineFile, Reason(err)))
	}
	t.shown = time.Now()
}

// End implements Observer. It writes the last step and closes the trace.
func (t *Trace) End(error) {
	t.show(0)
	if t.file != nil {
		t.file.Close()
	}
}
