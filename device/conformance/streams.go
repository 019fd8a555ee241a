package conformance

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"mt/device"
	"mt/device/op"
)

// copies checks copies between all kinds of memory: pinned, registered and ordinary host memory,
// and device memory.
func copies(t Tester, d streamRig) {
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

// copiesKeepOrder checks that copies of unpinned memory keep their order on a stream and, through
// events, between streams.
func copiesKeepOrder(t Tester, d streamRig) {
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

func waitRefersToTheLastRecordBefore(t Tester, d streamRig) {
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
	// The wait of s refers to e's earlier recording, on the stream first. A wait for this later
	// recording would never end.
	openLate := d.held(t, late)
	late.Record(e)
	order <- "gate opens"
	openFirst()
	if a, b := <-order, <-order; a != "gate opens" || b != "after the gate" {
		t.Errorf("order %q, %q", a, b)
	}
	s.Wait(e) // waits for the later record
	s.Notify(func(error) { order <- "after the block" })
	order <- "block ends"
	openLate()
	if a, b := <-order, <-order; a != "block ends" || b != "after the block" {
		t.Errorf("order %q, %q", a, b)
	}
}

// waitKeepsItsRecord checks that a pending wait refers to the last record before the call of Wait,
// even if the event is recorded again meanwhile.
func waitKeepsItsRecord(t Tester, d streamRig) {
	s, other := Stream(t, d, "s"), Stream(t, d, "other")
	e := Event(t, d)
	other.Record(e)
	open := d.held(t, s)
	s.Wait(e)
	// e is recorded again after s.Wait(e), and after work of s. If that wait referred to this
	// recording, s would wait for itself.
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

func elapsed(t Tester, d streamRig) {
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

func notifyKeepsOrder(t Tester, d streamRig) {
	const n = 200
	s, m := Stream(t, d, "s"), Alloc(t, d, 1<<10)
	var got []int
	for i := range n {
		if i%3 > 0 {
			s.Zero(m)
		}
		s.Notify(func(error) { got = append(got, i) })
	}
	if err := s.Close(); err != nil { // waits for the notifications
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

// badArguments checks that every operation refuses invalid arguments: the stream fails with an
// error that names the operation and the argument.
func badArguments(t Tester, d streamRig) {
	m := Alloc(t, d, 4096)
	f, h, ints := m.Tensor(device.F32, 0, 64), m.Tensor(device.BF16, 512, 64), m.Tensor(device.I32, 1024, 8)
	shape := op.AttentionShape{CuQ: ints, CuK: ints, Seqs: 1, TQ: 1, TK: 1, MaxQ: 1, MaxK: 1, Heads: 1, KVHeads: 1, Dim: 4}
	BadArguments(t, d, []BadCall{
		{"MatMul: C is fp32, want bf16", func(s device.Stream) {
			op.Do(d, s, op.MatMul{M: 1, N: 1, K: 1, A: h, B: h, D: h, C: f})
		}},
		{"AddBiasGrad: an extent is negative", func(s device.Stream) { op.Do(d, s, op.AddBiasGrad{DB: f, DY: f, T: -1, N: 2}) }},
		{"RMSNorm: Y is bf16, want fp32", func(s device.Stream) {
			op.Do(d, s, op.RMSNorm{Y: h, X: f, W: f, Rows: 1, Groups: 1, Dim: 4, XStride: 4, YStride: 4})
		}},
		{"RMSNormBackward: with Add, DX may not be DY", func(s device.Stream) {
			op.Do(d, s, op.RMSNormBackward{DX: f, DY: f, X: f, W: f, DW: f, RStd: f, Rows: 1, Groups: 1, Dim: 4, Add: true})
		}},
		{"LayerNorm: Stats holds 1 elements, want 2", func(s device.Stream) {
			op.Do(d, s, op.LayerNorm{Y: f, Stats: f.Slice(0, 1), X: f, W: f, Rows: 1, Dim: 4})
		}},
		{"LayerNormBackward: with Add, DX may not be DY", func(s device.Stream) {
			op.Do(d, s, op.LayerNormBackward{DX: f, DY: f, X: f, W: f, DW: f, Stats: f, Rows: 1, Dim: 4, Add: true})
		}},
		{"RoPE: Pos holds 0 elements, want 1", func(s device.Stream) {
			op.Do(d, s, op.RoPE{X: f, Cos: f, Sin: f, T: 1, Heads: 1, Dim: 4, Rotary: 4, Stride: 4})
		}},
		{"Attention: 3 heads do not share 2 key heads evenly", func(s device.Stream) {
			op.Do(d, s, op.Attention{AttentionShape: op.AttentionShape{Heads: 3, KVHeads: 2}})
		}},
		{"AttentionBackward: DK holds 0 elements, want 4", func(s device.Stream) {
			op.Do(d, s, op.AttentionBackward{AttentionShape: shape, Q: f, K: f, V: f, O: f, DO: f, DQ: f})
		}},
		{"GLU: GU is int32, want fp32 or bf16", func(s device.Stream) { op.Do(d, s, op.GLU{Activation: op.SiLU, Y: f, GU: ints, T: 1, F: 2}) }},
		{"GLUBackward: DGU holds 8 elements, want 64", func(s device.Stream) {
			op.Do(d, s, op.GLUBackward{Activation: op.SiLU, DGU: f.Slice(0, 8), Y: f, DY: f, GU: f, T: 4, F: 8})
		}},
	})
	badRows(t, d, f, h, ints)
}

// badRows makes invalid calls of operations on rows, experts and losses, and checks that each is refused. f, h and ints
// are memory for fp32, bf16 and int32 numbers.
func badRows(t Tester, d streamRig, f, h, ints device.Tensor) {
	BadArguments(t, d, []BadCall{
		{"AddPositions: Pos is fp32, want int32", func(s device.Stream) {
			op.Do(d, s, op.AddPositions{Y: f, X: f, Table: f, Pos: f, T: 1, C: 4})
		}},
		{"AddPositionsBackward: Cu holds 8 elements, want 9", func(s device.Stream) {
			op.Do(d, s, op.AddPositionsBackward{DTable: f, DY: f, Cu: ints, Seqs: 8, Longest: 1, T: 1, C: 4})
		}},
		{"Activate: Activation(7) is no activation", func(s device.Stream) { op.Do(d, s, op.Activate{Activation: 7, Y: f, X: f, T: 1, F: 2}) }},
		{"ActivateBackward: DY is bf16, want fp32", func(s device.Stream) {
			op.Do(d, s, op.ActivateBackward{DX: f, DY: h, X: f, T: 1, F: 2})
		}},
		{"Scale: X is int32, want fp32 or bf16", func(s device.Stream) { op.Do(d, s, op.Scale{X: ints, N: 1, Factor: 2}) }},
		{"GatherRows: Index is fp32, want int32", func(s device.Stream) { op.Do(d, s, op.GatherRows{Dst: f, Src: f, Index: f, T: 1, C: 4}) }},
		{"ScatterAddRows: Start is fp32, want int32", func(s device.Stream) {
			op.Do(d, s, op.ScatterAddRows{DRows: f, DY: f, Start: f, Pos: ints, U: 1, T: 2, C: 4})
		}},
		{"ScaleRows: Index is fp32, want int32", func(s device.Stream) {
			op.Do(d, s, op.ScaleRows{X: f, W: f, Index: f, T: 1, C: 4, P: 1})
		}},
		{"ScaleRowsBackward: DY is bf16, want fp32", func(s device.Stream) {
			op.Do(d, s, op.ScaleRowsBackward{Y: f, DY: h, W: f, DW: f, Index: ints, T: 1, C: 4, P: 1})
		}},
		{"AddNoise: Cu is fp32, want int32", func(s device.Stream) { op.Do(d, s, op.AddNoise{X: f, Cu: f, T: 1, C: 4, Seqs: 1}) }},
		{"AddRows: Dst is bf16, want fp32", func(s device.Stream) { op.Do(d, s, op.AddRows{Dst: h, Src: h, Index: ints, U: 1, T: 1, C: 4}) }},
		{"Router: 3 of 2 experts are chosen: want 1 to 2", func(s device.Stream) {
			op.Do(d, s, op.Router{Logits: f, IDs: ints, Weights: f, T: 1, E: 2, K: 3})
		}},
		{"RouterBackward: IDs is fp32, want int32", func(s device.Stream) {
			op.Do(d, s, op.RouterBackward{DLogits: f, Logits: f, IDs: f, DWeights: f, T: 1, E: 4, K: 2})
		}},
		{"SortByExpert: 3 pairs are not 2 for each token", func(s device.Stream) {
			op.Do(d, s, op.SortByExpert{IDs: ints, Order: ints, Rows: ints, Offsets: ints, N: 3, K: 2, E: 1})
		}},
		{"CrossEntropy: Losses is bf16, want fp32", func(s device.Stream) {
			op.Do(d, s, op.CrossEntropy{Logits: f, Targets: ints, Losses: h, T: 2, V: 4})
		}},
		{"CrossEntropyShard: LSE holds 0 elements, want 2", func(s device.Stream) {
			op.Do(d, s, op.CrossEntropyShard{Logits: f, Targets: ints, Losses: f, T: 2, V: 4})
		}},
		{"Convert: Src is int32, want fp32 or bf16", func(s device.Stream) { op.Do(d, s, op.Convert{Dst: f, Src: ints, N: 1}) }},
	})
}

// ErrorSticks tests a stream after a failure: the stream drops work, but events, waits and
// notifications continue. fail makes the stream s fail. The error must begin with the device's
// kind, the stream's name and want. Function hold keeps the stream busy until its result is called,
// so all later calls are enqueued before the failure. If hold is nil, later calls may come after
// the failure.
func ErrorSticks(t Tester, d device.Device, hold func(s device.Stream) func(), want string, fail func(s device.Stream)) {
	t.Helper()
	s, e := Stream(t, d, "s"), Event(t, d)
	m, got := Alloc(t, d, 1), []byte{9}
	s.CopyH2D(m, []byte{7})
	goOn := func() {}
	if hold != nil {
		goOn = streamRig{d, hold}.held(t, s)
	}
	fail(s)
	s.CopyH2D(m, []byte{8})
	s.CopyD2H(got, m)
	s.Record(e)
	told := make(chan error, 1)
	s.Notify(func(err error) { told <- err })
	other := Stream(t, d, "other")
	other.Wait(e) // completes in spite of the failure
	before := make([]byte, 1)
	other.CopyD2H(before, m)
	goOn()
	if err := other.Sync(); err != nil {
		t.Error(err)
	}
	want = fmt.Sprintf("%s: stream s: %s", d.Kind(), want)
	for _, err := range []error{<-told, s.Sync(), s.Err(), s.Close()} {
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if before[0] != 7 || got[0] != 9 {
		t.Errorf("memory holds %d, want 7; the copy after the failure gave %d", before[0], got[0])
	}
}

func errorsStick[Self Subtester[Self]](t Self, d streamRig) {
	m := Alloc(t, d, 8)
	for _, c := range []struct {
		want string
		fail func(s device.Stream)
	}{
		{"CopyH2D: 1 bytes to 0 bytes", func(s device.Stream) { s.CopyH2D(device.Mem{}, []byte{1}) }},
		{"CopyD2H: 8 bytes to 1 bytes", func(s device.Stream) { s.CopyD2H([]byte{1}, m) }},
		{"CopyD2D: 3 bytes to 8 bytes", func(s device.Stream) { s.CopyD2D(m, m.Slice(0, 3)) }},
		{"MatMul: A holds 0 elements, want 4", func(s device.Stream) {
			op.Do(d, s, op.MatMul{M: 2, N: 2, K: 2})
		}},
	} {
		t.Run(c.want, func(t Self) { ErrorSticks(t, d, nil, c.want, c.fail) })
		t.Run(c.want+", held", func(t Self) { ErrorSticks(t, d, d.hold, c.want, c.fail) })
	}
}

func closedStream(t Tester, d streamRig) {
	s, e := Stream(t, d, "s"), Event(t, d)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.Zero(device.Mem{})
	s.Record(e)
	other := Stream(t, d, "other")
	other.Wait(e)
	told := make(chan error, 1)
	s.Notify(func(err error) { told <- err })
	for _, err := range []error{<-told, s.Sync(), s.Close()} {
		if err == nil || !strings.Contains(err.Error(), "the stream is closed") {
			t.Errorf("error %v", err)
		}
	}
	if err := other.Sync(); err != nil {
		t.Error(err)
	}
}

// BadCall is an invalid call of an operation, and the text that its error contains.
type BadCall struct {
	Want string
	Call func(s device.Stream)
}

// BadArguments tests that each call makes its own stream fail with an error that contains Want.
func BadArguments(t Tester, d device.Device, calls []BadCall) {
	t.Helper()
	for i, c := range calls {
		s := Stream(t, d, fmt.Sprint(i))
		c.Call(s)
		if err := s.Sync(); err == nil || !strings.Contains(err.Error(), c.Want) {
			t.Errorf("error %v, want %q", err, c.Want)
		}
	}
}
