package cudart

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// machine is a folder that Find searches as if it were the root of a machine. The test decides
// which files exist, which names the loader finds and which files fail to load.
type machine struct {
	t      *testing.T
	root   string
	vars   map[string]string
	path   []string        // names that the loader finds
	broken map[string]bool // files that do not load
	driver int             // result of cuDriverGetVersion; 0: no such function
	ml     string          // result of nvmlSystemGetDriverVersion; "": no such function
	file   string          // of the program that searches
	loads  []string
}

func newMachine(t *testing.T, files ...string) *machine {
	m := &machine{t: t, root: t.TempDir(), vars: map[string]string{}, broken: map[string]bool{}}
	for _, file := range files {
		path := filepath.Join(m.root, file)
		testkit.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		testkit.NoError(t, os.WriteFile(path, nil, 0o666))
	}
	return m
}

func (m *machine) load(file string) (uintptr, error) {
	m.loads = append(m.loads, file)
	if !strings.Contains(file, "/") {
		if !slices.Contains(m.path, file) {
			return 0, fmt.Errorf("%s: cannot open shared object file: No such file or directory", file)
		}
		return uintptr(len(m.loads)), nil
	}
	if _, err := os.Stat(file); err != nil {
		m.t.Errorf("loads %s, which is not there", file)
	}
	if m.broken[strings.TrimPrefix(file, m.root)] {
		return 0, fmt.Errorf("%s: libstdc++.so.6: cannot open shared object file: No such file or directory", file)
	}
	return uintptr(len(m.loads)), nil
}

// symbol is the loader's symbol lookup. It has only the version functions of the driver and NVML.
func (m *machine) symbol(_ uintptr, name string) uintptr {
	lib, has := Driver, name == "cuDriverGetVersion" && m.driver != 0
	if strings.HasPrefix(name, "nvml") {
		lib, has = ML, m.ml != ""
	}
	if !has {
		return 0
	}
	f := theFake()
	f.absent = nil
	f.answers = map[string]func(*[maxArguments]uintptr) uintptr{
		"cuDriverGetVersion": func(a *[maxArguments]uintptr) uintptr { *memory[int32](a[0]) = int32(m.driver); return 0 },
		"nvmlSystemGetDriverVersion": func(a *[maxArguments]uintptr) uintptr {
			copy(memory[[96]byte](a[0])[:a[1]], m.ml+"\x00")
			return 0
		},
	}
	return f.Symbol(lib, name)
}

func (m *machine) find() Found {
	m.loads = nil
	return Find(Env{
		Getenv: func(name string) string { return m.vars[name] }, Root: m.root, Home: "/home/u", Program: m.file,
		Load: m.load, Symbol: m.symbol, Loaded: func(name string) string { return "/loader/" + name },
	})
}

// where returns the path of a library inside the machine.
func (m *machine) where(f Found, lib Library) string {
	return strings.TrimPrefix(f.Library(lib).Path, m.root)
}

const (
	venv = "/venv/lib/python3.12/site-packages/nvidia/"
	pip  = "/pip/lib/python3.13/site-packages/nvidia/"
	user = "/home/u/.local/lib/python3.11/site-packages/nvidia/"
)

// TestFindPlaces: Find finds libcudart and libcublasLt in each kind of location, and prefers
// locations in the documented order.
func TestFindPlaces(t *testing.T) {
	for _, test := range []struct {
		name          string
		files, path   []string
		vars          map[string]string
		driver        int
		program       string
		runtime, blas string
	}{
		{name: "nothing"},
		{name: "the loader", path: []string{"libcudart.so.12", "libcublasLt.so.12"}, runtime: "/loader/libcudart.so.12", blas: "/loader/libcublasLt.so.12"},
		{name: "CUDA 11", path: []string{"libcudart.so.11.0", "libcublasLt.so.11"}, runtime: "/loader/libcudart.so.11.0", blas: "/loader/libcublasLt.so.11"},
		{name: "a variable before all", path: []string{"libcudart.so.13"}, vars: map[string]string{Variable: "/none:/a:/b/libcublasLt.so.12"},
			files: []string{"/a/libcudart.so.12", "/b/libcublasLt.so.12", "/b/libcudart.so.13"}, runtime: "/a/libcudart.so.12", blas: "/b/libcublasLt.so.12"},
		{name: "the newest toolkit", files: []string{"/usr/local/cuda/lib64/libcudart.so.12", "/usr/local/cuda-12.4/lib64/libcudart.so.12",
			"/usr/local/cuda-12.10/lib64/libcudart.so.12", "/usr/local/cuda-12.10/lib64/libcublasLt.so"},
			runtime: "/usr/local/cuda-12.10/lib64/libcudart.so.12", blas: "/usr/local/cuda-12.10/lib64/libcublasLt.so"},
		{name: "a toolkit's targets", files: []string{"/usr/local/cuda-13.0/targets/x86_64-linux/lib/libcudart.so.13"},
			runtime: "/usr/local/cuda-13.0/targets/x86_64-linux/lib/libcudart.so.13"},
		{name: "an active environment, as packages of CUDA 13 are", vars: map[string]string{"VIRTUAL_ENV": "/venv"},
			files:   []string{venv + "cu13/lib/libcudart.so.13", venv + "cu13/lib/libcublasLt.so.13", user + "cu13/lib/libcudart.so.13"},
			runtime: venv + "cu13/lib/libcudart.so.13", blas: venv + "cu13/lib/libcublasLt.so.13"},
		{name: "the environment that mt is installed in, before the active one", program: "/pip/bin/mt", vars: map[string]string{"VIRTUAL_ENV": "/venv"},
			files:   []string{venv + "cu13/lib/libcudart.so.13", pip + "cu13/lib/libcudart.so.13", venv + "cu13/lib/libcublasLt.so.13"},
			runtime: pip + "cu13/lib/libcudart.so.13", blas: venv + "cu13/lib/libcublasLt.so.13"},
		{name: "a program that is in no environment", program: "/pip/out/mt", files: []string{pip + "cu13/lib/libcudart.so.13"}},
		{name: "packages as they were", vars: map[string]string{"VIRTUAL_ENV": "/venv"},
			files:   []string{venv + "cuda_runtime/lib/libcudart.so.12", venv + "cublas/lib/libcublasLt.so.12"},
			runtime: venv + "cuda_runtime/lib/libcudart.so.12", blas: venv + "cublas/lib/libcublasLt.so.12"},
		{name: "a python in PATH", vars: map[string]string{"PATH": "/bin::/venv/bin"}, files: []string{"/venv/bin/python3", venv + "cu13/lib/libcudart.so.13"},
			runtime: venv + "cu13/lib/libcudart.so.13"},
		{name: "conda", vars: map[string]string{"CONDA_PREFIX": "/conda"}, files: []string{"/conda/lib/libcudart.so.12"}, runtime: "/conda/lib/libcudart.so.12"},
		{name: "the user's packages", files: []string{user + "cu13/lib/libcudart.so.13"}, runtime: user + "cu13/lib/libcudart.so.13"},
		{name: "Debian's packages", files: []string{"/usr/lib/python3/dist-packages/nvidia/cublas/lib/libcublasLt.so.12"},
			blas: "/usr/lib/python3/dist-packages/nvidia/cublas/lib/libcublasLt.so.12"},
		{name: "packages beside the system's python", files: []string{"/usr/local/lib/python3.11/dist-packages/nvidia/cublas/lib/libcublasLt.so.12"},
			blas: "/usr/local/lib/python3.11/dist-packages/nvidia/cublas/lib/libcublasLt.so.12"},
		{name: "what fits an old driver", vars: map[string]string{"VIRTUAL_ENV": "/venv"}, path: []string{"libcuda.so.1"}, driver: 12040,
			files:   []string{venv + "cu13/lib/libcudart.so.13", venv + "cu13/lib/libcublasLt.so.13", venv + "cuda_runtime/lib/libcudart.so.12", user + "cublas/lib/libcublasLt.so.12"},
			runtime: venv + "cuda_runtime/lib/libcudart.so.12", blas: user + "cublas/lib/libcublasLt.so.12"},
		{name: "what an old driver does not fit", vars: map[string]string{"VIRTUAL_ENV": "/venv"}, path: []string{"libcuda.so.1"}, driver: 12040,
			files: []string{venv + "cu13/lib/libcudart.so.13"}, runtime: venv + "cu13/lib/libcudart.so.13"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMachine(t, test.files...)
			m.path, m.driver, m.file = test.path, test.driver, test.program
			if test.vars != nil {
				m.vars = test.vars
			}
			f := m.find()
			if got := m.where(f, Runtime); got != test.runtime {
				t.Errorf("libcudart is %q, want %q; searched %v", got, test.runtime, f.Library(Runtime).Searched)
			}
			if got := m.where(f, BlasLt); got != test.blas {
				t.Errorf("libcublasLt is %q, want %q; searched %v", got, test.blas, f.Library(BlasLt).Searched)
			}
			for i, file := range m.loads {
				if slices.Contains(m.loads[:i], file) {
					t.Errorf("loads %s twice", file)
				}
			}
		})
	}
}

// TestFindDriver: Find finds the driver's libraries in the folders of WSL and by the loader, and
// reads their versions.
func TestFindDriver(t *testing.T) {
	m := newMachine(t, "/usr/lib/wsl/lib/libcuda.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1")
	m.driver, m.ml = 12080, "570.86.15"
	f := m.find()
	if got := m.where(f, Driver); got != "/usr/lib/wsl/lib/libcuda.so.1" || f.Library(Driver).Version != "12.8" {
		t.Errorf("libcuda is %q, version %q", got, f.Library(Driver).Version)
	}
	if got := m.where(f, ML); got != "/usr/lib/wsl/lib/libnvidia-ml.so.1" || f.Library(ML).Version != "570.86.15" {
		t.Errorf("libnvidia-ml is %q, version %q", got, f.Library(ML).Version)
	}
	m.path = []string{"libcuda.so.1"}
	if got := m.where(m.find(), Driver); got != "/loader/libcuda.so.1" {
		t.Errorf("libcuda is %q", got)
	}
}

// TestFindMissing: the report names a library that is missing or does not load, the searched
// locations and what to install.
func TestFindMissing(t *testing.T) {
	m := newMachine(t, venv+"cu13/lib/libcudart.so.13", "/usr/local/cuda-12.4/lib64/libcublasLt.so.12", venv+"cublas/lib/libcublasLt.so.12")
	m.vars = map[string]string{"VIRTUAL_ENV": "/venv", Variable: "/none"}
	m.path, m.driver = []string{"libcuda.so.1"}, 12040
	m.broken = map[string]bool{venv + "cu13/lib/libcudart.so.13": true, "/usr/local/cuda-12.4/lib64/libcublasLt.so.12": true}
	f := m.find()

	l := f.Library(Runtime)
	want := []string{
		Variable + " " + m.root + "/none (not there)", "the loader's path", m.root + "/usr/local/cuda-12.4/lib64", m.root + "/usr/local/cuda*/targets/*/lib",
		m.root + "/venv/lib/python3.12/site-packages/nvidia/*/lib", m.root + "/home/u/.local/lib*/python3*/*-packages/nvidia/*/lib",
		m.root + "/usr/local/lib*/python3*/*-packages/nvidia/*/lib", m.root + "/usr/lib*/python3*/*-packages/nvidia/*/lib",
	}
	if !slices.Equal(l.Searched, want) {
		t.Errorf("searched\n%s\nwant\n%s", strings.Join(l.Searched, "\n"), strings.Join(want, "\n"))
	}
	failed := []FailedFile{{Path: m.root + venv + "cu13/lib/libcudart.so.13", Error: "libstdc++.so.6: cannot open shared object file: No such file or directory"}}
	if !slices.Equal(l.Failed, failed) {
		t.Errorf("failed %v, want %v", l.Failed, failed)
	}
	if want := "pip install nvidia-cuda-runtime-cu12 nvidia-cublas-cu12, or set MT_CUDA_LIBS"; !strings.Contains(l.Hint, want) {
		t.Errorf("hint %q, want %q in it", l.Hint, want)
	}
	// If a library fails to load in one location, Find uses the next one.
	if b := f.Library(BlasLt); m.where(f, BlasLt) != venv+"cublas/lib/libcublasLt.so.12" || len(b.Failed) != 1 || b.Hint != "" {
		t.Errorf("libcublasLt: %+v", b)
	}
	_, err := f.Open()
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "libcudart.so does not load") || strings.Contains(err.Error(), "libcuda.so not") {
		t.Error(err)
	}
	table := f.String()
	for _, want := range []string{"libcuda ", "12.4", "/loader/libcuda.so.1", "libcudart ", "missing", "pip install", "libstdc++.so.6", "libnvidia-ml"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	raw, err := json.Marshal(f)
	var back struct {
		Libraries []struct{ Library, Path, Hint string }
	}
	if err := errors.Join(err, json.Unmarshal(raw, &back)); err != nil || len(back.Libraries) != 4 || back.Libraries[1].Library != "cudart" || back.Libraries[1].Hint != l.Hint {
		t.Errorf("%v: %s", err, raw)
	}
}

// TestFindTooNew: if the only libcudart found is for a newer CUDA than the driver supports, the
// hint says which packages fit.
func TestFindTooNew(t *testing.T) {
	m := newMachine(t)
	m.path, m.driver = []string{"libcuda.so.1", "libcudart.so.13"}, 12040
	l := m.find().Library(Runtime)
	if want := "it is made for CUDA 13 and the driver serves 12: pip install nvidia-cuda-runtime-cu12 nvidia-cublas-cu12"; !strings.HasPrefix(l.Hint, want) {
		t.Errorf("hint %q", l.Hint)
	}
}

// TestFindDependency: the loader's messages for a missing file and for a missing dependency are
// told apart. Only a missing dependency is reported as a failure.
func TestFindDependency(t *testing.T) {
	for _, test := range []struct {
		text string
		want int
	}{
		{"libcuda.so.1: cannot open shared object file: No such file or directory", 0},
		{"Error loading shared library libcuda.so.1: No such file or directory", 0},
		{"libstdc++.so.6: cannot open shared object file: No such file or directory", 1},
		{"Error loading shared library libm.so.6: No such file or directory (needed by /usr/lib/libcuda.so.1)", 1},
		{"libcuda.so.1: wrong ELF class: ELFCLASS32", 1},
	} {
		m := newMachine(t)
		f := Find(Env{
			Getenv: func(string) string { return "" }, Root: m.root, Symbol: m.symbol,
			Load: func(string) (uintptr, error) { return 0, errors.New(test.text) },
		})
		if got := f.Library(Driver).Failed; len(got) != test.want {
			t.Errorf("%q: failed %v", test.text, got)
		}
	}
}

// TestOpen: Symbol looks up a function in the library that defines it, and returns 0 for a library
// that was not found.
func TestOpen(t *testing.T) {
	f := Found{
		Libraries: []FoundLibrary{{Library: Driver, Required: true, Path: "a", handle: 1}, {Library: Runtime, Required: true, Path: "b", handle: 2}, {Library: BlasLt}},
		symbol:    func(handle uintptr, name string) uintptr { return 100*handle + uintptr(len(name)) },
	}
	s := testkit.Must(f.Open())(t)
	for lib, want := range map[Library]uintptr{Driver: 103, Runtime: 203, BlasLt: 0, ML: 0} {
		if got := s.Symbol(lib, "abc"); got != want {
			t.Errorf("lib%s: %d, want %d", lib, got, want)
		}
	}
}

// TestUnsettlingVariables: settle removes the environment variables that change results of the
// libraries or keep the driver from loading PTX.
func TestUnsettlingVariables(t *testing.T) {
	names := []string{"CUBLAS_EMULATE_SINGLE_PRECISION", "CUBLAS_EMULATE_DOUBLE_PRECISION", "CUBLAS_EMULATION_STRATEGY", "CUDA_DISABLE_PTX_JIT", "CUDA_FORCE_PTX_JIT"}
	for _, name := range names {
		t.Setenv(name, "1")
	}
	t.Setenv("CUDA_VISIBLE_DEVICES", "0")
	ThisMachine()
	for _, name := range names {
		if got, there := os.LookupEnv(name); there {
			t.Errorf("%s is still %q", name, got)
		}
	}
	if os.Getenv("CUDA_VISIBLE_DEVICES") != "0" {
		t.Error("CUDA_VISIBLE_DEVICES was changed")
	}
}

func TestTF32IsNotForced(t *testing.T) {
	for value, want := range map[string]string{"1": "0", "0": "0", "": ""} {
		t.Setenv(tf32Override, value)
		ThisMachine()
		if got := os.Getenv(tf32Override); got != want {
			t.Errorf("%s=%q became %q", tf32Override, value, got)
		}
	}
}
