package timeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"mt/internal/testkit"
)

// disk is a file that accepts a limited number of bytes (room) and then fails, like a full disk.
type disk struct {
	bytes.Buffer
	room, writes int
	closed       int
}

var errFull = errors.New("no space left on device")

func (d *disk) Write(b []byte) (int, error) {
	d.writes++
	if d.Len()+len(b) > d.room {
		return 0, errFull
	}
	return d.Buffer.Write(b)
}

func (d *disk) Close() error { d.closed++; return nil }

// play records two runs, a measured and a predicted one, into one trace on the disk d. It returns
// the warnings.
func play(t *testing.T, packed bool, d *disk) (warned []error) {
	t.Helper()
	f := NewFile(d, packed, func(err error) { warned = append(warned, err) })
	for _, process := range []string{"measured", "predicted"} {
		r := New(Options{Process: process, File: f})
		h2d, compute := r.Track("h2d", Stream), r.Track("compute", Stream)
		if again := r.Track("h2d", Credit); again != h2d {
			t.Errorf("h2d is track %d and %d", h2d, again)
		}
		r.Span(Span{Track: h2d, Name: "fetch \"layer\"\n\\ é\x01", Step: 3, Start: 1500, End: 4001})
		r.Flow(Flow{Name: "LayerFetched", From: h2d, To: compute, Left: 4000, Landed: 4001})
		r.Span(Span{Track: compute, Name: "wait for weights", Detail: "d", Step: 3, Start: -2, End: 4001, Cause: "weights"})
	}
	f.Close()
	f.Close()
	r := New(Options{Process: "late", File: f})
	r.Track("h2d", Stream) // a run that continues without events
	if d.closed != 1 {
		t.Errorf("the file was closed %d times", d.closed)
	}
	return warned
}

// TestFile: each event of a trace is a line of JSON with times in µs, exact to the nanosecond. A
// trace that is cut off at any point stays readable.
func TestFile(t *testing.T) {
	d, z := &disk{room: 1 << 20}, &disk{room: 1 << 20}
	if warned := append(play(t, false, d), play(t, true, z)...); warned != nil {
		t.Errorf("warnings: %v", warned)
	}
	plain := d.String()
	var events []map[string]any
	testkit.NoError(t, json.Unmarshal([]byte(plain), &events))
	lines := strings.Split(plain, "\n")
	for _, want := range []string{
		`{"ph":"M","name":"process_name","pid":2,"tid":1000001,"args":{"name":"mt predicted"}},`,
		`{"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"compute"}},`,
		`{"ph":"M","name":"thread_sort_index","pid":1,"tid":2,"args":{"sort_index":1}},`,
		`{"ph":"X","name":"fetch \"layer\"\u000a\\ é\u0001","pid":1,"tid":1,"ts":1.500,"dur":2.501,"cat":"stream","args":{"step":3}},`,
		`{"ph":"s","name":"LayerFetched","pid":1,"tid":1,"ts":4,"cat":"flow","id":1},`,
		`{"ph":"f","name":"LayerFetched","pid":2,"tid":1000002,"ts":4.001,"cat":"flow","id":2,"bp":"e"},`,
		`{"ph":"X","name":"wait for weights","pid":1,"tid":2,"ts":-0.002,"dur":4.003,"cat":"stream","args":{"step":3,"detail":"d","cause":"weights"}},`,
	} {
		found := false
		for _, line := range lines {
			found = found || line == want
		}
		if !found {
			t.Errorf("there is no line\n%s in\n%s", want, plain)
		}
	}
	for n := 2; n < len(lines)-2; n++ { // cut off after a line: only a bracket is missing
		if cut := strings.TrimSuffix(strings.Join(lines[:n], "\n"), ","); !json.Valid([]byte(cut + "]")) {
			t.Errorf("cut off after line %d it is no JSON", n)
		}
	}
	if bytes.Contains(z.Bytes(), []byte("\x00\x00\xff\xff")) { // RFC 1951: an empty stored block
		t.Error("a few events are compressed apart from each other")
	}
	r := testkit.Must(gzip.NewReader(&z.Buffer))(t)
	if got, err := io.ReadAll(r); err != nil || string(got) != plain {
		t.Errorf("compressed, it is another: %v", err)
	}
}

// TestIsTrace: IsTrace recognizes traces, whole or cut off, so that mt may overwrite them. It
// recognizes no other file.
func TestIsTrace(t *testing.T) {
	d, z := &disk{room: 1 << 20}, &disk{room: 1 << 20}
	play(t, false, d)
	play(t, true, z)
	for _, whole := range []string{d.String(), z.String()} {
		for n := range len(whole) {
			if !IsTrace(strings.NewReader(whole[:n])) {
				t.Fatalf("the first %d bytes are none", n)
			}
		}
	}
	for _, other := range []string{"x", "[{\"text\":1}]", strings.Replace(d.String(), "mt ", "", 1), "\x1f\x8bnothing that was packed"} {
		if IsTrace(strings.NewReader(other)) {
			t.Errorf("%q is one", other)
		}
	}
}

// TestFullDisk: if the disk is full, the error is reported once, and recording goes on without
// waiting.
func TestFullDisk(t *testing.T) {
	for _, packed := range []bool{false, true} {
		d := &disk{}
		if warned := play(t, packed, d); len(warned) != 1 || !errors.Is(warned[0], errFull) {
			t.Errorf("warnings: %v", warned)
		}
	}
	d := &disk{room: 1 << 17} // it fills up while the run goes on
	var warned []error
	f := NewFile(d, false, func(err error) { warned = append(warned, err) })
	r := New(Options{Process: "measured", File: f})
	track := r.Track("h2d", Stream)
	for i := range 20 * enough {
		r.Span(Span{Track: track, Name: "fetch", Start: time.Duration(i), End: time.Duration(i + 1)})
	}
	f.Close()
	if len(warned) != 1 || !errors.Is(warned[0], errFull) {
		t.Errorf("warnings: %v", warned)
	}
	if d.writes > 5 {
		t.Errorf("the full disk was written to %d times", d.writes)
	}
}

// told is a file that sends the size of each write to the channel wrote.
type told struct {
	disk
	wrote chan int
}

func (d *told) Write(b []byte) (int, error) {
	n, err := d.disk.Write(b)
	d.wrote <- d.Len()
	return n, err
}

// TestAStepIsWritten: when a step is done, its events are written to the file, even if they are
// few.
func TestAStepIsWritten(t *testing.T) {
	d := &told{disk: disk{room: 1 << 20}, wrote: make(chan int, 9)}
	f := NewFile(d, false, func(err error) { t.Error(err) })
	r := New(Options{Process: "measured", File: f})
	r.Span(Span{Track: r.Track("h2d", Stream), Name: "fetch", End: 1})
	r.StepDone(1, 0, 1, nil)
	if n := <-d.wrote; n < 300 {
		t.Errorf("only %d bytes are written", n)
	}
	f.Close()
	if !strings.Contains(d.String(), "fetch") || !json.Valid(d.Bytes()) {
		t.Errorf("the file has %s", d.String())
	}
}

// gate is a file whose writes block until the channel open is closed.
type gate struct {
	disk
	open chan struct{}
}

func (g *gate) Write(b []byte) (int, error) { <-g.open; return g.disk.Write(b) }

// TestSlowDisk: a disk that accepts no write blocks no caller of the Recorder. Events beyond the
// queue's capacity are dropped and counted.
func TestSlowDisk(t *testing.T) {
	g := &gate{disk: disk{room: 1 << 30}, open: make(chan struct{})}
	var warned []error
	f := NewFile(g, false, func(err error) { warned = append(warned, err) })
	r := New(Options{Process: "measured", File: f})
	track := r.Track("h2d", Stream)
	const told = 3 * maxQueue
	for i := range told {
		r.Span(Span{Track: track, Name: "fetch", Start: time.Duration(i), End: time.Duration(i + 1)})
	}
	close(g.open)
	f.Close()
	var events []struct{ Ph string }
	testkit.NoError(t, json.Unmarshal(g.Bytes(), &events))
	spans := 0
	for _, e := range events {
		if e.Ph == "X" {
			spans++
		}
	}
	if spans < maxQueue-2 || spans > 2*maxQueue+2*enough || len(warned) != 1 || !strings.Contains(warned[0].Error(), "events are missing") {
		t.Errorf("%d of %d spans were written; warnings %v", spans, told, warned)
	}
}

// TestSteps: Last returns the spans of the last complete step by track and kind. Spans that reach
// beyond the step are cut at its ends.
func TestSteps(t *testing.T) {
	r := New(Options{KeepStep: true})
	slot, compute := r.Track("slot 0", Credit), r.Track("compute", Stream)
	if r.Last() != nil {
		t.Error("there is a step before the first")
	}
	second := func(x float64) time.Duration { return time.Duration(x * 1e9) }
	for _, s := range []Span{{compute, "before", "", 1, 0, second(1), ""}, {compute, "gap", "", 2, second(1), second(1.5), "data"},
		{compute, "work", "", 2, second(1.5), second(3), ""}, {compute, "next", "", 3, second(3), second(4), ""}} {
		r.Span(s)
	}
	r.StepDone(2, second(1), second(3), []Span{{slot, "layer 1", "", 2, second(0.5), second(7), ""}})
	want := &Step{Step: 2, Seconds: 2, Tracks: []StepTrack{
		{"compute", "stream", []StepSpan{{"gap", 0, 0.5, "data"}, {"work", 0.5, 2, ""}}}, {"slot 0", "credit", []StepSpan{{"layer 1", 0, 2, ""}}}}}
	if got := r.Last(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if len(r.recent) != 1 {
		t.Errorf("%d spans are kept for the next step", len(r.recent))
	}
	r.StepDone(3, second(3), second(4), nil)
	if got := r.Last().Tracks; len(got[0].Spans) != 1 || got[0].Spans[0].Name != "next" || got[1].Spans == nil {
		t.Errorf("the next step is %+v", got)
	}
	for range 3 * maxRecent {
		r.Span(Span{Track: compute, Start: second(4), End: second(5)})
	}
	if len(r.recent) > maxRecent {
		t.Errorf("%d spans are kept", len(r.recent))
	}
	none := New(Options{})
	none.Span(Span{Track: none.Track("compute", Stream), End: 1})
	if none.StepDone(1, 0, 1, nil); none.Last() != nil || len(none.recent) > 0 {
		t.Error("steps are kept that nobody asks for")
	}
}
