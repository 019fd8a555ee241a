package streams

import (
	"bytes"
	"slices"
	"testing"

	"mt/device"
)

// Copies between all kinds of memory are correct.
func copies(t *testing.T, d rig) {
	const n = 3<<20 + 5 // several pieces, for devices that copy piece by piece
	s := Stream(t, d, "s")
	pinned, registered := allocHost(t, d, 2*n+1), make([]byte, 2*n+1)
	if err := d.Register(registered); err != nil {
		t.Fatal(err)
	}
	for kind, host := range map[string][]byte{"pinned": pinned, "registered": registered, "Go's": make([]byte, 2*n+1)} {
		a, b := Alloc(t, d, n), Alloc(t, d, n)
		src, got := host[1:n+1], host[n+1:]
		copy(src, bytes.Repeat([]byte{1, 2, 3}, n))
		s.CopyH2D(a, src)
		s.CopyD2D(b, a)
		s.Zero(b.Slice(1, n-2))
		s.CopyD2H(got, b)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		want := make([]byte, n)
		want[0], want[n-1] = src[0], src[n-1]
		if !bytes.Equal(got, want) {
			t.Errorf("%s memory: wrong bytes after H2D, D2D, Zero, D2H", kind)
		}
		d.Free(a)
		d.Free(b)
	}
	d.FreeHost(pinned)
	d.Unregister(registered)
	s.CopyH2D(device.Mem{}, nil)
	s.CopyD2H(nil, device.Mem{})
	s.CopyD2D(device.Mem{}, device.Mem{})
	s.Zero(device.Mem{})
	if err := s.Sync(); err != nil {
		t.Errorf("copies of nothing: %v", err)
	}
}

// Copies of memory that is not pinned keep their order on a stream and, by
// events, between streams.
func copiesKeepOrder(t *testing.T, d rig) {
	up, down := Stream(t, d, "up"), Stream(t, d, "down")
	there, back := Event(t, d), Event(t, d)
	const n, rounds = 300_000, 8
	m := Alloc(t, d, n)
	src, got := make([][]byte, rounds), make([][]byte, rounds)
	var told []int
	for i := range rounds {
		src[i], got[i] = bytes.Repeat([]byte{byte(i + 1)}, n), make([]byte, n)
		up.Wait(back)
		up.CopyH2D(m, src[i])
		up.Record(there)
		down.Wait(there)
		down.CopyD2H(got[i], m)
		down.Record(back)
		down.Notify(func(err error) {
			if told = append(told, i); err != nil || got[i][n-1] != byte(i+1) {
				t.Errorf("notification %d: %v, last byte %d", i, err, got[i][n-1])
			}
		})
	}
	for _, s := range []device.Stream{up, down} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range rounds {
		if !bytes.Equal(got[i], src[i]) {
			t.Errorf("round %d: wrong bytes", i)
		}
	}
	if !slices.Equal(told, []int{0, 1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("notifications came as %v", told)
	}
}

func waitRefersToTheLastRecordBefore(t *testing.T, d rig) {
	s, first, late := Stream(t, d, "s"), Stream(t, d, "first"), Stream(t, d, "late")
	e := Event(t, d)
	s.Wait(e) // never recorded: complete
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	openFirst := d.held(t, first)
	first.Record(e)
	order := make(chan string, 3)
	s.Wait(e)
	s.Notify(func(error) { order <- "after the gate" })
	// The wait above is not for a later record, for which it would wait for ever.
	openLate := d.held(t, late)
	late.Record(e)
	order <- "gate opens"
	openFirst()
	if a, b := <-order, <-order; a != "gate opens" || b != "after the gate" {
		t.Errorf("order %q, %q", a, b)
	}
	s.Wait(e) // this one waits for the later record
	s.Notify(func(error) { order <- "after the block" })
	order <- "block ends"
	openLate()
	if a, b := <-order, <-order; a != "block ends" || b != "after the block" {
		t.Errorf("order %q, %q", a, b)
	}
}

// A wait that its stream has not come to yet is for the record that was the last
// when Wait was called, although the event has been recorded again since.
func waitKeepsItsRecord(t *testing.T, d rig) {
	s, other := Stream(t, d, "s"), Stream(t, d, "other")
	e := Event(t, d)
	other.Record(e)
	open := d.held(t, s)
	s.Wait(e)
	// The second record comes after s. If the wait above meant this record, s would
	// wait for itself.
	done := Event(t, d)
	s.Record(done)
	other.Wait(done)
	other.Record(e)
	open()
	for _, st := range []device.Stream{s, other} {
		if err := st.Sync(); err != nil {
			t.Error(err)
		}
	}
}

func elapsed(t *testing.T, d rig) {
	s, a, b := Stream(t, d, "s"), Event(t, d), Event(t, d)
	if got := b.Elapsed(a); got != 0 {
		t.Errorf("between events never recorded: %v", got)
	}
	s.Record(a)
	if got := b.Elapsed(a); got != 0 {
		t.Errorf("with one never recorded: %v", got)
	}
	m := Alloc(t, d, 4<<20)
	open := d.held(t, s)
	s.Zero(m)
	s.Record(b)
	if !Panics(func() { b.Elapsed(a) }) {
		t.Error("of an event that is not complete: no panic")
	}
	open()
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := b.Elapsed(a); got <= 0 {
		t.Errorf("Elapsed around work is %v", got)
	}
	if got := a.Elapsed(b); got >= 0 {
		t.Errorf("Elapsed from the later event is %v", got)
	}
	a.Close()
	b.Close()
}

func notifyKeepsOrder(t *testing.T, d rig) {
	const n = 200
	s, m := Stream(t, d, "s"), Alloc(t, d, 1<<10)
	var got []int
	for i := range n {
		if i%3 > 0 {
			s.Zero(m)
		}
		s.Notify(func(error) { got = append(got, i) })
	}
	if err := s.Close(); err != nil { // which waits for them
		t.Fatal(err)
	}
	for i, v := range got {
		if i != v {
			t.Fatalf("notification %d came as number %d", v, i)
		}
	}
	if len(got) != n {
		t.Errorf("%d notifications, want %d", len(got), n)
	}
}
