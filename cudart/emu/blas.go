package emu

import (
	"unsafe"

	"mt/cudart"
)

// The signatures, attributes and structures in this file follow cublasLt.h.

// Element types (cudaDataType).
const (
	typeF32  = 0
	typeBF16 = 14
)

// Compute types (cublasComputeType_t).
const (
	compute32F         = 68
	compute32FPedantic = 69
)

const (
	epilogueDefault = 1
	epilogueBias    = 4
)

// blasVersion is the version that the emulated library returns from cublasLtGetVersion: 12.8.4.
const blasVersion = 120804

// blasHandle is the object behind a cublasLtHandle_t.
type blasHandle struct{ gpu *gpu }

// desc is the object behind a cublasLtMatmulDesc_t: the operation of a product.
type desc struct {
	compute, scale  int32
	pointerMode     int32
	transA, transB  int32
	transC          int32
	epilogue        int32
	biasPointer     uint64
	biasType        int32
	smCount         int32
	fastAccum       int8
	biasBatchStride int64
}

// layout is the object behind a cublasLtMatrixLayout_t: the memory layout of one column-major
// matrix.
type layout struct {
	dtype      int32
	rows, cols uint64
	ld         int64
	batch      int32 // matrices
	next       int64 // elements between them
}

// preference is the object behind a cublasLtMatmulPreference_t: limits for the algorithms that the
// library may propose.
type preference struct {
	search       int32
	maxWorkspace uint64
	reduction    uint32
	align        [4]uint32 // of A, B, C, D in bytes
	waves        float32
	impl         uint64
}

// blasSymbols returns the functions of libcublasLt.
func blasSymbols() []symbol {
	list := append(blasObjects(), blasAttributes()...)
	list = append(list, blasMatmul()...)
	for i := range list {
		list[i].lib = cudart.BlasLt
	}
	return list
}

// create registers v as an object of kind k and writes the new handle to out. It returns a status
// code for C.
func create(d *Driver, out *uint64, k kind, v any) int32 {
	if out == nil {
		return blasInvalidValue
	}
	*out = d.keep(k, v)
	return 0
}

// destroy deletes the object of kind k with the handle h. call is the C function's name. If there
// is no such object, that is recorded as a mistake of the program, and destroy returns an error
// code.
func destroy[T any](d *Driver, k kind, h uint64, call string) int32 {
	if _, ok := find[T](d, k, h, call); !ok {
		return blasInvalidValue
	}
	delete(d.objects, h)
	return 0
}

func blasObjects() []symbol {
	return []symbol{
		{name: "cublasLtCreate", need: needCurrent, bind: func(c caller) any {
			return func(h *uint64) int32 {
				return c.do(func(d *Driver) int32 { return create(d, h, kindBlas, &blasHandle{d.here()}) })
			}
		}},
		{name: "cublasLtDestroy", class: release, need: needCurrent, bind: func(c caller) any {
			return func(h uint64) int32 {
				return c.do(func(d *Driver) int32 {
					if b, ok := d.objects[h].(*blasHandle); ok && !d.own("cublasLtDestroy", handleName(h), b.gpu) {
						return blasInvalidValue
					}
					return destroy[*blasHandle](d, kindBlas, h, "cublasLtDestroy")
				})
			}
		}},
		{name: "cublasLtGetVersion", class: infallible, bind: func(caller) any {
			return func() uint64 { return blasVersion }
		}},
		{name: "cublasLtGetStatusString", class: infallible, bind: func(caller) any {
			return func(code int32) uintptr {
				if s, ok := blasTexts[code]; ok {
					return cString(s)
				}
				return cString("<unknown>")
			}
		}},
		{name: "cublasLtMatmulDescCreate", bind: func(c caller) any {
			return func(out *uint64, compute, scale int32) int32 {
				return c.do(func(d *Driver) int32 {
					v := &desc{compute: compute, scale: scale, epilogue: epilogueDefault, biasType: -1}
					return create(d, out, kindDesc, v)
				})
			}
		}},
		{name: "cublasLtMatmulDescDestroy", class: release, bind: func(c caller) any {
			return func(h uint64) int32 {
				return c.do(func(d *Driver) int32 { return destroy[*desc](d, kindDesc, h, "cublasLtMatmulDescDestroy") })
			}
		}},
		{name: "cublasLtMatrixLayoutCreate", bind: func(c caller) any {
			return func(out *uint64, dtype int32, rows, cols uint64, ld int64) int32 {
				return c.do(func(d *Driver) int32 {
					v := &layout{dtype: dtype, rows: rows, cols: cols, ld: ld, batch: 1}
					return create(d, out, kindLayout, v)
				})
			}
		}},
		{name: "cublasLtMatrixLayoutDestroy", class: release, bind: func(c caller) any {
			return func(h uint64) int32 {
				return c.do(func(d *Driver) int32 { return destroy[*layout](d, kindLayout, h, "cublasLtMatrixLayoutDestroy") })
			}
		}},
		{name: "cublasLtMatmulPreferenceCreate", bind: func(c caller) any {
			return func(out *uint64) int32 {
				return c.do(func(d *Driver) int32 {
					return create(d, out, kindPreference, &preference{reduction: reductionAll, align: [4]uint32{256, 256, 256, 256}, impl: 1<<64 - 1})
				})
			}
		}},
		{name: "cublasLtMatmulPreferenceDestroy", class: release, bind: func(c caller) any {
			return func(h uint64) int32 {
				return c.do(func(d *Driver) int32 {
					return destroy[*preference](d, kindPreference, h, "cublasLtMatmulPreferenceDestroy")
				})
			}
		}},
	}
}

// setAttribute implements the C functions that set attributes: it copies the n bytes at buf to the
// attribute with number attr. The map fields has the bytes of each attribute that the emulator
// supports. Any other attribute, or an n that is not the attribute's size, is an invalid value.
func setAttribute(fields map[int32][]byte, attr int32, buf unsafe.Pointer, n uint64) int32 {
	field, ok := fields[attr]
	if !ok || buf == nil || n != uint64(len(field)) {
		return blasInvalidValue
	}
	copy(field, unsafe.Slice((*byte)(buf), n))
	return 0
}

// field returns the memory of *p as bytes, so that writing to them changes *p.
func field[T any](p *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p))
}

func (m *desc) fields() map[int32][]byte {
	return map[int32][]byte{0: field(&m.compute), 1: field(&m.scale), 2: field(&m.pointerMode), 3: field(&m.transA),
		4: field(&m.transB), 5: field(&m.transC), 7: field(&m.epilogue), 8: field(&m.biasPointer), 10: field(&m.biasBatchStride),
		15: field(&m.smCount), 25: field(&m.fastAccum), 26: field(&m.biasType)}
}

func (l *layout) fields() map[int32][]byte {
	return map[int32][]byte{0: field(&l.dtype), 2: field(&l.rows), 3: field(&l.cols), 4: field(&l.ld), 5: field(&l.batch), 6: field(&l.next)}
}

func (p *preference) fields() map[int32][]byte {
	return map[int32][]byte{0: field(&p.search), 1: field(&p.maxWorkspace), 3: field(&p.reduction), 5: field(&p.align[0]),
		6: field(&p.align[1]), 7: field(&p.align[2]), 8: field(&p.align[3]), 9: field(&p.waves), 12: field(&p.impl)}
}

func blasAttributes() []symbol {
	return []symbol{attributes[*desc]("cublasLtMatmulDescSetAttribute", kindDesc),
		attributes[*layout]("cublasLtMatrixLayoutSetAttribute", kindLayout),
		attributes[*preference]("cublasLtMatmulPreferenceSetAttribute", kindPreference)}
}

// attributes returns the C function name, which sets attributes of objects of kind k.
func attributes[T interface{ fields() map[int32][]byte }](name string, k kind) symbol {
	return symbol{name: name, bind: func(c caller) any {
		return func(h uint64, attr int32, buf unsafe.Pointer, n uint64) int32 {
			return c.do(func(d *Driver) int32 {
				v, ok := find[T](d, k, h, c.symbol.name)
				if !ok {
					return blasInvalidValue
				}
				return setAttribute(v.fields(), attr, buf, n)
			})
		}
	}}
}

func blasMatmul() []symbol {
	return []symbol{
		{name: "cublasLtMatmulAlgoGetHeuristic", need: needCurrent, bind: func(c caller) any {
			return func(h, op, a, b, cc, dd, pref uint64, requested int32, results *heuristic, returned *int32) int32 {
				return c.do(func(d *Driver) int32 {
					return d.heuristic(h, op, [4]uint64{a, b, cc, dd}, pref, requested, results, returned)
				})
			}
		}},
		{name: "cublasLtMatmul", need: needCurrent, bind: func(c caller) any {
			return func(h, op uint64, alpha *float32, a, la, b, lb uint64, beta *float32, cc, lc, dd, ld uint64,
				algo *algorithm, workspace, size, s uint64) int32 {
				return c.do(func(d *Driver) int32 {
					return d.matmul(matmulCall{handle: h, desc: op, alpha: alpha, beta: beta, at: [4]uint64{a, b, cc, dd},
						layouts: [4]uint64{la, lb, lc, ld}, algo: algo, workspace: workspace, size: size, stream: s})
				})
			}
		}},
	}
}
