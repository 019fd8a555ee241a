package checkpoint

import (
	"fmt"
	"math"

	"mt/model"
)

// Weights is the opened weights of a model directory, to be read tensor by
// tensor. Its methods may be called from several goroutines.
type Weights struct{ src *source }

// TensorInfo is what the header of a safetensors file says about a tensor.
type TensorInfo struct {
	Name  string // as in the file
	File  string // the shard, in the directory
	DType string // "F32", "BF16", …
	Shape []int64
	Bytes int64
}

// Elems is the number of elements of the tensor.
func (t TensorInfo) Elems() int64 { return t.Bytes / dtypeSize[t.DType] }

// OpenWeights opens model.safetensors in dir, or the shards of its index. Only
// headers are read; every one must be whole and its file as long as it says.
func OpenWeights(dir string) (*Weights, error) {
	src, err := openSource(dir)
	if err != nil {
		return nil, fmt.Errorf("model weights: %w", err)
	}
	return &Weights{src}, nil
}

// Check says whether LoadModel can fill layers of these layouts, as OpenSource
// does.
func (w *Weights) Check(layouts []model.Layout) error {
	if _, err := w.src.check(layouts); err != nil {
		return fmt.Errorf("model weights: %w", err)
	}
	return nil
}

// Close closes the files.
func (w *Weights) Close() { w.src.Close() }

// Dir is the directory.
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

// Tensor is the tensor of the given name, and whether there is one.
func (w *Weights) Tensor(name string) (TensorInfo, bool) {
	sh, ok := w.src.where[name]
	if !ok {
		return TensorInfo{}, false
	}
	t := sh.tensors[name]
	return TensorInfo{Name: name, File: sh.name, DType: t.dtype, Shape: t.shape, Bytes: t.bytes}, true
}

// Read reads len(dst) elements of a tensor of dtype F32, BF16, F16 or F64, from
// element elem on.
func (w *Weights) Read(name string, elem int64, dst []float32) error {
	sh, ok := w.src.where[name]
	if !ok {
		return fmt.Errorf("%s: tensor %q is missing", w.src.dir, name)
	}
	in := sh.tensors[name]
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
