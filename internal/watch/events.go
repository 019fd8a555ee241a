package watch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// enter counts a new viewer. It returns false, and counts none, if there are too many viewers already or the server is
// closing.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closing:
		return false
	default:
	}
	if s.watching >= maxViewers {
		return false
	}
	s.watching++
	s.viewers.Add(1)
	return true
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watching--
	s.viewers.Done()
}

// events sends server-sent events until the viewer leaves or the server closes. It starts with "hello", which has the
// names of the runs. For each run it sends "config", "metrics", "samples", "timeline" and "state" as the files change.
// The last event is "end". Source of the format:
// https://html.spec.whatwg.org/multipage/server-sent-events.html.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead {
		return
	}
	if !s.enter() {
		http.Error(w, fmt.Sprintf("%d viewers are watching, or the run is ending", maxViewers), http.StatusServiceUnavailable)
		return
	}
	defer s.leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	v := &viewer{w: w, control: http.NewResponseController(w), now: s.o.Now}
	runs := make([]*run, len(s.o.Dirs))
	for i, dir := range s.o.Dirs {
		runs[i] = newRun(i, dir)
	}
	if v.send("hello", map[string]any{"runs": names(s.o.Dirs), "within": s.o.Within}) != nil {
		return
	}
	for _, run := range runs { // before the metrics, which can take long to read
		if run.newConfig(v.send) != nil {
			return
		}
	}
	if v.flush() != nil {
		return
	}
	tick := time.NewTicker(s.o.Every)
	defer tick.Stop()
	for last := false; ; {
		for _, run := range runs {
			if run.news(s.o.Now(), v.send) != nil {
				return
			}
		}
		if last {
			_ = v.send("end", struct{}{}) // errors do not matter, because the stream ends
		}
		if v.flush() != nil || last {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-s.closing:
			last = true
		case <-tick.C:
		}
	}
}

// viewer is the client of one event stream.
type viewer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	now     func() time.Time
	sent    time.Time // time of the last write
	pending bool      // data is not flushed yet
}

// send writes an event of the given name with data as JSON, which has no line breaks. flush sends it.
func (v *viewer) send(event string, data any) error {
	b, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return v.write("event: " + event + "\ndata: " + string(b) + "\n\n")
}

func (v *viewer) write(text string) error {
	now := v.now()
	if err := v.control.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	v.sent, v.pending = now, true
	_, err := v.w.Write([]byte(text))
	return err
}

// flush sends the events written so far to the browser. After a long silence it sends a comment instead, because only
// a failing write shows that the viewer has left.
func (v *viewer) flush() error {
	if !v.pending && v.now().Sub(v.sent) >= keepAlive {
		if err := v.write(": still here\n\n"); err != nil {
			return err
		}
	}
	if !v.pending {
		return nil
	}
	v.pending = false
	return v.control.Flush()
}
