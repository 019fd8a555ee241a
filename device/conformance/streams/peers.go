package streams

import (
	"bytes"
	"strings"
	"testing"

	"mt/device"
)

// Peers tests what two devices that reach each other do together: a copies to b, in the order that
// events of both fix. What is no such copy makes the stream fail; alone is a device that a does not
// reach.
func Peers(t *testing.T, a, b, alone device.Device) {
	for range 2 { // asking again changes nothing
		for _, pair := range [][2]device.Device{{a, b}, {b, a}} {
			if ok, err := pair[0].Reach(pair[1]); !ok || err != nil {
				t.Fatalf("one device reaches the other: %t, %v", ok, err)
			}
		}
	}
	for what, other := range map[string]device.Device{"itself": a, "another kind": alone} {
		if ok, err := a.Reach(other); ok || err != nil {
			t.Errorf("a device reaches %s: %t, %v", what, ok, err)
		}
	}
	const n, rounds = 300_000, 6
	from, to := Stream(t, a, "from"), Stream(t, b, "to")
	there, idle := Event(t, a), Event(t, b)
	src, dst := Alloc(t, a, n), Alloc(t, b, n+1)
	to.Zero(dst)
	to.Record(idle)
	sent, got := make([][]byte, rounds), make([][]byte, rounds)
	for i := range rounds {
		sent[i], got[i] = bytes.Repeat([]byte{byte(i + 1), 7}, n/2), make([]byte, n+1)
		from.CopyH2D(src, sent[i])
		from.Wait(idle)
		from.CopyPeer(b, dst.Slice(0, n), src)
		from.Record(there)
		to.Wait(there)
		to.CopyD2H(got[i], dst)
		to.Record(idle)
	}
	for _, s := range []device.Stream{from, to} {
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range rounds {
		if !bytes.Equal(got[i][:n], sent[i]) || got[i][n] != 0 {
			t.Errorf("round %d: other bytes arrive", i)
		}
	}
	from.CopyPeer(b, device.Mem{}, device.Mem{}) // of nothing
	if err := from.Sync(); err != nil {
		t.Error(err)
	}
	for want, copy := range map[string]func(s device.Stream){
		"CopyPeer: 3 bytes to 8 bytes": func(s device.Stream) { s.CopyPeer(b, dst.Slice(0, 8), src.Slice(0, 3)) },
		"CopyPeer: ":                   func(s device.Stream) { s.CopyPeer(alone, dst.Slice(0, 8), src.Slice(0, 8)) },
	} {
		s := Stream(t, a, "s")
		copy(s)
		if err := s.Sync(); err == nil || !strings.Contains(err.Error(), "stream s: "+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
