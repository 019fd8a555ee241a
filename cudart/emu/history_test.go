package emu

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// naive is a simple model of the driver's history: it records every access to each of 64 bytes.
type naive [64][]struct {
	op    *op
	write bool
}

// races records an access, and reports whether it is unordered with an earlier access to the same
// byte of which one writes.
func (n *naive) races(o *op, s span) bool {
	found := false
	for at := s.from; at < s.to; at++ {
		for _, p := range n[at] {
			found = found || (p.write || s.write) && !p.op.before(o)
		}
		n[at] = append(n[at], struct {
			op    *op
			write bool
		}{o, s.write})
	}
	return found
}

// TestHistoryAgainstEveryByte: up to the first race, the driver, which keeps its history by ranges
// of bytes, finds exactly the races that a history of every byte finds.
func TestHistoryAgainstEveryByte(t *testing.T) {
	raced := 0
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		d := New(Options{})
		r := &region{name: "memory", compact: 1}
		var every naive
		streams := []*stream{d.newStream("a"), d.newStream("b"), d.newStream("c")}
		for i := range 200 {
			s := streams[rng.IntN(len(streams))]
			if other := streams[rng.IntN(len(streams))]; rng.IntN(8) > 0 { // most are ordered
				s.base = s.base.join(other.base).with(other.id, other.n)
			}
			s.n++
			o := &op{stream: s, n: s.n, base: s.base, what: fmt.Sprint("operation ", i)}
			from := rng.Int64N(64)
			x := span{r, from, from + rng.Int64N(65-from), rng.IntN(3) == 0}
			d.touch(o, x)
			want := every.races(o, x)
			if got := len(d.faults) > 0; got != want {
				t.Fatalf("seed %d, operation %d: race found %v, want %v", seed, i, got, want)
			}
			if want {
				raced++
				break
			}
			for j, seg := range r.segments {
				if seg.from >= seg.to || j > 0 && r.segments[j-1].to > seg.from {
					t.Fatalf("seed %d, operation %d: segments %v", seed, i, r.segments)
				}
			}
		}
	}
	if raced < 500 {
		t.Errorf("only %d of 2000 histories had a race", raced)
	}
}

// TestCallbacksSuffice: maxOpen drivers, each with a callback for every C function, stay below
// purego's limit of 2000 callbacks in a process.
func TestCallbacksSuffice(t *testing.T) {
	if n := len(symbols) * maxOpen; n > 1900 {
		t.Errorf("%d drivers of %d functions need %d callbacks", maxOpen, len(symbols), n)
	}
}
