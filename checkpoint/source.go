package checkpoint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"mt/base/files"
	"mt/model"
)

// shard is an open safetensors file of a model directory.
type shard struct {
	name    string // relative to its directory
	path    string
	file    *os.File
	tensors map[string]tensor
	header  header
}

// source holds the opened weights of a model directory.
type source struct {
	dir    string
	shards map[string]*shard
	where  map[string]*shard // by tensor: the shard that holds it
	absent map[string]*shard // by tensor: the shard that the index names but that lacks the tensor
	// quantized returns quantization_config of config.json; nil: none.
	quantized func() (*model.Quantized, error)
}

// openSource opens the weights in dir: model.safetensors, otherwise the shards of model.safetensors.index.json.
func openSource(dir string) (*source, error) {
	s := &source{dir: dir, shards: map[string]*shard{}, where: map[string]*shard{}, absent: map[string]*shard{},
		quantized: sync.OnceValues(func() (*model.Quantized, error) { return model.ReadQuantized(dir) })}
	err := s.openAll()
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *source) openAll() error {
	_, err := os.Stat(filepath.Join(s.dir, singleName))
	if IsDiskError(err) {
		return err // shards may exist, but this is unknown
	}
	if err == nil {
		sh, err := s.open(singleName)
		if err != nil {
			return err
		}
		for name := range sh.tensors {
			s.where[name] = sh
		}
		return nil
	}
	weightMap, err := s.readIndex()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(weightMap)) {
		sh, err := s.open(weightMap[name])
		if err != nil {
			return err
		}
		if _, ok := sh.tensors[name]; ok {
			s.where[name] = sh
		} else {
			s.absent[name] = sh
		}
	}
	for _, file := range slices.Sorted(maps.Keys(s.shards)) {
		for name := range s.shards[file].tensors { // tensors that the index omits
			if s.where[name] == nil {
				s.where[name] = s.shards[file]
			}
		}
	}
	return nil
}

// names lists the tensors in the order of the files and of their data.
func (s *source) names() []string {
	var out []string
	for _, file := range slices.Sorted(maps.Keys(s.shards)) {
		for _, t := range s.shards[file].header.tensors {
			if s.where[t.name] == s.shards[file] {
				out = append(out, t.name)
			}
		}
	}
	return out
}

// fetch returns the command that downloads a damaged or missing file of a model directory again. If the directory
// is in the Hugging Face cache, the command has the model's name.
func fetch(dir, file string) string {
	for part := range strings.SplitSeq(filepath.ToSlash(dir), "/") {
		if id, ok := strings.CutPrefix(part, "models--"); ok {
			return fmt.Sprintf("fetch it again with `hf download --force-download %s %s`", strings.ReplaceAll(id, "--", "/"), file)
		}
	}
	return fmt.Sprintf("fetch it again with `hf download ORG/NAME %s --local-dir %s`, or `git lfs pull` in a clone", file, dir)
}

// readIndex reads the index of the directory and returns the shard of each tensor, by name.
func (s *source) readIndex() (map[string]string, error) {
	file := filepath.Join(s.dir, indexName)
	raw, err := files.Read(file, maxHeader)
	if errors.Is(err, os.ErrNotExist) {
		return nil, s.noWeights()
	}
	if err != nil {
		return nil, err
	}
	weightMap, err := parseIndex(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return weightMap, nil
}

// parseIndex parses an index into the shard of each tensor. Shards are files beside the index or in a folder below.
func parseIndex(raw []byte) (map[string]string, error) {
	weightMap := map[string]string{}
	err := files.Members(files.JSON(raw), func(key string, val []byte) error {
		if key != "weight_map" {
			return nil
		}
		if val[0] != '{' {
			return errors.New("weight_map is not a mapping of tensors to shards")
		}
		return files.Members(val, func(name string, val []byte) error { return addShard(weightMap, name, val) })
	})
	if err != nil {
		if bytes.HasPrefix(raw, []byte(lfsPointer)) {
			err = errLFS
		}
		return nil, err
	}
	if len(weightMap) == 0 {
		return nil, errors.New("weight_map is missing or empty")
	}
	return weightMap, nil
}

// addShard adds an index entry: the tensor name is in the shard val, a JSON string.
func addShard(weightMap map[string]string, name string, val []byte) error {
	var shard string
	if val[0] != '"' || json.Unmarshal(val, &shard) != nil {
		return fmt.Errorf("tensor %q: the shard %.60s is not text", name, val)
	}
	if !filepath.IsLocal(shard) || filepath.Clean(shard) != shard || shard == "." || strings.ContainsAny(shard, "\\\x00") {
		return fmt.Errorf("tensor %q: the shard %q is not a file of this directory", name, shard)
	}
	if weightMap[name] = shard; len(weightMap) > maxIndexed {
		return fmt.Errorf("more than %d tensors in one index", maxIndexed)
	}
	return nil
}

// numberedShard matches the names of shards that an index lists, such as model-00001-of-00002.safetensors.
var numberedShard = regexp.MustCompile(`-\d+-of-\d+\.safetensors$`)

// noWeights returns the error for a directory without readable weights.
func (s *source) noWeights() error {
	for _, name := range []string{singleName, indexName} {
		if _, err := os.Lstat(filepath.Join(s.dir, name)); err == nil {
			return fmt.Errorf("%s: a link to a file that is not there; %s", filepath.Join(s.dir, name), fetch(s.dir, name))
		}
	}
	if why := model.Foreign(s.dir); why != "" {
		return fmt.Errorf("%s: no model.safetensors: %s", s.dir, why)
	}
	found, _ := filepath.Glob(filepath.Join(s.dir, "*.safetensors"))
	shards := slices.DeleteFunc(slices.Clone(found), func(name string) bool { return !numberedShard.MatchString(filepath.Base(name)) })
	switch {
	case len(shards) > 0:
		return fmt.Errorf("%s: no model.safetensors, but %s: the index %s is missing; %s", s.dir, filepath.Base(shards[0]), indexName, fetch(s.dir, indexName))
	case len(found) == 1:
		return fmt.Errorf("%s: no model.safetensors, but %s: if it holds the weights that config.json describes, call it model.safetensors", s.dir, filepath.Base(found[0]))
	case len(found) > 1:
		return fmt.Errorf("%s: no model.safetensors and no %s, but %s and %d more: an index says which tensor is in which file; %s",
			s.dir, indexName, filepath.Base(found[0]), len(found)-1, fetch(s.dir, indexName))
	}
	return fmt.Errorf("%s: no model.safetensors and no %s", s.dir, indexName)
}

// open returns the shard with this name and opens it on first use.
func (s *source) open(name string) (*shard, error) {
	if sh, ok := s.shards[name]; ok {
		return sh, nil
	}
	path := filepath.Join(s.dir, name)
	f, err := files.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: missing, but %s names it; %s", path, indexName, fetch(s.dir, name))
	}
	if err != nil {
		return nil, err
	}
	sh := &shard{name: name, path: path, file: f, tensors: map[string]tensor{}}
	s.shards[name] = sh
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if sh.header, err = readHeader(bufio.NewReaderSize(io.NewSectionReader(f, 0, st.Size()), 1<<16), st.Size()); err != nil {
		if errors.Is(err, errTruncated) {
			err = fmt.Errorf("%w; %s", err, fetch(s.dir, name))
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, t := range sh.header.tensors {
		sh.tensors[t.name] = t
	}
	return sh, nil
}

// readAt fills p with bytes of the tensor, starting at the given offset in the tensor's data.
func (sh *shard) readAt(t tensor, at int64, p []byte) error {
	if n, err := sh.file.ReadAt(p, t.off+at); n < len(p) {
		return fmt.Errorf("%s: tensor %q: %w", sh.path, t.name, truncated(err, "the tensor's data"))
	}
	return nil
}

// each passes the tensor's bytes to put in order. Each piece fills buf, apart from the last.
func (sh *shard) each(t tensor, buf []byte, put func([]byte) error) error {
	for at := int64(0); at < t.bytes; at += int64(len(buf)) {
		p := buf[:min(int64(len(buf)), t.bytes-at)]
		if err := sh.readAt(t, at, p); err != nil {
			return err
		}
		if err := put(p); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the shards.
func (s *source) Close() {
	for _, sh := range s.shards {
		_ = sh.file.Close() // only read
	}
}

// Weights gives access to the weights of a model directory, tensor by tensor. Its methods are safe for concurrent
// use.
type Weights struct{ src *source }

// TensorInfo describes a tensor as in the header of its safetensors file.
type TensorInfo struct {
	Name  string // name in the file
	File  string // shard, relative to the directory
	DType string // "F32", "BF16", …
	Shape []int64
	Bytes int64
}

// Elems returns the number of elements.
func (t TensorInfo) Elems() int64 { return t.Bytes / dtypeSize[t.DType] }

// OpenWeights opens model.safetensors in dir, or the shards of its index. It reads only headers. Every header must
// be valid and match the size of its file.
func OpenWeights(dir string) (*Weights, error) {
	src, err := openSource(dir)
	if err != nil {
		return nil, fmt.Errorf("model weights: %w", err)
	}
	return &Weights{src}, nil
}

// Check returns an error if LoadModel could not fill layers of these layouts, like OpenSource.
func (w *Weights) Check(layouts []model.Layout) error {
	if _, err := w.src.check(layouts); err != nil {
		return fmt.Errorf("model weights: %w", err)
	}
	return nil
}

// Close closes the files.
func (w *Weights) Close() { w.src.Close() }

// Dir returns the directory.
func (w *Weights) Dir() string { return w.src.dir }

// Tensors lists all tensors in the order of the files and of their data.
func (w *Weights) Tensors() []TensorInfo {
	var out []TensorInfo
	for _, name := range w.src.names() {
		t, _ := w.Tensor(name)
		out = append(out, t)
	}
	return out
}

// Tensor returns the tensor with this name, and whether it exists.
func (w *Weights) Tensor(name string) (TensorInfo, bool) {
	sh, ok := w.src.where[name]
	if !ok {
		return TensorInfo{}, false
	}
	t := sh.tensors[name]
	return TensorInfo{Name: name, File: sh.name, DType: t.dtype, Shape: t.shape, Bytes: t.bytes}, true
}

// Read reads len(dst) elements of a tensor of dtype F32, BF16, F16, F64 or F8_E4M3 with scales, starting at element elem.
func (w *Weights) Read(name string, elem int64, dst []float32) error {
	sh, ok := w.src.where[name]
	if !ok {
		return fmt.Errorf("%s: tensor %q is missing", w.src.dir, name)
	}
	in := sh.tensors[name]
	if t, err := w.src.scaledOf(name); err != nil {
		return err
	} else if t != nil {
		return readElems(t, elem, dst)
	}
	p, ok := weightPlane(in.dtype)
	if !ok {
		return fmt.Errorf("%s: tensor %q: %s", sh.path, name, unreadable(in.dtype))
	}
	if elem < 0 || elem+int64(len(dst)) > in.bytes/p.size() {
		panic(fmt.Sprintf("checkpoint: elements %d to %d of %q, which has %d", elem, elem+int64(len(dst)), name, in.bytes/p.size()))
	}
	raw := make([]byte, int64(len(dst))*p.size())
	if err := sh.readAt(in, elem*p.size(), raw); err != nil {
		return err
	}
	if p == planeF32 {
		getFloats(dst, raw)
		return nil
	}
	var bits [1024]uint32
	for at := 0; at < len(dst); at += len(bits) {
		part := bits[:min(len(bits), len(dst)-at)]
		widen(part, p, raw[int64(at)*p.size():])
		for i, b := range part {
			dst[at+i] = math.Float32frombits(b)
		}
	}
	return nil
}

// each calls f(0) … f(n-1) on GOMAXPROCS goroutines. After an error it starts no further call. It returns the error
// of the lowest index that failed.
func each(n int, f func(i int) error) error {
	var (
		mu     sync.Mutex
		next   int
		failed = n
		first  error
		wg     sync.WaitGroup
	)
	claim := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if first != nil || next >= n {
			return 0, false
		}
		next++
		return next - 1, true
	}
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i, ok := claim(); ok; i, ok = claim() {
				if err := f(i); err != nil {
					mu.Lock()
					if i < failed {
						failed, first = i, err
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return first
}
