package cuda

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
	"mt/internal/testkit"
)

// besideRig is a device that pins host memory on a background goroutine, one page per call of the
// driver. Before a page is pinned, the goroutine sends its piece to begun and waits until the test
// closes open.
type besideRig struct {
	d     *dev
	drv   *emu.Driver
	begun chan *piece
	open  chan struct{}
}

func newBesideRig(t *testing.T, e emu.Options) *besideRig {
	r := &besideRig{begun: make(chan *piece, 1000), open: make(chan struct{})}
	r.d, r.drv = newDevice(t, e, Options{PinPiece: page})
	r.d.beside = func(p *piece) {
		r.begun <- p
		<-r.open
	}
	return r
}

// pieces returns the pages that the latest call of Register left to the background goroutine.
func (r *besideRig) pieces() []piece { return r.d.pinnings[len(r.d.pinnings)-1].pieces }

// TestPinnedBeside: Register returns once the memory that is used first is pinned. A goroutine pins
// the rest, in the order of use. Meanwhile copies of unpinned memory go through staging buffers,
// and copy the right bytes.
func TestPinnedBeside(t *testing.T) {
	r := newBesideRig(t, emu.Options{Mode: emu.Random})
	all := pages(44 * page)
	second, first, third := all[:10*page], all[12*page:][:10*page], all[24*page:][:20*page] // the order by address differs from the order of use
	testkit.NoError(t, r.d.Register(first, nil, second, third))
	if made, _ := r.drv.Registrations(); made != pinThreads || !r.d.pins(first[:pinThreads*page]) {
		t.Errorf("%d pieces are pinned at once; those that are used first: %v", made, r.d.pins(first[:pinThreads*page]))
	}
	rest := r.pieces()
	for i, want := range [][]byte{first[8*page:], first[9*page:], second, second[page:]} {
		if address(rest[i].mem) != address(want) || rest[i].use != pick(i < 2, 0, 2) {
			t.Errorf("piece %d is at %#x, of slice %d", i, address(rest[i].mem), rest[i].use)
		}
	}
	begun := []*piece{<-r.begun, <-r.begun} // pinBeside at a time
	if len(r.begun) != 0 || !slices.Contains(begun, &rest[0]) || !slices.Contains(begun, &rest[1]) {
		t.Errorf("%v and %d more are begun", begun, len(r.begun))
	}
	to := make([]byte, len(all))
	if !there(t, r.d, to, all) || r.drv.PageableCopies() != 0 {
		t.Error("copies from memory that is not pinned yet are not staged")
	}
	if there(t, r.d, first[:page], first[page:2*page]) {
		t.Error("a copy from pinned memory is staged")
	}
	close(r.open)
	r.d.AwaitPinned()
	for _, b := range [][]byte{first, second, third} {
		if !r.d.pins(b) {
			t.Error("memory is not pinned in the end")
		}
	}
	if there(t, r.d, third[:10*page], second) || there(t, r.d, third[5*page+7:][:10*page], first) {
		t.Error("a copy from pinned memory is staged")
	}
	r.d.Unregister(first, nil, second, third)
	if _, left := r.drv.Registrations(); left != 0 || len(r.d.pinnings) != 0 || len(r.d.Notes()) != 0 {
		t.Errorf("%d pieces are left, %d pinnings, notes %q", left, len(r.d.pinnings), r.d.Notes())
	}
}

// pins reports whether every byte of b is pinned, no matter in how many separate pieces.
func (d *dev) pins(b []byte) bool {
	for len(b) > 0 {
		n, is := d.run(b)
		if !is {
			return false
		}
		b = b[n:]
	}
	return true
}

// TestPinningIsStopped: Unregister stops the background pinning of its own memory and no other.
// Close stops all.
func TestPinningIsStopped(t *testing.T) {
	r := newBesideRig(t, emu.Options{})
	a, b := pages(40*page), pages(40*page)
	for _, m := range [][]byte{a, b} {
		testkit.NoError(t, r.d.Register(m))
	}
	ended := make(chan bool)
	stopped := r.d.pinnings[0]
	go func() {
		r.d.Unregister(a)
		close(ended)
	}()
	for !stopped.stop.Load() {
		runtime.Gosched()
	}
	close(r.open)
	<-ended
	r.d.AwaitPinned()
	if made, left := r.drv.Registrations(); made != pinThreads+40 || left != 40 || !r.d.pins(b) {
		t.Errorf("%d registrations, %d are left, of b all: %v", made, left, r.d.pins(b))
	}
	r.open = make(chan struct{})
	testkit.NoError(t, r.d.Register(a))
	last := r.d.pinnings[len(r.d.pinnings)-1]
	go func() { // r.d.Close waits for it
		for !last.stop.Load() {
			runtime.Gosched()
		}
		close(r.open)
	}()
	if err := r.d.Close(); err != nil {
		t.Error(err)
	}
	if made, left := r.drv.Registrations(); left != 0 || made != 2*pinThreads+40 || !last.stop.Load() {
		t.Errorf("after Close %d registrations, %d are left", made, left)
	}
}

// TestPinningRefusedBeside: if the system refuses to lock more memory while the background
// goroutine pins, the user gets the same note as from Register itself.
func TestPinningRefusedBeside(t *testing.T) {
	r := newBesideRig(t, emu.Options{RegisterLimit: 20 * page})
	close(r.open)
	from, to := pages(64*page), make([]byte, 64*page)
	testkit.NoError(t, r.d.Register(from))
	r.d.AwaitPinned()
	if notes := r.d.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "does not pin 176 KiB of 256 KiB") || !strings.Contains(notes[0], "ulimit -l") {
		t.Errorf("notes %q", notes)
	}
	if !there(t, r.d, to, from) || r.drv.PageableCopies() != 0 {
		t.Error("what is not pinned is not staged, or left to the driver to stage")
	}
	if n := len(r.d.registered); n != 20 || !r.d.pins(from[:pinThreads*page]) { // which of the others are registered depends on the threads' timing
		t.Errorf("%d pieces are pinned", n)
	}
	r.d.Unregister(from)
}

// TestPinningFailsBeside: an error of the driver ends background pinning. The error becomes a note,
// and Close returns it. Copies of the memory that stays unpinned go through staging buffers.
func TestPinningFailsBeside(t *testing.T) {
	try := func(fail int) (call int, notes []string, err error) {
		drv := emu.New(emu.Options{FailCall: fail})
		defer drv.Close()
		c, err := cudart.New(drv)
		testkit.NoError(t, err)
		opened, err := New(Options{CUDA: c, PinPiece: page})
		testkit.NoError(t, err)
		d := opened.(*dev)
		var begun atomic.Int64
		d.beside = func(*piece) {
			if begun.Add(1) == 1 {
				call = drv.Calls() + 2
				return
			}
			for made, _ := drv.Registrations(); made == pinThreads; made, _ = drv.Registrations() { // the first one comes first
				if d.pinnings[0].stop.Load() {
					return
				}
				runtime.Gosched()
			}
		}
		from, to := pages((pinThreads+10)*page), make([]byte, (pinThreads+10)*page)
		testkit.NoError(t, d.Register(from))
		d.AwaitPinned()
		if staged := there(t, d, from, from); staged != (fail > 0) || !there(t, d, to, from) {
			t.Errorf("a copy is staged: %v", staged)
		}
		d.Unregister(from)
		if made, left := drv.Registrations(); left != 0 || made != pick(fail > 0, pinThreads, pinThreads+10) {
			t.Errorf("%d registrations, %d are left", made, left)
		}
		err = d.Close()
		return call, d.Notes(), err
	}
	call, notes, err := try(0)
	if err != nil || len(notes) != 0 {
		t.Fatalf("error %v, notes %q", err, notes)
	}
	var failed *cudart.Error
	_, notes, err = try(call)
	if !errors.As(err, &failed) || failed.Op != "cudaHostRegister" || len(notes) != 1 || !strings.Contains(notes[0], "register 72 KiB of host memory: 4.0 KiB at 0x") || !strings.Contains(notes[0], "staging") {
		t.Errorf("error %v, notes %q", err, notes)
	}
}

// TestLeavePinned: without LeavePinned, Unregister unpins memory. After LeavePinned (the process is
// about to end) nothing is unpinned, and background pinning stops. Memory registered later is
// staged and never pinned, because its addresses may be those of memory that is still pinned.
func TestLeavePinned(t *testing.T) {
	for _, leave := range []bool{false, true} {
		drv := emu.New(emu.Options{})
		c, err := cudart.New(drv)
		testkit.NoError(t, err)
		opened, err := New(Options{CUDA: c, PinPiece: page})
		testkit.NoError(t, err)
		d := opened.(*dev)
		a, b, later := pages(20*page), pages(4*page), pages(2*page)
		for _, m := range [][]byte{a, b} {
			testkit.NoError(t, d.Register(m))
		}
		d.AwaitPinned()
		if leave {
			d.LeavePinned()
		}
		d.Unregister(a)
		testkit.NoError(t, d.Register(later))
		made, left := drv.Registrations()
		if d.pins(a) || d.pins(later) == leave || left != pick(leave, 24, 6) || made != pick(leave, 24, 26) {
			t.Errorf("leave %v: %d registrations, %d are left; a is pinned: %v, what came later: %v", leave, made, left, d.pins(a), d.pins(later))
		}
		if !there(t, d, a[page:][:2*page], later) {
			t.Errorf("leave %v: a copy to memory that was unregistered is not staged", leave)
		}
		host, err := d.AllocHost(page)
		if err != nil || pinned(d, host) == leave {
			t.Errorf("leave %v: host memory is pinned: %v, %v", leave, pinned(d, host), err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		checkEmpty(t, d)
		if _, left := drv.Registrations(); left != pick(leave, 24, 0) {
			t.Errorf("leave %v: %d are left after Close", leave, left)
		}
		if err := drv.Close(); leave != (err != nil && strings.Contains(err.Error(), "primary context")) {
			t.Errorf("leave %v: %v", leave, err)
		}
	}
}
