package optim

import (
	"fmt"
	"slices"

	"mt/model"
)

// Share is one rank's part of a layer's state: the elements [From, To). Elements count over all tensors of the layer
// one after the other (the flat element space). A share begins and ends at unit boundaries, so each unit belongs to one
// rank.
type Share struct{ From, To int64 }

// Whole returns the share that covers all of layer l, for a run with one rank.
func Whole(l model.Layout) Share { return Share{0, l.Elems} }

// Elems returns the number of elements of the share, including padding.
func (s Share) Elems() int64 { return s.To - s.From }

// Has reports whether element e of the layer is in the share. Elements count over all tensors of the layer.
func (s Share) Has(e int64) bool { return e >= s.From && e < s.To }

// LoBytes returns the size of the lower halves in a share of layer l; 0 if the weights are not split.
func LoBytes(l model.Layout, s Share) int64 {
	if !l.Split() {
		return 0
	}
	return 2 * s.Elems()
}

// ExtentBytes returns the size of the lower halves and planes for share s of layer l. If the
// layer's state is on disk, this is the size of its extent, a range of a file.
func ExtentBytes(l model.Layout, planes []Placed, s Share) int64 {
	bytes := Pages(LoBytes(l, s))
	for _, p := range planes {
		bytes += Pages(p.ShareBytes(l, s))
	}
	return bytes
}

// Shares divides layer l among n ranks and returns their shares in rank order. The shares are as equal as whole units
// allow, and some may be empty. Every element is in one share.
func Shares(l model.Layout, units []Unit, n int) []Share {
	cuts := make([]int64, 0, len(units)+1)
	for _, u := range units {
		cuts = append(cuts, l.Tensors[u.Tensor].Elem+u.At)
	}
	cuts = append(cuts, l.Elems)
	shares, from := make([]Share, n), int64(0)
	for k := range shares {
		to := l.Elems
		if k < n-1 {
			want := l.Elems * int64(k+1) / int64(n)
			at, _ := slices.BinarySearch(cuts, want)
			if at = min(at, len(cuts)-1); at > 0 && want-cuts[at-1] < cuts[at]-want {
				at--
			}
			to = max(from, cuts[at])
		}
		shares[k] = Share{from, to}
		from = to
	}
	return shares
}

// Tile returns the range of bytes in the tile of layer l that belongs to the share. The ranges of all ranks are
// adjacent and cover the tile, including padding.
func (s Share) Tile(l model.Layout) (from, to int64) {
	return tileOffset(l, s.From), tileOffset(l, s.To)
}

// tileOffset returns the byte offset in the tile of layer l at which the weights from element e on begin. e must be the
// start of a unit or the end of the layer.
func tileOffset(l model.Layout, e int64) int64 {
	switch e {
	case 0:
		return 0
	case l.Elems:
		return l.TileBytes
	}
	for _, t := range l.Tensors {
		if !t.Ref && !t.Frozen && e >= t.Elem && e < t.Elem+t.Elems() {
			return t.TileOff + (e-t.Elem)*(t.TileBytes()/t.Elems())
		}
	}
	panic(fmt.Sprintf("optim: layer %d: a share begins at element %d, where no tensor is", l.Index, e))
}
