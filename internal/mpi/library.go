package mpi

import (
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

// library is a loaded MPI library and its functions.
type library struct {
	path, version string
	abi           ABI
	handle        uintptr // the loader's
	constants     constants

	initThread, finalize, abort, errorString, libraryVersion function
	commRank, commSize, commDup, commSplitType, commSetErr   function
	processorName, bcast, allgather                          function
	isend, irecv, iallgatherv, test                          function

	exit function // of the C library

	// area is memory that calls share with MPI: values by address, and texts. It is on
	// the heap, where nothing moves, and used by one call at a time.
	area struct {
		words [4]uint64
		text  [maxText]byte
	}
}

// maxText is more than the length of any text that a library writes:
// MPI_MAX_LIBRARY_VERSION_STRING is the longest, 8192.
const maxText = 8200

// function is a C function that returns an error code, 0 for success.
type function struct {
	name string
	at   uintptr
}

// newLibrary binds the functions of the library in a file, and asks for its version.
// symbol is the address of a name in it, 0 where it lacks it.
func newLibrary(file string, symbol func(name string) uintptr) (*library, error) {
	abi, err := abiOf(file, symbol)
	if err != nil {
		return nil, err
	}
	l := &library{path: file, abi: abi}
	if l.constants, err = constantsOf(abi, symbol); err != nil {
		return nil, err
	}
	for name, f := range map[string]*function{
		"MPI_Init_thread": &l.initThread, "MPI_Finalize": &l.finalize, "MPI_Abort": &l.abort,
		"MPI_Error_string": &l.errorString, "MPI_Get_library_version": &l.libraryVersion,
		"MPI_Comm_rank": &l.commRank, "MPI_Comm_size": &l.commSize, "MPI_Comm_dup": &l.commDup,
		"MPI_Comm_split_type": &l.commSplitType, "MPI_Comm_set_errhandler": &l.commSetErr,
		"MPI_Get_processor_name": &l.processorName, "MPI_Bcast": &l.bcast, "MPI_Allgather": &l.allgather,
		"MPI_Isend": &l.isend, "MPI_Irecv": &l.irecv, "MPI_Iallgatherv": &l.iallgatherv, "MPI_Test": &l.test,
		"exit": &l.exit,
	} {
		if *f = (function{name, symbol(name)}); f.at == 0 {
			return nil, fmt.Errorf("it lacks %s", name)
		}
	}
	// This call is allowed before MPI is started.
	if code := l.libraryVersion.status(l.textAt(), l.out(0)); code != 0 {
		return nil, fmt.Errorf("MPI_Get_library_version returned %d", code)
	}
	l.version = versionOf(l.text())
	return l, nil
}

// status calls the function and returns its code. The arguments are integers or
// addresses of memory that does not move and lives until the call, or what it
// started, is done.
func (f *function) status(args ...uintptr) int {
	r, _, _ := purego.SyscallN(f.at, args...)
	return int(int32(r))
}

// call calls the function and turns its code into an error.
func (l *library) call(f *function, args ...uintptr) error {
	code := f.status(args...)
	if code == 0 {
		return nil
	}
	e := &Error{Call: f.name, Code: code, Rank: -1}
	if l.errorString.status(uintptr(code), l.textAt(), l.out(3)) == 0 {
		e.Text = l.text()
	}
	return e
}

// out clears word i and returns its address, for MPI to write to.
func (l *library) out(i int) uintptr {
	l.area.words[i] = 0
	return uintptr(unsafe.Pointer(&l.area.words[i]))
}

// int is the C int at word i.
func (l *library) int(i int) int { return int(int32(l.area.words[i])) }

// communicator is the handle of a communicator at word i. In MPICH it takes four
// bytes, and the others are 0.
func (l *library) communicator(i int) uintptr { return uintptr(l.area.words[i]) }

// textAt clears the text and returns its address, for MPI to write to.
func (l *library) textAt() uintptr {
	clear(l.area.text[:])
	return uintptr(unsafe.Pointer(&l.area.text[0]))
}

// text is a copy of what MPI wrote, up to the NUL after it.
func (l *library) text() string {
	for i, c := range l.area.text {
		if c == 0 {
			return string(l.area.text[:i])
		}
	}
	return string(l.area.text[:])
}

// addressOf is the address of the first of some bytes, 0 where there are none. Whoever
// asks keeps b until MPI is done with it.
func addressOf(b []byte) uintptr {
	if len(b) == 0 {
		return 0
	}
	return uintptr(unsafe.Pointer(&b[0]))
}

// addressOfInts is the address of an array of C ints.
func addressOfInts(v []int32) uintptr { return uintptr(unsafe.Pointer(&v[0])) }

// addressOfHandle is the address of a place for the handle of a request.
func addressOfHandle(v *uint64) uintptr { return uintptr(unsafe.Pointer(v)) }

// Error is a call of MPI's that failed.
type Error struct {
	Rank int    // of this process; -1 before it is known
	Call string // the C function
	Code int    // what it returned
	Text string // what the library says of Code
}

// Error reads "rank 1: MPI_Irecv: Message truncated (code 15)".
func (e *Error) Error() string {
	text := e.Text
	if text == "" {
		text = "failed"
	}
	text = fmt.Sprintf("%s: %s (code %d)", e.Call, text, e.Code)
	if e.Rank >= 0 {
		text = fmt.Sprintf("rank %d: %s", e.Rank, text)
	}
	return text
}
