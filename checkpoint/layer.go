package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"mt/host/optim"
	"mt/model"
)

// Layer is the memory of one layer as package host holds it. Nothing is copied: the
// slices are views of its arenas.
type Layer struct {
	Layout model.Layout
	Tile   []byte   // (Layout.TileBytes) hi planes and fp32 tensors
	Lo     []uint16 // lower halves of tensors with BF16 set; may be nil where there are none (model.Layout.BF16Master)
	Planes []optim.State
	// Share is the part of the layer that Lo is of; nil: it is of all of it. What is
	// read into a layer is kept in so far as it has a place. Only a layer of which all is there can
	// be written.
	Share *optim.Share
	// Mean, unless nil, is the plane that is written in place of the weights that are trained.
	Mean *optim.State
	// Lend, unless nil, has use work on the layer with Lo and Planes, which have no memory else; what use
	// changes is kept. One layer is lent at a time.
	Lend func(use func(Layer) error) error
	// Extent is where Lo and Planes are on a disk, in a layer whose optimizer's file is linked (WriterOptions.Linked).
	Extent *Extent
}

// kept is what of the n elements from element e of the flat element space on is kept of lower halves:
// from element from of those on, so many, at place at of the memory.
func (l Layer) kept(e, n int64) (from, count, at int64) {
	if l.Share == nil {
		return 0, n, e
	}
	first, end := max(e, l.Share.From), min(e+n, l.Share.To)
	if first >= end {
		return 0, 0, 0
	}
	return first - e, end - first, first - l.Share.From
}

// state is the plane of that name beside the weights.
func (l Layer) state(name string) *optim.State {
	for i := range l.Planes {
		if l.Planes[i].Name == name {
			return &l.Planes[i]
		}
	}
	panic(fmt.Sprintf("checkpoint: layer %d is without the plane %q", l.Layout.Index, name))
}

// setState stores raw, bytes of the plane of that name from byte at of the whole plane on, in so far as
// they have a place.
func (l Layer) setState(name string, at int64, raw []byte) {
	s := l.state(name)
	first := s.DType.Bytes(s.From)
	from, to := max(at, first), min(at+int64(len(raw)), first+int64(len(s.Data)))
	if from < to {
		copy(s.Data[from-first:to-first], raw[from-at:])
	}
}

// DType is how a saved model's weights are written, in the words of the config
// key save_dtype.
type DType string

// The types weights are saved in.
const (
	BF16 DType = "bf16"
	F32  DType = "fp32"
)

// name is the dtype in the words of config.json.
func (d DType) name() string {
	if d == BF16 {
		return "bfloat16"
	}
	return "float32"
}

func (d DType) plane() plane {
	if d == BF16 {
		return planeBF16
	}
	return planeF32
}

// plane is one of the arrays that a parameter has on disk.
type plane struct {
	dtype  string // of safetensors; "": the tensor is copied as it is
	prefix string // put before a tensor's name in the optimizer's files
	state  string // the name of the plane beside the weight; "": it is of the weight
}

// The planes of a weight.
var (
	planeF32  = plane{dtype: "F32"}
	planeBF16 = plane{dtype: "BF16"}               // rounded half up: the hi plane
	planeF16  = plane{dtype: "F16"}                // in half precision, only read
	planeF64  = plane{dtype: "F64"}                // in double precision, only read: rounded to fp32
	planeLo   = plane{dtype: "U16", prefix: "lo."} // what planeBF16 lacks: bits = hi<<16 + int16(lo)
	planeAsIs = plane{}
)

// stateDType are the dtypes of safetensors that planes beside the weight are
// stored in: two codes of 4 bits are one element.
var stateDType = [...]string{optim.F32: "F32", optim.U8: "U8", optim.U4: "U8"}

// statePlane is p on disk.
func statePlane(p optim.Plane) plane {
	return plane{dtype: stateDType[p.DType], prefix: p.Name + ".", state: p.Name}
}

func (p plane) size() int64 { return dtypeSize[p.dtype] }

// weightPlane is the plane as which weights of a safetensors dtype are read, and
// whether they can be read.
func weightPlane(dtype string) (plane, bool) {
	for _, p := range []plane{planeF32, planeBF16, planeF16, planeF64} {
		if p.dtype == dtype {
			return p, true
		}
	}
	return plane{}, false
}

// hiOf is bits rounded half up to bf16. The sum wraps for NaNs with all upper
// bits set; they stay NaNs.
func hiOf(bits uint32) uint16 {
	hi := uint16((bits + 0x8000) >> 16)
	if bits&0x7fffffff > 0x7f800000 && hi&0x7fff <= 0x7f80 {
		return uint16(bits>>16) | 0x0040
	}
	return hi
}

// join is the fp32 pattern of the planes hi and lo (arXiv:2005.04680).
func join(hi, lo uint16) uint32 { return uint32(hi)<<16 + uint32(int32(int16(lo))) }

// tile is the bytes of n elements of t from elem on.
func (l Layer) tile(t model.TensorLayout, elem, n int64) []byte {
	size := t.TileBytes() / t.Elems()
	off := t.TileOff + elem*size
	return l.Tile[off : off+n*size]
}

// encode gives n elements of plane p of t, a weight's, from elem on, as they are stored. The result
// is a view of the arena where that has the same bytes, and otherwise in buf.
func (l Layer) encode(t model.TensorLayout, p plane, elem, n int64, buf []byte) []byte {
	switch {
	case l.Mean != nil && !t.Frozen:
		return l.mean(t, p, elem, n, buf)
	case p == planeF32 && !t.BF16, p == planeBF16 && t.BF16:
		return l.tile(t, elem, n)
	}
	tile := l.tile(t, elem, n)
	if t.BF16 && !l.Layout.HasLo(t) {
		for i := range int(n) {
			binary.LittleEndian.PutUint32(buf[4*i:], join(binary.LittleEndian.Uint16(tile[2*i:]), 0))
		}
		return buf[:4*n]
	}
	if t.BF16 {
		lo := l.Lo[t.Elem+elem:][:n]
		if p == planeLo {
			for i, v := range lo {
				binary.LittleEndian.PutUint16(buf[2*i:], v)
			}
			return buf[:2*n]
		}
		for i, v := range lo {
			binary.LittleEndian.PutUint32(buf[4*i:], join(binary.LittleEndian.Uint16(tile[2*i:]), v))
		}
		return buf[:4*n]
	}
	for i := range int(n) {
		bits := binary.LittleEndian.Uint32(tile[4*i:])
		if p == planeBF16 {
			binary.LittleEndian.PutUint16(buf[2*i:], hiOf(bits))
		} else {
			binary.LittleEndian.PutUint16(buf[2*i:], uint16(bits))
		}
	}
	return buf[:2*n]
}

// mean is encode of the average of the weights, fp32 or rounded to bf16.
func (l Layer) mean(t model.TensorLayout, p plane, elem, n int64, buf []byte) []byte {
	i := slices.IndexFunc(l.Layout.Tensors, func(of model.TensorLayout) bool { return !of.Ref && !of.Frozen && of.Elem == t.Elem })
	values := l.Mean.Floats(i, elem, n)
	if p == planeF32 {
		for i, x := range values {
			binary.LittleEndian.PutUint32(buf[4*i:], math.Float32bits(x))
		}
		return buf[:4*n]
	}
	for i, x := range values {
		binary.LittleEndian.PutUint16(buf[2*i:], hiOf(math.Float32bits(x)))
	}
	return buf[:2*n]
}

// decode stores raw, values of plane p, a weight's, at the elements of t from elem on. A
// weight is stored whole, with a lower half of zero where raw has none; planeLo
// must come after the weight and completes it.
func (l Layer) decode(t model.TensorLayout, p plane, elem int64, raw []byte) {
	n := int64(len(raw)) / p.size()
	if p == planeLo {
		l.addLo(t, elem, raw)
		return
	}
	var bits [1024]uint32
	for at := int64(0); at < n; at += int64(len(bits)) {
		part := bits[:min(int64(len(bits)), n-at)]
		widen(part, p, raw[at*p.size():])
		l.setWeights(t, elem+at, part)
	}
}

// widen turns stored weights into fp32 patterns.
func widen(bits []uint32, p plane, raw []byte) {
	switch p {
	case planeF32:
		for i := range bits {
			bits[i] = binary.LittleEndian.Uint32(raw[4*i:])
		}
	case planeBF16:
		for i := range bits {
			bits[i] = uint32(binary.LittleEndian.Uint16(raw[2*i:])) << 16
		}
	case planeF16:
		for i := range bits {
			bits[i] = halfBits(binary.LittleEndian.Uint16(raw[2*i:]))
		}
	case planeF64:
		for i := range bits {
			bits[i] = math.Float32bits(float32(math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:]))))
		}
	}
}

// narrow turns fp32 patterns into stored weights, fp32 or bf16, in buf.
func narrow(buf []byte, p plane, bits []uint32) []byte {
	buf = buf[:int64(len(bits))*p.size()]
	for i, b := range bits {
		if p == planeBF16 {
			binary.LittleEndian.PutUint16(buf[2*i:], hiOf(b))
		} else {
			binary.LittleEndian.PutUint32(buf[4*i:], b)
		}
	}
	return buf
}

// setWeights stores weights, in two planes or in one.
func (l Layer) setWeights(t model.TensorLayout, elem int64, bits []uint32) {
	tile := l.tile(t, elem, int64(len(bits)))
	if !t.BF16 {
		for i, b := range bits {
			binary.LittleEndian.PutUint32(tile[4*i:], b)
		}
		return
	}
	if !l.Layout.HasLo(t) {
		for i, b := range bits {
			binary.LittleEndian.PutUint16(tile[2*i:], hiOf(b))
		}
		return
	}
	for i, b := range bits {
		binary.LittleEndian.PutUint16(tile[2*i:], uint16((b+0x8000)>>16))
	}
	from, count, at := l.kept(t.Elem+elem, int64(len(bits)))
	lo := l.Lo[at:][:count]
	for i := range lo {
		lo[i] = uint16(bits[from:][i])
	}
}

// addLo completes weights that were stored from planeBF16.
func (l Layer) addLo(t model.TensorLayout, elem int64, raw []byte) {
	n := len(raw) / 2
	if t.BF16 {
		from, count, at := l.kept(t.Elem+elem, int64(n))
		lo := l.Lo[at:][:count]
		for i := range lo {
			lo[i] = binary.LittleEndian.Uint16(raw[2*(int(from)+i):])
		}
		return
	}
	tile := l.tile(t, elem, int64(n))
	for i := range n {
		bits := binary.LittleEndian.Uint32(tile[4*i:])
		binary.LittleEndian.PutUint32(tile[4*i:], join(uint16(bits>>16), binary.LittleEndian.Uint16(raw[2*i:])))
	}
}

func getFloats(dst []float32, raw []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
}

// halfBits is the fp32 pattern of an IEEE half; every half is exact in fp32.
func halfBits(h uint16) uint32 {
	sign, exp, frac := uint32(h>>15)<<31, uint32(h>>10)&31, uint32(h&0x3ff)
	switch {
	case exp == 31: // infinity, NaN
		return sign | 0xff<<23 | frac<<13
	case exp != 0:
		return sign | (exp+112)<<23 | frac<<13
	}
	return sign | math.Float32bits(float32(frac)*(1.0/(1<<24)))
}
