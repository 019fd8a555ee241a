package extents

import (
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"mt/base/human"
)

// BlockBytes is the alignment of file offsets, sizes and memory. O_DIRECT requires it for disks with blocks of up to 4
// KiB (open(2)).
const BlockBytes = 4096

// chunkBytes is the default of Options.Chunk.
const chunkBytes = 4 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Options describes the extents and their location.
type Options struct {
	Dirs  []string // directories of the files; consecutive chunks go to the directories in turn
	Name  string   // file name, the same in each directory
	Run   string   // the run's output directory, stored in the files to identify their owner
	Names []string // names of the extents, for errors
	Bytes []int64  // size of each extent, a multiple of BlockBytes; 0: no extent
	Chunk int64    // size of a chunk, the unit of transfers and checksums, a multiple of BlockBytes; 0: 4 MiB
	// Heads gives each extent a file of its own, for checkpoints to link (apart.go). Heads[i] is the start of extent
	// i's file, and its size is a multiple of BlockBytes. With Heads there must be a single directory. nil: extents
	// share files.
	Heads [][]byte
	// Apart is called once if Heads is set, with the path of a file that this process has made. It checks whether files
	// can be linked to where the checkpoints are. If not, it returns the reason, and Heads is ignored.
	Apart func(path string) (why string, err error)
	// Compress compresses each chunk, at its place in the file, if that saves at least a sixteenth. It needs
	// ScratchBytes of memory.
	Compress bool
	// open, unless nil, replaces the operating system's opening of files, in tests. fresh: the file must not exist.
	open func(path string, fresh bool) (file, error)
	// ring, unless nil, replaces the creation of an io_uring, in tests.
	ring func(depth int) (mover, error)
	// pause, unless nil, replaces time.Sleep between attempts to lock a file, in tests.
	pause func(time.Duration)
}

// Files holds open files with room for all extents. Different extents may be read and written at the same time.
type Files struct {
	o       Options
	files   []file
	paths   []string
	places  [][]place // places of the chunks, by extent
	pinned  []bool    // by extent: its file is linked under another name (apart.go); nil: extents share files
	why     string    // why Heads was ignored
	cached  []string  // paths of files without O_DIRECT, which use the page cache
	notes   []string
	jobs    chan func(*worker)
	scratch []byte // memory of all workers, with Compress
	ended   sync.WaitGroup
	ring    mover // nil: no ring, noRing is the reason
	noRing  error

	read, written             atomic.Int64
	sparedRead, sparedWritten atomic.Int64
}

// place says where a chunk is, and what was last written there.
type place struct {
	file   int
	at     int64
	bytes  int64
	packed int64  // bytes of the last write, less than the chunk's if compressed
	sum    uint32 // checksum of the last write
	full   bool   // the chunk was written
}

// Open creates the files and reserves disk space for all extents. It returns an error if another process uses the
// files, if they belong to another run, or if a disk lacks space.
func Open(o Options) (*Files, error) {
	e := &Files{o: o, jobs: make(chan func(*worker))}
	if o.open == nil {
		e.o.open = openFile
	}
	if o.ring == nil {
		e.o.ring = newRing
	}
	if o.pause == nil {
		e.o.pause = time.Sleep
	}
	if o.Chunk == 0 {
		e.o.Chunk = chunkBytes
	}
	ends := e.lay()
	for i, dir := range o.Dirs {
		path := filepath.Join(dir, o.Name)
		f, err := e.claim(path, ends[i]+e.apartBytes())
		if err != nil {
			return nil, errors.Join(err, e.Close())
		}
		e.files, e.paths = append(e.files, f), append(e.paths, path)
	}
	err := e.settle()
	if err == nil {
		err = e.start()
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// settle reserves the disk space for all extents. The files opened by Open get it, or each extent
// gets a file of its own (Options.Heads).
func (e *Files) settle() (err error) {
	if e.o.Heads != nil {
		if e.why, err = e.o.Apart(e.paths[0]); err != nil {
			return err
		}
		if e.why != "" {
			e.o.Heads = nil
		}
	}
	for i, end := range e.lay() {
		note, err := e.room(e.files[i], e.paths[i], end)
		if err != nil {
			return err
		}
		if note != "" {
			e.cached, e.notes = append(e.cached, e.paths[i]), append(e.notes, note)
		}
	}
	return e.makeApart()
}

// lay gives every chunk its place in the files, in turn over the directories. It returns the size
// that each file needs.
func (e *Files) lay() (ends []int64) {
	ends = make([]int64, len(e.o.Dirs))
	for i := range ends {
		ends[i] = headerBytes
	}
	next := 0
	e.places = nil
	for i, bytes := range e.o.Bytes {
		if e.o.Heads != nil {
			e.places = append(e.places, e.layApart(i))
			continue
		}
		var chunks []place
		for at := int64(0); at < bytes; at += e.o.Chunk {
			n := min(e.o.Chunk, bytes-at)
			chunks = append(chunks, place{file: next, at: ends[next], bytes: n})
			ends[next] += n
			next = (next + 1) % len(ends)
		}
		e.places = append(e.places, chunks)
	}
	return ends
}

// bytes returns the total size of all extents.
func (o Options) bytes() (sum int64) {
	for _, n := range o.Bytes {
		sum += n
	}
	return sum
}

// Notes returns messages about the disks for the user.
func (e *Files) Notes() []string { return e.notes }

// Moved returns the bytes read from and written to the files so far.
func (e *Files) Moved() (read, written int64) { return e.read.Load(), e.written.Load() }

// Spared returns the bytes that compression has saved so far, in reads and in writes.
func (e *Files) Spared() (read, written int64) {
	return e.sparedRead.Load(), e.sparedWritten.Load()
}

// Written reports whether all chunks of extent i were written by this process.
func (e *Files) Written(i int) bool {
	for _, c := range e.places[i] {
		if !c.full {
			return false
		}
	}
	return true
}

// Read reads extent i into the given memory. The memory must have the extent's size and be aligned to BlockBytes. The
// extent must have been written. An error names the extent and the file.
func (e *Files) Read(i int, into []byte) error {
	e.fits(i, into)
	return e.ReadPart(i, 0, into)
}

// ReadPart reads the bytes [from, from+len(into)) of extent i, which must be whole chunks.
func (e *Files) ReadPart(i int, from int64, into []byte) error {
	return e.chunks(i, from, into, func(w *worker, c *place, b []byte) error {
		path := e.paths[c.file]
		if !c.full {
			return fmt.Errorf("read %s: %s was never written there", path, e.o.Names[i])
		}
		packed := b
		if c.packed < c.bytes {
			packed = w.scratch[:c.packed]
		}
		if _, err := e.files[c.file].ReadAt(packed, c.at); err != nil {
			return fmt.Errorf("read %s of %s at byte %d of %s: %w", human.Bytes(c.bytes), e.o.Names[i], c.at, path, bare(err))
		}
		if sum := crc32.Checksum(packed, castagnoli); sum != c.sum {
			return &Damaged{Name: e.o.Names[i], Path: path, At: c.at, Bytes: c.bytes, Sum: sum, Want: c.sum}
		}
		e.read.Add(c.packed)
		if c.packed == c.bytes {
			return nil
		}
		e.sparedRead.Add(c.bytes - c.packed)
		if err := w.coder.decode(b, packed); err != nil {
			return fmt.Errorf("read %s of %s at byte %d of %s: %w", human.Bytes(c.bytes), e.o.Names[i], c.at, path, err)
		}
		return nil
	})
}

// Write writes extent i from the given memory. The memory must have the extent's size and be aligned to BlockBytes.
func (e *Files) Write(i int, from []byte) error {
	e.fits(i, from)
	if err := e.renew(i); err != nil {
		return err
	}
	return e.chunks(i, 0, from, func(w *worker, c *place, b []byte) error {
		c.full = false
		packed := w.pack(b)
		c.sum = crc32.Checksum(packed, castagnoli)
		if _, err := e.files[c.file].WriteAt(packed, c.at); err != nil {
			return fmt.Errorf("write %s of %s at byte %d of %s: %w", human.Bytes(c.bytes), e.o.Names[i], c.at, e.paths[c.file], bare(err))
		}
		c.full, c.packed = true, int64(len(packed))
		e.written.Add(c.packed)
		e.sparedWritten.Add(c.bytes - c.packed)
		return nil
	})
}

// fits panics unless mem has the size of extent i.
func (e *Files) fits(i int, mem []byte) {
	if int64(len(mem)) != e.o.Bytes[i] {
		panic(fmt.Sprintf("extents: %d bytes of memory for extent %d of %d", len(mem), i, e.o.Bytes[i]))
	}
}

// chunks calls `do`, on the worker goroutines, for each chunk in the range [from, from+len(mem)) of
// extent i. do gets the chunk's place c, and the part b of mem for the chunk. If several calls
// fail, chunks returns the error of the first chunk in order.
func (e *Files) chunks(i int, from int64, mem []byte, do func(w *worker, c *place, b []byte) error) error {
	end := from + int64(len(mem))
	if from%e.o.Chunk != 0 || end > e.o.Bytes[i] || end%e.o.Chunk != 0 && end != e.o.Bytes[i] {
		panic(fmt.Sprintf("extents: bytes %d to %d of extent %d, which has %d in chunks of %d", from, end, i, e.o.Bytes[i], e.o.Chunk))
	}
	places := e.places[i][from/e.o.Chunk : (end+e.o.Chunk-1)/e.o.Chunk]
	errs := make([]error, len(places))
	var left sync.WaitGroup
	for k := range places {
		c, b := &places[k], mem[:places[k].bytes]
		mem = mem[places[k].bytes:]
		left.Add(1)
		e.jobs <- func(w *worker) {
			defer left.Done()
			errs[k] = do(w, c, b)
		}
	}
	left.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Close removes the files. No other call may be under way. If the file of an extent cannot be removed, Close keeps the
// locked file, which names the run, so that the next run can remove both.
func (e *Files) Close() error {
	close(e.jobs)
	e.ended.Wait()
	var errs []error
	if e.ring != nil {
		errs = append(errs, e.ring.Close())
	}
	if e.scratch != nil {
		errs = append(errs, unix.Munmap(e.scratch))
	}
	for i, f := range slices.Backward(e.files) { // extent files before the file that names the run
		if f == nil {
			continue
		}
		if i == 0 && e.pinned != nil && errors.Join(errs...) != nil {
			errs = append(errs, f.Close())
			continue
		}
		if err := f.Remove(); err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", e.paths[i], bare(err)))
		}
		if err := f.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", e.paths[i], bare(err)))
		}
	}
	e.files = nil
	return errors.Join(errs...)
}

// Damaged is the error for a chunk that does not read as it was written.
type Damaged struct {
	Name      string // of the extent
	Path      string // of the file
	At, Bytes int64
	Sum, Want uint32
}

func (d *Damaged) Error() string {
	return fmt.Sprintf("%s: %s at byte %d of %s does not come back as it was written (CRC32C %08x, not %08x): the disk, or who else writes there, has changed it",
		d.Name, human.Bytes(d.Bytes), d.At, d.Path, d.Sum, d.Want)
}
