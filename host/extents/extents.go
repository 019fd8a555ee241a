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

// BlockBytes is what offsets, sizes and memory of an extent are multiples of: O_DIRECT asks for it
// on disks with blocks of up to 4 KiB (open(2)).
const BlockBytes = 4096

// chunkBytes is the most that one call reads or writes, unless Options says otherwise. Several are under way at once.
const chunkBytes = 4 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Options say which extents there are, and where.
type Options struct {
	Dirs  []string // where the files are; chunks go to one after the other
	Name  string   // of the file in each directory
	Run   string   // whose extents these are: the run's output directory
	Names []string // of the extents, for errors
	Bytes []int64  // of each extent, a multiple of BlockBytes; 0: there is none
	Chunk int64    // the most that one call reads or writes, and has a checksum, a multiple of BlockBytes; 0: 4 MiB
	// Heads, unless nil, are by extent what its file begins with, a multiple of BlockBytes: every extent is then a file of
	// its own, which others may link (apart.go). There is one directory then.
	Heads [][]byte
	// Apart is asked once, with the path of a file of this process, whether files can be linked to where they are to be. Where
	// it says why they cannot, Heads are dropped.
	Apart func(path string) (why string, err error)
	// Compress has each chunk written in fewer bytes, at its place, if that spares a sixteenth of them. It takes ScratchBytes of memory.
	Compress bool
	// open, unless nil, opens files in place of the operating system; fresh: one that must not be there yet.
	open func(path string, fresh bool) (file, error)
	// ring, unless nil, makes the ring in place of the operating system.
	ring func(depth int) (mover, error)
	// pause, unless nil, stands in place of time.Sleep between tries to lock a file.
	pause func(time.Duration)
}

// Files are open files with room for all extents. Different extents may be read and written at
// the same time.
type Files struct {
	o       Options
	files   []file
	paths   []string
	places  [][]place // by extent, its chunks
	pinned  []bool    // by extent: its file is another's too (apart.go); nil: extents are not apart
	why     string    // they are not, though there were Heads
	cached  []string  // paths of files that go through the page cache
	notes   []string
	jobs    chan func(*worker)
	scratch []byte // of all workers, with Compress
	ended   sync.WaitGroup
	ring    mover // nil: there is none, and noRing says why not
	noRing  error

	read, written             atomic.Int64
	sparedRead, sparedWritten atomic.Int64
}

// place is where a chunk is.
type place struct {
	file   int
	at     int64
	bytes  int64
	packed int64  // in how many bytes it was written last
	sum    uint32 // of what was written last
	full   bool   // something was written
}

// Open makes the files and takes the room for all extents. It fails where another process has
// them, where they belong to another run, and where there is no room.
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

// settle takes the room for all extents in the files that this process has now.
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

// lay gives every chunk its place, and returns where each file ends.
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

// Bytes is what all extents take on the disks.
func (o Options) bytes() (sum int64) {
	for _, n := range o.Bytes {
		sum += n
	}
	return sum
}

// Notes are what a user should know of the disks.
func (e *Files) Notes() []string { return e.notes }

// Moved is how many bytes were read and written so far.
func (e *Files) Moved() (read, written int64) { return e.read.Load(), e.written.Load() }

// Spared is how many more there would have been without Compress.
func (e *Files) Spared() (read, written int64) {
	return e.sparedRead.Load(), e.sparedWritten.Load()
}

// Written says whether extent i was written.
func (e *Files) Written(i int) bool {
	for _, c := range e.places[i] {
		if !c.full {
			return false
		}
	}
	return true
}

// Read reads extent i, which must have been written, into memory of its size, aligned to
// BlockBytes. An error names the extent and the file.
func (e *Files) Read(i int, into []byte) error {
	e.fits(i, into)
	return e.ReadPart(i, 0, into)
}

// ReadPart is Read of a part of extent i, from byte from on, as much as into has: whole chunks.
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

// Write writes extent i from memory as Read wants it.
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

// fits panics where mem is not as large as extent i.
func (e *Files) fits(i int, mem []byte) {
	if int64(len(mem)) != e.o.Bytes[i] {
		panic(fmt.Sprintf("extents: %d bytes of memory for extent %d of %d", len(mem), i, e.o.Bytes[i]))
	}
}

// chunks has the workers do each chunk of extent i from byte from on, for as much as mem has, and returns the
// error of the first chunk that failed.
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

// Close removes the files. No call may be under way. Where the file of an extent cannot be removed, the one that says whose it
// is stays, so that the next run can.
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
	for i, f := range slices.Backward(e.files) { // those of extents before the file that says whose they are
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

// Damaged is the error of a chunk that does not come back as it was written.
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
