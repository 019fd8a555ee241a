package measure

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"mt/base/accounts"
	"mt/base/parallel"
	"mt/host"
	"mt/host/optim"
	"mt/model"
)

// adamW is the optimizer of an Update that names none.
var adamW = optim.AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.01}

// Optimizers has the optimizers whose updates are measured besides AdamW, by their names in a config.
var Optimizers = map[string]optim.Optimizer{
	"adamw_8bit": optim.Quantised{By: adamW, Bits: 8},
	"adamw_4bit": optim.Quantised{By: adamW, Bits: 4},
	"lion":       lion,
	"lion_8bit":  optim.Quantised{By: lion, Bits: 8},
	"sgd":        optim.SGD{Momentum: 0.9},
	"muon":       optim.Muon{Momentum: 0.95, Nesterov: true, Others: adamW},
	"muon_8bit":  optim.Muon{Momentum: 0.95, Nesterov: true, Bits: 8, Others: optim.Quantised{By: adamW, Bits: 8}},
}

var lion = optim.Lion{Beta1: 0.9, Beta2: 0.99, WeightDecay: 0.01}

// Update describes the optimizer's update of one layer in host memory, which is to be measured.
type Update struct {
	Params int64 // parameters of the layer, rounded up to rows of 1024
	Split  bool  // weights in two planes, hi and lo, as for compute_dtype: bf16
	BF16   bool  // bf16 gradient; requires Split
	// By is the optimizer; nil: AdamW. With optim.Muon only the host's share is measured: momentum and weights of a
	// matrix, without the Newton-Schulz iterations.
	By optim.Optimizer
}

// columns is the number of columns of the matrix that a measured layer consists of.
const columns = 1024

func (u Update) elems() int64 { return (u.Params + columns - 1) / columns * columns }

// Bytes returns the host memory traffic of an update: weights and optimizer state read and written, and the gradient
// read. With optim.Muon it includes the copies to and from the device.
func (u Update) Bytes() int64 {
	bytes := optim.Planes(u.by().Planes).UpdateBytes(u.layout()) + u.GradBytes()
	if _, matrix := u.by().(optim.Muon); matrix {
		bytes += 2 * u.handedSize() * u.elems()
	}
	return bytes
}

// by returns the optimizer of the update, AdamW if none is set.
func (u Update) by() optim.Optimizer {
	if u.By == nil {
		return adamW
	}
	return u.By
}

// handedSize returns the size in bytes of an element of the matrices that Muon copies to the device
// and back. Their type is the compute dtype.
func (u Update) handedSize() int64 {
	if u.Split {
		return 2
	}
	return 4
}

// layout returns the layout in host memory of a layer that is one matrix with columns columns.
func (u Update) layout() model.Layout {
	return model.NewLayout(model.Layer{Kind: model.Block, Params: []model.Param{
		{Role: model.RoleDown, Rows: int(u.elems() / columns), Cols: columns, Dims: 2}}}, u.Split, model.Param{})
}

// GradBytes returns the size of the gradient in bytes.
func (u Update) GradBytes() int64 { return u.gradSize() * u.elems() }

func (u Update) gradSize() int64 {
	if u.BF16 {
		return 2
	}
	return 4
}

// hostTimes calls f several times, as o says, and measures how long a call takes by the host's clock.
func hostTimes(o Options, f func() error) (Seconds, error) {
	return o.filled().times(func(repeats int) (time.Duration, error) {
		start := time.Now()
		for range repeats {
			if err := f(); err != nil {
				return 0, err
			}
		}
		return time.Since(start), nil
	})
}

// layer allocates host memory for a layer with a single matrix, and for its gradient, and passes both to use. It frees
// the memory when use returns.
func (u Update) layer(pool *parallel.Pool, use func(*host.LayerState, optim.Grad) error) (err error) {
	if u.Params < 1 || u.BF16 && !u.Split {
		return fmt.Errorf("measure: update of %d parameters: want at least 1, and split weights for a bf16 gradient", u.Params)
	}
	layout := u.layout()
	store, err := host.NewStore([]model.Layout{layout}, u.by().Planes, pool)
	if err != nil {
		return fmt.Errorf("measure: update: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	slab, err := host.NewArena(accounts.GradientSlabs, u.gradSize()*layout.Elems, pool)
	if err != nil {
		return fmt.Errorf("measure: update: %w", err)
	}
	defer func() { err = errors.Join(err, slab.Close()) }()
	grad := optim.Grad{Data: slab.Bytes(), BF16: u.BF16, Elems: layout.Elems}
	fillGradient(grad)
	return use(store.Layers[0], grad)
}

// fillGradient fills g with numbers as large as typical gradients, so that the update computes with ordinary numbers.
func fillGradient(g optim.Grad) {
	state := uint32(1)
	for i := range g.Elems {
		state = state*1664525 + 1013904223
		bits := math.Float32bits((float32(state>>8)/(1<<24) - 0.5) * 1e-3)
		if g.BF16 {
			binary.NativeEndian.PutUint16(g.Data[2*i:], uint16(bits>>16))
		} else {
			binary.NativeEndian.PutUint32(g.Data[4*i:], bits)
		}
	}
}

// Measure measures an update on the threads of pool, and the sum of squares of its gradient (norm). The norm reads
// GradBytes bytes.
func (u Update) Measure(pool *parallel.Pool, o Options) (update, norm Seconds, err error) {
	err = u.layer(pool, func(l *host.LayerState, g optim.Grad) (err error) {
		at := optim.Rate{LR: 1e-4, Clip: 0.5}
		move := func() { l.Update(g, u.by(), at) }
		if muon, matrix := u.by().(optim.Muon); matrix {
			handed, none := host.NewArena(accounts.GradientSlabs, u.handedSize()*l.Layout.Elems, pool)
			if none != nil {
				return fmt.Errorf("measure: update: %w", none)
			}
			defer func() { err = errors.Join(err, handed.Close()) }()
			m, via := optim.Matrices(l.Layout)[0], optim.Grad{Data: handed.Bytes(), BF16: u.Split, Elems: l.Layout.Elems}
			move = func() {
				by := muon.MatricesAt(at)
				l.PrepareMatrix(m, g, via, by)
				l.ApplyMatrix(m, via, by)
			}
		}
		if update, err = hostTimes(o, func() error { at.Step++; move(); return nil }); err != nil {
			return err
		}
		norm, err = hostTimes(o, func() error { optim.SumSquares(pool, g); return nil })
		return err
	})
	return update, norm, err
}

// Gather measures how long it takes to copy rows rows out of a table of vocab rows with cols elements each, as an
// embedding does. Elements are bf16 if split is true, and otherwise fp32. It reads bytes bytes and writes as many.
func Gather(pool *parallel.Pool, vocab, rows, cols int, split bool, o Options) (t Seconds, bytes int64, err error) {
	if vocab < 1 || rows < 1 || cols < 1 {
		return t, 0, fmt.Errorf("measure: gather %d rows of %d from %d: want at least 1", rows, cols, vocab)
	}
	layout := model.NewLayout(model.Layer{Kind: model.Block, Params: []model.Param{
		{Role: model.RoleDown, Rows: vocab, Cols: cols, Dims: 2}}}, split, model.Param{})
	store, err := host.NewStore([]model.Layout{layout}, nil, pool)
	if err != nil {
		return t, 0, fmt.Errorf("measure: gather: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	size := int64(4)
	if split {
		size = 2
	}
	bytes = size * int64(rows) * int64(cols)
	dst, err := host.NewArena(accounts.GradientSlabs, bytes, pool)
	if err != nil {
		return t, 0, fmt.Errorf("measure: gather: %w", err)
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	ids := make([]int32, rows)
	for i := range ids {
		ids[i] = int32(i * 7919 % vocab)
	}
	t, err = hostTimes(o, func() error { store.Layers[0].GatherRows(dst.Bytes(), 0, ids); return nil })
	return t, bytes, err
}

// Memcpy measures a copy of bytes bytes of host memory on the threads of pool. It reads and writes bytes bytes.
func Memcpy(pool *parallel.Pool, bytes int64, o Options) (t Seconds, err error) {
	if bytes < 1 {
		return t, fmt.Errorf("measure: copy of %d bytes: want at least 1", bytes)
	}
	arena, err := host.NewArena(accounts.GradientSlabs, 2*bytes, pool)
	if err != nil {
		return t, fmt.Errorf("measure: copy: %w", err)
	}
	defer func() { err = errors.Join(err, arena.Close()) }()
	dst, src := arena.Bytes()[:bytes], arena.Bytes()[bytes:]
	for i := range src {
		src[i] = byte(i)
	}
	const run = 8 << 20 // long enough for the fast path of copy
	return hostTimes(o, func() error {
		pool.Run(int((bytes+run-1)/run), func(i int) {
			at, end := int64(i)*run, min(bytes, int64(i+1)*run)
			copy(dst[at:end], src[at:end])
		})
		return nil
	})
}
