package cpu

import (
	"bytes"
	"testing"
	"time"

	"mt/internal/accounts"
)

// TestLinkLimit: copies over a link with a limit take at least their time, all of a stream's
// together, and bring the same bytes.
func TestLinkLimit(t *testing.T) {
	const n = 100 << 10
	d, err := New(Options{Threads: 1, LinkLimit: 20 * n}) // 50 ms for n bytes
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	mem, err := d.Alloc(accounts.Workspace, n)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(mem)
	s, err := d.NewStream("h2d")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	from, to := bytes.Repeat([]byte("link"), n/4), make([]byte, n)
	began := time.Now()
	s.CopyH2D(mem.Slice(0, n/2), from[:n/2])
	s.CopyH2D(mem.Slice(n/2, n/2), from[n/2:])
	s.CopyD2H(to, mem)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 99*time.Millisecond || !bytes.Equal(from, to) {
		t.Errorf("twice %d bytes took %v at %d bytes a second, and are the same: %t", n, took, 20*n, bytes.Equal(from, to))
	}
}
