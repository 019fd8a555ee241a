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

// kind is what the documents of a data set are: one kind for the whole data set.
type kind string

const (
	kindText kind = "text"
	kindChat kind = "chat"
	kindIDs  kind = "input_ids"
	// kindPairs are pairs of answers to a prompt: the chosen one and then the rejected one.
	kindPairs kind = "pairs"
)

// partBytes is how many bytes of the sources are tokenised from one commit to the next.
const partBytes = 64 << 20

// What Spec.Progress is told that is being done.
const (
	tokenizing    = "tokenize"
	CheckingCache = "check token cache"
)

// builder reads sources into a cache file. A feeder cuts them into chunks, several
// encoders turn chunks into tokens at once, and the builder writes these in order.
type builder struct {
	spec           *Spec
	w              *cacheWriter
	sources        []source
	before         []int64 // for each source, the bytes of all sources before it
	total          int64   // bytes of all sources
	done, reported int64   // bytes that are done; how many were when Progress was last told
	open           int64   // tokens of the current document in the pieces written so far
	inside         bool    // some but not all pieces of the current document are written
	skippedFrom    int64   // bad rows before the current source
	docsFrom       int64
	at             position
	committed      int64 // the value of done at the last commit
	supply         *supply
}

// buildCache reads all sources into the cache file name.
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

// resume goes on from where an earlier process stopped, if it left something.
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

// stopAt commits what is done where err says that the user stopped the reading.
func (b *builder) stopAt(err error) error {
	if errors.Is(err, ErrStopped) && !b.inside && b.w.Docs > 0 {
		if e := b.commit(); e != nil {
			return errors.Join(err, e)
		}
	}
	return err
}

// noDocuments words why the sources hold no document.
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

// run moves all chunks from the feeder through the encoders into the file.
func (b *builder) run() error {
	ahead := 2*b.spec.Threads + 2
	f := &feeder{spec: b.spec, supply: b.supply, size: int(min(chunkBytes, b.spec.part)), out: make(chan *chunk, ahead), work: make(chan *chunk, ahead+2), quit: make(chan struct{})}
	var all sync.WaitGroup
	all.Go(func() { f.run(b.sources, b.at) })
	var wanted atomic.Int64 // chunks up to this number are wanted; those behind a row that ends the reading are not
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
	if b.at.Source < len(b.sources) { // the feeder ended without an error: only a stop does that
		return ErrStopped
	}
	return nil
}

// lower sets v to n, unless it is less already.
func lower(v *atomic.Int64, n int64) {
	for {
		if was := v.Load(); was <= n || v.CompareAndSwap(was, n) {
			return
		}
	}
}

// write adds a chunk's documents to the file.
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

// commit makes what is written last, should the process end.
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

// document adds a document, or a piece of one, or handles a bad row.
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
	if d.first {
		b.open = b.w.Tokens
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

// bad counts a bad row where skip_bad_rows is set, else returns its error.
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

// setKind notes the kind of the documents, and refuses a document of another kind: there is
// only one, in all data sets. set is the number of the document's data set.
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

// ErrStopped is the error of Open when Spec.Stop has ended it. What is tokenised so far
// stays in the cache folder, and the next Open goes on from there.
var ErrStopped = errors.New("reading the data was stopped")

// stopped tells whether Stop is closed.
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

// supply counts what was read of each data set of which not all is needed.
type supply struct {
	spec *Spec
	most []int64       // documents that are needed, by data set: see Spec.most
	docs []int64       // documents that the builder has written
	rows []int64       // rows that the feeder has sent, with the documents of earlier runs
	full []atomic.Bool // the builder has as many documents as are needed
}

// newSupply is the supply of a cache that holds what is in w already, and of which the builder goes
// on in a source of data set number set; -1: there is no such source.
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

// wrote counts documents of a data set that the builder has written.
func (s *supply) wrote(set int, n int64) {
	if s.docs[set] += n; s.reached(set) {
		s.full[set].Store(true)
	}
}

// reached reports whether the builder has all documents that are needed of a data set.
func (s *supply) reached(set int) bool {
	most := s.most[set]
	return most > 0 && s.docs[set] >= most
}

// enough reports to the feeder whether it need read no more of a data set. Each row makes a document
// or more, unless bad rows are left out; then the builder has to say.
func (s *supply) enough(set int) bool {
	most := s.most[set]
	return most > 0 && (s.full[set].Load() || !s.spec.SkipBadRows && s.rows[set] >= most)
}
