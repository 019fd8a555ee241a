package host

import (
	"fmt"

	"mt/base/bf16"
	"mt/base/parallel"
	"mt/host/optim"
	"mt/model"
)

// ReadRows copies the rows [row, row+n) of tensor t to dst (n, cols) in exact fp32. If the tensor is split, the store's
// share must contain the lower halves of these rows.
func (l *LayerState) ReadRows(t, row, n int, dst []float32) {
	at, end := l.rows(t, row, n, len(dst))
	if l.Layout.Tensors[t].BF16 {
		if !l.Layout.HasLo(l.Layout.Tensors[t]) {
			for i, b := range l.HiPlane(t)[at:end] {
				dst[i] = bf16.Widen(b)
			}
			return
		}
		optim.JoinRow(dst, l.HiPlane(t)[at:end], l.LoPlane(t)[at:end])
		return
	}
	copy(dst, l.F32Plane(t)[at:end])
}

// WriteRows sets the rows [row, row+n) of tensor t to src (n, cols). It keeps only the lower halves in the store's
// share. bf16 master weights have no lower halves.
func (l *LayerState) WriteRows(t, row, n int, src []float32) {
	at, end := l.rows(t, row, n, len(src))
	if tl := l.Layout.Tensors[t]; tl.BF16 {
		hi, first := l.HiPlane(t)[at:end], tl.Elem+int64(at)
		if !l.Layout.HasLo(tl) {
			for i, x := range src {
				hi[i] = bf16.Round(x)
			}
			return
		}
		from, to := max(first, l.Share.From), min(first+int64(len(src)), l.Share.To)
		if to-from == int64(len(src)) {
			optim.SplitRow(hi, l.Lo[from-l.Share.From:][:len(src)], src)
			return
		}
		lo := make([]uint16, len(src))
		optim.SplitRow(hi, lo, src)
		if from < to {
			copy(l.Lo[from-l.Share.From:], lo[from-first:to-first])
		}
		return
	}
	copy(l.F32Plane(t)[at:end], src)
}

// rows returns the range [at, end) of elements of the rows [row, row+n) in tensor t. It panics unless the tensor has
// these rows and elems is their number of elements.
func (l *LayerState) rows(t, row, n, elems int) (at, end int) {
	tl := l.owned(t)
	if row < 0 || n < 0 || row+n > tl.Rows || elems != n*tl.Cols {
		panic(fmt.Sprintf("host: layer %d %s (%d, %d): rows [%d:%d+%d] and %d elements", l.Layout.Index, tl.Role,
			tl.Rows, tl.Cols, row, row, n, elems))
	}
	return row * tl.Cols, (row + n) * tl.Cols
}

// gatherRows is the number of rows that GatherRows copies at a time on one thread.
const gatherRows = 64

// GatherRows copies the rows of tensor t whose indices are ids, in this order, to dst (len(ids),
// cols). It uses all threads of the store. Rows keep the dtype of the tile: bf16 or fp32.
func (l *LayerState) GatherRows(dst []byte, t int, ids []int32) {
	l.owned(t)
	GatherRows(dst, l.Layout, l.Tile, t, ids, l.pool)
}

// GatherRows is LayerState.GatherRows for callers that have only a layer's tile and its layout.
func GatherRows(dst []byte, l model.Layout, tile []byte, t int, ids []int32, pool *parallel.Pool) {
	tl := l.Tensors[t]
	table := tile[tl.TileOff : tl.TileOff+tl.TileBytes()]
	width := 0
	if tl.Rows > 0 {
		width = len(table) / tl.Rows
	}
	if len(dst) != len(ids)*width {
		panic(fmt.Sprintf("host: gather %d rows of %d bytes into %d bytes", len(ids), width, len(dst)))
	}
	pool.Run((len(ids)+gatherRows-1)/gatherRows, func(piece int) {
		for i := piece * gatherRows; i < min(len(ids), (piece+1)*gatherRows); i++ {
			id := int(ids[i])
			if id < 0 || id >= tl.Rows {
				panic(fmt.Sprintf("host: gather row %d of %d", id, tl.Rows))
			}
			copy(dst[i*width:(i+1)*width], table[id*width:(id+1)*width])
		}
	})
}
