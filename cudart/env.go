package cudart

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Variable is the environment variable that lists folders with CUDA libraries, and
// library files, to look at before all others; colons separate them.
const Variable = "MT_CUDA_LIBS"

// Env is what Find searches. All but Getenv, Load and Symbol may be empty.
type Env struct {
	Getenv func(name string) string
	// Root is put before every folder that is searched; it is empty for the machine
	// itself.
	Root string
	// Home is the user's folder.
	Home string
	// Program is the file of the program that searches.
	Program string
	// Load loads the library in a file, or, where file has no slash, the one that
	// the loader finds by that name.
	Load func(file string) (handle uintptr, err error)
	// Symbol is the address of a function in a loaded library, 0 where the library
	// lacks it.
	Symbol func(handle uintptr, name string) uintptr
	// Loaded is the file that a library loaded by name came from.
	Loaded func(name string) string
}

// place is somewhere to look for one library.
type place struct {
	name     string
	files    []string
	byLoader bool
}

// names are the file names that a library may have, newest first. In CUDA 11 they
// differ in form.
func (l Library) names() []string {
	switch l {
	case Runtime:
		return []string{"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"}
	case BlasLt:
		return []string{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so"}
	}
	return []string{l.File() + ".1"}
}

// places are where a library may be, in order.
func (e *Env) places(lib Library) []place {
	var places []place
	for _, entry := range filepath.SplitList(e.Getenv(Variable)) {
		if entry != "" {
			places = append(places, e.listed(lib, entry)...)
		}
	}
	places = append(places, place{name: "the loader's path", files: lib.names(), byLoader: true})
	if lib != Runtime && lib != BlasLt {
		// The folders into which WSL, Kubernetes and NixOS put a driver.
		return e.expand(places, lib, []string{"/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/run/opengl-driver/lib"}, "")
	}
	places = e.expand(places, lib, []string{"/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib"}, "")
	if conda := e.Getenv("CONDA_PREFIX"); conda != "" {
		places = e.expand(places, lib, []string{filepath.Join(conda, "lib")}, "")
	}
	var packages []string
	for _, prefix := range e.pythons() {
		packages = append(packages, filepath.Join(prefix, "lib*/python3*/*-packages"))
	}
	return e.expand(places, lib, packages, "nvidia/*/lib")
}

// expand appends to places one place for each folder that one of the patterns
// matches; the folders that below matches inside it are searched with it. A pattern
// that matches nothing becomes a place without files.
func (e *Env) expand(places []place, lib Library, patterns []string, below string) []place {
	for _, pattern := range patterns {
		folders := newestFirst(glob(filepath.Join(e.Root, pattern)))
		if len(folders) == 0 {
			places = append(places, place{name: filepath.Join(e.Root, pattern, below)})
		}
		for _, folder := range folders {
			p := place{name: filepath.Join(folder, below)}
			for _, one := range newestFirst(glob(p.name)) {
				p.files = append(p.files, filesIn(one, lib)...)
			}
			places = append(places, p)
		}
	}
	return places
}

// listed is the place that an entry of MT_CUDA_LIBS names. An entry that is a file
// counts only for the library whose name the file has.
func (e *Env) listed(lib Library, entry string) []place {
	entry = filepath.Join(e.Root, entry)
	if abs, err := filepath.Abs(entry); err == nil {
		entry = abs // without a slash, the loader would search its own path instead
	}
	info, err := os.Stat(entry)
	switch {
	case err != nil:
		return []place{{name: Variable + " " + entry + " (not there)"}}
	case info.IsDir():
		return []place{{name: Variable + " " + entry, files: filesIn(entry, lib)}}
	case strings.HasPrefix(filepath.Base(entry), lib.File()):
		return []place{{name: Variable + " " + entry, files: []string{entry}}}
	}
	return nil
}

// filesIn lists the files of a library that are in a folder.
func filesIn(folder string, lib Library) []string {
	var files []string
	for _, name := range lib.names() {
		path := filepath.Join(folder, name)
		if _, err := os.Stat(path); err == nil {
			files = append(files, path)
		}
	}
	return files
}

// pythons are the folders that Python environments lie in: of the environment whose bin
// the program is in, since it was installed with its libraries, then of the active one,
// of every python in PATH, of the user and of the system.
func (e *Env) pythons() []string {
	var prefixes []string
	if bin := filepath.Dir(e.Program); filepath.Base(bin) == "bin" {
		prefixes = append(prefixes, filepath.Dir(bin))
	}
	prefixes = append(prefixes, e.Getenv("VIRTUAL_ENV"), e.Getenv("CONDA_PREFIX"))
	for _, folder := range filepath.SplitList(e.Getenv("PATH")) {
		for _, name := range []string{"python3", "python"} {
			path := filepath.Join(e.Root, folder, name)
			if _, err := os.Stat(path); folder == "" || err != nil {
				continue
			}
			prefixes = append(prefixes, filepath.Dir(filepath.Clean(folder)))
			if real, err := filepath.EvalSymlinks(path); err == nil && e.Root == "" {
				prefixes = append(prefixes, filepath.Dir(filepath.Dir(real)))
			}
		}
	}
	if e.Home != "" {
		prefixes = append(prefixes, filepath.Join(e.Home, ".local"))
	}
	prefixes = append(prefixes, "/usr/local", "/usr")
	var once []string
	for _, p := range prefixes {
		if filepath.IsAbs(p) && !slices.Contains(once, p) {
			once = append(once, p)
		}
	}
	return once
}

// glob returns the paths that match, and none for a pattern that is malformed.
func glob(pattern string) []string {
	found, err := filepath.Glob(pattern)
	if err != nil { // a folder has brackets in its name
		return nil
	}
	return found
}

var digits = regexp.MustCompile(`\d+`)

// newestFirst sorts folders by the numbers in each part of their paths, the
// highest first, so that cuda-13.0 comes before cuda-12.4, and both before cuda.
func newestFirst(folders []string) []string {
	numbers := func(part string) []int {
		var out []int
		for _, s := range digits.FindAllString(part, -1) {
			n, _ := strconv.Atoi(s) // a number too long for an int becomes the largest int
			out = append(out, n)
		}
		return out
	}
	compare := func(a, b string) int { return slices.Compare(numbers(a), numbers(b)) }
	slices.SortStableFunc(folders, func(a, b string) int {
		return slices.CompareFunc(strings.Split(b, "/"), strings.Split(a, "/"), compare)
	})
	return folders
}
