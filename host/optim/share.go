package optim

import (
	"fmt"
	"slices"

	"mt/model"
)

// Share is the part of a layer that one of several ranks keeps beside what streams: the
// elements [From, To) of the layer's flat element space. It begins and ends where units do,
// so whatever is updated together is one rank's.
type Share struct{ From, To int64 }

// Whole is the share of a rank that has the layer for itself.
func Whole(l model.Layout) Share { return Share{0, l.Elems} }

// Elems is how many elements the share has, padding included.
func (s Share) Elems() int64 { return s.To - s.From }

// Has says whether element e of the flat element space is in the share.
func (s Share) Has(e int64) bool { return e >= s.From && e < s.To }

// LoBytes is the size of the lower halves of a share of layer l: 0 where its weights are not split.
func LoBytes(l model.Layout, s Share) int64 {
	if !l.Split() {
		return 0
	}
	return 2 * s.Elems()
}

// ExtentBytes is the size of what is kept of a share of layer l beside its tile, its lower halves and these
// planes: that of its extent where it is on a disk.
func ExtentBytes(l model.Layout, planes []Placed, s Share) int64 {
	bytes := Pages(LoBytes(l, s))
	for _, p := range planes {
		bytes += Pages(p.ShareBytes(l, s))
	}
	return bytes
}

// Shares cuts layer l, whose units these are, for n ranks: in rank order, as equal as units
// allow. Together the shares have every element once; some may be empty.
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

// Tile says where the share's part of the tile of layer l begins and ends, in bytes. The parts
// of all ranks follow each other and make the whole tile, padding included.
func (s Share) Tile(l model.Layout) (from, to int64) {
	return tileOffset(l, s.From), tileOffset(l, s.To)
}

// tileOffset is where element e, with which a unit begins or the layer ends, is in the tile.
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
