package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"mt/host/optim"
	"mt/model"
)

// Layer is a view of one layer's memory in package host's arenas. Nothing is copied.
type Layer struct {
	Layout model.Layout
	Tile   []byte   // bf16 weights and fp32 tensors; Layout.TileBytes bytes
	Lo     []uint16 // lower halves of tensors with BF16 set; nil if there are none (model.Layout.BF16Master)
	Planes []optim.State
	// Share is the part of the layer that Lo covers; nil: the whole layer. Reading keeps only the values in this
	// part. Only a whole layer can be written.
	Share *optim.Share
	// Mean is an average of the weights (EMA) to write in place of the weights; nil: the weights are written.
	Mean *optim.State
	// Lend is set if Lo and Planes have no memory of their own. It calls use with a layer that has them, and keeps
	// the changes. Only one layer is lent at a time.
	Lend func(use func(Layer) error) error
	// Extent is the file that holds Lo and Planes if the layer's optimizer file is linked (WriterOptions.Linked).
	Extent *Extent
}

// kept intersects n elements of the layer, from element e on, with l.Share, the part that this rank
// keeps. Elements are numbered through all tensors of the layer. from is the position of the first
// kept element among the n. count is their number (0: none), and at is the index of the first in
// Lo.
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

// state returns the optimizer's plane with this name. It panics if there is none.
func (l Layer) state(name string) *optim.State {
	for i := range l.Planes {
		if l.Planes[i].Name == name {
			return &l.Planes[i]
		}
	}
	panic(fmt.Sprintf("checkpoint: layer %d is without the plane %q", l.Layout.Index, name))
}

// setState stores raw in the optimizer's plane with this name; raw holds the plane's bytes from offset at on. Bytes
// outside of the part that the layer keeps in memory are dropped.
func (l Layer) setState(name string, at int64, raw []byte) {
	s := l.state(name)
	first := s.DType.Bytes(s.From)
	from, to := max(at, first), min(at+int64(len(raw)), first+int64(len(s.Data)))
	if from < to {
		copy(s.Data[from-first:to-first], raw[from-at:])
	}
}

// DType is the type of a saved model's weights, with the values of the key save_dtype.
type DType string

// The types weights are saved in.
const (
	BF16 DType = "bf16"
	F32  DType = "fp32"
	// AsRead is the format of Source, tensor by tensor: E4M3 with scales, MXFP4, bf16 or fp32. Only WriteModel writes it.
	AsRead DType = "as_read"
)

// name returns the dtype's name in config.json.
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

// plane is one of the arrays that a parameter has on disk: its weights in some dtype, their lower halves, or a
// plane of the optimizer's state.
type plane struct {
	dtype  string // safetensors dtype; "": the tensor is copied unchanged
	prefix string // prefix of tensor names in the optimizer's files
	state  string // name of the optimizer's plane; "": the weights or their lower halves
}

// The planes that a weight can have on disk.
var (
	planeF32  = plane{dtype: "F32"}
	planeBF16 = plane{dtype: "BF16"}               // rounded half up, as in the tile
	planeF16  = plane{dtype: "F16"}                // half precision, only read
	planeF64  = plane{dtype: "F64"}                // double precision, only read and rounded to fp32
	planeLo   = plane{dtype: "U16", prefix: "lo."} // the lower half: bits = hi<<16 + int16(lo)
	planeAsIs = plane{}
)

// stateDType is the safetensors dtype of the optimizer's planes. One U8 element holds two 4-bit codes.
var stateDType = [...]string{optim.F32: "F32", optim.U8: "U8", optim.U4: "U8"}

// statePlane returns the plane on disk for p, a plane of the optimizer's state.
func statePlane(p optim.Plane) plane {
	return plane{dtype: stateDType[p.DType], prefix: p.Name + ".", state: p.Name}
}

func (p plane) size() int64 { return dtypeSize[p.dtype] }

// weightPlane returns the plane for weights that a file holds in a safetensors dtype; false: such weights cannot be
// read.
func weightPlane(dtype string) (plane, bool) {
	for _, p := range []plane{planeF32, planeBF16, planeF16, planeF64} {
		if p.dtype == dtype {
			return p, true
		}
	}
	return plane{}, false
}

// hiOf rounds fp32 bits half up to bf16. Adding half could turn the bits of a NaN into those of an infinity or a
// number; hiOf returns a NaN for every NaN.
func hiOf(bits uint32) uint16 {
	hi := uint16((bits + 0x8000) >> 16)
	if bits&0x7fffffff > 0x7f800000 && hi&0x7fff <= 0x7f80 {
		return uint16(bits>>16) | 0x0040
	}
	return hi
}

// join returns the fp32 bits of a bf16 weight hi and its lower half lo (arXiv:2005.04680).
func join(hi, lo uint16) uint32 { return uint32(hi)<<16 + uint32(int32(int16(lo))) }

// tile returns the part of l.Tile that holds n elements of the weight t, from element elem on.
func (l Layer) tile(t model.TensorLayout, elem, n int64) []byte {
	size := t.TileBytes() / t.Elems()
	off := t.TileOff + elem*size
	return l.Tile[off : off+n*size]
}

// encode returns n elements of plane p of the weight t, starting at element elem, as the bytes of a file. The result
// is a view of the layer's memory if the memory holds the same bytes; otherwise it is in buf.
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

// mean is encode for l.Mean, the average of the weights. It returns n averaged values of the weight
// t from element elem on: as fp32 if p is planeF32, otherwise rounded to bf16.
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

// decode stores raw, values of plane p, in the weight t from element elem on. A weight read from bf16 gets the
// lower half 0. If the file also has its lower half, planeLo is decoded after it and completes the weight.
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

// widen converts raw, weights as stored in plane p, to fp32 bits.
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

// narrow converts fp32 bits to weights as plane p stores them, fp32 or bf16. It returns them in buf.
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

// setWeights stores fp32 bits as weights: as bf16 weights and lower halves if t.BF16 is set, otherwise as fp32.
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

// addLo gives weights that were stored from planeBF16 their lower halves, which makes them exact fp32 values again.
// raw holds the lower halves, from element elem of the weight t on.
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

// halfBits returns the fp32 bits of an IEEE half. The conversion is exact.
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
