package checkpoint

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mt/internal/long"
)

// twoSaves writes checkpoint-10 and checkpoint-20 and returns where, and the
// layers.
func twoSaves(t *testing.T) (string, []Layer) {
	t.Helper()
	c := small(t)
	layers := newLayers(c, true)
	fillLayers(layers, 2)
	out := fastDir(t)
	for _, step := range []int{10, 20} {
		s := testState
		s.Step = step
		if err := saveStep(out, layers, c, s); err != nil {
			t.Fatal(err)
		}
	}
	return out, layers
}

// brokenFile is a file of which the disk gives only the beginning.
type brokenFile struct {
	fs.File
	path string
	left int
}

func (f *brokenFile) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, &fs.PathError{Op: "read", Path: f.path, Err: syscall.EIO}
	}
	n, err := f.File.Read(p[:min(len(p), f.left)])
	f.left -= n
	return n, err
}

// TestDiskErrorIsNotDamage: where a file of the newest checkpoint cannot be read, or
// opened, that error comes back and no older checkpoint is taken.
func TestDiskErrorIsNotDamage(t *testing.T) {
	out, _ := twoSaves(t)
	records, err := readManifest(filepath.Join(out, "checkpoint-20"), openFile)
	if err != nil {
		t.Fatal(err)
	}
	files := []string{manifestName}
	for name := range records {
		files = append(files, name)
	}
	for _, name := range append(files, nonFiniteName) {
		if name == nonFiniteName { // last, since a marked checkpoint is passed over unread
			if _, _, err := MarkNonFinite(osFS{}, out, 20, 20, 21); err != nil {
				t.Fatal(err)
			}
		}
		bad := filepath.Join(out, "checkpoint-20", filepath.FromSlash(name))
		for what, open := range map[string]func(string) (fs.File, error){
			"not opened": func(path string) (fs.File, error) {
				return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EIO}
			},
			"not read": func(path string) (fs.File, error) {
				f, err := openFile(path)
				return &brokenFile{f, path, 0}, err
			},
			"read in part": func(path string) (fs.File, error) {
				f, err := openFile(path)
				return &brokenFile{f, path, 1}, err
			},
		} {
			dir, _, skipped, err := latest(out, nil, func(path string) (fs.File, error) {
				if path == bad {
					return open(path)
				}
				return openFile(path)
			})
			if dir != "" || skipped != nil || !errors.Is(err, syscall.EIO) || !IsDiskError(err) || !strings.Contains(err.Error(), bad) || !strings.Contains(err.Error(), "try again") {
				t.Errorf("%s %s: %q, %v, %v", name, what, dir, skipped, err)
			}
		}
	}
}

func TestIsDiskError(t *testing.T) {
	for err, want := range map[error]bool{
		syscall.EIO: true, syscall.EACCES: true, syscall.EMFILE: true, syscall.ESTALE: true, syscall.ENOMEM: true,
		syscall.ENOENT: false, syscall.EISDIR: false, syscall.ENOTDIR: false, syscall.ELOOP: false,
	} {
		if got := IsDiskError(&fs.PathError{Op: "read", Path: "x", Err: err}); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
	if IsDiskError(errors.New("damaged")) {
		t.Error("damage is an error of the disk")
	}
}

// unseal applies change to the manifest of a checkpoint and writes it as one of version
// 1, which has no checksum of its own.
func unseal(t *testing.T, dir string, change func(m *manifest)) []byte {
	t.Helper()
	name := filepath.Join(dir, manifestName)
	var m manifest
	if err := json.Unmarshal(read(t, name), &m); err != nil {
		t.Fatal(err)
	}
	if m.Version != manifestVersion {
		t.Fatalf("version %d", m.Version)
	}
	m.Version = unsealedVersion
	if change != nil {
		change(&m)
	}
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	write(t, name, text)
	return text
}

// TestOlderManifest: checkpoints of version 1 load.
func TestOlderManifest(t *testing.T) {
	out, layers := twoSaves(t)
	unseal(t, filepath.Join(out, "checkpoint-20"), nil)
	dir, state, skipped, err := Latest(out, nil)
	if err != nil || state.Step != 20 || skipped != nil {
		t.Fatalf("%q, %v, %v", dir, skipped, err)
	}
	to := newLayers(small(t), true)
	if _, err := Load(dir, to, nil); err != nil {
		t.Fatal(err)
	}
	sameValues(t, values(to), values(layers))
}

// TestFlippedManifest: whichever bit of a manifest is flipped, the checkpoint is passed
// over or, with a manifest of version 1, may load as it was: only later versions have a
// checksum of their own.
func TestFlippedManifest(t *testing.T) {
	long.NotShort(t)
	out, layers := twoSaves(t)
	dir := filepath.Join(out, "checkpoint-20")
	name := filepath.Join(dir, manifestName)
	want := values(layers)
	every := 23 * long.Every(t, 5) // prime to 8: all bits come round
	for version, text := range map[int][]byte{manifestVersion: read(t, name), unsealedVersion: unseal(t, dir, nil)} {
		stayed := 0
		for bit := 0; bit < 8*len(text); bit += every {
			flipped := append([]byte(nil), text...)
			flipped[bit/8] ^= 1 << (bit % 8)
			write(t, name, flipped)
			got, state, skipped, err := Latest(out, nil)
			if err != nil || state.Step == 10 && len(skipped) != 1 {
				t.Fatalf("version %d, bit %d: %q, %v, %v", version, bit, got, skipped, err)
			}
			if state.Step != 20 {
				continue
			}
			stayed++
			to := newLayers(small(t), true)
			if _, err := Load(got, to, nil); err != nil {
				t.Errorf("version %d, bit %d, %q: it verifies and does not load: %v", version, bit, flipped[max(0, bit/8-20):][:40], err)
				continue
			}
			sameValues(t, values(to), want)
		}
		if version == manifestVersion && stayed > 0 {
			t.Errorf("%d flipped bits of a manifest with a checksum are not noticed", stayed)
		}
	}
}

// TestRecordedTwice: a manifest that has one file twice, and lacks another, is
// damaged.
func TestRecordedTwice(t *testing.T) {
	out, _ := twoSaves(t)
	unseal(t, filepath.Join(out, "checkpoint-20"), func(m *manifest) {
		for i := range m.Files {
			if m.Files[i].Name == optimizerName(0, false) {
				m.Files[i].Name = optimizerName(1, false)
			}
		}
	})
	dir, state, skipped, err := Latest(out, nil)
	if err != nil || state.Step != 10 || len(skipped) != 1 || !strings.Contains(skipped[0].Why, `the entry of "optimizer/layer-00001.safetensors" makes no sense`) {
		t.Errorf("%q, %v, %v", dir, skipped, err)
	}
}

// TestUnusable: a checkpoint that the caller could not use is skipped.
func TestUnusable(t *testing.T) {
	out, _ := twoSaves(t)
	newest := filepath.Join(out, "checkpoint-20")
	dir, state, skipped, err := Latest(out, map[string]string{newest: "it does not load"})
	if err != nil || state.Step != 10 || len(skipped) != 1 || skipped[0] != (Skipped{Dir: newest, Why: "it does not load"}) {
		t.Errorf("%q, %v, %v", dir, skipped, err)
	}
	_ = os.RemoveAll(filepath.Join(out, "checkpoint-10"))
	if dir, _, _, err := Latest(out, map[string]string{newest: "no"}); dir != "" || err != nil {
		t.Errorf("%q, %v", dir, err)
	}
}
