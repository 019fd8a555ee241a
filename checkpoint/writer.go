package checkpoint

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"

	"mt/host/optim"
	"mt/model"
)

// pieceBytes is the usual size of a piece: tensors are converted and written piece by piece.
const pieceBytes = 4 << 20

// leastPiece is the smallest size of a piece in bytes: one element of the widest dtype, before or after conversion.
const leastPiece = 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// WriterOptions controls what a Writer writes.
type WriterOptions struct {
	Step          int // names the directory: checkpoint-STEP
	Config        *model.Config
	Layouts       []model.Layout // of all layers, as returned by Config.Layouts
	Planes        optim.Planes   // planes of the optimizer's state, for all layers
	SaveDType     DType          // of the weights; "": BF16
	MaxShardBytes int64          // most bytes of weights in a file; 0: 5 GB
	Zstd          bool           // compress the optimizer's state
	ModelOnly     bool           // leave out the optimizer's state; the state passed to Commit must say so too
	Linked        []bool         // by layer: link the optimizer's file to Layer.Extent; nil: no layer (linked.go)
	Extra         int64          // bytes of Commit's extra files, for the check of free space
	FS            FS             // nil: the operating system's
	// Whole returns layer i for WriteModel, valid until the next call. WriteModel then ignores its list of layers,
	// which may lack lower halves. nil: WriteModel uses the list.
	Whole func(i int) (Layer, error)
	// Source is the model directory that the weights were loaded from. Its tensors beside the parameters are
	// copied. nil: the model was made from scratch.
	Source *Source
}

func (o WriterOptions) defaults() WriterOptions {
	if o.SaveDType == "" {
		o.SaveDType = BF16
	}
	if o.MaxShardBytes <= 0 {
		o.MaxShardBytes = defaultShardBytes
	}
	if o.FS == nil {
		o.FS = osFS{}
	}
	return o
}

// Writer writes one checkpoint into a temporary directory that Commit renames. Layers may come in any order. After
// an error the directory is removed and every call returns the error. Methods are safe for concurrent use.
type Writer struct {
	opts  WriterOptions
	disk  *disk
	final string

	mu      sync.Mutex
	err     error
	open    []*outFile   // files that are not closed
	shards  []*outFile   // the weights
	state   []*outFile   // the optimizer, by layer
	lower   *outFile     // remaining lower halves of linked layers (linked.go); nil: none
	written []bool       // by layer
	record  []fileRecord // of finished files
	buf     []byte
}

// outFile is a planned file that is being written.
type outFile struct {
	*file
	out  File
	sums map[*entry]uint32 // CRC32C of the written tensors
}

// NewWriter begins the checkpoint of opts.Step in the directory output. It plans every file, checks the free space,
// and makes the files under a temporary name. The caller must call Abort or Commit.
func NewWriter(output string, opts WriterOptions) (*Writer, error) {
	w := &Writer{opts: opts.defaults(), written: make([]bool, len(opts.Layouts))}
	w.final = filepath.Join(output, fmt.Sprintf("checkpoint-%d", opts.Step))
	w.disk = &disk{fs: w.opts.FS}
	for _, f := range w.opts.files() {
		w.shards = append(w.shards, &outFile{file: f, sums: map[*entry]uint32{}})
		w.disk.left += f.bytes
	}
	for _, f := range w.opts.stateFiles() {
		w.state = append(w.state, &outFile{file: f, sums: map[*entry]uint32{}})
		if !f.linked {
			w.disk.left += f.bytes
		}
	}
	if f := w.opts.lowerFile(); f != nil {
		w.lower = &outFile{file: f, sums: map[*entry]uint32{}}
		w.disk.left += f.bytes
	}
	w.buf = make([]byte, pieceFor(w.made()))
	if err := w.begin(output); err != nil {
		return nil, w.fail(err)
	}
	return w, nil
}

// pieceFor returns the size in bytes of the pieces for these files: pieceBytes, or less if no tensor is that large.
// Files with tensors that are written in whole lines (placed.go) need at least one line.
func pieceFor(files []*outFile) int64 {
	var most, line int64
	for _, f := range files {
		for _, e := range f.entries {
			most = max(most, e.bytes)
			if e.placed != nil {
				line = max(line, e.chunk(1, e.plane.size()))
			}
		}
	}
	return max(min(max(most, leastPiece), pieceBytes), line)
}

// made returns the tensor files that this save writes. Linked files are not among them, since they
// exist already.
func (w *Writer) made() []*outFile {
	out := slices.Clone(w.shards)
	for _, f := range w.state {
		if !f.linked {
			out = append(out, f)
		}
	}
	if w.lower != nil {
		out = append(out, w.lower)
	}
	return out
}

// begin makes the temporary directory and all files in it.
func (w *Writer) begin(output string) error {
	if err := MakeDirs(w.opts.FS, output); err != nil {
		return err
	}
	if err := checkFree(w.opts.FS, output, w.opts.CheckpointBytes(), lessOfRun); err != nil {
		return err
	}
	tmp, err := makeTemp(w.opts.FS, w.final)
	if err != nil {
		return opError("make directory", tmp, err)
	}
	w.disk.root = tmp
	if !w.opts.ModelOnly {
		if err := w.disk.do("make directory", "optimizer", w.opts.FS.Mkdir(w.disk.path("optimizer"))); err != nil {
			return err
		}
	}
	for _, f := range w.made() {
		if err := w.create(f); err != nil {
			return err
		}
	}
	return nil
}

// makeTemp makes a new directory called base.tmp-PID, with a number appended if that name is taken. It returns the
// name.
func makeTemp(f FS, base string) (string, error) {
	for i := 0; ; i++ {
		tmp := fmt.Sprintf("%s.tmp-%d", base, os.Getpid())
		if i > 0 {
			tmp += fmt.Sprintf("-%d", i)
		}
		if err := f.Mkdir(tmp); err == nil || !errors.Is(err, os.ErrExist) {
			return tmp, err
		}
	}
}

// create opens f, reserves its space and writes its header.
func (w *Writer) create(f *outFile) error {
	var err error
	if f.out, err = w.disk.fs.Create(w.disk.path(f.name)); err != nil {
		f.out = nil
		return w.disk.do("create", f.name, err)
	}
	w.open = append(w.open, f)
	if f.zstd {
		return nil
	}
	if err := w.disk.do("allocate", f.name, f.out.Allocate(f.bytes)); err != nil {
		return err
	}
	return f.writeAt(w.disk, f.header, 0)
}

func (f *outFile) writeAt(d *disk, p []byte, off int64) error {
	_, err := f.out.WriteAt(p, off)
	if err = d.do("write", f.name, err); err == nil {
		d.left -= int64(len(p))
	}
	return err
}

// WriteLayer writes the weights of layer i and the optimizer's planes. It returns when the operating system has
// accepted the data. l must not change until then.
func (w *Writer) WriteLayer(i int, l Layer) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if w.written[i] {
		panic(fmt.Sprintf("checkpoint: layer %d is written twice", i))
	}
	if err := w.writeWeights(i, l); err != nil {
		return w.failLocked(err)
	}
	if !w.opts.ModelOnly {
		if err := w.writeState(w.state[i], l); err != nil {
			return w.failLocked(err)
		}
	}
	if w.lower != nil {
		if err := w.lower.writeLayer(w.disk, i, l, w.buf); err != nil {
			return w.failLocked(err)
		}
	}
	w.written[i] = true
	return nil
}

// writeWeights writes the weights of layer i. With i = fromFile it writes the tensors that are copied from the
// source.
func (w *Writer) writeWeights(i int, l Layer) error {
	for _, f := range w.shards {
		if err := f.writeLayer(w.disk, i, l, w.buf); err != nil {
			return err
		}
	}
	return nil
}

// writeLayer writes those tensors of the file that belong to layer i.
func (f *outFile) writeLayer(d *disk, i int, l Layer, buf []byte) error {
	for _, e := range f.entries {
		if e.layer != i {
			continue
		}
		if err := f.writeEntry(d, e, l, buf); err != nil {
			return err
		}
	}
	return nil
}

// writeEntry converts one tensor to its saved dtype and writes it at its offset in the file. It records the
// checksum.
func (f *outFile) writeEntry(d *disk, e *entry, l Layer, buf []byte) error {
	var sum uint32
	off := e.off
	err := e.pieces(l, buf, func(p []byte) error {
		sum = crc32.Update(sum, castagnoli, p)
		if err := f.writeAt(d, p, off); err != nil {
			return err
		}
		f.out.Flush(off, int64(len(p)))
		off += int64(len(p))
		if d.wrote != nil {
			return d.wrote(int64(len(p)))
		}
		return nil
	})
	f.sums[e] = sum
	return err
}

// pieces passes the bytes of e to put, in order and in pieces. The values come from the layer l or
// from another file. buf holds a piece.
func (e *entry) pieces(l Layer, buf []byte, put func([]byte) error) error {
	if e.quant != nil {
		return e.quant.pieces(l, e.scales, put)
	}
	if e.from != nil {
		return e.from.pieces(e.plane, buf, put)
	}
	if e.plane.state != "" {
		data := l.state(e.plane.state).Data[e.elem:][:e.bytes]
		for piece := range slices.Chunk(data, len(buf)) {
			if err := put(piece); err != nil {
				return err
			}
		}
		return nil
	}
	step := int64(len(buf)) / e.plane.size()
	if e.placed != nil {
		step = e.chunk(int64(len(buf)), e.plane.size()) / e.plane.size()
	}
	for at := int64(0); at < e.elems; at += step {
		n := min(step, e.elems-at)
		if e.placed != nil {
			if err := put(e.collect(l, at, n, buf)); err != nil {
				return err
			}
			continue
		}
		if err := put(l.encode(e.layout, e.plane, e.elem+at, n, buf)); err != nil {
			return err
		}
	}
	return nil
}

// writeState writes a layer's optimizer file, or links it to the layer's extent.
func (w *Writer) writeState(f *outFile, l Layer) error {
	switch {
	case f.linked:
		return w.linkState(f, l.Extent)
	case f.zstd:
		return w.compressState(f, l)
	}
	for _, e := range f.entries {
		if err := f.writeEntry(w.disk, e, l, w.buf); err != nil {
			return err
		}
	}
	return nil
}

// compressState writes a layer's optimizer file with zstd compression.
func (w *Writer) compressState(f *outFile, l Layer) error {
	seq := &sequential{f: f, disk: w.disk}
	left := w.disk.left
	enc, err := zstd.NewWriter(seq, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return fmt.Errorf("zstd: %w", err)
	}
	_, err = enc.Write(f.header)
	for _, e := range f.entries {
		if err == nil {
			err = e.pieces(l, w.buf, func(p []byte) error { _, err := enc.Write(p); return err })
		}
	}
	if cerr := enc.Close(); err == nil {
		err = cerr
	}
	if seq.err != nil {
		return seq.err
	}
	w.disk.left = left - f.bytes
	w.record = append(w.record, fileRecord{Name: f.name, Bytes: seq.off, Regions: []region{{Name: wholeFile, Bytes: seq.off, CRC32C: seq.sum}}})
	return err
}

// sequential is an io.Writer that appends to a planned file, for the zstd encoder.
type sequential struct {
	f    *outFile
	disk *disk
	off  int64
	sum  crc
	err  error
}

func (s *sequential) Write(p []byte) (int, error) {
	if s.err = s.f.writeAt(s.disk, p, s.off); s.err != nil {
		return 0, s.err
	}
	s.f.out.Flush(s.off, int64(len(p)))
	s.off += int64(len(p))
	s.sum = crc(crc32.Update(uint32(s.sum), castagnoli, p))
	return len(p), nil
}

// Abort removes the written files. After Commit it does nothing.
func (w *Writer) Abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		_ = w.failLocked(errors.New("aborted"))
	}
}

// fail records err as the writer's error and removes the written files.
func (w *Writer) fail(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failLocked(err)
}

func (w *Writer) failLocked(err error) error {
	w.err = fmt.Errorf("save checkpoint-%d: %w", w.opts.Step, err)
	for _, f := range w.open {
		_ = f.out.Close() // the file is removed anyway
	}
	w.open = nil
	if w.disk.root != "" {
		if rerr := w.opts.FS.RemoveAll(w.disk.root); rerr != nil {
			w.err = fmt.Errorf("%w; and %s could not be removed: %w", w.err, w.disk.root, rerr)
		}
	}
	return w.err
}
