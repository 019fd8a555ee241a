package host

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"mt/host/extents"
	"mt/host/optim"
	"mt/internal/testkit"
)

// TestTieredStore: states and tiles on disk are zero at first and later have the content written
// last. A layer whose state is only on disk cannot be acquired.
func TestTieredStore(t *testing.T) {
	for _, tiles := range [][]bool{nil, {false, false, true, false}} {
		testTieredStore(t, tiles)
	}
}

func testTieredStore(t *testing.T, tiles []bool) {
	layouts := layouts(true)
	planes := optim.Planes(optim.AdamW{}.Planes)
	o := extents.Options{Dirs: []string{t.TempDir()}, Name: "states", Run: "r"}
	onDisk := make([]bool, len(layouts))
	for i, l := range layouts {
		onDisk[i] = i != 1
		bytes := int64(0)
		if onDisk[i] {
			bytes = optim.ExtentBytes(l, planes.Of(l), optim.Whole(l))
		}
		o.Bytes, o.Names = append(o.Bytes, bytes), append(o.Names, fmt.Sprint(i))
	}
	files, err := extents.Open(o)
	testkit.NoError(t, err)
	defer files.Close()
	tier := Tier{StateOnDisk: onDisk, Slots: 2, Extents: files}
	if tiles != nil {
		o.Name, o.Bytes, tier.TileOnDisk = "tiles", nil, tiles[:len(layouts)]
		for i, l := range layouts {
			o.Bytes = append(o.Bytes, tier.tileBytes(i, l))
		}
		if tier.TileExtents, err = extents.Open(o); err != nil {
			t.Fatal(err)
		}
		defer tier.TileExtents.Close()
	}
	s, err := NewTieredStore(layouts, planes, nil, tier, nil)
	testkit.NoError(t, err)
	defer s.Close()
	value := func(i, k, at int) byte { return byte(1 + 7*i + 3*k + at) }
	each := func(i int, f func(k int, b []byte)) {
		t.Helper()
		l := testkit.Must(s.Acquire(i))(t)
		f(0, l.LoBytes())
		for k, p := range l.Planes {
			f(1+k, p.Data)
		}
		f(1+len(l.Planes), l.Tile)
	}
	write := func(l *LayerState) error {
		each(l.Layout.Index, func(k int, b []byte) {
			for at := range b {
				b[at] = value(l.Layout.Index, k, at)
			}
		})
		return nil
	}
	isZero := func(l *LayerState) error {
		each(l.Layout.Index, func(k int, b []byte) {
			if slices.ContainsFunc(b, func(x byte) bool { return x != 0 }) {
				t.Errorf("layer %d, plane %d is not zero at first", l.Layout.Index, k)
			}
		})
		return nil
	}
	isWritten := func(l *LayerState) error {
		each(l.Layout.Index, func(k int, b []byte) {
			for at := range b {
				if b[at] != value(l.Layout.Index, k, at) {
					t.Fatalf("layer %d, plane %d, byte %d is not what was written", l.Layout.Index, k, at)
				}
			}
		})
		return nil
	}
	for i := range layouts {
		testkit.NoError(t, s.WithLayer(i, true, write))
		if i+1 < len(layouts) {
			testkit.NoError(t, s.WithLayer(i+1, false, isZero))
		}
	}
	for i, l := range layouts {
		if got := s.Tile(i); (got == nil) != s.TileOnDisk(i) {
			t.Errorf("layer %d, tile away %t, has a tile of %d bytes", i, s.TileOnDisk(i), len(got))
		}
		if s.TileOnDisk(i) {
			b := make([]byte, optim.Pages(l.TileBytes)+extents.BlockBytes)
			b = b[int(-uintptr(unsafe.Pointer(&b[0]))%extents.BlockBytes):][:optim.Pages(l.TileBytes)]
			testkit.NoError(t, s.ReadTile(i, 0, b))
			for at := range b[:l.TileBytes] {
				if b[at] != value(i, 1+len(s.Layers[i].Planes), at) {
					t.Fatalf("byte %d of the tile of layer %d is not what was written", at, i)
				}
			}
		}
		if _, err := s.Acquire(i); onDisk[i] != (err != nil && strings.Contains(err.Error(), "on the disk")) {
			t.Errorf("layer %d, away %t, is acquired with %v", i, onDisk[i], err)
		}
		testkit.NoError(t, s.WithLayer(i, false, isWritten))
	}
	// Two layers are in state slots and not flushed. Settle must write the layer that was changed
	// by an update, and not the other.
	_, before := files.Moved()
	for slot, i := range []int{0, 2} {
		testkit.NoError(t, s.Fetch(i, slot))
		s.Layers[i].changed = i == 2
		each(i, func(k int, b []byte) {
			for at := range b {
				b[at]++
			}
		})
	}
	testkit.NoError(t, s.Settle())
	if _, after := files.Moved(); after-before != s.Layers[2].extentBytes() {
		t.Errorf("settling wrote %d bytes, want the %d of the layer that was updated", after-before, s.Layers[2].extentBytes())
	}
	for _, i := range []int{0, 2} {
		testkit.NoError(t, s.Fetch(i, 0))
		each(i, func(k int, b []byte) {
			if len(b) > 0 && i == 2 && b[0] != value(i, k, 0)+1 {
				t.Errorf("layer %d, plane %d was lost when the store settled", i, k)
			}
		})
		s.Drop(i)
	}
}
