package cudart

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Variable is an environment variable with a colon-separated list of folders and library files. They are searched
// before all others.
const Variable = "MT_CUDA_LIBS"

// Env is the environment in which Find searches for libraries. Only Getenv, Load and Symbol are
// required.
type Env struct {
	Getenv func(name string) string
	// Root is prepended to every searched folder; "": the machine itself.
	Root string
	// Home is the user's home folder.
	Home string
	// Program is the path of the running executable.
	Program string
	// Load loads a library. file is a path, or a name without a slash that the loader resolves.
	Load func(file string) (handle uintptr, err error)
	// Symbol returns the address of a function in a loaded library; 0: not found.
	Symbol func(handle uintptr, name string) uintptr
	// Loaded returns the file from which a library was loaded by name.
	Loaded func(name string) string
}

// place is a location in which one library may be. The user sees it as name, and files are the
// library's files there. With byLoader, files are bare names, which the dynamic loader resolves by
// its own search.
type place struct {
	name     string
	files    []string
	byLoader bool
}

// names returns the possible file names of a library, newest first. CUDA 11 names them in different forms.
func (l Library) names() []string {
	switch l {
	case Runtime:
		return []string{"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"}
	case BlasLt:
		return []string{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so"}
	}
	return []string{l.File() + ".1"}
}

// places returns the locations to search for a library, in order.
func (e *Env) places(lib Library) []place {
	var places []place
	for _, entry := range filepath.SplitList(e.Getenv(Variable)) {
		if entry != "" {
			places = append(places, e.listed(lib, entry)...)
		}
	}
	places = append(places, place{name: "the loader's path", files: lib.names(), byLoader: true})
	if lib != Runtime && lib != BlasLt {
		// Folders for the driver on WSL, Kubernetes and NixOS.
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

// expand appends one place for each folder that matches one of the patterns. The place's files come
// from subfolders that match below, or from the folder itself if below is "". A pattern without a
// match becomes a place without files, so that messages list it as searched.
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

// listed returns the place for one entry of MT_CUDA_LIBS, a folder or a file. A file counts only
// for the library whose name it has.
func (e *Env) listed(lib Library, entry string) []place {
	entry = filepath.Join(e.Root, entry)
	if abs, err := filepath.Abs(entry); err == nil {
		entry = abs // without a slash, the loader would search its own path
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

// filesIn lists the files of a library in a folder.
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

// pythons returns the prefixes (folders) of Python environments, in search order. First comes the
// environment whose bin folder has this program, because its libraries were installed with the
// program. Then come the active environment, the environment of every python in PATH, the user's
// and the system's.
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

// glob returns the matching paths; none if the pattern is malformed.
func glob(pattern string) []string {
	found, err := filepath.Glob(pattern)
	if err != nil { // a folder has brackets in its name
		return nil
	}
	return found
}

var digits = regexp.MustCompile(`\d+`)

// newestFirst sorts folders by the numbers in each path element, highest first: cuda-13.0, cuda-12.4, cuda.
func newestFirst(folders []string) []string {
	numbers := func(part string) []int {
		var out []int
		for _, s := range digits.FindAllString(part, -1) {
			n, _ := strconv.Atoi(s) // Atoi clamps numbers that overflow an int
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
