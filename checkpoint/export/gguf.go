package export

import (
	"context"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"mt/checkpoint"
	"mt/checkpoint/gguf"
	"mt/model"
)

// chunkElems is the number of elements converted and written at a time.
const chunkElems = 1 << 20

// toGGUF writes the model as one GGUF file.
func toGGUF(ctx context.Context, o Options, fs checkpoint.FS) (Summary, error) {
	w, err := checkpoint.OpenWeights(o.Model)
	if err != nil {
		return Summary{}, err
	}
	defer w.Close()
	p, err := newPlan(o, w)
	if err != nil {
		return Summary{}, err
	}
	var tensors []gguf.Tensor
	for _, it := range p.items {
		tensors = append(tensors, it.Tensor)
	}
	header, err := gguf.Header(p.kvs, tensors)
	if err != nil {
		return Summary{}, err
	}
	total := gguf.Size(header, tensors)
	removeLeftovers(fs, o.Out)
	if err := room(fs, filepath.Dir(o.Out), total); err != nil {
		return Summary{}, err
	}
	j := &writing{ctx: ctx, plan: p, weights: w, total: total, progress: o.Progress}
	if err := atomically(fs, o.Out, total, func(w io.Writer) error { return j.write(w, header) }); err != nil {
		return Summary{}, err
	}
	s := Summary{Format: GGUF, Out: o.Out, Files: []string{filepath.Base(o.Out)}, Architecture: p.family.arch, Tensors: len(tensors), Bytes: total, Notes: p.notes,
		Types: map[string]int{}}
	for _, t := range tensors {
		s.Types[t.Type.String()]++
	}
	return s, nil
}

// newPlan plans the whole GGUF file, its keys and tensors, before anything is written.
func newPlan(o Options, w *checkpoint.Weights) (*plan, error) {
	s, err := readSettings(o.Model)
	if err != nil {
		return nil, err
	}
	p := &plan{s: s, out: o.Type}
	if p.family, err = findFamily(s); err != nil {
		return nil, err
	}
	if p.out == "" {
		p.out = guess(w)
	}
	abs, err := filepath.Abs(o.Model)
	if err != nil {
		return nil, err
	}
	p.general(modelName(abs))
	if err := p.common(); err != nil {
		return nil, err
	}
	if p.model, err = model.LoadDir(o.Model); err != nil {
		return nil, err
	}
	p.activation()
	if f := p.family.modelled; f != nil {
		f(p)
	}
	if s.err != nil {
		return nil, s.err
	}
	f, err := newFinder(w, p.model)
	if err != nil {
		return nil, err
	}
	if err := p.vocabulary(o.Model); err != nil {
		return nil, err
	}
	return p, p.tensors(f)
}

// modelName returns the name of the model in a directory: the directory's name, or the repository's name for a
// snapshot in the Hugging Face cache.
func modelName(dir string) string {
	for part := range strings.SplitSeq(filepath.ToSlash(dir), "/") {
		if id, ok := strings.CutPrefix(part, "models--"); ok {
			return id[strings.LastIndex("--"+id, "--"):]
		}
	}
	return filepath.Base(dir)
}

// guess returns the type of matrices if the user names none: bf16 if the first matrix is bf16,
// otherwise f16.
func guess(w *checkpoint.Weights) Type {
	for _, t := range w.Tensors() {
		if len(t.Shape) == 2 && t.DType == "BF16" {
			return BF16
		} else if len(t.Shape) == 2 {
			break
		}
	}
	return F16
}

// appender writes a file from start to end and keeps it out of the page cache.
type appender struct {
	f   checkpoint.File
	off int64
}

// Write implements io.Writer.
func (a *appender) Write(p []byte) (int, error) {
	n, err := a.f.WriteAt(p, a.off)
	if err == nil {
		a.f.Flush(a.off, int64(n))
	}
	a.off += int64(n)
	return n, err
}

// writing is the state of a GGUF file while it is written.
type writing struct {
	ctx         context.Context
	plan        *plan
	weights     *checkpoint.Weights
	done, total int64
	progress    func(done, total int64)
	values      []float32
	turned      []float32
	raw         []byte
}

func (j *writing) write(w io.Writer, header []byte) error {
	if err := j.put(w, header); err != nil {
		return err
	}
	for _, it := range j.plan.items {
		if err := j.item(w, it); err != nil {
			return err
		}
		if err := gguf.Pad(w, it.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// put writes p and reports progress. It fails if ctx is cancelled.
func (j *writing) put(w io.Writer, p []byte) error {
	if j.ctx.Err() != nil {
		return context.Cause(j.ctx)
	}
	_, err := w.Write(p)
	j.done += int64(len(p))
	if err == nil && j.progress != nil {
		j.progress(j.done, j.total)
	}
	return err
}

// item writes the data of one tensor of the GGUF file.
func (j *writing) item(w io.Writer, it item) error {
	if it.values != nil {
		return j.chunk(w, it, it.values)
	}
	if it.rows.n > 0 {
		return j.headRows(w, it)
	}
	for _, part := range it.parts {
		if err := j.part(w, it, part); err != nil {
			return err
		}
	}
	return nil
}

// part writes the data of t, a tensor of the directory, as data of the GGUF tensor it or of a part
// of it. It works in pieces of whole rows; if rows are reordered within heads, a piece has whole
// heads.
func (j *writing) part(w io.Writer, it item, t part) error {
	var all []float32 // rows that share a tensor with other rows
	if t.param != nil {
		var err error
		if all, err = j.weights.ReadRows(*t.param, t.i); err != nil {
			return err
		}
	}
	cols := int64(1)
	if len(t.shape) == 2 {
		cols = t.shape[1]
	}
	unit := cols
	switch {
	case it.heads > 0:
		unit = t.shape[0] / int64(it.heads) * cols
	case it.tiled.heads > 0:
		unit = t.elems()
	}
	step := max(1, chunkElems/unit) * unit
	for at := int64(0); at < t.elems(); at += step {
		n := min(step, t.elems()-at)
		j.values = sized(j.values, n)
		if all != nil {
			copy(j.values, all[t.first+at:])
		} else if err := j.weights.Read(t.name, t.first+at, j.values); err != nil {
			return err
		}
		values := j.values
		if it.heads > 0 {
			j.turned = sized(j.turned, n)
			for h := int64(0); h < n; h += unit {
				interleave(j.turned[h:h+unit], values[h:h+unit], int(cols))
			}
			values = j.turned
		}
		if it.tiled.heads > 0 {
			j.turned = sized(j.turned, n)
			it.tiled.reorder(j.turned, values, t.shape[0])
			values = j.turned
		}
		if it.shift != 0 {
			for i := range values {
				values[i] += it.shift
			}
		}
		it.scale(values, at, t.elems()/t.shape[0])
		if it.minus {
			for i, v := range values {
				values[i] = float32(-math.Exp(float64(v)))
			}
		}
		if err := j.chunk(w, it, values); err != nil {
			return err
		}
	}
	return nil
}

// scale multiplies values, the elements of the tensor from element at on, by the factors of their rows. A row has
// cols elements.
func (it item) scale(values []float32, at, cols int64) {
	from := -at
	for _, s := range it.scales {
		to := from + int64(s.rows)*cols
		for i := max(from, 0); i < min(to, int64(len(values))); i++ {
			values[i] = float32(float64(values[i]) * s.by)
		}
		from = to
	}
}

// limits holds, for each type with a limit, the smallest magnitude that does not fit. In F16 such a
// value would round to infinity. In Q8_0 the scale of its block, which is fp16, would. Other types
// hold everything that fp32 holds.
var limits = map[gguf.Type]float32{gguf.F16: 65520, gguf.Q8_0: 127 * 65504}

// chunk encodes values in the type it.Type and writes them. The values are whole rows of the GGUF
// tensor it. All processors encode in parallel.
func (j *writing) chunk(w io.Writer, it item, values []float32) error {
	j.raw = sized(j.raw, it.Type.Bytes(int64(len(values))))
	const least = 1 << 14 // fewest elements worth another goroutine
	blocks := max(len(values)/runtime.GOMAXPROCS(0), least)/gguf.BlockLen + 1
	step := blocks * gguf.BlockLen
	errs := make([]error, (len(values)+step-1)/step)
	var wg sync.WaitGroup
	for i := range errs {
		part := values[i*step : min((i+1)*step, len(values))]
		raw := j.raw[it.Type.Bytes(int64(i*step)):]
		wg.Go(func() { errs[i] = encode(raw, it.Tensor, part) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return j.put(w, j.raw)
}

// encode stores values of t in dst. It fails if a value does not fit into the type.
func encode(dst []byte, t gguf.Tensor, values []float32) error {
	if most := limits[t.Type]; most > 0 {
		for _, v := range values {
			if !(v < most && -v < most) {
				return fmt.Errorf("tensor %s: %g cannot be stored as %v; take --outtype bf16 or f32", t.Name, v, t.Type)
			}
		}
	}
	gguf.Encode(dst, t.Type, values)
	return nil
}

// interleave copies the rows of one head from src to dst in another order. Rows i and i+D/2 of src form a rotary
// pair; in dst they are rows 2i and 2i+1. D is the number of rows, cols the length of one.
func interleave(dst, src []float32, cols int) {
	half := len(src) / cols / 2
	for i := range half {
		copy(dst[2*i*cols:][:cols], src[i*cols:])
		copy(dst[(2*i+1)*cols:][:cols], src[(half+i)*cols:])
	}
}

// tiledHeads tells how to reorder the value heads in a tensor of Gated DeltaNet. The directory lists all value
// heads of the first key head, then of the second, and so on. llama.cpp's newer architectures list the first value
// head of every key head, then every second one.
//
// The tensor has first rows that stay, then the value heads with size rows each. If columns is set, this holds for
// columns instead of rows. heads is the number of key heads; 0: no reordering.
type tiledHeads struct {
	first, size, heads int64
	columns            bool
}

// reorder copies src to dst with the value heads in llama.cpp's order. rows is the number of rows in src.
func (h tiledHeads) reorder(dst, src []float32, rows int64) {
	outer, inner := int64(1), int64(len(src))/rows
	if h.columns {
		outer, inner = rows, 1
	}
	first, size, all := h.first*inner, h.size*inner, int64(len(src))/outer
	each := (all - first) / size / h.heads // value heads of a key head
	for ; len(src) > 0; dst, src = dst[all:], src[all:] {
		copy(dst, src[:first])
		for i := range each * h.heads {
			copy(dst[first+(i%each*h.heads+i/each)*size:][:size], src[first+i*size:])
		}
	}
}

// sized returns a slice of n elements, with buf's memory if that suffices.
func sized[T any](buf []T, n int64) []T {
	if int64(cap(buf)) < n {
		return make([]T, n)
	}
	return buf[:n]
}
