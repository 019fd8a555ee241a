package cuda

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"mt/base/accounts"
	"mt/cudart"
	"mt/cudart/emu"
	"mt/device"
	"mt/internal/testkit"
)

const page = 4096

// pages returns a slice of the given number of bytes that begins at a page border. Neighbouring
// bytes differ.
func pages(bytes int) []byte {
	b := make([]byte, bytes+page)
	b = b[-address(b)&(page-1):][:bytes]
	for i := range b {
		b[i] = byte(i % 251)
	}
	return b
}

// there copies from to the device and back into to, and fails the test if bytes differ. It reports
// whether a copy went through staging buffers. Both slices may be pinned in pieces or in part.
func there(t *testing.T, d device.Device, to, from []byte) (staged bool) {
	t.Helper()
	m, err := d.Alloc(accounts.Batch, int64(len(from)))
	testkit.NoError(t, err)
	defer d.Free(m)
	s, err := d.NewStream("s")
	testkit.NoError(t, err)
	s.CopyH2D(m, from)
	s.CopyD2H(to, m)
	err = s.Sync()
	staged = on(s).staging.pool != nil
	testkit.NoError(t, errors.Join(err, s.Close()))
	if !bytes.Equal(to, from) {
		t.Error("other bytes came back")
	}
	return staged
}

// TestRegisterInPieces: memory is pinned in pieces, Options.Pinning is called with the progress,
// and copies between any two pieces are not staged.
func TestRegisterInPieces(t *testing.T) {
	var told []int64
	d, drv := newDevice(t, emu.Options{Mode: emu.Random}, Options{PinPiece: 2 * page, Pinning: func(done, total int64) {
		if told = append(told, done); total != 16*page+100 {
			t.Errorf("of %d bytes", total)
		}
	}})
	a, b := pages(10*page), pages(7*page+100)
	a = a[(address(a)+page)%(2*page):][:9*page] // begins within a piece
	calls := drv.Calls()
	testkit.NoError(t, d.RegisterBy(pinThreads, a, b, nil))
	registered := 0
	for i := calls + 1; i <= drv.Calls(); i++ {
		if drv.CallName(i) == "cudaHostRegister" {
			registered++
		}
	}
	if registered < 9 || registered > 11 { // depends on where the two begin
		t.Errorf("%d calls", registered)
	}
	if len(told) != registered || !slices.IsSorted(told) || told[len(told)-1] != 16*page+100 {
		t.Errorf("told %v", told)
	}
	if there(t, d, b[:len(b)-50], a[40:][:len(b)-50]) || there(t, d, b[page:], a[page+1:][:6*page+100]) || drv.PageableCopies() != 0 {
		t.Error("a copy was staged")
	}
	for _, s := range d.spans {
		if s.from != address(a) && s.from != address(b) && s.from%(2*page) != 0 {
			t.Errorf("a piece begins at %#x", s.from)
		}
	}
	d.Unregister(a, b, nil)
	if len(d.registered) != 0 || len(d.spans) != 0 {
		t.Errorf("left: %v", d.spans)
	}
	d.Unregister(a)
	middle := a[2*page : 8*page]
	d.opts.Pinning = nil
	testkit.NoError(t, d.Register(middle))
	defer d.Unregister(middle)
	if n, pinned := d.run(a); pinned || n != 2*page {
		t.Errorf("a run of %d bytes before a pinned one, pinned %v", n, pinned)
	}
}

// inAPiece returns memory that lies within one piece. Where the Go heap puts memory is unknown, so
// it tries several allocations.
func inAPiece(t *testing.T, d *dev, bytes int) []byte {
	t.Helper()
	each := uintptr(d.pieceSize())
	var tried [][]byte // kept, so that no address is returned twice
	for range 20 {
		b := pages(bytes)
		if address(b)/each == (address(b)+uintptr(bytes)-1)/each {
			return b
		}
		tried = append(tried, b)
	}
	t.Fatalf("%d tries lie across pieces of %d bytes", len(tried), each)
	return nil
}

// TestPagesInCommon: tiles whose pages touch are registered as one range, for pages of 4 KiB and
// larger. The driver would refuse the second of two tiles that share a page. Copies of single tiles
// are neither staged nor cut.
func TestPagesInCommon(t *testing.T) {
	const large = 64 << 10
	for name, tc := range map[string]struct {
		page, tile, gap int
		want            int // registrations
	}{
		"tiles in a page":          {large, 3 * page, 0, 1},
		"tiles across pages":       {large, large + page, page, 1},
		"whole pages":              {page, 2 * page, 0, 1},
		"a page between":           {page, page, page, 40},
		"a large page between":     {large, page, large + large, 40},
		"in part on pages between": {large, 2 * page, large - page, 1},
	} {
		t.Run(name, func(t *testing.T) {
			d, drv := newDevice(t, emu.Options{HostPage: tc.page}, Options{Page: int64(tc.page)})
			all := inAPiece(t, d, 40*(tc.tile+tc.gap)+large)
			all = all[-address(all)&(large-1):]
			var tiles [][]byte
			for i := range 40 {
				tiles = append(tiles, all[i*(tc.tile+tc.gap):][:tc.tile])
			}
			tiles[3], tiles[30] = tiles[30], tiles[3] // in any order
			tiles = append(tiles, tiles[7], tiles[8][:100])
			testkit.NoError(t, d.Register(tiles...))
			if made, left := drv.Registrations(); made != tc.want || left != tc.want || len(d.Notes()) != 0 {
				t.Errorf("%d registrations, want %d; notes %q", made, tc.want, d.Notes())
			}
			if there(t, d, tiles[9], tiles[10]) || !pinned(d, tiles[0]) || !pinned(d, tiles[39]) {
				t.Error("a tile is not pinned as a whole")
			}
			d.Unregister(tiles...)
			if made, left := drv.Registrations(); made != tc.want || left != 0 {
				t.Errorf("%d registrations, %d are left", made, left)
			}
		})
	}
}

// TestThousandsOfTiles: the 6,144 tiles of a model's experts need as many registrations as their
// memory has pieces, not one for each tile.
func TestThousandsOfTiles(t *testing.T) {
	const tiles, bytes = 6144, 2 * page
	d, drv := newDevice(t, emu.Options{HostPage: 64 << 10}, Options{Page: 64 << 10, PinPiece: 16 << 20})
	all, memory := pages(tiles*bytes), [][]byte(nil)
	for i := range tiles {
		memory = append(memory, all[i*bytes:][:bytes])
	}
	testkit.NoError(t, d.Register(memory...))
	defer d.Unregister(memory...)
	if made, _ := drv.Registrations(); made > tiles*bytes/(16<<20)+1 {
		t.Errorf("%d registrations", made)
	}
}

// TestThreadsOfRegistering: with n threads, n pieces are registered at a time, and never more.
func TestThreadsOfRegistering(t *testing.T) {
	d, _ := newDevice(t, emu.Options{}, Options{PinPiece: page})
	pieces, total := d.pieces([][]byte{pages(16 * page)})
	for _, threads := range []int{1, 2, 4} {
		var at, most, done atomic.Int64
		d.forAll(pieces, total, threads, func(*piece) {
			for n := at.Add(1); ; {
				if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
					break
				}
			}
			done.Add(1)
			at.Add(-1)
		})
		if most.Load() > int64(threads) || done.Load() != int64(len(pieces)) {
			t.Errorf("%d threads: %d at a time, %d of %d pieces", threads, most.Load(), done.Load(), len(pieces))
		}
	}
}

// TestPiecesAtATime: pinThreads pieces are pinned at the same time. The test hangs if one of them
// waits for another.
func TestPiecesAtATime(t *testing.T) {
	d, _ := newDevice(t, emu.Options{}, Options{PinPiece: page})
	pieces, total := d.pieces([][]byte{pages(2 * pinThreads * page)})
	var met sync.WaitGroup
	met.Add(pinThreads)
	begun := make(chan bool, len(pieces))
	d.forAll(pieces, total, pinThreads, func(*piece) {
		if begun <- true; len(begun) <= pinThreads { // the first ones wait for each other
			met.Done()
			met.Wait()
		}
	})
	if len(begun) != len(pieces) {
		t.Errorf("%d of %d pieces", len(begun), len(pieces))
	}
}

// TestRegisterRefusedInPart: if the system refuses some pieces, the others stay pinned. Copies of
// the refused ones are staged, and the note says how much memory that is.
func TestRegisterRefusedInPart(t *testing.T) {
	d, drv := newDevice(t, emu.Options{RegisterLimit: 5 * page}, Options{PinPiece: page})
	from, to := pages(8*page), make([]byte, 8*page)
	testkit.NoError(t, d.Register(from))
	if len(d.spans) != 5 {
		t.Errorf("%d pieces are pinned", len(d.spans))
	}
	if !there(t, d, to, from) || drv.PageableCopies() != 0 {
		t.Error("a copy was not staged, or left to the driver to stage")
	}
	if notes := d.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "12 KiB of 32 KiB") || !strings.Contains(notes[0], "ulimit -l") {
		t.Errorf("notes %q", notes)
	}
	d.Unregister(from)
	if len(d.spans) != 0 {
		t.Error("pinned after Unregister")
	}
}

// TestRegisterFails: each CUDA call of Register fails in turn. No memory stays pinned, and the
// error says how much memory it was and what the user can do.
func TestRegisterFails(t *testing.T) {
	try := func(o emu.Options) (from, to int, name string) {
		d, drv := newDevice(t, o, Options{PinPiece: page})
		memory := [][]byte{pages(3 * page), pages(5 * page)}
		from = drv.Calls() + 1
		err := d.Register(memory...)
		to = drv.Calls()
		var failed *cudart.Error
		switch {
		case o.FailCall == 0:
			testkit.NoError(t, err)
		case !errors.As(err, &failed) || !strings.Contains(err.Error(), "register 32 KiB of host memory: 4.0 KiB at 0x") || !strings.Contains(err.Error(), "ulimit -l"):
			t.Errorf("call %d (%s): %v", o.FailCall, drv.CallName(o.FailCall), err)
		case len(d.spans) != 0 || len(d.registered) != 0:
			t.Errorf("call %d (%s): pinned after the error: %v", o.FailCall, drv.CallName(o.FailCall), d.spans)
		}
		d.Unregister(memory...)
		return from, to, drv.CallName(o.FailCall)
	}
	from, to, _ := try(emu.Options{})
	if to-from != 15 { // each piece sets the context, and is registered
		t.Errorf("%d calls", to-from+1)
	}
	for call := from; call <= to; call++ {
		try(emu.Options{FailCall: call, FailCode: 999})
	}
}
