package run

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"mt/checkpoint"
	"mt/checkpoint/powercut"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// linkable returns the scene with optimizer state on disk, in one directory beside the output
// directory. Checkpoints can then be hard links to its files.
func (s scene) linkable(t *testing.T) scene {
	t.Helper()
	return s.onDisks(t).with(fmt.Sprintf("state_dir: %s/states\n", filepath.Dir(s.out)))
}

// stateTensors returns the type, shape and content of each tensor in all optimizer files of a
// checkpoint, by name. It ignores padding. linked is the number of files with padding, which are
// those that are hard links to state files.
func stateTensors(t *testing.T, dir string) (tensors map[string]string, linked int) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "optimizer", "*"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%v in %s, %v", paths, dir, err)
	}
	tensors = map[string]string{}
	for _, path := range paths {
		raw := testkit.Must(os.ReadFile(path))(t)
		n := 8 + binary.LittleEndian.Uint64(raw)
		var head map[string]struct {
			DType string
			Shape []int64
			At    [2]uint64 `json:"data_offsets"`
		}
		if err := json.Unmarshal(raw[8:n], &head); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		padded := false
		for name, v := range head {
			if strings.HasPrefix(name, "padding.") {
				padded = true
			} else if name != "__metadata__" {
				tensors[name] = fmt.Sprint(v.DType, v.Shape, raw[n+v.At[0]:n+v.At[1]])
			}
		}
		if padded {
			linked++
		}
	}
	return tensors, linked
}

// sameStates fails unless two checkpoints have the same optimizer state. Some files of the first
// are hard links to state files; the second has copies only.
func sameStates(t *testing.T, linked, copied string) {
	t.Helper()
	got, n := stateTensors(t, linked)
	want, none := stateTensors(t, copied)
	if n == 0 || none > 0 {
		t.Errorf("%s has %d linked files, %s %d", linked, n, copied, none)
	}
	for name, v := range want {
		if got[name] != v {
			t.Errorf("%s: %s is not as in %s", linked, name, copied)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s has %d tensors, %s %d", linked, len(got), copied, len(want))
	}
	if err := checkpoint.Verify(linked); err != nil {
		t.Error(err)
	}
}

// TestLinkedStates: a checkpoint whose files are hard links to the state files has the content of a
// checkpoint of a run in memory. It keeps this content long after it was saved. Any run resumes it
// with the same bits. Without long tests one resumed run is drawn.
func TestLinkedStates(t *testing.T) {
	testkit.NotShort(t)
	for name, recipe := range map[string]string{"fp32": "", "bf16": "compute_dtype: bf16\n", "fp32-saved": "save_dtype: fp32\n", "tied-unclipped": "tied\ncompute_dtype: bf16\nmax_grad_norm: 0\n",
		"8-bit-bf16-masters": "wide\noptim: adamw_8bit\ncompute_dtype: bf16\nmaster_dtype: bf16\n", "4-bit": "wide\noptim: adamw_torch_4bit\ncompute_dtype: bf16\n",
		"muon": "optim: muon\ncompute_dtype: bf16\n", "experts": "experts\ncompute_dtype: bf16\nmax_grad_norm: 0\nbinding: copy\n",
		"evaluation": "val_size: 2\neval_steps: 3\ncompute_dtype: bf16\n"} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { checkClean(t) })
			want := recipeScene(t, recipe+"save_steps: 2\nrecompute: full\n")
			want.mustTrain(t)
			got := want.in(t).linkable(t)
			out := got.mustTrain(t)
			if strings.Contains(out, "checkpoints copy") {
				t.Error(out)
			}
			sameModel(t, got, want)
			if left, _ := os.ReadDir(filepath.Join(filepath.Dir(got.out), "states")); len(left) > 0 {
				t.Errorf("%v is left in state_dir", left)
			}
			steps := []int{2, 4, 6, 8}
			for _, step := range steps {
				sameStates(t, filepath.Join(got.out, settings.CheckpointName(step)), filepath.Join(want.out, settings.CheckpointName(step)))
			}
			for _, n := range sample(t, 3, 1) {
				how := []string{"in memory", "linking", "with less on disks"}[n-1]
				s := want.in(t)
				switch how {
				case "in memory":
					s = s.with("host_memory: 1GiB\n")
				case "linking":
					s = s.linkable(t)
				default:
					s = s.linkable(t).with(lineOf(want.partOnDisks(t, 4).yaml, "host_memory: "))
				}
				from := settings.CheckpointName(2 + 4*(len(how)%2))
				copyTree(t, filepath.Join(got.out, from), filepath.Join(s.out, from))
				if out := s.mustTrain(t); !strings.Contains(out, "resuming from") {
					t.Errorf("%s: %s", how, out)
				}
				sameModel(t, s, want)
			}
		})
	}
}

// lineOf returns the first line of text that begins with so.
func lineOf(text, so string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, so) {
			return line
		}
	}
	return ""
}

// unlinking is a file system that supports no hard links: a link returns err.
type unlinking struct {
	lazyFS
	err error
}

func (f unlinking) Link(_, to string) error { return &os.LinkError{Op: "link", New: to, Err: f.err} }

// TestStatesAreCopied: if a checkpoint cannot link to the state files, it copies them. One note
// says why, and the run has the same bits.
func TestStatesAreCopied(t *testing.T) {
	testkit.NotShort(t)
	for name, tc := range map[string]struct {
		extra string
		err   error
		why   string // empty: nothing is said
	}{
		"another file system": {err: syscall.EXDEV, why: "output_dir is on another file system"},
		"no links":            {err: syscall.EPERM, why: "a file there can have no second name (operation not permitted)"},
		"striped":             {extra: "striped", why: "they are striped over several directories"},
		"compressed":          {extra: "optimizer_zstd: true\n", why: "optimizer_zstd compresses what is saved"},
		"fp32":                {extra: "compute_dtype: bf16\nsave_dtype: fp32\n", why: "with save_dtype fp32 no lower halves are saved, which are among them"},
		"weights alone":       {extra: "save_only_model: true\n"},
	} {
		t.Run(name, func(t *testing.T) {
			extra, _ := strings.CutPrefix(tc.extra, "striped")
			want := newScene(t, "save_steps: 3\nrecompute: full\n"+extra)
			want.mustTrain(t)
			got := want.in(t).onDisks(t)
			if tc.extra != "striped" {
				got = want.in(t).linkable(t)
			}
			h := settings.Hooks{}
			if tc.err != nil {
				h.FS = unlinking{lazyFS{checkpoint.OS()}, tc.err}
			}
			out := testkit.Must(got.train(t, t.Context(), h))(t)
			says := strings.Count(out, "checkpoints copy the states in state_dir, because "+tc.why+": docs/disks.md")
			if says != 1 && tc.why != "" || tc.why == "" && says != 0 {
				t.Error(out)
			}
			if name == "weights alone" {
				sameModel(t, got, want)
				return
			}
			sameRun(t, got, want)
		})
	}
	got := newScene(t, "save_steps: 3\nrecompute: full\n").linkable(t)
	if out, err := got.train(t, t.Context(), settings.Hooks{FS: unlinking{lazyFS{checkpoint.OS()}, syscall.EIO}}); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "state_dir: ") {
		t.Errorf("an error of the disk: %v\n%s", err, out)
	}
}

// shared is a file system on which the state files leave no room for checkpoints.
type shared struct {
	lazyFS
	state string // the file of states; while it is there, there is hardly any room
}

func (f shared) Free(path string) (int64, error) {
	if _, err := os.Stat(f.state); err == nil {
		return 100 << 10, nil
	}
	return f.FS.Free(path)
}

// TestRoomBesideStates: a run whose state files leave too little disk space for its checkpoints is
// refused before its first step, and leaves no files.
func TestRoomBesideStates(t *testing.T) {
	s := newScene(t, "save_steps: 3\nrecompute: full\n").linkable(t)
	states := filepath.Join(filepath.Dir(s.out), "states")
	out, err := s.train(t, t.Context(), settings.Hooks{FS: shared{lazyFS{checkpoint.OS()}, filepath.Join(states, "mt-state-0.bin")}})
	if err == nil || !strings.Contains(err.Error(), "output_dir "+s.out+" has 100 KiB free and the run takes") || strings.Contains(out, "step 1/") {
		t.Errorf("%v\n%s", err, out)
	}
	if left, _ := os.ReadDir(states); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// TestLinkedFilesStay: later steps do not change a checkpoint's linked files. After the run has
// written its states again, each of these files has a single name. Removing a checkpoint frees its
// disk space.
func TestLinkedFilesStay(t *testing.T) {
	s := newScene(t, "save_steps: 2\nsave_total_limit: 2\nrecompute: full\ncompute_dtype: bf16\n").linkable(t)
	content := map[string]string{} // of files of checkpoints, when they were new
	names := map[string]uint64{}
	look := func(step int) {
		err := filepath.WalkDir(s.out, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Base(filepath.Dir(path)) != "optimizer" || strings.Contains(path, ".tmp") {
				return err
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if was, ok := content[path]; ok && was != string(raw) {
				t.Errorf("step %d: %s has changed", step, path)
			}
			content[path] = string(raw)
			info, err := d.Info()
			if err != nil {
				return err
			}
			names[path] = uint64(info.Sys().(*syscall.Stat_t).Nlink)
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a checkpoint is removed meanwhile
			t.Error(err)
		}
	}
	if out, err := s.train(t, t.Context(), settings.Hooks{Stepped: look}); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	clear(names)
	look(9)
	if len(names) == 0 {
		t.Error("nothing is left")
	}
	for path, n := range names {
		if n != 1 {
			t.Errorf("%s has %d names when the run has ended", path, n)
		}
	}
	kept := testkit.Must(os.ReadDir(s.out))(t)
	for _, e := range kept {
		if checkpoint.IsCheckpoint(e) && !slices.Contains([]string{"checkpoint-6", "checkpoint-8"}, e.Name()) {
			t.Errorf("%s is left", e.Name())
		}
	}
}

// TestDamagedLink: Verify detects a changed linked file. A resuming run names the file and the
// tensor, and resumes from the checkpoint before.
func TestDamagedLink(t *testing.T) {
	testkit.NotShort(t)
	want := newScene(t, "save_steps: 3\nrecompute: full\ncompute_dtype: bf16\n")
	want.mustTrain(t)
	s := want.in(t).linkable(t)
	if out, err := s.interrupted(t, func(cancel func()) settings.Hooks { return stopsAfter(6, cancel) }); err == nil {
		t.Fatal(out)
	}
	dir := filepath.Join(s.out, "checkpoint-7")
	for _, path := range slices.Sorted(maps.Keys(linkedFiles(t, dir))) {
		raw := testkit.Must(os.ReadFile(path))(t)
		for _, at := range []int{20, 4096, len(raw) - 1} { // the header, a tensor, padding or a tensor
			raw[at] ^= 1
			write(t, path, string(raw))
			if err := checkpoint.Verify(dir); err == nil || !strings.Contains(err.Error(), "optimizer/"+filepath.Base(path)) || at > 20 && !strings.Contains(err.Error(), "tensor ") {
				t.Errorf("byte %d of %s: %v", at, path, err)
			}
			raw[at] ^= 1
			write(t, path, string(raw))
		}
		testkit.NoError(t, checkpoint.Verify(dir))
	}
	path := slices.Min(slices.Collect(maps.Keys(linkedFiles(t, dir))))
	raw := testkit.Must(os.ReadFile(path))(t)
	raw[4096] ^= 1
	write(t, path, string(raw))
	out := s.mustTrain(t)
	if !strings.Contains(out, "resuming from "+s.out+"/checkpoint-6") || !strings.Contains(out, filepath.Base(path)) || !strings.Contains(out, "damaged: checksum") {
		t.Error(out)
	}
	sameModel(t, s, want)
}

// linkedFiles returns the names of the files of a checkpoint that are hard links to the run's state
// files.
func linkedFiles(t *testing.T, dir string) map[string]bool {
	t.Helper()
	paths := testkit.Must(filepath.Glob(filepath.Join(dir, "optimizer", "layer-*")))(t)
	out := map[string]bool{}
	for _, path := range paths {
		raw := testkit.Must(os.ReadFile(path))(t)
		if strings.Contains(string(raw[:8+binary.LittleEndian.Uint64(raw)]), `"padding.`) {
			out[path] = true
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s has no linked file", dir)
	}
	return out
}

// TestPowerCutWithLinks: after a power cut at any time, the newest checkpoint is complete and
// belongs to the last finished save. This holds although the run keeps writing to the linked state
// files.
func TestPowerCutWithLinks(t *testing.T) {
	testkit.NotShort(t)
	s := newScene(t, "save_steps: 2\nsave_total_limit: 1\nrecompute: full\ncompute_dtype: bf16\n").linkable(t)
	root := filepath.Dir(s.out)
	var d *powercut.Disk
	linked := false
	cut := cutEvery(t, &d, func(left string) { checkLeft(t, filepath.Join(left, filepath.Base(s.out)), false) })
	d = testkit.Must(powercut.New(root, func(op string) {
		linked = linked || strings.HasPrefix(op, "link layer-")
		cut(op)
	}))(t)
	if out, err := s.train(t, t.Context(), settings.Hooks{FS: d}); err != nil || !linked {
		t.Fatalf("linked %t, %v\n%s", linked, err, out)
	}
}

// TestFilesOfNoUseGo: a killed run leaves state files in state_dir. The next run removes them, even
// if it has enough memory to keep its own state there. State files of other runs stay.
func TestFilesOfNoUseGo(t *testing.T) {
	s := newScene(t, "recompute: full\n")
	states := filepath.Join(filepath.Dir(s.out), "states")
	s = s.with("state_dir: " + states + "\nhost_memory: 1GiB\n")
	testkit.NoError(t, os.MkdirAll(states, 0o755))
	put := func(name, run string) {
		t.Helper()
		head := fmt.Appendf(nil, `{"format":"mt state, version 1","run":%q}`, run)
		testkit.NoError(t, os.WriteFile(filepath.Join(states, name), append(head, strings.Repeat("\n", 4096-len(head))...), 0o644))
	}
	put("mt-state-0.bin", s.out)
	put("mt-state-0-00001.bin", s.out)
	put("mt-grads-0.bin", "/runs/other")
	s.mustTrain(t)
	left, err := os.ReadDir(states)
	if err != nil || len(left) != 1 || left[0].Name() != "mt-grads-0.bin" {
		t.Errorf("%v is left, %v", left, err)
	}
}
