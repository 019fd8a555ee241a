package timeline

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"
)

// File is a trace in the Trace Event format: one JSON array, one event per line. Perfetto also reads a trace without
// its end, for example of a killed run. Source: Trace Event Format, "JSON Array Format" (Google, 2016).
//
// A goroutine writes the file. After the first error, which is reported once, it writes nothing more.
type File struct {
	warn func(error)
	ends []func() error // the steps of closing, in order
	out  *bufio.Writer
	zip  *gzip.Writer // the writer below out; nil: uncompressed

	mu     sync.Mutex
	queue  []event
	lost   int // events dropped because the queue was full
	closed bool
	names  []string // names of the processes
	wake   chan struct{}
	done   chan struct{}

	// Only the File's goroutine, which writes the events, uses these fields.
	flows  int
	failed bool
	line   []byte
	first  bool
	inZip  int // events written since zip was last flushed
}

// event is an entry of the queue: a span, a flow, or the name of a track or process. The File's goroutine writes it as
// one or more lines.
type event struct {
	what                eventKind
	kind                Kind
	pid                 int
	from, to            Track
	step                int
	start, end          time.Duration
	name, detail, cause string
}

type eventKind uint8

const (
	processNamed eventKind = iota
	trackNamed
	spanned
	flowed
)

const (
	// maxQueue is the largest number of events that wait to be written. Further events are dropped,
	// so that memory stays bounded.
	maxQueue = 1 << 17
	// enough is the number of queued events at which the File's goroutine writes. With fewer it
	// waits for more, or for the end of a step.
	enough = 1 << 10
)

// NewFile writes a trace to w, gzip-compressed with packed. Close closes w. warn is called at most once, on the File's
// goroutine, with the first error or with the number of dropped events.
func NewFile(w io.WriteCloser, packed bool, warn func(error)) *File {
	f := &File{warn: warn, wake: make(chan struct{}, 1), done: make(chan struct{}), first: true}
	to := io.Writer(w)
	if packed {
		f.zip, _ = gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is valid
		to, f.ends = f.zip, append(f.ends, f.zip.Close)
	}
	f.ends = append(f.ends, w.Close)
	f.out = bufio.NewWriterSize(to, 1<<16)
	go f.run()
	return f
}

// process registers one run, such as the prediction in a trace that also has the measured run. It
// returns the process id (pid) that all events of the run carry.
func (f *File) process(name string) (pid int) {
	f.mu.Lock()
	f.names = append(f.names, name)
	pid = len(f.names)
	f.mu.Unlock()
	f.put(event{what: processNamed, pid: pid, name: name})
	return pid
}

// put queues e for the File's goroutine. It never waits: if the queue is full, it drops e and counts it.
func (f *File) put(e event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return
	case len(f.queue) == maxQueue:
		f.lost++
		return
	}
	if f.queue = append(f.queue, e); len(f.queue) >= enough {
		f.rouse()
	}
}

// rouse wakes the File's goroutine to write the queued events.
func (f *File) rouse() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Close writes the queued events, ends the array and closes the file. When it returns, warn has received any error.
func (f *File) Close() {
	f.mu.Lock()
	was := f.closed
	f.closed = true
	f.mu.Unlock()
	if was {
		return
	}
	f.rouse()
	<-f.done
}

// run is the loop of the File's goroutine. It writes queued events until the file is closed.
func (f *File) run() {
	defer close(f.done)
	var batch []event
	for range f.wake {
		f.mu.Lock()
		batch, f.queue = f.queue, batch[:0]
		closed, lost := f.closed, f.lost
		f.mu.Unlock()
		for i := range batch {
			f.write(&batch[i])
		}
		f.flush(len(batch))
		clear(batch) // frees the strings
		if !closed {
			continue
		}
		f.end()
		if lost > 0 && !f.failed {
			f.warn(fmt.Errorf("%d events are missing, because the disk was slower than the run", lost))
		}
		return
	}
}

// flush passes the events written so far to the operating system, so that they survive if the program is killed. events
// is the number of events just written. Compressed data is flushed only after `enough` events, because each flush makes
// the file larger.
func (f *File) flush(events int) {
	if f.failed {
		return
	}
	f.check(f.out.Flush())
	if f.inZip += events; f.zip != nil && f.inZip >= enough {
		f.inZip = 0
		f.check(f.zip.Flush())
	}
}

// end writes the end of the JSON array and closes the file.
func (f *File) end() {
	last := "\n]\n"
	if f.first {
		last = "[\n]\n"
	}
	_, err := f.out.WriteString(last)
	if err == nil {
		err = f.out.Flush()
	}
	f.check(err)
	for _, end := range f.ends {
		f.check(end())
	}
}

// check passes the first error to warn. After it the File writes nothing more.
func (f *File) check(err error) {
	if err != nil && !f.failed {
		f.failed = true
		f.warn(err)
	}
}

// write appends the lines of event e to the output.
func (f *File) write(e *event) {
	if f.failed {
		return
	}
	b := f.line[:0]
	switch e.what {
	case processNamed:
		b = f.begin(b, 'M', "process_name", e.pid, 0)
		b = append(quoted(append(b, `,"args":{"name":`...), "mt "+e.name), "}}"...)
	case trackNamed:
		b = f.begin(b, 'M', "thread_name", e.pid, e.from)
		b = append(quoted(append(b, `,"args":{"name":`...), e.name), "}}"...)
		b = f.begin(b, 'M', "thread_sort_index", e.pid, e.from)
		b = append(strconv.AppendInt(append(b, `,"args":{"sort_index":`...), int64(e.kind)*1e6+int64(e.from), 10), "}}"...)
	case spanned:
		b = f.span(b, e)
	case flowed:
		f.flows++
		// This line concerns the end of a flow. By default Perfetto attaches it to the next span
		// that begins later. The field bp attaches it to the span in progress at that time. The
		// span may begin just then, but may not end then.
		b = f.flow(b, 's', e, e.from, e.start)
		b = append(f.flow(b, 'f', e, e.to, e.end), `,"bp":"e"}`...)
	}
	f.line = b
	_, err := f.out.Write(b)
	f.check(err)
}

func (f *File) span(b []byte, e *event) []byte {
	b = f.begin(b, 'X', e.name, e.pid, e.from)
	b = micros(append(b, `,"ts":`...), e.start)
	b = micros(append(b, `,"dur":`...), e.end-e.start)
	b = append(append(append(b, `,"cat":"`...), e.kind.String()...), '"')
	b = strconv.AppendInt(append(b, `,"args":{"step":`...), int64(e.step), 10)
	if e.detail != "" {
		b = quoted(append(b, `,"detail":`...), e.detail)
	}
	if e.cause != "" {
		b = quoted(append(b, `,"cause":`...), e.cause)
	}
	return append(b, "}}"...)
}

// flow appends the line of one end of flow e: of its start (ph 's') or its end (ph 'f'), on track t at time at. The
// line of the end is left open, because the caller adds one more field.
func (f *File) flow(b []byte, ph byte, e *event, t Track, at time.Duration) []byte {
	b = f.begin(b, ph, e.name, e.pid, t)
	b = micros(append(b, `,"ts":`...), at)
	b = strconv.AppendInt(append(b, `,"cat":"flow","id":`...), int64(f.flows), 10)
	if ph == 's' {
		b = append(b, '}')
	}
	return b
}

// begin appends the beginning of an event's line to b. ph is the event's type in the Trace Event format. Each track of
// each process has a thread id (tid) of its own.
func (f *File) begin(b []byte, ph byte, name string, pid int, t Track) []byte {
	if f.first {
		f.first = false
		b = append(b, "[\n"...)
	} else {
		b = append(b, ",\n"...)
	}
	b = append(append(b, `{"ph":"`...), ph)
	b = quoted(append(b, `","name":`...), name)
	b = strconv.AppendInt(append(b, `,"pid":`...), int64(pid), 10)
	return strconv.AppendInt(append(b, `,"tid":`...), int64(pid-1)*maxTracks+int64(t)+1, 10)
}

// IsTrace reports whether r reads the beginning of a trace that a File has written. An empty input counts as such a
// trace, because a killed run may have written nothing.
func IsTrace(r io.Reader) bool {
	in := bufio.NewReader(r)
	if head, _ := in.Peek(2); strings.HasPrefix("\x1f\x8b", string(head)) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
		}
		in = bufio.NewReader(z)
	}
	head, _ := in.Peek(len(opening)) // as many bytes as there are
	return strings.HasPrefix(opening, string(head))
}

// maxTracks exceeds the number of tracks of any process. Thread ids of two processes differ because of it.
const maxTracks = 1e6

// opening is the beginning of every trace.
const opening = "[\n" + `{"ph":"M","name":"process_name","pid":1,"tid":1,"args":{"name":"mt `

// micros appends d in microseconds to b, as a decimal number without rounding.
func micros(b []byte, d time.Duration) []byte {
	if d < 0 {
		b, d = append(b, '-'), -d
	}
	b = strconv.AppendInt(b, int64(d/1000), 10)
	if r := d % 1000; r > 0 {
		b = append(b, '.', '0'+byte(r/100), '0'+byte(r/10%10), '0'+byte(r%10))
	}
	return b
}

// quoted appends s to b as a JSON string.
func quoted(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ':
			b = append(append(b, `\u00`...), "0123456789abcdef"[r>>4], "0123456789abcdef"[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
