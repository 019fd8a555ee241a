package checkpoint

import (
	"context"
	"fmt"
)

// CopyOptions says how CopyModel writes.
type CopyOptions struct {
	DType         DType             // of the weights; empty: each as it is
	F32           map[string]bool   // tensors that DType does not narrow to bf16
	MaxShardBytes int64             // the most bytes of weights in a file; 5 GB unless given
	Files         map[string][]byte // everything beside the weights: config.json, the tokenizer, …
	FS            FS                // the operating system's unless given
	Progress      Progress          // may be nil
}

// Copied is what CopyModel wrote.
type Copied struct {
	Files   []string // of weights
	Tensors int
	Bytes   int64 // of weights
}

// CopyModel writes all tensors of w into the directory dir under their names and in
// their shapes, cut into shards anew, with an index where there is more than one.
// Floating-point tensors become opts.DType (bf16 rounded half up, as training saves
// it); others are copied. It writes as WriteModel does: to a temporary directory inside
// dir first. Files that go with an older model there, such as its tokenizer, are
// removed. Where ctx is cancelled the copy ends with its cause as the error.
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
