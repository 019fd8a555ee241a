package timeline

import (
	"math"
	"sync"
	"time"
)

// Kind says what a track shows.
type Kind uint8

// The kinds, in the order in which their tracks are shown.
const (
	Stream Kind = iota // what a stream of the device worked on, and what it waited for
	Actor              // what an actor did on the host
	Credit             // who held one slot, buffer, slab or batch
	numKinds
)

func (k Kind) String() string { return [...]string{"stream", "actor", "credit"}[k] }

// Track is the number of a track of one Recorder, from 0 on.
type Track int

// Span is what a track was taken by from Start to End. Times count from where the run's
// clock begins.
type Span struct {
	Track      Track
	Name       string
	Detail     string // what Name leaves out, so that spans of one name can be added up
	Step       int    // the training step it is of; of an evaluation, the step before it
	Start, End time.Duration
	// Cause: the stream stood still, for want of this. Empty: it worked.
	Cause string
}

// Flow leads from a moment of one span to a moment of another one: a message.
type Flow struct {
	Name         string
	From, To     Track
	Left, Landed time.Duration
}

// Options say what a Recorder does with what it is told.
type Options struct {
	// Process is what the run is called where several are drawn: "measured", "predicted".
	Process string
	File    *File // where all is written; nil: nowhere
	// KeepStep keeps the last complete step for Last.
	KeepStep bool
}

// Recorder is told of one run. Its methods may be called by several goroutines.
type Recorder struct {
	o   Options
	pid int // in the file

	mu     sync.Mutex
	tracks []track
	byName map[string]Track
	recent []Span // with KeepStep, those that end after the last complete step
	last   *Step
}

type track struct {
	name string
	kind Kind
}

// maxRecent bounds the spans that are kept for the last step. Of a step with more, the
// first are missing.
const maxRecent = 1 << 17

// New makes a Recorder.
func New(o Options) *Recorder {
	r := &Recorder{o: o, byName: map[string]Track{}}
	if o.File != nil {
		r.pid = o.File.process(o.Process)
	}
	return r
}

// Track returns the track of that name, which it makes if need be.
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

// Span tells of a span that is over. Spans may come in any order.
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

// Flow tells of a flow. Both spans have been told of, or will be.
func (r *Recorder) Flow(f Flow) {
	if r.o.File != nil {
		r.o.File.put(event{what: flowed, pid: r.pid, name: f.Name, from: f.From, to: f.To, start: f.Left, end: f.Landed})
	}
}

// Step is one training step for viewers. It is from when the device was done with the step
// before, or with an evaluation, to when it was done with this one. Spans that reach beyond
// are cut.
type Step struct {
	Step    int         `json:"step"`
	Seconds float64     `json:"seconds"`
	Tracks  []StepTrack `json:"tracks"`
}

// StepTrack is one track of a Step, with its spans as they were told of.
type StepTrack struct {
	Name  string     `json:"name"`
	Kind  string     `json:"kind"` // "stream", "actor", "credit"
	Spans []StepSpan `json:"spans"`
}

// StepSpan is one span, in seconds from the beginning of the step.
type StepSpan struct {
	Name  string  `json:"name"`
	Start float64 `json:"start"`
	End   float64 `json:"end"`
	Cause string  `json:"cause,omitempty"` // as in Span
}

// Keeps says whether StepDone makes a Step, and so needs to know of what is open.
func (r *Recorder) Keeps() bool { return r.o.KeepStep }

// StepDone tells that a step, from begin to end, is complete; open are spans that are not
// over, as far as they reach by now.
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

// Last is the last complete step, nil where there is none. Nobody may change it.
func (r *Recorder) Last() *Step {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// seconds is d to the nanosecond, so that it is short in JSON.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1e9) / 1e9 }
