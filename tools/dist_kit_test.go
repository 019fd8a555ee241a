package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// fakeWheel returns a wheel that has only metadata: its name and the packages that it requires.
func fakeWheel(t *testing.T, name string, needs ...string) file {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w := testkit.Must(z.Create(name + "-1.0.dist-info/METADATA"))(t)
	fmt.Fprintf(w, "Metadata-Version: 2.4\nName: %s\n", name)
	for _, n := range needs {
		fmt.Fprintf(w, "Requires-Dist: %s\n", n)
	}
	testkit.NoError(t, z.Close())
	return file{name: name + "-1.0-py3-none-any.whl", data: b.Bytes()}
}

// fakeSource returns a source distribution that has only metadata. A second PKG-INFO in a subfolder
// must be ignored.
func fakeSource(t *testing.T, name string, needs string) file {
	t.Helper()
	var b bytes.Buffer
	testkit.NoError(t, tarball(&b, name+"-1.0", sample().made, []file{{name: "odd/PKG-INFO", data: []byte("Requires-Dist: other\n")},
		{name: "PKG-INFO", data: []byte("Name: " + name + "\nRequires-Dist: " + needs + "\n")}}))
	return file{name: name + "-1.0.tar.gz", data: b.Bytes()}
}

// served starts a package index that serves these packages. It returns the index, the list that
// pins the packages (packages.txt), and a counter of requests.
func served(t *testing.T, packages ...file) (x index, list string, asked *int) {
	t.Helper()
	asked = new(int)
	mux := http.NewServeMux()
	for _, p := range packages {
		mux.HandleFunc("/simple/"+project(p.name)+"/", func(w http.ResponseWriter, r *http.Request) {
			*asked++
			if r.Header.Get("Accept") != "application/vnd.pypi.simple.v1+json" {
				t.Errorf("%s is asked for as %q", r.URL, r.Header.Get("Accept"))
			}
			fmt.Fprintf(w, `{"files": [{"filename": "odd", "url": "odd"}, {"filename": %q, "url": "../../files/%s"}]}`, p.name, p.name)
		})
		mux.HandleFunc("/files/"+p.name, func(w http.ResponseWriter, _ *http.Request) {
			*asked++
			_, _ = w.Write(p.data)
		})
		list += fmt.Sprintf("%x  %s\n", sha256.Sum256(p.data), p.name)
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return index{url: s.URL + "/simple", cache: filepath.Join(t.TempDir(), "cache")}, list, asked
}

// TestFetch: packages come from the index the first time and from the cache later, also with
// -offline. A damaged file in the cache is fetched again.
func TestFetch(t *testing.T) {
	a, b := fakeWheel(t, "Some_Name"), fakeSource(t, "deep.speed", "torch")
	x, list, asked := served(t, a, b)
	for range 2 {
		got := testkit.Must(x.fetch(t.Context(), list))(t)
		if len(got) != 2 || got[0].name != a.name || !bytes.Equal(got[0].data, a.data) || got[1].name != b.name || !bytes.Equal(got[1].data, b.data) {
			t.Fatalf("fetched %d files, want %s and %s", len(got), a.name, b.name)
		}
		if *asked != 4 {
			t.Fatalf("%d requests, want a page and a file of each package", *asked)
		}
		x.offline = true
	}
	x.offline = false
	kept := filepath.Join(x.cache, fmt.Sprintf("%x-%s", sha256.Sum256(a.data), a.name))
	testkit.NoError(t, os.WriteFile(kept, []byte("half"), 0o600))
	if got, err := x.fetch(t.Context(), list); err != nil || !bytes.Equal(got[0].data, a.data) || *asked != 6 {
		t.Errorf("a damaged file in the cache: %v, after %d requests", err, *asked)
	}
	if left, err := os.ReadDir(x.cache); err != nil || len(left) != 2 {
		t.Errorf("the cache has %v, %v", left, err)
	}
}

// TestFetchRefuses: fetch returns an error for a file that the index lacks, that has another
// SHA-256, or that would need the network with -offline. The error names the file and says what to
// do.
func TestFetchRefuses(t *testing.T) {
	a := fakeWheel(t, "some")
	x, list, _ := served(t, a)
	sum, _, _ := strings.Cut(list, " ")
	other := strings.Repeat("0", 64)
	for _, c := range []struct {
		list    string
		offline bool
		want    string
	}{
		{list, true, "packages.txt:1: some-1.0-py3-none-any.whl is not in " + x.cache + ", and -offline fetches nothing: run once without -offline"},
		{list + other + "  " + a.name, false, "packages.txt:2: " + strings.TrimSuffix(x.url, "simple") + "files/" + a.name + " has SHA-256 " + sum + " and packages.txt says " + other},
		{sum + "  some-2.0.tar.gz", false, "/simple/some/ has no some-2.0.tar.gz among 2 files"},
		{sum + "  none-1.0.tar.gz", false, "/simple/none/: 404"},
		{sum + "  ../some.whl", false, "packages.txt:1: \"" + sum + "  ../some.whl\": want a SHA-256, two spaces and a file's name"},
	} {
		x := x
		x.offline = c.offline
		if _, err := x.fetch(t.Context(), c.list); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("the error is %v, want %s", err, c.want)
		}
	}
	if left, err := os.ReadDir(x.cache); err != nil || len(left) != 1 {
		t.Errorf("the cache has %v, %v, want the file with its own SHA-256 alone", left, err)
	}
}

// TestClosed: closed accepts packages if each requirement is another package of the kit, is
// installed on the machine, or has a condition.
func TestClosed(t *testing.T) {
	packages := []file{fakeSource(t, "deepspeed", "py-cpuinfo>=2.0"), fakeWheel(t, "py_cpuinfo", "torch (>=2)", `colorama; platform_system == "Windows"`)}
	if err := closed(packages); err != nil {
		t.Error(err)
	}
	if err := closed(packages[:1]); err == nil || !strings.Contains(err.Error(), "deepspeed-1.0.tar.gz needs py-cpuinfo>=2.0, which is not in packages.txt") {
		t.Errorf("a package that is missing: %v", err)
	}
	for _, bad := range []file{{name: "a-1.whl", data: []byte("x")}, {name: "a-1.tar.gz", data: []byte("x")}, {name: "a-1.whl", data: smallZip(t)}} {
		if err := closed([]file{bad}); err == nil || !strings.Contains(err.Error(), bad.name) {
			t.Errorf("a package without metadata: %v", err)
		}
	}
}

func smallZip(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	testkit.NoError(t, zip.NewWriter(&b).Close())
	return b.Bytes()
}

// TestKit: the kit has the binary, the scripts, the list of packages and the packages themselves.
// Programs and scripts are executable.
func TestKit(t *testing.T) {
	packages := []file{fakeWheel(t, "some")}
	files, err := kitFiles("..", sample(), []byte("terms"), packages)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	testkit.NoError(t, tarball(&b, "mt-gpu-kit", sample().made, files))
	z, err := gzip.NewReader(&b)
	testkit.NoError(t, err)
	var got []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		testkit.NoError(t, err)
		got = append(got, fmt.Sprintf("%o %s", h.Mode, strings.TrimPrefix(h.Name, "mt-gpu-kit/")))
	}
	want := []string{"755 mt", "644 licences.txt", "644 README.md", "755 install.sh", "644 packages/SHA256SUMS", "755 bench/gpu.sh"}
	peers, err := filepath.Glob("../bench/peers/*.py")
	if err != nil || len(peers) == 0 {
		t.Fatalf("no peers: %v", err)
	}
	for _, p := range peers {
		want = append(want, "644 bench/peers/"+filepath.Base(p))
	}
	if want = append(want, "644 packages/"+packages[0].name); !slices.Equal(got, want) {
		t.Errorf("the kit has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestKitLimit: a kit that is too large is removed, and the error lists the packed bytes of its parts.
func TestKitLimit(t *testing.T) {
	noise := make([]byte, 5000)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	files := []file{{name: "mt", data: make([]byte, 1e6)}, {name: "bench/a", data: noise}, {name: "bench/b", data: noise}, {name: "packages/p.whl", data: noise}}
	name := filepath.Join(t.TempDir(), "mt-gpu-kit-1.tar.gz")
	testkit.NoError(t, os.WriteFile(name, noise, 0o600))
	if err := within(name, files, 5000); err != nil {
		t.Error(err)
	}
	err := within(name, files, 4999)
	if err == nil || !strings.Contains(err.Error(), "mt-gpu-kit-1.tar.gz has 5000 bytes and may have 4999") {
		t.Fatalf("a kit that is too large: %v", err)
	}
	var parts []string
	for _, line := range strings.Split(err.Error(), "\n")[1:] {
		parts = append(parts, strings.Fields(line)[1])
	}
	if want := []string{"bench", "packages/p.whl", "mt"}; !slices.Equal(parts, want) {
		t.Errorf("the parts are %q, want %q: %v", parts, want, err)
	}
	if _, err := os.Stat(name); !os.IsNotExist(err) {
		t.Errorf("the kit is left: %v", err)
	}
}

// TestPins: tools/dist/kit/packages.txt has one file for each project, among them the files that
// install.sh names.
func TestPins(t *testing.T) {
	list, err := os.ReadFile("dist/kit/packages.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		part := packageLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if part == nil || seen[project(part[2])] {
			t.Fatalf("the line %q is none, or its project has another", line)
		}
		seen[project(part[2])] = true
	}
	for _, name := range []string{"deepspeed", "pip", "setuptools", "wheel"} { // install.sh names them
		if !seen[name] {
			t.Errorf("the list has no %s", name)
		}
	}
}
