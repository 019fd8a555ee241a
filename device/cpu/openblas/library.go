package openblas

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unsafe"
)

// Variable is the environment variable with the path of a library that replaces the search. Any library with the
// CBLAS interface works.
const Variable = "MT_OPENBLAS"

// ErrNotFound is the error of Open if there is no OpenBLAS.
var ErrNotFound = errors.New("no OpenBLAS found: install libopenblas0, or numpy, or set " + Variable + " to the path of a library")

// Library is an OpenBLAS in this process. It is never unloaded.
type Library struct {
	// Path is the library's path. Config is the library's own description: its version and build options. Core is the
	// processor type whose kernels the library has chosen; OPENBLAS_CORETYPE overrides the choice. Config and Core
	// are empty if the library does not report them.
	Path, Config, Core string
	// Name is "OpenBLAS", "MKL", or the file's name for any other library.
	Name string
	// Spins is how long the library's threads occupy their cores after a product; 0: some milliseconds at most.
	Spins time.Duration

	multiply   func(p *Product)
	setThreads func(n int)
}

// CBLAS constants for row-major order and for plain and transposed operands. Source:
// https://www.netlib.org/blas/cblas.h
const (
	rowMajor = 101
	noTrans  = 111
	trans    = 112
)

// sgemm32 and sgemm64 are cblas_sgemm with 32-bit and with 64-bit integers.
type (
	sgemm32 func(order, transA, transB, m, n, k int32, alpha float32, a unsafe.Pointer, lda int32, b unsafe.Pointer, ldb int32, beta float32, c unsafe.Pointer, ldc int32)
	sgemm64 func(order, transA, transB int32, m, n, k int64, alpha float32, a unsafe.Pointer, lda int64, b unsafe.Pointer, ldb int64, beta float32, c unsafe.Pointer, ldc int64)
)

// Open loads the library that MT_OPENBLAS names. Without MT_OPENBLAS it tries the names that the loader knows, and
// then the paths of Debian's and numpy's packages.
func Open() (*Library, error) {
	if path := os.Getenv(Variable); path != "" {
		l, err := load(path)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w", Variable, path, err)
		}
		return l, nil
	}
	for _, path := range candidates() {
		if l, err := load(path); err == nil {
			return l, nil
		}
	}
	return nil, ErrNotFound
}

// candidates returns the names and paths at which Open looks for OpenBLAS, in order.
func candidates() []string {
	names := []string{"libopenblas.so.0", "libopenblas.so"}
	prefixes := []string{"/usr", "/usr/local", "/opt/*", os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX")}
	if home, err := os.UserHomeDir(); err == nil {
		prefixes = append(prefixes, home+"/.local", home+"/.pyenv/versions/*")
	}
	for _, prefix := range slices.DeleteFunc(prefixes, func(p string) bool { return p == "" }) {
		for _, pattern := range []string{
			"lib/*/openblas-*/libopenblas.so.0",
			"lib/libopenblas.so.0",
			"lib/python3*/*-packages/numpy.libs/libscipy_openblas*.so",
		} {
			found, err := filepath.Glob(filepath.Join(prefix, pattern))
			if err == nil { // fails only for a prefix with brackets, which is skipped
				names = append(names, found...)
			}
		}
	}
	return names
}

// Multiply computes p with the number of threads that SetThreads has set.
func (l *Library) Multiply(p *Product) {
	p.check()
	l.multiply(p)
}

// SetThreads sets the number of threads of later calls of Multiply.
func (l *Library) SetThreads(n int) { l.setThreads(n) }

// layout returns p's arguments for CBLAS: the transpositions, the lengths of stored rows, and the factor on D.
func (p *Product) layout() (transA, transB int32, lda, ldb, ldc int, beta float32) {
	transA, lda = noTrans, p.K
	if p.TransA {
		transA, lda = trans, p.M
	}
	transB, ldb = noTrans, p.N
	if p.TransB {
		transB, ldb = trans, p.K
	}
	if p.Accumulate {
		beta = 1
	}
	return transA, transB, lda, ldb, p.N, beta
}

// with32 and with64 return a Library.multiply that calls the given cblas_sgemm, with 32-bit or
// 64-bit integers.
func with32(f sgemm32) func(p *Product) {
	return func(p *Product) {
		ta, tb, lda, ldb, ldc, beta := p.layout()
		f(rowMajor, ta, tb, int32(p.M), int32(p.N), int32(p.K), 1, unsafe.Pointer(&p.A[0]), int32(lda),
			unsafe.Pointer(&p.B[0]), int32(ldb), beta, unsafe.Pointer(&p.D[0]), int32(ldc))
	}
}

func with64(f sgemm64) func(p *Product) {
	return func(p *Product) {
		ta, tb, lda, ldb, ldc, beta := p.layout()
		f(rowMajor, ta, tb, int64(p.M), int64(p.N), int64(p.K), 1, unsafe.Pointer(&p.A[0]), int64(lda),
			unsafe.Pointer(&p.B[0]), int64(ldb), beta, unsafe.Pointer(&p.D[0]), int64(ldc))
	}
}

// spellings returns the names that an OpenBLAS function has in different builds: as it is, or as
// numpy's packages rename it. The names in wide are of builds with 64-bit integers.
func spellings(name string) (plain []string, wide []string) {
	return []string{name, "scipy_" + name}, []string{name + "64_", "scipy_" + name + "64_"}
}

// words joins the lines of a library's description of itself into one line.
func words(s string) string { return strings.Join(strings.Fields(s), " ") }
