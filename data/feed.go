package data

import (
	"errors"
)

// A chunk is sent on when it has so many bytes, or so many rows.
const (
	chunkBytes = 256 << 10
	chunkRows  = 4096
)

// record is a row, or a piece of a text, in its chunk's buffer.
type record struct {
	from, to    int
	n           int64 // line or row; 0: the file is one document
	first, last bool  // of a text's pieces
	err         error // what is wrong with it
}

// chunk is a stretch of a source, on its way through the encoders.
type chunk struct {
	src   source
	index int   // of the source
	seq   int64 // of the chunk, in order
	unit  string
	form  form
	known bool // else every row so far was bad
	given bool // form need not be recognised in each row
	buf   []byte
	recs  []record
	rows  int64         // of the source, up to here
	bytes int64         // of the source, up to here
	end   *cachedFile   // set: nothing but the end of the source
	err   error         // reading failed here
	ready chan struct{} // closed when docs are there

	docs      []encoded
	ids, labs []int32
}

// encoded is a document, or a piece of one, in its chunk's ids.
type encoded struct {
	kind        kind
	from, to    int // ids
	labels      int // where its labels start; -1: it has none
	line        int64
	flags       uint64
	first, last bool
	err         error // a row that is bad
	fatal       error // one that skip_bad_rows does not help
	ends        bool  // nothing behind it is wanted, for its error
}

// bad tells whether the chunk's last document ends the reading.
func (c *chunk) bad() bool {
	n := len(c.docs)
	return c.err != nil || n > 0 && c.docs[n-1].ends
}

func (c *chunk) add(r record, text []byte) {
	r.from = len(c.buf)
	c.buf = append(c.buf, text...)
	r.to = len(c.buf)
	c.recs = append(c.recs, r)
}

// feeder reads sources and hands chunks on, in order.
type feeder struct {
	spec  *Spec
	size  int         // of a chunk, in bytes
	index int         // of the source at work
	sent  int64       // chunks so far
	out   chan *chunk // in order
	work  chan *chunk // for any encoder
	quit  chan struct{}
}

// errQuit ends a feeder whose chunks nobody wants any more.
var errQuit = errors.New("quit")

// chunk starts one of the stream.
func (f *feeder) chunk(st *stream) *chunk {
	return &chunk{src: st.src, index: f.index, ready: make(chan struct{})}
}

// send hands a chunk on. It waits while too many are under way.
func (f *feeder) send(c *chunk) error {
	c.seq = f.sent
	f.sent++
	if f.spec.stopped() {
		c.err = ErrStopped
	}
	select {
	case f.out <- c:
	case <-f.quit:
		return errQuit
	}
	if c.err != nil || len(c.recs) == 0 {
		close(c.ready)
		return c.err
	}
	f.work <- c // has room for all that out has
	return nil
}

// run feeds all sources from the position on.
func (f *feeder) run(sources []source, from position) {
	defer close(f.out)
	defer close(f.work)
	for f.index = from.Source; f.index < len(sources); f.index++ {
		skip := int64(0)
		if f.index == from.Source {
			skip = from.Rows
		}
		if err := f.source(sources[f.index], skip); err != nil {
			if !errors.Is(err, errQuit) && !errors.Is(err, ErrStopped) {
				_ = f.send(&chunk{src: sources[f.index], err: err, ready: make(chan struct{})})
			}
			return
		}
	}
}
