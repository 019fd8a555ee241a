package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestManifestThatLies: what a manifest says is held against the files by Latest
// and by Load alike, also where its own checksum is right.
func TestManifestThatLies(t *testing.T) {
	c := small(t)
	layers := newLayers(c, true)
	fillLayers(layers, 2)
	state := func(m *manifest) *fileRecord { // of the first layer's optimizer file
		for i := range m.Files {
			if strings.HasPrefix(m.Files[i].Name, "optimizer/") {
				return &m.Files[i]
			}
		}
		t.Fatal("the manifest lists no optimizer file")
		return nil
	}
	for name, c := range map[string]struct {
		edit func(m *manifest)
		says string
	}{
		"the truth":                     {func(m *manifest) {}, ""},
		"a later version":               {func(m *manifest) { m.Version++ }, "this program reads"},
		"no version":                    {func(m *manifest) { m.Version = 0 }, "this program reads"},
		"another format":                {func(m *manifest) { m.Format += "s" }, "format"},
		"a file not covered":            {func(m *manifest) { state(m).Regions[0].Bytes-- }, "makes no sense"},
		"a file covered beyond its end": {func(m *manifest) { state(m).Regions[0].Bytes++ }, "makes no sense"},
		"a file without regions":        {func(m *manifest) { state(m).Regions = nil }, "makes no sense"},
		"a longer file": {func(m *manifest) {
			r := state(m)
			r.Bytes--
			r.Regions[len(r.Regions)-1].Bytes--
		}, "bytes long, not"},
		"a shorter file": {func(m *manifest) {
			r := state(m)
			r.Bytes++
			r.Regions[len(r.Regions)-1].Bytes++
		}, "bytes long, not"},
		"another checksum of the first region": {func(m *manifest) { state(m).Regions[0].CRC32C ^= 1 }, "damaged: checksum"},
		"another checksum of the last region": {func(m *manifest) {
			r := state(m).Regions
			r[len(r)-1].CRC32C ^= 1 << 31
		}, "damaged: checksum"},
	} {
		for _, zstd := range []bool{false, true} {
			out := fastDir(t)
			o := options(small(t), layers, BF16)
			o.FS, o.Zstd = &faultyFS{}, zstd
			if err := save(out, layers, o, testState); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(out, "checkpoint-20")
			var m manifest
			file := filepath.Join(dir, manifestName)
			if err := json.Unmarshal(read(t, file), &m); err != nil {
				t.Fatal(err)
			}
			c.edit(&m)
			text, err := m.sealed()
			if err == nil {
				err = os.WriteFile(file, text, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			got, _, skipped, err := Latest(out, nil)
			if c.says == "" {
				if err != nil || got != dir {
					t.Errorf("%s, zstd %t: %q, %v", name, zstd, got, err)
				}
				continue
			}
			if err != nil || got != "" || len(skipped) != 1 || !strings.Contains(skipped[0].Why, c.says) {
				t.Errorf("%s, zstd %t: Latest gives %q, %v, %v; want %q", name, zstd, got, skipped, err, c.says)
			}
			// A file's header is held against what it must say, not against its checksum.
			if _, err := Load(dir, newLayers(small(t), true), nil); (err == nil || !strings.Contains(err.Error(), c.says)) && !(strings.Contains(name, "first region") && !zstd) {
				t.Errorf("%s, zstd %t: Load says %v; want %q", name, zstd, err, c.says)
			}
		}
	}
}

// TestDamagedHeader: a header that says the same of its tensors, and is not as it was
// written, is damage, and the error names it.
func TestDamagedHeader(t *testing.T) {
	out, _ := twoSaves(t)
	name := filepath.Join(out, "checkpoint-20", singleName)
	text := read(t, name)
	other := bytes.Replace(text, []byte(`{"format":"pt"}`), []byte(`{"format":"tf"}`), 1)
	if bytes.Equal(other, text) {
		t.Fatalf("the header is %q", text[8:80])
	}
	write(t, name, other)
	dir, state, skipped, err := Latest(out, nil)
	if err != nil || state.Step != 10 || len(skipped) != 1 || !strings.Contains(skipped[0].Why, singleName+": its header: damaged: checksum") {
		t.Errorf("%q, %v, %v", dir, skipped, err)
	}
}

// TestStateFileLacksATensor: a file that lacks moments is an error; they are not taken
// to be zero.
func TestStateFileLacksATensor(t *testing.T) {
	l := newLayers(small(t), true)[1]
	all := optimizerFile(1, l.Layout, planes.Of(l.Layout), BF16, false).entries
	for lacking := range all {
		var kept []*entry
		for i, e := range all {
			if i != lacking {
				kept = append(kept, e)
			}
		}
		text := headerBytes(kept)
		for _, e := range kept {
			text = append(text, make([]byte, e.bytes)...)
		}
		lacks, err := readStateTensors(bytes.NewReader(text), int64(len(text)), fileRecord{}, 1, l, wanted{lo: true, planes: true})
		if err != nil || len(lacks) != 1 || lacks[all[lacking].name] == nil {
			t.Errorf("without %s: it lacks %v, %v", all[lacking].name, lacks, err)
		}
	}
}

// TestExchangeByRenames: where a file system cannot swap two directories, three
// renames do, and whichever fails both directories are where they were.
func TestExchangeByRenames(t *testing.T) {
	for failAt := range 4 { // 0: none
		dir := fastDir(t)
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		for path, content := range map[string]string{a: "new", b: "old"} {
			if err := os.Mkdir(path, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(path, "f"), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		err := exchange(&faultyFS{failAt: failAt, err: errDisk}, a, b)
		inA, inB := "new", "old"
		if failAt == 0 {
			inA, inB = "old", "new"
		}
		if (err == nil) != (failAt == 0) || failAt > 0 && !errors.Is(err, errDisk) {
			t.Errorf("rename %d fails: %v", failAt, err)
		}
		if got := names(t, dir); len(got) != 2 {
			t.Errorf("rename %d fails: %v are left", failAt, got)
		}
		if x, y := string(read(t, filepath.Join(a, "f"))), string(read(t, filepath.Join(b, "f"))); x != inA || y != inB {
			t.Errorf("rename %d fails: a is the %s one and b the %s one", failAt, x, y)
		}
	}
}
