package data

import (
	"errors"
)

// A chunk is sent on when it has this many bytes, or this many rows.
const (
	chunkBytes = 256 << 10
	chunkRows  = 4096
)

// record is a row, or a piece of a text. Its bytes are buf[from:to] of its chunk.
type record struct {
	from, to    int
	n           int64 // the number of its line or row; 0: the file is one document
	first, last bool  // whether it is the first or the last piece of its document
	err         error // what is wrong with it
}

// chunk is a range of rows, or a piece, of a source on its way through the encoders.
type chunk struct {
	src   source
	index int   // the number of the source
	seq   int64 // the number of the chunk, in the order of reading
	unit  string
	types map[string]*colType // of the columns of a Parquet or Arrow file
	form  form
	known bool // form is set; else every row so far was bad
	given bool // the form was given, so it need not be recognised in each row
	buf   []byte
	recs  []record
	rows  int64         // of the source, up to the end of this chunk
	bytes int64         // of the source, up to the end of this chunk
	end   *cachedFile   // set: the chunk says that the source ends, and holds nothing else
	err   error         // why reading ended here
	ready chan struct{} // closed when docs are set

	docs      []encoded
	ids, labs []int32
}

// encoded is a document, or a piece of one. Its ids are ids[from:to] of its chunk.
type encoded struct {
	kind        kind
	from, to    int // the range of its ids
	labels      int // where its labels start in the chunk's labs; -1: it has none
	cut         int // of a pair: how many of its ids are the chosen document's
	line        int64
	flags       uint64
	first, last bool
	err         error // what makes the row a bad one
	fatal       error // an error that skip_bad_rows does not help
	ends        bool  // its error ends the reading: no row after it is wanted
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

// feeder reads sources, cuts them into chunks, and hands these on in order.
type feeder struct {
	spec   *Spec
	supply *supply
	size   int         // of a chunk, in bytes
	index  int         // the number of the current source
	sent   int64       // how many chunks were sent so far
	out    chan *chunk // to the builder, in order
	work   chan *chunk // to whichever encoder is free
	quit   chan struct{}
}

// errQuit ends a feeder when nobody wants its chunks any more.
var errQuit = errors.New("quit")

// chunk makes an empty chunk for what is read of the stream.
func (f *feeder) chunk(st *stream) *chunk {
	return &chunk{src: st.src, index: f.index, ready: make(chan struct{})}
}

// send hands a chunk on. It waits while as many as out holds are on their way.
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
	f.work <- c // never blocks: work has room for all chunks that out can hold
	return nil
}

// run feeds all sources, beginning at the position from.
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
