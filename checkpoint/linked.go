package checkpoint

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"mt/base/files"
	"mt/host/optim"
	"mt/model"
)

// This file has the optimizer's files of layers whose lower halves and planes are on a disk: what a run keeps there becomes
// part of a checkpoint by a second name (link(2)), and is not written again.
//
// Such a file is a run's extent behind a header of whole pages. Tensors lie where they are in memory (optim.ExtentBytes): the lower
// halves, then the planes, each from a page on. What is between them is named padding, so that the file has no gaps. Lower
// halves that are not in the extent, of weights that are fp32 in memory, are in a file besides, lowerName, for all layers together.

// Extent is where the lower halves and planes of a layer are on a disk.
type Extent struct {
	Memory []byte // the same, as in the file behind its header (WriterOptions.Head)
	// Pin makes sure that nobody writes into the file any more, and returns its path.
	Pin func() (path string)
}

const (
	// lowerName is the file with lower halves of linked layers that are not in their own files.
	lowerName = "optimizer/lower.safetensors"
	// paddingPrefix begins the names of tensors that mean nothing. No plane has that name.
	paddingPrefix = "padding."
	headAlign     = optim.PageBytes
)

func isPadding(name string) bool { return strings.HasPrefix(name, paddingPrefix) }

// linked says whether the optimizer's file of layer i is linked.
func (o WriterOptions) linked(i int) bool { return o.Linked != nil && o.Linked[i] && !o.ModelOnly }

// CanLink says whether the optimizer's files of these layers can be linked: what is in their extents must be what is saved.
func (o WriterOptions) CanLink() bool {
	o = o.defaults()
	for _, l := range o.Layouts {
		if o.SaveDType != BF16 && l.Split() {
			return false
		}
	}
	return !o.Zstd && !o.ModelOnly
}

// Head is what the file of layer i begins with, whole pages, if it is to be linked.
func (o WriterOptions) Head(i int) []byte {
	return linkedFile(i, o.Layouts[i], o.Planes.Of(o.Layouts[i])).header
}

// linkedFile is the optimizer's file of a layer that is linked.
func linkedFile(layer int, layout model.Layout, planes []optim.Placed) *file {
	whole := optim.Whole(layout)
	base := optim.Pages(optim.LoBytes(layout, whole))
	var entries []*entry
	for _, e := range entriesOf(layer, layout, planeLo) {
		if inExtent(layout, e) {
			e.off = 2 * (e.layout.Elem + e.elem)
			entries = append(entries, e)
		}
	}
	for _, p := range planes {
		for _, e := range stateEntries(layer, layout, p) {
			e.off = base + e.elem
			entries = append(entries, e)
		}
		base += optim.Pages(p.ShareBytes(layout, whole))
	}
	slices.SortStableFunc(entries, func(a, b *entry) int { return cmp.Compare(a.off, b.off) })
	f := &file{name: optimizerName(layer, false), entries: fillGaps(entries, base), linked: true}
	f.header = paddedHeader(f.entries, headAlign)
	f.bytes = int64(len(f.header)) + base
	return f
}

// inExtent says whether e, lower halves of a layer's weights, is in its extent.
func inExtent(layout model.Layout, e *entry) bool { return layout.HasLo(e.layout) }

// fillGaps puts padding between entries, which lie at their offsets, and behind them up to end.
func fillGaps(entries []*entry, end int64) (out []*entry) {
	at := int64(0)
	fill := func(to int64) {
		if to > at {
			out = append(out, &entry{tensor: tensor{name: fmt.Sprint(paddingPrefix, len(out)), dtype: "U8", shape: []int64{to - at}, bytes: to - at}, layer: passedOver})
		}
		at = to
	}
	for _, e := range entries {
		fill(e.off)
		out = append(out, e)
		at += e.bytes
	}
	fill(end)
	return out
}

// lowerFile has the lower halves of linked layers that are not in their extents; nil where there are none.
func (o WriterOptions) lowerFile() *file {
	var entries []*entry
	for i, l := range o.Layouts {
		if !o.linked(i) || o.SaveDType != BF16 {
			continue
		}
		for _, e := range entriesOf(i, l, planeLo) {
			if !inExtent(l, e) {
				entries = append(entries, e)
			}
		}
	}
	if entries == nil {
		return nil
	}
	return newFile(lowerName, entries)
}

// linkState makes the extent of a layer its optimizer's file. The content is on the disk before the file has a second name.
func (w *Writer) linkState(f *outFile, e *Extent) error {
	for _, t := range f.entries {
		f.sums[t] = crc32.Checksum(e.Memory[t.off-int64(len(f.header)):][:t.bytes], castagnoli)
	}
	path := e.Pin()
	if err := opError("sync", path, w.disk.fs.SyncFile(path)); err != nil {
		return err
	}
	if err := w.disk.do("link "+path+" as", f.name, w.disk.fs.Link(path, w.disk.path(f.name))); err != nil {
		return err
	}
	w.record = append(w.record, f.recordOf())
	return nil
}

// readLower reads what is wanted of a layer, and was not in its own file, from the lower halves besides. It returns
// what is not there either.
func readLower(dir string, wanted map[string]*entry, l Layer, records map[string]fileRecord) (missing map[string]*entry, err error) {
	record, ok := records[lowerName]
	if !ok || len(wanted) == 0 {
		return wanted, nil
	}
	sh, err := openLower(dir, record)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", lowerName, err)
	}
	defer sh.file.Close()
	buf := make([]byte, min(pieceBytes, max(record.Bytes, 1)))
	for name, e := range wanted {
		t, ok := sh.tensors[name]
		if !ok {
			continue
		}
		delete(wanted, name)
		if err := t.fits(e); err != nil {
			return nil, fmt.Errorf("%s: %w", lowerName, err)
		}
		sum, err := e.read(io.NewSectionReader(sh.file, t.off, t.bytes), l, buf)
		if err != nil {
			return nil, fmt.Errorf("%s: tensor %q: %w", lowerName, name, err)
		}
		if err := record.region(name).check(lowerName, sum); err != nil {
			return nil, err
		}
	}
	return wanted, nil
}

// openLower opens the file with lower halves besides.
func openLower(dir string, record fileRecord) (*shard, error) {
	f, err := files.Open(filepath.Join(dir, filepath.FromSlash(lowerName)))
	if err != nil {
		return nil, err
	}
	sh := &shard{file: f, tensors: map[string]tensor{}}
	st, err := f.Stat()
	if err == nil && st.Size() != record.Bytes {
		err = fmt.Errorf("%d bytes long, not %d", st.Size(), record.Bytes)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	sh.header, err = readHeader(bufio.NewReader(io.NewSectionReader(f, 0, record.Bytes)), record.Bytes)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	for _, t := range sh.header.tensors {
		sh.tensors[t.name] = t
	}
	return sh, nil
}

// TryLink says why the file at path, which the run has made, cannot be linked by checkpoints in the directory output; empty: it
// can. The error is one of the disk.
func TryLink(f FS, output, path string) (why string, err error) {
	tmp, err := makeTemp(f, filepath.Join(output, "checkpoint-0"))
	if err != nil {
		return "", opError("make directory", tmp, err)
	}
	err = f.Link(path, filepath.Join(tmp, "state"))
	if rerr := f.RemoveAll(tmp); rerr != nil {
		return "", opError("remove", tmp, rerr)
	}
	switch {
	case err == nil:
		return "", nil
	case errors.Is(err, syscall.EXDEV):
		return "output_dir is on another file system", nil
	}
	for _, cannot := range []error{syscall.EPERM, syscall.EMLINK, syscall.ENOTSUP, syscall.EOPNOTSUPP, syscall.ENOSYS} {
		if errors.Is(err, cannot) {
			return fmt.Sprintf("a file there can have no second name (%v)", cannot), nil
		}
	}
	return "", opError("link "+path+" into", tmp, err)
}
