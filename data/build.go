package data

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// kind is the kind of a data set's documents: texts, chats, rows of ids or pairs. All documents of a data set have
// the same kind.
type kind string

const (
	kindText kind = "text"
	kindChat kind = "chat"
	kindIDs  kind = "input_ids"
	// kindPairs are pairs of answers to one prompt: first the chosen answer, then the rejected one.
	kindPairs kind = "pairs"
)

// partBytes is the number of source bytes that are tokenized between two commits. A commit makes the work so far
// survive the end of the process.
const partBytes = 64 << 20

// Names of the work that Spec.Progress reports on.
const (
	tokenizing    = "tokenize"
	CheckingCache = "check token cache"
)

// builder reads sources into a cache file. A feeder cuts the sources into chunks, several encoders tokenize chunks in
// parallel, and the builder writes the results in the order of the sources.
type builder struct {
	spec           *Spec
	w              *cacheWriter
	sources        []source
	before         []int64 // for each source: bytes of all sources before it
	total          int64   // bytes of all sources
	done, reported int64   // bytes read so far; their number when Progress was last called
	inside         bool    // the current document is partly written
	skippedFrom    int64   // bad rows before the current source began
	docsFrom       int64
	at             position
	committed      int64 // value of done at the last commit
	supply         *supply
}

// buildCache reads all sources and writes the token cache with this file name. note says how much an earlier,
// interrupted process had already done; "": nothing.
func buildCache(name string, s *Spec, sources []source) (note string, err error) {
	b := &builder{spec: s, sources: sources}
	for _, src := range sources {
		b.before = append(b.before, b.total)
		b.total += src.size
	}
	b.w, err = newCacheWriter(name, manifest{
		Tokenizer:  s.tokenizerID(),
		TokenBytes: cacheTokenBytes(s.VocabSize),
		Started:    time.Now().UnixNano(),
	})
	if err != nil {
		return "", fmt.Errorf("token cache: %w; set cache_dir to a folder that can be written", err)
	}
	defer func() {
		if e := b.w.close(); e != nil {
			err = errors.Join(err, e)
		}
	}()
	if err := b.resume(); err != nil {
		return "", fmt.Errorf("token cache: %w", err)
	}
	if err := b.run(); err != nil {
		return "", b.stopAt(err)
	}
	s.progress(b.total, b.total, tokenizing)
	if b.w.Docs == 0 {
		return "", fmt.Errorf("the data set is empty: %s", b.noDocuments())
	}
	if err := b.w.finish(); err != nil {
		return "", fmt.Errorf("token cache: %w", err)
	}
	return b.w.resumed, nil
}

// resume continues a cache that an earlier process began and did not finish. Without such a cache, the builder starts
// from nothing.
func (b *builder) resume() error {
	at, err := b.w.resume(b.sources)
	if err != nil {
		return err
	}
	b.at, b.docsFrom, b.skippedFrom = at, b.w.Docs, b.w.Skipped
	if at.Source < len(b.sources) {
		b.done = b.before[at.Source]
		b.docsFrom, b.skippedFrom = at.Docs, at.Skipped
		b.supply = newSupply(b.spec, &b.w.manifest, b.sources[at.Source].set)
	} else {
		b.supply = newSupply(b.spec, &b.w.manifest, -1)
	}
	return nil
}

// stopAt returns err. If err is ErrStopped (the user stopped the reading), stopAt first commits the documents written
// so far, so that the next Open continues after them.
func (b *builder) stopAt(err error) error {
	if errors.Is(err, ErrStopped) && !b.inside && b.w.Docs > 0 {
		if e := b.commit(); e != nil {
			return errors.Join(err, e)
		}
	}
	return err
}

// noDocuments returns a message for the user that says why the sources hold no document.
func (b *builder) noDocuments() string {
	out := ""
	switch n := len(b.sources); n {
	case 0:
		return "it has no files"
	case 1:
		out = b.sources[0].path + " holds no document"
	default:
		out = fmt.Sprintf("its %d files, from %s on, hold no document", n, b.sources[0].path)
	}
	if i := slices.IndexFunc(b.w.Files, func(f cachedFile) bool { return f.Unsupported != "" }); i >= 0 {
		out += fmt.Sprintf("; %s: %s", b.w.Files[i].Path, b.w.Files[i].Unsupported)
	}
	if b.w.Skipped > 0 {
		out += fmt.Sprintf("; %d bad row(s) were skipped, the first: %s", b.w.Skipped, b.w.FirstSkipped)
	}
	return out
}

// run starts the feeder and the encoders, and writes all chunks to the cache file in the order of the sources.
func (b *builder) run() error {
	ahead := 2*b.spec.Threads + 2
	f := &feeder{spec: b.spec, supply: b.supply, size: int(min(chunkBytes, b.spec.part)), out: make(chan *chunk, ahead), work: make(chan *chunk, ahead+2), quit: make(chan struct{})}
	var all sync.WaitGroup
	all.Go(func() { f.run(b.sources, b.at) })
	var wanted atomic.Int64 // chunks up to this number are wanted; those after a row that ends the reading are not
	wanted.Store(math.MaxInt64)
	for range b.spec.Threads {
		all.Go(func() {
			e := newEncoder(b.spec)
			for c := range f.work {
				e.abandoned = func() bool { return c.seq > wanted.Load() || b.spec.stopped() }
				if e.encode(c); c.bad() {
					lower(&wanted, c.seq)
				}
				close(c.ready)
			}
		})
	}
	defer all.Wait()
	defer wanted.Store(-1)
	defer close(f.quit)
	for c := range f.out {
		<-c.ready
		if c.err != nil {
			return c.err
		}
		if b.spec.stopped() {
			return ErrStopped
		}
		if err := b.write(c); err != nil {
			return err
		}
	}
	if b.at.Source < len(b.sources) { // only a stop ends the feeder without an error
		return ErrStopped
	}
	return nil
}

// lower sets v to the smaller of v and n, atomically. Encoders use it to skip all chunks after the
// first one that ends the reading.
func lower(v *atomic.Int64, n int64) {
	for {
		if was := v.Load(); was <= n || v.CompareAndSwap(was, n) {
			return
		}
	}
}

// write writes a chunk's documents to the cache file and counts the bytes read.
func (b *builder) write(c *chunk) error {
	for i := range c.docs {
		if err := b.document(c, &c.docs[i]); err != nil {
			return err
		}
	}
	if b.done = b.before[c.index] + c.bytes; b.done-b.reported >= 1<<20 {
		b.reported = b.done
		b.spec.progress(b.done, b.total, tokenizing)
	}
	if b.at.Source, b.at.Rows = c.index, c.rows; c.end != nil {
		c.end.Docs, c.end.Skipped = b.w.Docs-b.docsFrom, b.w.Skipped-b.skippedFrom
		c.end.Partial = b.supply.reached(c.end.Set)
		b.w.Files = append(b.w.Files, *c.end)
		b.at.Source, b.at.Rows = c.index+1, 0
		b.docsFrom, b.skippedFrom = b.w.Docs, b.w.Skipped
	}
	if !b.inside && b.done-b.committed >= b.spec.part {
		return b.commit()
	}
	return nil
}

// commit makes everything written so far survive the end of this process: the next process continues from here.
func (b *builder) commit() error {
	b.committed = b.done
	b.at.Docs, b.at.Skipped = b.docsFrom, b.skippedFrom
	if b.at.Source < len(b.sources) {
		src := b.sources[b.at.Source]
		b.at.File, b.at.Size, b.at.MTime = src.path, src.size, src.mtime
	}
	if err := b.w.commit(b.at); err != nil {
		return fmt.Errorf("token cache: %w", err)
	}
	return nil
}

// document writes one document to the cache, or a part of a document that spans several chunks. If
// the row is bad, it counts or returns the row's error, as bad decides.
func (b *builder) document(c *chunk, d *encoded) error {
	where := place(c.src.path, c.unit, d.line)
	switch {
	case d.fatal != nil:
		return d.fatal
	case !b.inside && b.supply.reached(c.src.set):
		return nil
	case d.err != nil:
		return b.bad(fmt.Errorf("%s: %w", where, d.err))
	}
	if err := b.setKind(d.kind, c.src.set); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	var labels []int32
	if d.labels >= 0 {
		labels = c.labs[d.labels : d.labels+d.to-d.from]
	}
	b.inside = !d.last
	if err := b.w.tokens(c.ids[d.from:d.to], labels); err != nil || b.inside {
		return err
	}
	if d.flags != 0 {
		for flag, n := range b.w.counts() {
			if d.flags&flag != 0 {
				*n++
			}
		}
	}
	b.supply.wrote(c.src.set, 1)
	return b.w.endDoc(d.line, d.flags, d.cut)
}

// bad counts a bad row and returns nil if skip_bad_rows is set. Otherwise it returns the row's error.
func (b *builder) bad(err error) error {
	if !b.spec.SkipBadRows {
		return fmt.Errorf("%w (or set skip_bad_rows, which leaves out such rows)", err)
	}
	if b.w.Skipped == 0 {
		b.w.FirstSkipped = err.Error()
	}
	b.w.Skipped++
	if bad := (*badRow)(nil); errors.As(err, &bad) && bad.class == classUnsupervised {
		b.w.Unsupervised++
	}
	return nil
}

// setKind records k as the kind of the documents. It returns an error if earlier documents have another kind. set is
// the index of the document's data set, for the error.
func (b *builder) setKind(k kind, set int) error {
	if b.w.Kind == "" {
		b.w.Kind = k
	}
	name := b.spec.sets[set].Name
	switch {
	case b.spec.Pairs && k != kindPairs:
		return fmt.Errorf("dpo trains on pairs, and data set %q holds %s; take it out", name, k)
	case b.w.Kind != k:
		return fmt.Errorf("this is %s, and what came before is %s; all data is of one kind, so leave data set %q out, or choose its files, for instance with a glob", k, b.w.Kind, name)
	}
	return nil
}

// ErrStopped is the error of Open when Spec.Stop was closed. Tokens made so far stay in the cache folder; the next
// Open continues there.
var ErrStopped = errors.New("reading the data was stopped")

// stopped reports whether the channel Spec.Stop is closed, which asks to stop reading.
func (s *Spec) stopped() bool {
	select {
	case <-s.Stop:
		return true
	default:
		return false
	}
}

func (s *Spec) progress(done, total int64, what string) {
	if s.Progress != nil {
		s.Progress(done, total, what)
	}
}

// supply counts the documents of each data set, so that reading can stop early. With max_samples, for example, only
// the first documents of a data set are needed.
type supply struct {
	spec *Spec
	most []int64       // documents needed, by data set; 0: all. See Spec.documentLimit
	docs []int64       // documents the builder has written
	rows []int64       // rows the feeder has sent, and documents of earlier runs
	full []atomic.Bool // set once the builder has written all documents that the data set needs
}

// newSupply returns the counters for a cache. The manifest m lists the documents that earlier
// processes wrote. If such a process stopped inside a source, set is that source's data set; -1:
// none.
func newSupply(s *Spec, m *manifest, set int) *supply {
	n := len(s.sets)
	out := &supply{s, make([]int64, n), make([]int64, n), make([]int64, n), make([]atomic.Bool, n)}
	left := m.Docs
	for _, f := range m.Files {
		out.docs[f.Set] += f.Docs
		left -= f.Docs
	}
	if set >= 0 {
		out.docs[set] += left
	}
	copy(out.rows, out.docs)
	for i := range out.docs {
		out.most[i] = s.documentLimit(i)
		out.wrote(i, 0)
	}
	return out
}

// wrote adds n documents, which the builder has written, to the count of data set number set.
func (s *supply) wrote(set int, n int64) {
	if s.docs[set] += n; s.reached(set) {
		s.full[set].Store(true)
	}
}

// reached reports whether the builder has written all documents that data set number set needs.
func (s *supply) reached(set int) bool {
	most := s.most[set]
	return most > 0 && s.docs[set] >= most
}

// enough reports whether the feeder can stop reading data set number set. Each row becomes at least one document, so
// the rows sent so far are enough as soon as their number is. If bad rows are skipped, a row may become no document;
// only the builder's count decides then.
func (s *supply) enough(set int) bool {
	most := s.most[set]
	return most > 0 && (s.full[set].Load() || !s.spec.SkipBadRows && s.rows[set] >= most)
}
