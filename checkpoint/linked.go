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

// This file links the optimizer files of layers whose lower halves and planes are on a disk. The run's file becomes
// part of the checkpoint through a second name (link(2)) and is not written again.
//
// Such a file is the run's extent after a header of whole pages. Tensors have the same offsets as in memory
// (optim.ExtentBytes): the lower halves, then the planes, each from a page boundary on. Padding tensors fill the
// gaps. A weight that is fp32 in memory is saved as bf16 and lower half, but the extent lacks this lower half. One
// more file, lowerName, holds these lower halves of all layers.

// Extent is the file on a disk that holds a layer's lower halves and planes.
type Extent struct {
	Memory []byte // mapping of the file after its header (WriterOptions.Head)
	// Pin ensures that nobody writes into the file any more, and returns the file's path.
	Pin func() (path string)
}

const (
	// lowerName is the file with the lower halves that the extents of linked layers lack.
	lowerName = "optimizer/lower.safetensors"
	// paddingPrefix is the prefix of the names of padding tensors. No plane has this name.
	paddingPrefix = "padding."
	headAlign     = optim.PageBytes
)

func isPadding(name string) bool { return strings.HasPrefix(name, paddingPrefix) }

// linked reports whether layer i's optimizer file is linked, not written.
func (o WriterOptions) linked(i int) bool { return o.Linked != nil && o.Linked[i] && !o.ModelOnly }

// CanLink reports whether the optimizer files of these layers can be linked. For this, extents must hold exactly
// what would be saved. They do not if the saved state is compressed or left out. Neither do they if weights are saved
// in fp32: files then have no lower halves, but extents do.
func (o WriterOptions) CanLink() bool {
	o = o.defaults()
	for _, l := range o.Layouts {
		if o.SaveDType != BF16 && l.Split() {
			return false
		}
	}
	return !o.Zstd && !o.ModelOnly
}

// Head returns the header of layer i's linked optimizer file. It fills whole pages.
func (o WriterOptions) Head(i int) []byte {
	return linkedFile(i, o.Layouts[i], o.Planes.Of(o.Layouts[i])).header
}

// linkedFile returns the plan of a layer's linked optimizer file.
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

// inExtent reports whether the layer's extent contains the lower halves that e describes.
func inExtent(layout model.Layout, e *entry) bool { return layout.HasLo(e.layout) }

// fillGaps returns entries, which are sorted by offset, with padding entries before, between and
// after them. The result fills the file's data from offset 0 up to end without gaps, as safetensors
// requires.
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

// lowerFile returns the plan of the file lowerName. nil: no such file is needed, since the extents hold all lower
// halves.
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

// linkState links a layer's extent as its optimizer file. It syncs the content before the file gets its second
// name.
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

// readLower reads the tensors in wanted that are in the file lowerName: lower halves that the layer's own optimizer
// file lacks. It returns the tensors that lowerName lacks too.
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

// openLower opens the file lowerName of the checkpoint in dir; record is its record in the manifest.
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

// TryLink tries to link the file at path, which the run has made, into a checkpoint in the directory output, and
// removes the link again. why says why linking is not possible; "": it is possible. err is an error of the disk.
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
