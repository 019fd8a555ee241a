package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"mt/base/files"
)

// WriteModel writes the model without optimizer state into dir, as save_pretrained does: weights of opts.SaveDType,
// the tensors of opts.Source, config.json and the extra files (name to content). opts.Step and opts.Layouts are
// ignored.
//
// All files are written and synced in a temporary directory inside dir. The weights of an older model are replaced
// in one step: at every moment, also after a power cut, dir shows the weights of one model. See
// docs/decisions/2026-11-replacing-a-model.md.
func WriteModel(dir string, layers []Layer, opts WriterOptions, extra map[string][]byte) error {
	opts = opts.defaults()
	opts.Layouts = nil
	for _, l := range layers {
		opts.Layouts = append(opts.Layouts, l.Layout)
	}
	m := &modelWriter{dir: dir, disk: &disk{fs: opts.FS}, layers: layers, whole: opts.Whole, at: -1}
	m.add(opts.files())
	var err error
	if m.small, err = opts.extras(extra); err == nil {
		err = m.run()
	}
	if err != nil {
		return fmt.Errorf("save model: %w", err)
	}
	return nil
}

// modelWriter writes a model file by file.
type modelWriter struct {
	dir    string
	disk   *disk // rooted at the temporary directory
	layers []Layer
	whole  func(i int) (Layer, error) // see WriterOptions.Whole
	at     int                        // layer that whole returned last; −1: none
	last   Layer
	shards []*outFile
	small  map[string][]byte // all other files
	buf    []byte
	alone  bool     // dir is for this model alone: run locks it, and companions of an older model are removed
	shown  bool     // dir shows the new weights
	made   []string // dir and its parents, as far as they did not exist before
}

// add adds files, the planned files of the weights, to the model. It allocates the buffer that the
// largest tensor needs. The files get their names later, in write: only under the lock is it known
// which names are free.
func (m *modelWriter) add(files []*file) {
	for _, f := range files {
		m.shards = append(m.shards, &outFile{file: f, sums: map[*entry]uint32{}})
		m.disk.left += f.bytes
	}
	m.buf = make([]byte, pieceFor(m.shards))
}

// run writes everything and always removes the temporary directory. After an error it also removes the directories
// it made, unless another process has written into them.
func (m *modelWriter) run() error {
	m.made = missing(m.dir)
	unlock, err := m.enter()
	if errors.Is(err, ErrLocked) {
		return err // the directory and its shards belong to the process that holds the lock
	}
	defer unlock() // after tidied, so that no other process writes here before
	if err == nil {
		err = m.write()
	}
	return m.tidied(err)
}

// enter makes the model's directory. If the directory is for this model alone (m.alone), enter also
// locks the directory. The function unlock is never nil; without a lock it does nothing.
func (m *modelWriter) enter() (unlock func(), err error) {
	none := func() {}
	if err := MakeDirs(m.disk.fs, m.dir); err != nil || !m.alone {
		return none, err
	}
	if unlock, err = Lock(m.dir); err != nil {
		return none, fmt.Errorf("%s: %w", m.dir, err)
	}
	return unlock, nil
}

// tidied removes the temporary directory and, after an error, the unfinished model. err is the error of the save,
// or nil. tidied returns err; if err is nil, it returns the error of the removal.
func (m *modelWriter) tidied(err error) error {
	named := m.disk.root != "" // before write, the shards may have names of an older model's files
	if named {
		if rerr := m.disk.fs.RemoveAll(m.disk.root); err == nil && rerr != nil {
			err = opError("remove", m.disk.root, rerr)
		}
	}
	if err != nil && named && !m.shown && len(m.shards) > 1 {
		for _, f := range m.shards { // no index names these shards
			_ = m.disk.fs.RemoveAll(filepath.Join(m.dir, f.name)) // err already reports the failure
		}
	}
	if err != nil && len(m.made) > 0 {
		_ = m.disk.fs.RemoveAll(m.dir) // err already reports the failure
		for _, dir := range m.made[1:] {
			_ = os.Remove(dir) // fails if another process has put files there, which stay
		}
	}
	return err
}

// missing lists dir and its parent directories, as far as they do not exist yet, dir first.
func missing(dir string) []string {
	var out []string
	for {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) || dir == filepath.Dir(dir) {
			return out
		}
		out = append(out, dir)
		dir = filepath.Dir(dir)
	}
}

// write writes the model's files and makes them visible. The caller holds the lock of the
// directory.
func (m *modelWriter) write() (err error) {
	if len(m.made) > 0 {
		if entries, err := os.ReadDir(m.dir); err != nil || len(entries) > 0 {
			m.made = nil // another process has written here before the lock was taken
		}
	}
	var files []*file
	for _, f := range m.shards {
		files = append(files, f.file)
	}
	freshNames(m.dir, files) // the names stay free while the lock is held
	addIndex(m.small, m.shards)
	var opts WriterOptions
	for _, data := range m.small {
		opts.Extra += blocks(int64(len(data)))
	}
	ways := lessOfRun
	if m.alone {
		ways = lessOfCopy
	}
	if err := checkFree(m.disk.fs, m.dir, opts.room(files), ways); err != nil {
		return err
	}
	if m.disk.root, err = makeTemp(m.disk.fs, filepath.Join(m.dir, "model")); err != nil {
		return opError("make directory", m.disk.root, err)
	}
	for _, f := range m.shards {
		if err := m.file(f); err != nil {
			return err
		}
	}
	if err := m.disk.makeFolders(m.small); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(m.small)) {
		f := &outFile{file: &file{name: name, header: m.small[name], bytes: int64(len(m.small[name]))}}
		m.disk.left += f.bytes
		if err := m.file(f); err != nil {
			return err
		}
	}
	return m.show()
}

// layer returns the weights of layer i. For i = fromFile it returns an empty Layer: such tensors are copied from
// another file, not from a layer.
func (m *modelWriter) layer(i int) (l Layer, err error) {
	switch {
	case i == fromFile:
		return l, nil
	case m.whole == nil:
		return m.layers[i], nil
	case m.at != i:
		if m.last, err = m.whole(i); err != nil {
			return l, err
		}
		m.at = i
	}
	return m.last, nil
}

// file writes f into the temporary directory and syncs it.
func (m *modelWriter) file(f *outFile) (err error) {
	if f.out, err = m.disk.fs.Create(m.disk.path(f.name)); err != nil {
		return m.disk.do("create", f.name, err)
	}
	closed := false
	defer func() {
		if !closed {
			_ = f.out.Close() // err already reports the failure
		}
	}()
	if err := m.disk.do("allocate", f.name, f.out.Allocate(f.bytes)); err != nil {
		return err
	}
	if err := f.writeAt(m.disk, f.header, 0); err != nil {
		return err
	}
	for _, e := range f.entries {
		l, err := m.layer(e.layer)
		if err != nil {
			return err
		}
		if err := f.writeEntry(m.disk, e, l, m.buf); err != nil {
			return err
		}
	}
	if err := m.disk.do("sync", f.name, f.out.Sync()); err != nil {
		return err
	}
	closed = true
	return m.disk.do("close", f.name, f.out.Close())
}

// companions are name patterns of the files that are copied with the weights of a model directory. A pattern may
// name a folder.
var companions = []string{
	"generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model",
	"special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
	"chat_template.jinja", "additional_chat_templates/*.jinja", "chat_template.json", "tekken.json",
	"preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json", "configuration_*.py", "modeling_*.py",
	"LICENSE*", "NOTICE*",
}

// maxCompanion bounds the bytes of one companion. The largest published tokenizers have a quarter of this size.
const maxCompanion = 256 << 20

// Companions reads the existing companions of the model directory dir. These are files of the tokenizer, of
// generation and of image processors, the licence, and Python code that config.json may name. The code is copied
// and never run. A Git LFS pointer or a link out of the directory is an error.
func Companions(dir string) (map[string][]byte, error) {
	names, err := CompanionNames(dir)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, name := range names {
		if out[name], err = ReadCompanion(filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("read model directory: %w", err)
		}
	}
	return out, nil
}

// CompanionNames returns the names of the files that Companions reads. It reads no file, and fails if one is a link
// out of the directory.
func CompanionNames(dir string) (names []string, err error) {
	found, err := companionsIn(dir)
	if err != nil {
		return nil, fmt.Errorf("read model directory: %w", err)
	}
	for _, name := range found {
		path := filepath.Join(dir, name)
		st, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) || err == nil && !st.Mode().IsRegular() {
			continue
		}
		if folder := filepath.Dir(path); folder != filepath.Clean(dir) {
			err = CheckLink(folder)
		}
		if err = errors.Join(err, CheckLink(path)); err != nil {
			return nil, fmt.Errorf("read model directory: %w", err)
		}
		names = append(names, name)
	}
	return names, nil
}

// companionsIn returns the names of the files in dir that match a pattern in companions. It also looks into the
// folders that patterns name.
func companionsIn(dir string) (names []string, err error) {
	folders := []string{"."}
	for _, pattern := range companions {
		if folder := filepath.Dir(pattern); !slices.Contains(folders, folder) {
			folders = append(folders, folder)
		}
	}
	for _, folder := range folders {
		entries, err := os.ReadDir(filepath.Join(dir, folder))
		if folder != "." && (errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if name := filepath.Join(folder, e.Name()); isCompanion(name) {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// CheckLink returns an error if path, a file of a model directory, is a link out of that directory. A saved model
// may be published, so files copied beside it must come from the model. Links to the blobs of the Hugging Face
// cache are allowed.
func CheckLink(path string) error {
	st, err := os.Lstat(path)
	if err != nil || st.Mode().Type() != os.ModeSymlink {
		return err
	}
	to, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err == nil {
		to, err = filepath.Abs(to)
	}
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(dir, to)
	if err == nil && filepath.IsLocal(rel) {
		return nil
	}
	if blobs := filepath.Dir(to); filepath.Base(blobs) == "blobs" && strings.HasPrefix(filepath.Base(filepath.Dir(blobs)), "models--") {
		return nil
	}
	return fmt.Errorf("%s: a link to %s, outside of the model directory, and it would be copied beside what is saved; put the file itself there", path, to)
}

// ReadCompanion reads a companion or config.json. A file longer than maxCompanion or a Git LFS pointer is an error.
func ReadCompanion(path string) ([]byte, error) {
	data, err := files.Read(path, maxCompanion)
	if err == nil && bytes.HasPrefix(data, []byte(lfsPointer)) {
		err = fmt.Errorf("%s: this is a Git LFS pointer, not the file; fetch it with `git lfs pull`", path)
	}
	return data, err
}

func isCompanion(name string) bool {
	for _, pattern := range companions {
		if ok, _ := filepath.Match(pattern, name); ok { // the patterns are well formed
			return true
		}
	}
	return false
}

// CopyOptions controls how CopyModel writes.
type CopyOptions struct {
	DType         DType             // of the weights; "": unchanged
	F32           map[string]bool   // tensors that stay fp32 if DType is bf16
	MaxShardBytes int64             // most bytes of weights in a file; 0: 5 GB
	Files         map[string][]byte // all files except the weights: config.json, the tokenizer, …
	FS            FS                // nil: the operating system's
	Progress      Progress          // may be nil
}

// Copied is the result of CopyModel.
type Copied struct {
	Files   []string // of weights
	Tensors int
	Bytes   int64 // of weights
}

// CopyModel writes all tensors of w into the directory dir with their names and shapes. It cuts them into new
// shards, with an index if there are several. Floating-point tensors become opts.DType (bf16 is rounded half up, as
// in training); others are copied.
//
// Like WriteModel, it writes into a temporary directory inside dir first. Companions of an older model in dir, such
// as its tokenizer, are removed. If ctx is cancelled, CopyModel returns the cause of ctx.
func CopyModel(ctx context.Context, dir string, w *Weights, opts CopyOptions) (Copied, error) {
	o := WriterOptions{MaxShardBytes: opts.MaxShardBytes, FS: opts.FS}.defaults()
	m := &modelWriter{dir: dir, disk: &disk{fs: o.FS}, alone: true}
	var entries []*entry
	var total, done int64
	for _, name := range w.src.names() {
		e := w.src.copied(name)
		if _, ok := weightPlane(e.dtype); ok && opts.DType != "" {
			e.plane = opts.DType.plane()
			if opts.F32[name] {
				e.plane = planeF32
			}
			e.dtype, e.bytes = e.plane.dtype, e.elems*e.plane.size()
		}
		entries = append(entries, e)
		total += e.bytes
	}
	m.add(modelFiles(o.MaxShardBytes, entries))
	var err error
	if m.small, err = modelExtras(opts.Files); err != nil {
		return Copied{}, fmt.Errorf("save model: %w", err)
	}
	m.disk.wrote = func(n int64) error {
		done += n
		if opts.Progress != nil {
			opts.Progress(done, total)
		}
		return context.Cause(ctx)
	}
	if err := m.run(); err != nil {
		return Copied{}, fmt.Errorf("save model: %w", err)
	}
	out := Copied{Tensors: len(entries)}
	for _, f := range m.shards {
		out.Files = append(out.Files, f.name)
		out.Bytes += f.bytes
	}
	return out, nil
}
