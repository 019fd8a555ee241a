package cpu

import (
	"bytes"
	"testing"
	"time"

	"mt/base/accounts"
	"mt/internal/testkit"
)

// TestLinkLimit: with LinkLimit, the copies of a stream together take at least the time that the
// limit demands, and copy the right bytes.
func TestLinkLimit(t *testing.T) {
	const n = 100 << 10
	d, err := New(Options{Threads: 1, LinkLimit: 20 * n}) // 50 ms for n bytes
	testkit.NoError(t, err)
	defer d.Close()
	mem, err := d.Alloc(accounts.Workspace, n)
	testkit.NoError(t, err)
	defer d.Free(mem)
	other := newDevice(t, Options{Threads: 1})
	there := alloc(t, other, n)
	s, err := d.NewStream("h2d")
	testkit.NoError(t, err)
	defer s.Close()
	from, to := bytes.Repeat([]byte("link"), n/4), make([]byte, n)
	began := time.Now()
	s.CopyH2D(mem.Slice(0, n/2), from[:n/2])
	s.CopyH2D(mem.Slice(n/2, n/2), from[n/2:])
	s.CopyD2H(to, mem)
	s.CopyPeer(other, there, mem)
	testkit.NoError(t, s.Sync())
	if took := time.Since(began); took < 149*time.Millisecond || !bytes.Equal(from, to) {
		t.Errorf("three times %d bytes took %v at %d bytes a second, and are the same: %t", n, took, 20*n, bytes.Equal(from, to))
	}
}

// TestLinkClock: link lets a copy begin once it is enqueued, its waits are complete and the
// previous copy has ended, even if the stream's goroutine is late. A copy that takes longer than
// the limit demands counts with its own time.
func TestLinkClock(t *testing.T) {
	zero := time.Now()
	at := func(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }
	var l link
	for i, c := range []struct {
		waited   []int // ms
		enqueued int   // ms
		took     time.Duration
		ends     int // ms
	}{
		{nil, 5, 0, 15},                       // enqueued last
		{nil, 6, 0, 25},                       // after the copy before
		{[]int{40, 30}, 7, 0, 50},             // after the later of its waits
		{nil, 9, 25 * time.Millisecond, 75},   // slow memory
		{nil, 200, 5 * time.Millisecond, 210}, // the link was idle
	} {
		for _, ms := range c.waited {
			l.waited(&mark{at: at(ms)})
		}
		if got := l.copied(1000, at(c.enqueued), c.took, 100e3); !got.Equal(at(c.ends)) {
			t.Errorf("copy %d ends after %v, want %v", i, got.Sub(zero), at(c.ends).Sub(zero))
		}
	}
}
