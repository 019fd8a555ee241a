package cudart

import (
	"cmp"
	"math"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Handles of cuBLASLt. Layouts, descriptions and preferences are objects in host memory that the
// library owns. Do not destroy or change one while a call uses it.
type (
	// BlasHandle is a cublasLtHandle_t. It belongs to the device that it was created for.
	BlasHandle uintptr
	// MatmulDesc is a cublasLtMatmulDesc_t: the operation of a product.
	MatmulDesc uintptr
	// MatrixLayout is a cublasLtMatrixLayout_t: the memory layout of a matrix.
	MatrixLayout uintptr
	// MatmulPreference is a cublasLtMatmulPreference_t: the workspace and alignments that an algorithm may rely on.
	MatmulPreference uintptr
)

// DataType is a cudaDataType.
type DataType int32

// Types of matrix elements, of scale factors (alpha, beta) and of biases.
const (
	Float32  DataType = 0
	BFloat16 DataType = 14
)

// ComputeType is a cublasComputeType_t: the arithmetic of products and sums.
type ComputeType int32

// ComputeFloat32 multiplies the stored values and accumulates in fp32. It does not round fp32 operands to TF32, unless
// the environment has NVIDIA_TF32_OVERRIDE=1 (see ThisMachine).
const ComputeFloat32 ComputeType = 68

// Transpose is a cublasOperation_t.
type Transpose int32

// Transposition of an operand before the product.
const (
	NoTranspose Transpose = 0
	Transposed  Transpose = 1
)

// Epilogue is a cublasLtEpilogue_t: an operation that the kernel applies to the finished product
// before it stores the result.
type Epilogue int32

// EpilogueBias adds a vector along the rows of the column-major D.
const EpilogueBias Epilogue = 4

// DescAttr is a cublasLtMatmulDescAttributes_t.
type DescAttr int32

// Attributes of a MatmulDesc, each with the type of its value.
const (
	DescTransA       DescAttr = 3  // Transpose
	DescTransB       DescAttr = 4  // Transpose
	DescEpilogue     DescAttr = 7  // Epilogue
	DescBiasPointer  DescAttr = 8  // DevicePtr
	DescBiasDataType DescAttr = 26 // DataType
)

// Attributes of a MatrixLayout (cublasLtMatrixLayoutAttribute_t): an int32, and an int64 in elements.
const layoutBatchCount, layoutBatchStride = 5, 6

// PreferenceAttr is a cublasLtMatmulPreferenceAttributes_t.
type PreferenceAttr int32

// Attributes of a MatmulPreference, each with the type of its value. Without a set alignment, the library assumes
// multiples of 256 bytes.
const (
	PreferMaxWorkspaceBytes PreferenceAttr = 1 // uint64
	PreferReductions        PreferenceAttr = 3 // uint32, a mask of cublasLtReductionScheme_t for splitting the sum over K
	PreferMinAlignmentA     PreferenceAttr = 5 // uint32, in bytes; likewise the next three
	PreferMinAlignmentB     PreferenceAttr = 6
	PreferMinAlignmentC     PreferenceAttr = 7
	PreferMinAlignmentD     PreferenceAttr = 8
)

// ReductionFloat32 is a cublasLtReductionScheme_t for PreferReductions. If several blocks share a sum over K, the
// workspace holds their partial sums in the compute type. They are added in order, and the result is rounded once.
const ReductionFloat32 = 2

// Algorithm is a cublasLtMatmulAlgo_t: plain data. It is valid for the same kind of device, the same library version,
// and matrices like the ones that it was proposed for.
type Algorithm [8]uint64

// Heuristic is a proposed algorithm: a cublasLtMatmulHeuristicResult_t.
type Heuristic struct {
	Algorithm      Algorithm
	WorkspaceBytes uint64  // required by the algorithm
	state          int32   // 0: the other fields are valid
	Waves          float32 // number of waves of blocks; 1: one wave fills the device
	_              [4]int32
}

// Blas is libcublasLt. Its matrices are column-major. A row-major matrix of R rows and C columns is a column-major C×R
// matrix with the same leading dimension. A row-major D = A·B is therefore requested as Dᵀ = Bᵀ·Aᵀ: swap the operands,
// and move no data.
//
// The library calls both libcuda and its own libcudart, so a thread needs a current context. Methods that reach the
// device therefore take a Context.
type Blas struct {
	driver                           *driverFunctions
	version                          uintptr
	create, destroy                  function
	descCreate, descDestroy, descSet function
	layoutCreate, layoutDestroy      function
	layoutSet                        function
	preferCreate, preferDestroy      function
	preferSet                        function
	algoGetHeuristic, matmul         function
}

func (f *Blas) bind(b *binder) {
	b.texts.blasStatusString = b.probe("cublasLtGetStatusString").addr
	f.version = b.need("cublasLtGetVersion").addr
	f.create = b.need("cublasLtCreate")
	f.destroy = b.need("cublasLtDestroy")
	f.descCreate = b.need("cublasLtMatmulDescCreate")
	f.descDestroy = b.need("cublasLtMatmulDescDestroy")
	f.descSet = b.need("cublasLtMatmulDescSetAttribute")
	f.layoutCreate = b.need("cublasLtMatrixLayoutCreate")
	f.layoutDestroy = b.need("cublasLtMatrixLayoutDestroy")
	f.layoutSet = b.need("cublasLtMatrixLayoutSetAttribute")
	f.preferCreate = b.need("cublasLtMatmulPreferenceCreate")
	f.preferDestroy = b.need("cublasLtMatmulPreferenceDestroy")
	f.preferSet = b.need("cublasLtMatmulPreferenceSetAttribute")
	f.algoGetHeuristic = b.need("cublasLtMatmulAlgoGetHeuristic")
	f.matmul = b.need("cublasLtMatmul")
}

// in makes ctx current on the calling OS thread and then calls a function of the library.
func (f *Blas) in(ctx Context, fn *function, args ...uintptr) error {
	return f.driver.in(ctx, fn, args...)
}

// getHandle calls f, a C function that creates an object. Its first argument is the address for the
// new handle, and args follow. getHandle returns the handle.
func getHandle(f *function, args ...uintptr) (uintptr, error) {
	m := newFrame()
	defer m.release()
	var all [maxArguments]uintptr
	all[0] = m.out(0)
	err := f.call(all[:1+copy(all[1:], args)]...)
	return uintptr(m.words[0]), err
}

// Version returns the library's version, for example 120402 for 12.4.2. cublasLtGetVersion:
// https://docs.nvidia.com/cuda/cublas/#cublasltgetversion
func (f *Blas) Version() int {
	r, _, _ := purego.SyscallN(f.version)
	return int(r)
}

// Create creates a handle for the device of ctx. cublasLtCreate:
// https://docs.nvidia.com/cuda/cublas/#cublasltcreate
func (f *Blas) Create(ctx Context) (BlasHandle, error) {
	m := newFrame()
	defer m.release()
	err := f.in(ctx, &f.create, m.out(0))
	return BlasHandle(m.words[0]), err
}

// Destroy destroys a handle. Enqueued work that uses it still runs.
// cublasLtDestroy: https://docs.nvidia.com/cuda/cublas/#cublasltdestroy
func (f *Blas) Destroy(ctx Context, h BlasHandle) error {
	return f.in(ctx, &f.destroy, uintptr(h))
}

// DescCreate creates the description of a product without transposes and epilogue. scale is the type of alpha and
// beta, which Matmul passes as Float32. cublasLtMatmulDescCreate:
// https://docs.nvidia.com/cuda/cublas/#cublasltmatmuldesccreate
func (f *Blas) DescCreate(compute ComputeType, scale DataType) (MatmulDesc, error) {
	h, err := getHandle(&f.descCreate, uintptr(compute), uintptr(scale))
	return MatmulDesc(h), err
}

// DescDestroy frees a description. cublasLtMatmulDescDestroy:
// https://docs.nvidia.com/cuda/cublas/#cublasltmatmuldescdestroy
func (f *Blas) DescDestroy(d MatmulDesc) error { return f.descDestroy.call(uintptr(d)) }

// set calls f, a SetAttribute function of the library, for the attribute attr of handle. It passes the address of
// the first size bytes of value.
func set(f *function, handle, attr uintptr, value uint64, size uintptr) error {
	m := newFrame()
	defer m.release()
	return f.call(handle, attr, m.in(0, value), size)
}

// DescSet sets a non-pointer attribute of a description: a Transpose, an Epilogue or a DataType.
// cublasLtMatmulDescSetAttribute:
// https://docs.nvidia.com/cuda/cublas/#cublasltmatmuldescsetattribute
func (f *Blas) DescSet(d MatmulDesc, attr DescAttr, value int32) error {
	return set(&f.descSet, uintptr(d), uintptr(attr), uint64(uint32(value)), 4)
}

// DescSetPointer sets a pointer attribute of a description. The memory at p must stay valid until the described
// products have run. cublasLtMatmulDescSetAttribute:
// https://docs.nvidia.com/cuda/cublas/#cublasltmatmuldescsetattribute
func (f *Blas) DescSetPointer(d MatmulDesc, attr DescAttr, p DevicePtr) error {
	return set(&f.descSet, uintptr(d), uintptr(attr), uint64(p), unsafe.Sizeof(p))
}

// LayoutCreate creates the layout of a column-major matrix. ld, at least rows, is the number of elements between the
// starts of two columns. cublasLtMatrixLayoutCreate:
// https://docs.nvidia.com/cuda/cublas/#cublasltmatrixlayoutcreate
func (f *Blas) LayoutCreate(t DataType, rows, cols, ld int64) (MatrixLayout, error) {
	h, err := getHandle(&f.layoutCreate, uintptr(t), uintptr(rows), uintptr(cols), uintptr(ld))
	return MatrixLayout(h), err
}

// LayoutBatch makes l the layout of n matrices, whose beginnings are stride elements apart.
// cublasLtMatrixLayoutSetAttribute: https://docs.nvidia.com/cuda/cublas/#cublasltmatrixlayoutsetattribute
func (f *Blas) LayoutBatch(l MatrixLayout, n, stride int64) error {
	return cmp.Or(set(&f.layoutSet, uintptr(l), layoutBatchCount, uint64(n), 4), set(&f.layoutSet, uintptr(l), layoutBatchStride, uint64(stride), 8))
}

// LayoutDestroy frees a layout. cublasLtMatrixLayoutDestroy:
// https://docs.nvidia.com/cuda/cublas/#cublasltmatrixlayoutdestroy
func (f *Blas) LayoutDestroy(l MatrixLayout) error { return f.layoutDestroy.call(uintptr(l)) }

// PreferenceCreate creates a preference that allows no workspace.
// cublasLtMatmulPreferenceCreate:
// https://docs.nvidia.com/cuda/cublas/#cublasltmatmulpreferencecreate
func (f *Blas) PreferenceCreate() (MatmulPreference, error) {
	h, err := getHandle(&f.preferCreate)
	return MatmulPreference(h), err
}

// PreferenceDestroy frees a preference. cublasLtMatmulPreferenceDestroy:
// https://docs.nvidia.com/cuda/cublas/#cublasltmatmulpreferencedestroy
func (f *Blas) PreferenceDestroy(p MatmulPreference) error {
	return f.preferDestroy.call(uintptr(p))
}

// PreferenceSet sets an attribute of a preference. value has the attribute's type.
// cublasLtMatmulPreferenceSetAttribute:
// https://docs.nvidia.com/cuda/cublas/#cublasltmatmulpreferencesetattribute
func (f *Blas) PreferenceSet(p MatmulPreference, attr PreferenceAttr, value uint64) error {
	size := uintptr(4)
	if attr == PreferMaxWorkspaceBytes {
		size = 8
	}
	return set(&f.preferSet, uintptr(p), uintptr(attr), value, size)
}

// MatmulShape describes a product: D = alpha·op(A)·op(B) + beta·C, followed by the epilogue. C and D may share a
// layout.
type MatmulShape struct {
	Desc       MatmulDesc
	A, B, C, D MatrixLayout
}

// AlgoGetHeuristic proposes up to want algorithms, the fastest by estimate first. It runs nothing. If no algorithm can
// compute the product, the error is ErrNotSupported. cublasLtMatmulAlgoGetHeuristic:
// https://docs.nvidia.com/cuda/cublas/#cublasltmatmulalgogetheuristic
func (f *Blas) AlgoGetHeuristic(ctx Context, h BlasHandle, s *MatmulShape, p MatmulPreference, want int) ([]Heuristic, error) {
	if want < 1 {
		return nil, f.algoGetHeuristic.fail(blasInvalidValue, "no algorithm is asked for")
	}
	m := newFrame()
	defer m.release()
	results := m.room(want * int(unsafe.Sizeof(Heuristic{})))
	err := f.in(ctx, &f.algoGetHeuristic, uintptr(h), uintptr(s.Desc), uintptr(s.A), uintptr(s.B), uintptr(s.C), uintptr(s.D),
		uintptr(p), uintptr(want), results, m.out(0))
	if err != nil {
		return nil, err
	}
	var good []Heuristic
	found := unsafe.Slice((*Heuristic)(unsafe.Pointer(&m.bytes[0])), want)
	for _, one := range found[:min(max(m.int(0), 0), want)] {
		if one.state == 0 {
			good = append(good, one)
		}
	}
	if len(good) == 0 {
		return nil, f.algoGetHeuristic.fail(blasNotSupported, "no algorithm fits")
	}
	return good, nil
}

// MatmulArgs are the operands of a product. C may equal D. Concurrent products need separate workspaces.
type MatmulArgs struct {
	Alpha, Beta    float32
	A, B, C, D     DevicePtr
	Algorithm      *Algorithm // nil: the library chooses at every call
	Workspace      DevicePtr
	WorkspaceBytes int64
}

// Matmul enqueues a product on stream. It reads s and a before it returns. The device memory must stay valid and
// unchanged until an event recorded after the call completes. cublasLtMatmul:
// https://docs.nvidia.com/cuda/cublas/#cublasltmatmul
func (f *Blas) Matmul(ctx Context, h BlasHandle, s *MatmulShape, a *MatmulArgs, stream Stream) error {
	m := newFrame()
	defer m.release()
	var algorithm uintptr
	if a.Algorithm != nil {
		copy(m.words[2:], a.Algorithm[:])
		algorithm = m.at(2)
	}
	return f.in(ctx, &f.matmul, uintptr(h), uintptr(s.Desc),
		m.in(0, uint64(math.Float32bits(a.Alpha))), uintptr(a.A), uintptr(s.A), uintptr(a.B), uintptr(s.B),
		m.in(1, uint64(math.Float32bits(a.Beta))), uintptr(a.C), uintptr(s.C), uintptr(a.D), uintptr(s.D),
		algorithm, uintptr(a.Workspace), uintptr(a.WorkspaceBytes), uintptr(stream))
}
