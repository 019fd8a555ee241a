package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/base64"
	"encoding/binary"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"mt/internal/testkit"
)

// sample returns a binary whose content does not matter, with build information as Go records it.
func sample() *mtBinary {
	return &mtBinary{data: []byte("\x7fELF and so on"), made: time.Date(2026, 11, 25, 17, 29, 46, 0, time.UTC), info: &buildinfo.BuildInfo{GoVersion: "go1.26.8",
		Main: debug.Module{Path: "mt", Version: "v0.3.0-rc.1"},
		Deps: []*debug.Module{{Path: "example.org/a/b", Version: "v1.2.3", Sum: "h1:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xab}, 32))}}}}
}

// sampleWheel returns a wheel of the sample binary, and the bytes of the wheel file.
func sampleWheel(t *testing.T, arch string) (*wheel, []byte) {
	t.Helper()
	p, ok := platformOf(arch)
	if !ok {
		t.Fatalf("no platform %s", arch)
	}
	w := testkit.Must(newWheel(sample(), p, []file{{name: "share/man/man1/mt.1", data: []byte(".TH")}}, []byte("terms"), []byte("{}")))(t)
	var b bytes.Buffer
	testkit.NoError(t, w.write(&b))
	return w, b.Bytes()
}

// TestWheel reads a wheel as an installer does. It checks the name and tag, the hash of every file
// in RECORD, that the program is executable, and the required packages.
func TestWheel(t *testing.T) {
	for arch, tag := range map[string]string{"amd64": "py3-none-manylinux_2_28_x86_64", "arm64": "py3-none-manylinux_2_28_aarch64"} {
		w, raw := sampleWheel(t, arch)
		if want := "mt-0.3.0rc1-" + tag + ".whl"; w.name() != want {
			t.Errorf("the wheel is called %s, want %s", w.name(), want)
		}
		z := testkit.Must(zip.NewReader(bytes.NewReader(raw), int64(len(raw))))(t)
		content := map[string][]byte{}
		for _, f := range z.File {
			r, err := f.Open()
			testkit.NoError(t, err)
			if content[f.Name], err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
			if runs := f.Mode()&0o111 != 0; runs != (f.Name == "mt-0.3.0rc1.data/scripts/mt") {
				t.Errorf("%s has the mode %v", f.Name, f.Mode())
			}
			if !f.Modified.Equal(sample().made) {
				t.Errorf("%s is of %v, not of the commit's time", f.Name, f.Modified)
			}
		}
		const info = "mt-0.3.0rc1.dist-info/"
		checkRecord(t, content, info+"RECORD")
		if last := z.File[len(z.File)-1].Name; last != info+"RECORD" {
			t.Errorf("the last file is %s, and RECORD should be", last)
		}
		for name, want := range map[string][]string{
			"mt-0.3.0rc1.data/scripts/mt":               {string(sample().data)},
			"mt-0.3.0rc1.data/data/share/man/man1/mt.1": {".TH"},
			info + "WHEEL": {"Wheel-Version: 1.0\n", "Root-Is-Purelib: false\n", "Tag: " + tag + "\n"},
			info + "METADATA": {"Name: mt\nVersion: 0.3.0rc1\n", "Requires-Dist: nvidia-cuda-runtime>=13,<14\n", "Requires-Dist: nvidia-cublas>=13,<14\n",
				"Requires-Dist: nvidia-cublas-cu12; extra == \"cu12\"\n"},
			info + "licenses/licences.txt": {"terms"},
			info + "sboms/mt.cdx.json":     {"{}"},
		} {
			for _, part := range want {
				if !strings.Contains(string(content[name]), part) {
					t.Errorf("%s is\n%s\nand has no %q", name, content[name], part)
				}
			}
		}
	}
}

// checkRecord compares every file of a wheel with its line in record, the content of the file
// RECORD: hash and size.
func checkRecord(t *testing.T, content map[string][]byte, record string) {
	t.Helper()
	lines := testkit.Must(csv.NewReader(bytes.NewReader(content[record])).ReadAll())(t)
	listed := map[string]bool{}
	for _, l := range lines {
		data, there := content[l[0]]
		sum := sha256.Sum256(data)
		want := []string{l[0], "sha256=" + base64.RawURLEncoding.EncodeToString(sum[:]), fmt.Sprint(len(data))}
		if l[0] == record {
			want = []string{record, "", ""}
		}
		if !there || listed[l[0]] || !slices.Equal(l, want) {
			t.Errorf("RECORD says %q, want %q, once", l, want)
		}
		listed[l[0]] = true
	}
	if len(listed) != len(content) {
		t.Errorf("RECORD lists %d files of %d", len(listed), len(content))
	}
}

// TestSameBytes: packing the same binary twice gives the same bytes, whatever the time.
func TestSameBytes(t *testing.T) {
	_, first := sampleWheel(t, "amd64")
	_, second := sampleWheel(t, "amd64")
	if !bytes.Equal(first, second) {
		t.Error("two wheels of one binary differ")
	}
	var a, b bytes.Buffer
	for _, to := range []*bytes.Buffer{&a, &b} {
		testkit.NoError(t, archive(to, sample(), []file{{name: "share/x", data: []byte("x")}}))
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("two archives of one binary differ")
	}
	z := testkit.Must(gzip.NewReader(&a))(t)
	got := ""
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		testkit.NoError(t, err)
		got += fmt.Sprintf("%s %o %s\n", h.Name, h.Mode, h.ModTime.UTC().Format(time.RFC3339))
	}
	if want := "mt-0.3.0-rc.1/bin/mt 755 2026-11-25T17:29:46Z\nmt-0.3.0-rc.1/share/x 644 2026-11-25T17:29:46Z\n"; got != want {
		t.Errorf("the archive has\n%swant\n%s", got, want)
	}
}

// TestPythonVersion converts Go versions to Python's format. By Python's rules each version in the
// list is newer than the one before it.
func TestPythonVersion(t *testing.T) {
	for _, v := range [][2]string{
		{"v0.0.0-20261125172946-c908312583b7", "0.0.0.dev20261125172946+c908312583b7"},
		{"v0.0.0-20261125172946-c908312583b7+dirty", "0.0.0.dev20261125172946+c908312583b7.dirty"},
		{"v1.2.0-alpha", ""}, {"v1.2.0-alpha.1", "1.2.0a1"}, {"v1.2.0-beta2", "1.2.0b2"}, {"v1.2.0-rc.1", "1.2.0rc1"},
		{"v1.2.0-rc.1.0.20261125172946-c908312583b7", "1.2.0rc1.post0.dev20261125172946+c908312583b7"},
		{"v1.2.0", "1.2.0"}, {"v1.2.0+dirty", "1.2.0+dirty"},
		{"v1.2.1-0.20261125172946-c908312583b7", "1.2.1.dev20261125172946+c908312583b7"},
		{"(devel)", ""}, {"", ""}, {"v1.2", ""}, {"v1.2.3-odd", ""},
	} {
		got, err := pythonVersion(v[0])
		if got != v[1] || (err != nil) != (v[1] == "") {
			t.Errorf("%s is %q, %v, want %q", v[0], got, err, v[1])
		}
	}
}

// linkedIn returns the modules that a bill of materials lists, as path and version, and the whole
// bill.
func linkedIn(t *testing.T, text []byte) (modules []string, whole billOfMaterials) {
	t.Helper()
	testkit.NoError(t, json.Unmarshal(text, &whole))
	for _, c := range whole.Components {
		modules = append(modules, c.Name+" "+c.Version)
	}
	return modules, whole
}

// TestBill: the bill of materials lists each module with its hash, Go's standard library, and the
// binary with its own hash.
func TestBill(t *testing.T) {
	text, err := bill(sample())
	if err != nil {
		t.Fatal(err)
	}
	modules, whole := linkedIn(t, text)
	if want := []string{"example.org/a/b v1.2.3", "std 1.26.8"}; !slices.Equal(modules, want) {
		t.Errorf("lists %q, want %q", modules, want)
	}
	sum := sha256.Sum256(sample().data)
	about, first := whole.Metadata, whole.Components[0]
	if about.Timestamp != "2026-11-25T17:29:46Z" || about.Component.Hashes[0].Content != hex.EncodeToString(sum[:]) ||
		first.PURL != "pkg:golang/example.org/a/b@v1.2.3" || first.Hashes[0].Content != strings.Repeat("ab", 32) {
		t.Errorf("the list is\n%s", text)
	}
	without := sample()
	without.info.Deps[0].Sum = ""
	if _, err := bill(without); err == nil || !strings.Contains(err.Error(), "example.org/a/b v1.2.3") {
		t.Errorf("a module without a checksum: %v", err)
	}
}

// TestBillOfWhatIsLinked builds programs and compares their bills of materials with the modules
// that Go reports for them. Every module has a licence.
func TestBillOfWhatIsLinked(t *testing.T) {
	testkit.NotShort(t)
	t.Run("a small program", func(t *testing.T) { checkBill(t, "./tools") })
	t.Run("mt", func(t *testing.T) { testkit.LongOnly(t); checkBill(t, "./cmd/mt") })
}

func checkBill(t *testing.T, pkg string) {
	const root = ".."
	bin := filepath.Join(t.TempDir(), "program")
	if _, err := output(t.Context(), root, nil, "go", "build", "-buildvcs=false", "-o", bin, pkg); err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	text, err := bill(&mtBinary{info: info})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := linkedIn(t, text)
	want, err := output(t.Context(), root, nil, "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}", pkg)
	if err != nil {
		t.Fatal(err)
	}
	linked := append(strings.Split(want, "\n"), "std "+strings.TrimPrefix(info.GoVersion, "go"))
	linked = slices.DeleteFunc(linked, func(m string) bool { return m == "" }) // packages of no module, or of ours
	slices.Sort(linked)
	slices.Sort(got)
	if linked = slices.Compact(linked); len(linked) < 2 || !slices.Equal(got, linked) {
		t.Errorf("the list has\n%s\nand Go links\n%s", strings.Join(got, "\n"), strings.Join(linked, "\n"))
	}
	terms := testkit.Must(licences(t.Context(), root, info))(t)
	for _, m := range info.Deps {
		if !strings.Contains(string(terms), "== "+m.Path+" "+m.Version+": ") {
			t.Errorf("nothing says on what terms %s may be handed on", m.Path)
		}
	}
}

// TestTerms: all licence files are found, and a missing required licence is an error.
func TestTerms(t *testing.T) {
	dir := t.TempDir()
	var b bytes.Buffer
	if err := terms(&b, "example.org/a", dir, true); err == nil || !strings.Contains(err.Error(), "example.org/a") {
		t.Errorf("a module without a licence: %v", err)
	}
	if err := terms(&b, "mt", dir, false); err != nil || b.Len() > 0 {
		t.Errorf("without ours: %v, %q", err, b.String())
	}
	for _, name := range []string{"LICENSE", "license.md", "NOTICE.txt", "README.md"} {
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("of "+name+"\n"), 0o600))
	}
	testkit.NoError(t, terms(&b, "a", dir, true))
	if want := "== a: LICENSE\n\nof LICENSE\n\n== a: NOTICE.txt\n\nof NOTICE.txt\n\n== a: license.md\n\nof license.md\n\n"; b.String() != want {
		t.Errorf("the terms are\n%s\nwant\n%s", b.String(), want)
	}
}

// TestNewer: newer recognizes symbol versions that need a newer glibc than 2.28.
func TestNewer(t *testing.T) {
	for version, want := range map[string]bool{"": false, "GLIBC_2.2.5": false, "GLIBC_2.28": false, "GLIBC_2.28.1": false, "GLIBC_2.29": true,
		"GLIBC_2.34": true, "GLIBC_3.0": true, "GLIBC_1.99": false, "GLIBC_PRIVATE": true, "GCC_3.0": true} {
		if got := newer(version); got != want {
			t.Errorf("%q is newer than the oldest glibc: %t, want %t", version, got, want)
		}
	}
}

// TestRunsOn: runsOn rejects a static binary. Without a dynamic loader it could not load CUDA's
// libraries.
func TestRunsOn(t *testing.T) {
	b := &mtBinary{data: smallest(t)}
	err := b.runsOn(platforms[0])
	if err == nil || !strings.Contains(err.Error(), `asks for the loader "", not /lib64/ld-linux-x86-64.so.2`) {
		t.Errorf("a static binary: %v", err)
	}
	b.data = []byte("text")
	if err := b.runsOn(platforms[0]); err == nil {
		t.Error("text is taken for a binary")
	}
}

// smallest returns the shortest ELF file that can be read: only a header.
func smallest(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	h := elf.Header64{Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Ehsize: 64, Phentsize: 56, Shentsize: 64}
	testkit.NoError(t, binary.Write(&b, binary.LittleEndian, h))
	return b.Bytes()
}

// TestFolders: dist removes only its own files from the result's folder, and the checksums match the files.
func TestFolders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dist")
	testkit.NoError(t, empty(dir))
	old := filepath.Join(dir, "mt-0.1.0.whl")
	testkit.NoError(t, os.WriteFile(old, []byte("abc"), 0o600))
	testkit.NoError(t, writeSums(dir))
	text, err := os.ReadFile(filepath.Join(dir, sums))
	if want := "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  mt-0.1.0.whl\n"; err != nil || string(text) != want {
		t.Errorf("%s is %q, %v, want %q", sums, text, err, want)
	}
	testkit.NoError(t, empty(dir))
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	for _, name := range []string{"mt-0.1.0.whl", "thesis.txt"} {
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	if err := empty(dir); err == nil || !strings.Contains(err.Error(), "thesis.txt") {
		t.Errorf("a folder with a file of somebody's: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("of a folder with a file of somebody's, %v are left, %v", left, err)
	}
}

// TestSame: for two files that differ, same returns an error with both hashes.
func TestSame(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	for file, text := range map[string]string{a: "abc", b: "abd"} {
		testkit.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	if err := same(a, b); err == nil || !strings.Contains(err.Error(), "ba7816bf") || !strings.Contains(err.Error(), "a52d159f") {
		t.Errorf("files that differ: %v", err)
	}
	if err := same(a, a); err != nil {
		t.Error(err)
	}
}
