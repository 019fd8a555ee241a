package timeline

import (
	"math"
	"sync"
	"time"
)

// Kind is the kind of a track: the kind of thing whose work or content the track shows.
type Kind uint8

// The kinds. Viewers show tracks in this order.
const (
	Stream Kind = iota // work and waits of a device stream
	Actor              // work of an actor on the host
	Credit             // content of one slot, buffer, slab or batch
	numKinds
)

func (k Kind) String() string { return [...]string{"stream", "actor", "credit"}[k] }

// Track is the index of a track in its Recorder.
type Track int

// Span is a piece of work, or of waiting, on a track from Start to End. Times count from the start of the run's clock.
type Span struct {
	Track      Track
	Name       string
	Detail     string // kept out of Name, so spans with one name can be added up
	Step       int    // its training step; for an evaluation the step before it
	Start, End time.Duration
	// Cause is the reason of a stream's wait. Empty: the stream worked.
	Cause string
}

// Flow is a message between two works. It leads from time Left on track From to time Landed on track To.
type Flow struct {
	Name         string
	From, To     Track
	Left, Landed time.Duration
}

// Options configure a Recorder.
type Options struct {
	// Process names the run in a trace with several runs: "measured", "predicted".
	Process string
	File    *File // the trace; nil: none
	// KeepStep: the last complete step is kept, and Last returns it.
	KeepStep bool
}

// Recorder records one run. Several goroutines may call its methods.
type Recorder struct {
	o   Options
	pid int // process id in the file

	mu     sync.Mutex
	tracks []track
	byName map[string]Track
	recent []Span // with KeepStep: spans that end after the end of the last complete step
	last   *Step
}

type track struct {
	name string
	kind Kind
}

// maxRecent bounds the number of spans that are kept for the last step. A step with more spans loses its first ones.
const maxRecent = 1 << 17

// New makes a Recorder.
func New(o Options) *Recorder {
	r := &Recorder{o: o, byName: map[string]Track{}}
	if o.File != nil {
		r.pid = o.File.process(o.Process)
	}
	return r
}

// Track returns the track called name and makes it on the first call.
func (r *Recorder) Track(name string, kind Kind) Track {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t, ok := r.byName[name]; ok {
		return t
	}
	t := Track(len(r.tracks))
	r.byName[name] = t
	r.tracks = append(r.tracks, track{name, kind})
	if r.o.File != nil {
		r.o.File.put(event{what: trackNamed, pid: r.pid, from: t, name: name, kind: kind})
	}
	return t
}

// Span records a span that is over. Spans may come in any order.
func (r *Recorder) Span(s Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.o.File != nil {
		r.o.File.put(event{what: spanned, pid: r.pid, from: s.Track, kind: r.tracks[s.Track].kind, name: s.Name, detail: s.Detail, cause: s.Cause,
			step: s.Step, start: s.Start, end: s.End})
	}
	if !r.o.KeepStep {
		return
	}
	if len(r.recent) == maxRecent {
		r.recent = append(r.recent[:0], r.recent[maxRecent/2:]...)
	}
	r.recent = append(r.recent, s)
}

// Flow records a flow. The spans at its two ends may be recorded before or after it.
func (r *Recorder) Flow(f Flow) {
	if r.o.File != nil {
		r.o.File.put(event{what: flowed, pid: r.pid, name: f.Name, from: f.From, to: f.To, start: f.Left, end: f.Landed})
	}
}

// Step is one training step for viewers. It lasts from the end of the previous step or evaluation on the device to its
// own end. The parts of spans outside this time are cut off.
type Step struct {
	Step    int         `json:"step"`
	Seconds float64     `json:"seconds"`
	Tracks  []StepTrack `json:"tracks"`
}

// StepTrack is one track of a Step, with its spans in the order of recording.
type StepTrack struct {
	Name  string     `json:"name"`
	Kind  string     `json:"kind"` // "stream", "actor", "credit"
	Spans []StepSpan `json:"spans"`
}

// StepSpan is one span of a StepTrack. Start and End are seconds from the start of the step.
type StepSpan struct {
	Name  string  `json:"name"`
	Start float64 `json:"start"`
	End   float64 `json:"end"`
	Cause string  `json:"cause,omitempty"` // Span.Cause
}

// Keeps reports whether the last step is kept for viewers. Only then does StepDone need its argument open.
func (r *Recorder) Keeps() bool { return r.o.KeepStep }

// StepDone completes a step that lasted from begin to end. open has the spans that are not over; they end at the
// current time.
func (r *Recorder) StepDone(step int, begin, end time.Duration, open []Span) {
	if r.o.File != nil {
		r.o.File.rouse()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.o.KeepStep {
		return
	}
	out := &Step{Step: step, Seconds: seconds(end - begin)}
	at := make([]int, len(r.tracks))
	for k := range numKinds {
		for i, t := range r.tracks {
			if t.kind == k {
				at[i] = len(out.Tracks)
				out.Tracks = append(out.Tracks, StepTrack{Name: t.name, Kind: t.kind.String(), Spans: []StepSpan{}})
			}
		}
	}
	rest := r.recent[:0]
	for i, spans := range [][]Span{r.recent, open} {
		for _, s := range spans {
			if s.Start < end && s.End > begin {
				t := &out.Tracks[at[s.Track]]
				t.Spans = append(t.Spans, StepSpan{Name: s.Name, Start: seconds(max(s.Start, begin) - begin), End: seconds(min(s.End, end) - begin), Cause: s.Cause})
			}
			if i == 0 && s.End > end {
				rest = append(rest, s)
			}
		}
	}
	r.recent, r.last = rest, out
}

// Last returns the last complete step; nil: none. The caller must not modify it.
func (r *Recorder) Last() *Step {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// seconds returns d in seconds, rounded to nanoseconds, which keeps the JSON short.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1e9) / 1e9 }
