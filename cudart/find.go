package cudart

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Found is the result of Find, with one entry for each of Libraries. Libraries that were found stay
// loaded.
type Found struct {
	Libraries []FoundLibrary `json:"libraries"`

	symbol func(handle uintptr, name string) uintptr
}

// FoundLibrary is the search result for one library.
type FoundLibrary struct {
	Library  Library `json:"library"`
	Required bool    `json:"required"`
	// Path is the loaded file; "": not found. Version is the library's version, such as 12.4.
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"`
	// Searched are the searched locations in order, up to the one that has the library. A pattern stands for folders
	// that do not exist.
	Searched []string `json:"searched"`
	// Failed are the files that exist but did not load.
	Failed []FailedFile `json:"failed,omitempty"`
	// Hint says how to get the library, or a version that fits the driver; "": the library was found and fits.
	Hint string `json:"hint,omitempty"`

	handle uintptr
	major  int // first number of Version; 0: unknown
}

// FailedFile is a file that did not load, with the loader's reason.
type FailedFile struct {
	Path  string `json:"path"`
	Error string `json:"error"`
}

// Find searches for the libraries and loads the ones that it finds. It touches no device. It searches in this order:
//
//   - the folders and files in MT_CUDA_LIBS
//   - the loader's own path
//   - the folders of drivers and CUDA toolkits
//   - the nvidia packages of Python environments, first the environment that this program is installed in
//
// Find takes a library for a newer CUDA than the driver supports only if there is no other.
func Find(e Env) Found {
	f := Found{symbol: e.Symbol}
	driver := 0
	for _, lib := range Libraries {
		found := e.find(lib, driver)
		if lib == Driver {
			driver = found.major
		}
		f.Libraries = append(f.Libraries, found)
	}
	return f
}

// Library returns the entry of one library.
func (f Found) Library(lib Library) *FoundLibrary {
	i := slices.IndexFunc(f.Libraries, func(l FoundLibrary) bool { return l.Library == lib })
	if i < 0 {
		return &FoundLibrary{Library: lib, Required: lib.Required()}
	}
	return &f.Libraries[i]
}

// Open returns the functions of the libraries that were found. If a required library is missing, the error matches
// ErrMissing, lists the searched locations and says how to get the library.
func (f Found) Open() (Symbols, error) {
	var problems []string
	var first Library
	for _, l := range f.Libraries {
		if l.Required && l.Path == "" {
			if first == "" {
				first = l.Library
			}
			problems = append(problems, l.problem())
		}
	}
	if len(problems) > 0 {
		return nil, &Error{Library: first, Op: "find CUDA", Code: codeMissing, Detail: strings.Join(problems, "; ")}
	}
	return f, nil
}

// Symbol returns the address of a function in a found library; 0: not found.
func (f Found) Symbol(lib Library, name string) uintptr {
	if l := f.Library(lib); l.handle != 0 {
		return f.symbol(l.handle, name)
	}
	return 0
}

// problem describes in one line why the library was not found.
func (l *FoundLibrary) problem() string {
	text := l.Library.File() + " not found"
	if len(l.Failed) > 0 {
		failed := make([]string, len(l.Failed))
		for i, one := range l.Failed {
			failed[i] = one.Path + ": " + one.Error
		}
		text = l.Library.File() + " does not load (" + strings.Join(failed, ", ") + ")"
	}
	return text + ", looked in " + strings.Join(l.Searched, ", ") + ": " + l.Hint
}

// String returns a table with a line per library. Below it are the files that failed to load and, for a missing
// library, the searched locations.
func (f Found) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, l := range f.Libraries {
		where, version := l.Path, l.Version
		if where == "" {
			where, version = "missing", "-"
		}
		fmt.Fprintf(w, "lib%s\t%s\t%s\n", l.Library, version, where)
		for _, failed := range l.Failed {
			fmt.Fprintf(w, "\t\tdoes not load: %s: %s\n", failed.Path, failed.Error)
		}
		if l.Hint != "" {
			fmt.Fprintf(w, "\t\t%s\n", l.Hint)
		}
		if l.Path == "" {
			fmt.Fprintf(w, "\t\tlooked in %s\n", strings.Join(l.Searched, ", "))
		}
	}
	w.Flush() // cannot fail, since it writes to a strings.Builder
	return b.String()
}

// find searches for one library. driver is the major CUDA version that the driver supports; 0: unknown.
func (e *Env) find(lib Library, driver int) FoundLibrary {
	l := FoundLibrary{Library: lib, Required: lib.Required()}
	newer := l // the first file for a newer CUDA than the driver supports
	seen := map[string]bool{}
	for _, p := range e.places(lib) {
		l.Searched = append(l.Searched, p.name)
		for _, file := range p.files {
			if seen[file] || !e.load(&l, file, p.byLoader, seen) {
				continue
			}
			if driver == 0 || lib == ML || l.major <= driver {
				return l
			}
			if newer.handle == 0 {
				newer = l
			}
			l.Path, l.Version, l.handle, l.major = "", "", 0, 0
		}
	}
	if newer.handle != 0 {
		l.Path, l.Version, l.handle, l.major = newer.Path, newer.Version, newer.handle, newer.major
		l.Hint = fmt.Sprintf("it is made for CUDA %d and the driver serves %d: %s", l.major, driver, hint(lib, driver))
		return l
	}
	l.Hint = hint(lib, driver)
	return l
}

// load tries to load one file and, on success, fills in l. It adds file to seen, the files tried so
// far. A failure is recorded in l, except if the loader searches for file itself (byLoader) and
// finds no such file.
func (e *Env) load(l *FoundLibrary, file string, byLoader bool, seen map[string]bool) bool {
	seen[file] = true
	handle, err := e.Load(file)
	if err != nil {
		if !byLoader || !notThere(file, err.Error()) {
			l.Failed = append(l.Failed, FailedFile{Path: file, Error: strings.TrimPrefix(err.Error(), file+": ")})
		}
		return false
	}
	l.handle, l.Path = handle, file
	if byLoader && e.Loaded != nil {
		l.Path = e.Loaded(file)
	}
	l.Version, l.major = e.version(l.Library, handle, file)
	return true
}

// notThere reports whether the loader's message says that the file itself does not exist, not that a dependency of the
// file is missing.
func notThere(file, text string) bool {
	return strings.Contains(text, file) && strings.Contains(strings.ToLower(text), "no such file") && !strings.Contains(text, "needed by")
}

// hint returns advice on how to get a library that fits the driver. driver is the major CUDA version that the
// driver supports; 0: unknown.
func hint(lib Library, driver int) string {
	suffix := ""
	if driver > 0 && driver < 13 {
		suffix = fmt.Sprintf("-cu%d", driver)
	}
	pip := "pip install nvidia-cuda-runtime" + suffix + " nvidia-cublas" + suffix
	variable := ", or set " + Variable + " to the folder that has it"
	switch lib {
	case Driver:
		return "install the NVIDIA driver; in a container, pass the GPU to it (docker run --gpus all)"
	case Runtime:
		return pip + variable
	case BlasLt:
		return pip + variable + "; without it matrix products run on slower kernels of our own"
	}
	return "it comes with the NVIDIA driver; without it clocks, power and links are not shown"
}

// version asks a loaded library for its version. It returns the version as text, and its first
// number; 0: unknown. If the library does not say, the version comes from the file's name.
func (e *Env) version(lib Library, handle uintptr, file string) (text string, major int) {
	b := &binder{symbols: Found{Libraries: []FoundLibrary{{Library: lib, handle: handle}}, symbol: e.Symbol}, library: lib, texts: &describers{}}
	switch lib {
	case Driver, Runtime:
		name := map[Library]string{Driver: "cuDriverGetVersion", Runtime: "cudaRuntimeGetVersion"}[lib]
		if f := b.probe(name); f.addr != 0 {
			if v, err := getInt(&f); err == nil && v > 0 {
				return fmt.Sprintf("%d.%d", v/1000, v%1000/10), v / 1000
			}
		}
	case BlasLt:
		if f := b.probe("cublasLtGetVersion"); f.addr != 0 {
			if v := (&Blas{version: f.addr}).Version(); v > 0 {
				return fmt.Sprintf("%d.%d.%d", v/10000, v%10000/100, v%100), v / 10000
			}
		}
	case ML:
		n := &NVML{}
		n.bind(b)
		if b.missingError() == nil && n.Init() == nil {
			defer n.Shutdown() // the error does not matter: NVML is not used any more
			if v, err := n.DriverVersion(); err == nil {
				return v, 0
			}
		}
		return "", 0
	}
	// This gives only the major version: "libcudart.so.11.0" is the name of every version of CUDA
	// 11.
	if _, after, ok := strings.Cut(file, ".so."); ok && lib != Driver {
		text, _, _ = strings.Cut(after, ".")
		major, _ = strconv.Atoi(text) // 0 if text is not a number
	}
	return text, major
}

// ThisMachine returns the environment of this process. It first removes variables that change the results of the
// libraries (settle). Call it before loading any library.
func ThisMachine() Env {
	settle()
	home, _ := os.UserHomeDir()   // without a home folder, nothing is searched there
	program, _ := os.Executable() // likewise without a known executable
	return Env{Getenv: os.Getenv, Home: home, Program: program, Load: load, Symbol: symbol, Loaded: loadedFrom}
}
