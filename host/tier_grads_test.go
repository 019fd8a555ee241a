package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"mt/base/accounts"
	"mt/host/extents"
	"mt/host/optim"
	"mt/internal/testkit"
)

// TestGradientsOfATier: a gradient written to disk returns to its layer's state slot, behind state
// and tile, and none of the three overwrites another. If a gradient or state was changed on disk,
// reading it returns an error with the layer's name.
func TestGradientsOfATier(t *testing.T) {
	layouts := layouts(true)
	planes := optim.Planes(optim.AdamW{}.Planes)
	dir := t.TempDir()
	tier := Tier{StateOnDisk: make([]bool, len(layouts)), TileOnDisk: make([]bool, len(layouts)), Slots: 1}
	open := func(name string, size func(i int) int64) *extents.Files {
		o := extents.Options{Dirs: []string{dir}, Name: name, Run: "r"}
		for i := range layouts {
			o.Bytes, o.Names = append(o.Bytes, size(i)), append(o.Names, fmt.Sprintf("%s of layer %d", name, i))
		}
		files := testkit.Must(extents.Open(o))(t)
		t.Cleanup(func() { _ = files.Close() })
		return files
	}
	for i := range layouts {
		tier.StateOnDisk[i], tier.TileOnDisk[i] = true, i == 2
		tier.Grads = append(tier.Grads, int64(i)*2*extents.BlockBytes) // the first has none
	}
	tier.Extents = open("state", func(i int) int64 {
		return optim.ExtentBytes(layouts[i], planes.Of(layouts[i]), optim.Whole(layouts[i]))
	})
	tier.TileExtents = open("tile", func(i int) int64 { return tier.tileBytes(i, layouts[i]) })
	tier.GradExtents = open("gradient", tier.gradBytes)
	s, err := NewTieredStore(layouts, planes, nil, tier, nil)
	testkit.NoError(t, err)
	defer s.Close()
	slab, err := NewArena(accounts.GradientSlabs, 2*extents.BlockBytes*int64(len(layouts)), nil)
	testkit.NoError(t, err)
	defer slab.Close()
	put := func(i int) {
		t.Helper()
		b := slab.Bytes()[:tier.Grads[i]]
		for k := range b {
			b[k] = byte(1 + i + k%5)
		}
		testkit.NoError(t, s.PutGrad(i, b))
		clear(b)
	}
	for i := 1; i < len(layouts); i++ {
		put(i)
	}
	for i := 1; i < len(layouts); i++ {
		testkit.NoError(t, s.WithLayer(i, true, func(l *LayerState) error {
			for _, p := range l.Planes {
				for k := range p.Data {
					p.Data[k] = 7
				}
			}
			if err := s.FetchGrad(i); err != nil {
				return err
			}
			g := s.Grad(i)
			for k := range g {
				if g[k] != byte(1+i+k%5) {
					t.Fatalf("byte %d of the gradient of layer %d is not what was put", k, i)
				}
			}
			if int64(len(g)) != tier.Grads[i] {
				t.Errorf("%d bytes of gradient of layer %d", len(g), i)
			}
			for _, p := range l.Planes {
				if slices.ContainsFunc(p.Data, func(b byte) bool { return b != 7 }) {
					t.Errorf("the gradient of layer %d lies where its state is", i)
				}
			}
			clear(g)
			return nil
		}))
	}
	put(1)
	change := func(name string, at int64) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0)
		testkit.NoError(t, err)
		_, err = f.WriteAt([]byte{99}, extents.BlockBytes+at) // extents follow the header
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	change("gradient", 3)
	err = s.WithLayer(1, false, func(*LayerState) error { return s.FetchGrad(1) })
	var bad *extents.Damaged
	if !errors.As(err, &bad) || bad.Name != "gradient of layer 1" {
		t.Errorf("with a gradient that has changed: %v", err)
	}
	change("state", optim.ExtentBytes(layouts[0], planes.Of(layouts[0]), optim.Whole(layouts[0]))+3)
	err = s.WithLayer(1, false, func(*LayerState) error { t.Error("a layer is lent whose state has changed"); return nil })
	if !errors.As(err, &bad) || bad.Name != "state of layer 1" {
		t.Errorf("with a state that has changed: %v", err)
	}
}
