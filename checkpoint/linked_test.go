package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mt/host/optim"
	"mt/internal/testkit"
	"mt/model"
)

// inExtents returns a copy of layers. Those layers whose files o links have their lower halves and
// planes in files of their own in dir, as in a run.
func inExtents(t testing.TB, layers []Layer, o WriterOptions, dir string) []Layer {
	t.Helper()
	var out []Layer
	for i, l := range layers {
		if !o.linked(i) {
			out = append(out, l)
			continue
		}
		var placed []optim.Placed
		for _, p := range l.Planes {
			placed = append(placed, p.Placed)
		}
		mem := make([]byte, optim.ExtentBytes(l.Layout, placed, optim.Whole(l.Layout)))
		at := mem
		if l.Layout.Split() {
			for k, v := range l.Lo {
				at[2*k], at[2*k+1] = byte(v), byte(v>>8)
			}
			at = at[optim.Pages(2*int64(len(l.Lo))):]
		}
		for _, p := range l.Planes {
			copy(at, p.Data)
			at = at[optim.Pages(int64(len(p.Data))):]
		}
		path := filepath.Join(dir, fmt.Sprint("state-", i))
		write(t, path, append(o.Head(i), mem...))
		l.Extent = &Extent{Memory: mem, Pin: func() string { return path }}
		out = append(out, l)
	}
	return out
}

// TestLinked: a checkpoint whose optimizer files are linked, all or some, loads like one whose
// files are written, into memory of any kind. The linked files are the run's own files.
func TestLinked(t *testing.T) {
	for name, tc := range map[string]struct {
		changes  map[string]any
		bf16     bool
		d        DType
		some     bool
		besides  bool // there are lower halves that are in no extent
		noPlanes bool
	}{
		"split":             {bf16: true, d: BF16, besides: true},
		"whole":             {d: BF16, besides: true},
		"whole, saved fp32": {d: F32},
		"some":              {bf16: true, d: BF16, some: true, besides: true},
		"tied":              {changes: map[string]any{"tie_word_embeddings": true}, bf16: true, d: BF16, besides: true},
		"lower halves":      {bf16: true, d: BF16, besides: true, noPlanes: true},
	} {
		t.Run(name, func(t *testing.T) {
			c, dir := config(t, tc.changes), t.TempDir()
			from := newLayers(c, tc.bf16)
			fillLayers(from, 9)
			o := options(c, from, tc.d)
			if tc.noPlanes {
				o.Planes = nil
				for i := range from {
					from[i].Planes = nil
				}
			}
			for i := range from {
				o.Linked = append(o.Linked, !tc.some || i%2 == 1)
			}
			if !o.CanLink() {
				t.Error("these cannot be linked")
			}
			from = inExtents(t, from, o, dir)
			testkit.NoError(t, save(dir, from, o, testState))
			saved := filepath.Join(dir, "checkpoint-20")
			if err := Verify(saved); err != nil {
				t.Error(err)
			}
			if n := treeBytes(saved); n > o.CheckpointBytes() || n < o.CheckpointBytes()-200<<10 {
				t.Errorf("%d bytes, at most %d were expected", n, o.CheckpointBytes())
			}
			for i, linked := range o.Linked {
				a, err := os.Stat(filepath.Join(saved, optimizerName(i, false)))
				b, err2 := os.Stat(filepath.Join(dir, fmt.Sprint("state-", i)))
				if linked && (errors.Join(err, err2) != nil || !os.SameFile(a, b)) || !linked && (err != nil || err2 == nil) {
					t.Errorf("layer %d: %v, %v", i, err, err2)
				}
			}
			if _, err := os.Stat(filepath.Join(saved, lowerName)); (err == nil) != tc.besides {
				t.Errorf("%s: %v", lowerName, err)
			}
			for _, bf16 := range []bool{false, true} {
				to := newLayers(c, bf16)
				if tc.noPlanes {
					for i := range to {
						to[i].Planes = nil
					}
				}
				if got, err := Load(saved, to, nil); err != nil || got.Step != 20 {
					t.Fatal(err)
				}
				sameValues(t, values(to), values(from))
				if !tc.noPlanes {
					shared := newLayers(c, bf16)
					for rank := range 3 {
						testkit.Must(Load(saved, partOf(shared, rank, 3), nil))(t)
					}
					sameValues(t, values(shared), values(from))
				}
				alone := newLayers(c, bf16)
				if _, err := LoadWeights(saved, alone, nil); err != nil {
					t.Error(err)
				}
				weights := values(alone)
				for name, w := range values(from) {
					if !strings.HasPrefix(name, "m.") && !strings.HasPrefix(name, "v.") && fmt.Sprint(weights[name]) != fmt.Sprint(w) {
						t.Errorf("bf16 %t: %s differs without the planes", bf16, name)
					}
				}
			}
		})
	}
}

// TestHeadOfALinkedFile: an extent's file is a valid safetensors file. Its data begin at a page
// boundary, and each tensor has the same offset as its values have in memory.
func TestHeadOfALinkedFile(t *testing.T) {
	c := config(t, nil)
	for i, l := range c.Layouts(true) {
		f := linkedFile(i, l, planes.Of(l))
		h := testkit.Must(readHeader(bytes.NewReader(f.header), -1))(t)
		bytes := optim.ExtentBytes(l, planes.Of(l), optim.Whole(l))
		if h.bytes%optim.PageBytes != 0 || h.end() != h.bytes+bytes || f.bytes != h.end() {
			t.Errorf("layer %d: %d bytes of header, data to %d, and the extent has %d", i, h.bytes, h.end(), bytes)
		}
		lower, m := optim.Pages(2*l.Elems), optim.Pages(4*l.Elems)
		want := map[string]int64{}
		for _, tl := range l.Tensors {
			if tl.Ref {
				continue
			}
			for k, st := range tl.Stored {
				e := tl.Elem + int64(st.Row)*int64(tl.Cols)
				want["m."+st.Name], want["v."+st.Name] = lower+4*e, lower+m+4*e
				if tl.BF16 {
					want["lo."+st.Name] = 2 * e
				}
				_ = k
			}
		}
		for _, in := range h.tensors {
			if at, ok := want[in.name]; ok && in.off-h.bytes != at || !ok && !isPadding(in.name) {
				t.Errorf("layer %d: %s is at byte %d, not %d", i, in.name, in.off-h.bytes, at)
			}
			delete(want, in.name)
		}
		if len(want) > 0 {
			t.Errorf("layer %d lacks %v", i, want)
		}
	}
}

// TestCanLink: an optimizer file can be linked only if the file to be saved has exactly the content
// of the run's file.
func TestCanLink(t *testing.T) {
	c := small(t)
	split, whole := options(c, newLayers(c, true), BF16), options(c, newLayers(c, false), F32)
	for name, tc := range map[string]struct {
		o    WriterOptions
		with func(*WriterOptions)
		can  bool
	}{
		"split":                 {split, func(*WriterOptions) {}, true},
		"split, saved fp32":     {split, func(o *WriterOptions) { o.SaveDType = F32 }, false},
		"whole, saved fp32":     {whole, func(*WriterOptions) {}, true},
		"compressed":            {split, func(o *WriterOptions) { o.Zstd = true }, false},
		"weights alone":         {split, func(o *WriterOptions) { o.ModelOnly = true }, false},
		"as it is if not given": {split, func(o *WriterOptions) { o.SaveDType = "" }, true},
	} {
		if tc.with(&tc.o); tc.o.CanLink() != tc.can {
			t.Errorf("%s: can be linked: %t", name, !tc.can)
		}
	}
}

// TestLowerHalvesBesides: a checkpoint does not load if the file lower.safetensors lacks lower
// halves that a layer needs, or has them in another shape.
func TestLowerHalvesBesides(t *testing.T) {
	c, dir := small(t), t.TempDir()
	layers := newLayers(c, true)
	fillLayers(layers, 3)
	o := options(c, layers, BF16)
	o.Linked = []bool{true, true, true}
	testkit.NoError(t, save(dir, inExtents(t, layers, o, dir), o, testState))
	records := testkit.Must(readManifest(filepath.Join(dir, "checkpoint-20"), openFile))(t)
	norm := func(l model.Layout) map[string]*entry {
		for _, e := range entriesOf(2, l, planeLo) {
			return map[string]*entry{e.name: e}
		}
		return nil
	}
	saved, head := filepath.Join(dir, "checkpoint-20"), layers[2]
	if missing, err := readLower(saved, norm(head.Layout), head, records); err != nil || len(missing) > 0 {
		t.Errorf("it lacks %v, %v", missing, err)
	}
	odd := norm(head.Layout)
	for _, e := range odd {
		e.shape = []int64{5}
	}
	if _, err := readLower(saved, odd, head, records); err == nil || !strings.Contains(err.Error(), lowerName+": tensor \"lo.model.norm.weight\": U16 [14], not U16 [5]") {
		t.Errorf("of another shape: %v", err)
	}
	delete(records, lowerName)
	if missing, err := readLower(saved, norm(head.Layout), head, records); err != nil || len(missing) != 1 {
		t.Errorf("without the file it lacks %v, %v", missing, err)
	}
	if err := loadLayerState(saved, 2, head, wanted{lo: true, planes: true}, records); err == nil || !strings.Contains(err.Error(), "tensor \"lo.model.norm.weight\": missing") {
		t.Errorf("without the file: %v", err)
	}
}

// TestTryLink: TryLink returns the reason why a file cannot have a second name. An error of the
// disk is returned as an error, and no files are left.
func TestTryLink(t *testing.T) {
	for err, says := range map[error]string{nil: "", syscall.EXDEV: "output_dir is on another file system", syscall.EPERM: "a file there can have no second name (operation not permitted)",
		syscall.ENOTSUP: "a file there can have no second name (operation not supported)", syscall.EIO: "error"} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "state"), []byte("state"))
		why, got := TryLink(unlinked{err: err}, dir, filepath.Join(dir, "state"))
		if why != says && says != "error" || (got != nil) != (says == "error") || says == "error" && (!errors.Is(got, err) || !strings.Contains(got.Error(), filepath.Join(dir, "state"))) {
			t.Errorf("%v: %q, %v", err, why, got)
		}
		if left := names(t, dir); len(left) != 1 {
			t.Errorf("%v are left", left)
		}
	}
}

// unlinked is a disk on which creating a hard link fails with err. If err is nil, links succeed.
type unlinked struct {
	osFS
	err error
}

func (f unlinked) Link(from, to string) error {
	if f.err != nil {
		return &os.LinkError{Op: "link", Old: from, New: to, Err: f.err}
	}
	return f.osFS.Link(from, to)
}
