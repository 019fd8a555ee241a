package train

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

	"mt/internal/files"
	"mt/internal/timeline"
)

// timelineFile has the last complete step, as timeline.Step says, where Options.Timeline
// asks for it.
const timelineFile = "timeline.json"

// timelineEvery is how long a timelineFile stays as it is at least, but at the end.
const timelineEvery = 5 * time.Second

// trace is what of a run's timeline is kept and written.
type trace struct {
	recorder *timeline.Recorder // nil: nobody asks for a timeline
	file     *timeline.File     // nil: no trace
	shown    time.Time          // when timelineFile was written
}

// checkTrace refuses a trace that cannot be written, or in whose place there is something
// else. It leaves the disk as it was.
func (j *job) checkTrace() error {
	path := j.c.Trace
	if path == "" {
		return nil
	}
	bad := func(err error) error {
		return j.c.Errorf("trace", "trace %s: %w; name a new file in a directory that can be written", path, err)
	}
	f, err := files.Open(path)
	var other *files.NotAFile
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// Whether there can be one shows when it is made.
		made, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err == nil {
			err = errors.Join(made.Close(), os.Remove(path))
		}
		if err != nil {
			return bad(reason(err))
		}
		return nil
	case errors.As(err, &other):
		return bad(fmt.Errorf("it is %s, not a file", other.What))
	case err == nil:
		defer f.Close()
		err = unix.Access(path, unix.W_OK)
	}
	if err != nil {
		return bad(reason(err))
	}
	if !timeline.IsTrace(f) {
		return bad(errors.New("there is a file that no run of mt has written as a trace"))
	}
	return nil
}

// reason is err without the operation and the path, which its sentence has.
func reason(err error) error {
	var onPath *fs.PathError
	if errors.As(err, &onPath) {
		return onPath.Err
	}
	return err
}

// openTrace makes what the pipeline tells its timeline to, if anybody asks for that.
func (s *session) openTrace() error {
	path := s.c.Trace
	if path == "" && !s.o.Timeline {
		return nil
	}
	if path != "" {
		f, err := os.Create(path)
		if err != nil {
			return s.c.Errorf("trace", "trace %s: %w", path, reason(err))
		}
		w := io.WriteCloser(f)
		if hook := s.hooks.trace; hook != nil {
			w = hook(f)
		}
		s.trace.file = timeline.NewFile(w, strings.HasSuffix(path, ".gz"), func(err error) {
			s.late.add(fmt.Sprintf("trace %s: %v; training goes on", path, reason(err)))
		})
		s.closers = append(s.closers, s.trace.file.Close)
	}
	s.trace.recorder = timeline.New(timeline.Options{Process: "measured", File: s.trace.file, KeepStep: s.o.Timeline})
	return nil
}

// showTimeline writes timelineFile, unless that was done less than so long ago. A failure
// does not end the run.
func (s *session) showTimeline(every time.Duration) {
	if !s.o.Timeline || time.Since(s.trace.shown) < every {
		return
	}
	step := s.trace.recorder.Last()
	if step == nil {
		return
	}
	raw, err := json.Marshal(step)
	if err == nil {
		err = s.writeWhole(timelineFile, append(raw, '\n'))
	}
	if err != nil {
		s.late.add(fmt.Sprintf("write %s: %v; training goes on", timelineFile, reason(err)))
	}
	s.trace.shown = time.Now()
}

// endTrace writes what is left to write.
func (s *session) endTrace() {
	s.showTimeline(0)
	if s.trace.file != nil {
		s.trace.file.Close()
	}
}
