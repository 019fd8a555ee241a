package appraise

import (
	"flag"
	"math"
	"slices"
	"strings"
	"testing"

	"mt/cudart/emu/ptx"
	"mt/device"
	"mt/device/cuda/kernels"
	"mt/device/op"
	"mt/internal/testkit"
)

// tiny is a model size so small that the emulator can run every thread block of its kernels.
var tiny = Size{512, 256, 2, 1, 512, 2048, 16, []int{128, 512}}

// TestSample: the work that is estimated from some thread blocks equals the counts of all blocks.
// Every case runs on one thread, so with the race detector only one case in eight runs.
func TestSample(t *testing.T) {
	checked := map[string]bool{}
	for i, c := range Cases(tiny) {
		if c.once || c.DType == device.F32 && strings.HasPrefix(c.Name, "Attention") {
			continue // all blocks run; the same search, slowly
		}
		if testing.Short() && i%8 != 4 {
			continue
		}
		t.Run(c.Name+"/"+c.Shape, func(t *testing.T) {
			if testkit.DrawnInRace(t, 8); strings.HasPrefix(c.Name, "GatedDelta") && c.DType == device.F32 {
				testkit.LongOnly(t) // the same search again
			}
			for _, name := range checkSample(t, &c) {
				checked[name] = true
			}
		})
	}
	if only := flag.Lookup("test.run").Value.String(); len(checked) < 40 && !testkit.Race && !testing.Short() && !strings.Contains(only, "/") {
		t.Errorf("only %d kernels ran", len(checked))
	}
}

// checkSample compares the estimate with the counts of all blocks, for every launch of a case. It
// returns the names of the kernels.
func checkSample(t *testing.T, c *Case) (kernels []string) {
	r := newRig()
	testkit.NoError(t, r.take(c.make(r)))
	for i := range r.launches {
		l := &r.launches[i]
		heads, repeats := 1, 1
		if c.alike != nil {
			heads, repeats = c.alike(l.kernel.Name)
		}
		if c.marks != nil {
			l.marks = c.marks(l.kernel.Name)
		}
		s := &sample{rig: r, launch: l, heads: heads, repeats: repeats}
		testkit.NoError(t, s.take())
		all := &ptx.Count{}
		testkit.Must(l.run(r, nil, all))(t)
		kernels = append(kernels, l.kernel.Name)
		got, want := s.counts(), all.Sum
		if got.Blocks != want.Blocks || apart(&got, &want, &want, 0) > deviation {
			t.Errorf("%s: %d of %d blocks ran; %d instructions, %d sectors, %d wavefronts, and all count %d, %d, %d", l.kernel.Name, len(s.ran), l.blocks(),
				got.Issued(), got.Global().Sectors, got.Shared().Wavefronts, want.Issued(), want.Global().Sectors, want.Shared().Wavefronts)
		}
		if each := float64(want.Issued()) / float64(want.Blocks); math.Abs(s.average-each) > 2*deviation*each {
			t.Errorf("%s: a block has %v instructions on average, want %v", l.kernel.Name, s.average, each)
		}
		sum := 0.0
		traced := s.typical()
		for _, w := range s.weights(traced) {
			sum += w
		}
		if of := float64(want.Issued()) / float64(s.known[traced].Issued()); math.Abs(sum-of) > 2*deviation*of || len(s.weights(traced)) != l.blocks() {
			t.Errorf("%s: the blocks weigh %v together, want %v", l.kernel.Name, sum, of)
		}
	}
	return kernels
}

// TestSequencesThatDiffer: a case may hint that its blocks repeat for every sequence. If the
// sequences really have different lengths, the estimate notices that and ignores the hint.
func TestSequencesThatDiffer(t *testing.T) {
	c := tiny.attend(device.BF16, 64, 128, false)
	r := newRig()
	o := c.make(r).(*op.Attention)
	for i, at := range []int{0, 16, 32, 48, 512} {
		r.buffers[0].Data[4*i], r.buffers[0].Data[4*i+1] = byte(at), byte(at>>8)
	}
	o.MaxQ, o.MaxK = 464, 464
	testkit.NoError(t, r.take(o))
	s := &sample{rig: r, launch: &r.launches[0], heads: 4, repeats: 4}
	testkit.NoError(t, s.take())
	all := &ptx.Count{}
	testkit.Must(r.launches[0].run(r, nil, all))(t)
	got := s.counts()
	if s.repeats != 1 || apart(&got, &all.Sum, &all.Sum, 0) > deviation {
		t.Errorf("%d repeats; %d instructions, want %d", s.repeats, got.Issued(), all.Sum.Issued())
	}
}

// TestCount: Count returns the launches of an operation on an A100, with their counts, occupancy
// and times.
func TestCount(t *testing.T) {
	g := testkit.Must(FindGPU("a100"))(t)
	const n = 1 << 18
	scale := Case{Name: "Scale", Shape: "n", DType: device.BF16, make: func(r *rig) device.Op { return &op.Scale{X: r.random(device.BF16, n), N: n, Factor: 2} }}
	o := testkit.Must(Count(&scale, g))(t)
	l := &o.Launches[0]
	if o.Bytes != 4*n || l.Memory != 4*n || l.Counts.Global() != (ptx.Traffic{Requests: 2 * n / 256, Bytes: 4 * n, Sectors: 4 * n / 32}) {
		t.Errorf("%d bytes, %d of memory, traffic %+v; want %d, and sectors without waste", o.Bytes, l.Memory, l.Counts.Global(), 4*n)
	}
	if bound := Longest(l.Bound).Seconds; l.Expected < bound || l.Expected > 20*bound {
		t.Errorf("expected %v s, bound %v s", l.Expected, bound)
	}
	if want := 4 * n / 2039e9; math.Abs(o.Roofline(g)-want) > 1e-9*want {
		t.Errorf("roofline %v s, want %v", o.Roofline(g), want)
	}
	for _, c := range Cases(tiny) {
		if !c.once {
			continue
		}
		if o, err := Count(&c, g); err != nil || o.Launches[0].Ran != o.Launches[0].Blocks {
			t.Errorf("%s: %+v, %v", c.Name, o, err)
		}
	}
	scale.Name = "Convert"
	if _, err := Count(&scale, g); err == nil || !strings.Contains(err.Error(), "a case of Convert makes Scale") {
		t.Errorf("another operation: error %v", err)
	}
}

// TestNotBelowTheBound: the expected time of a launch is never less than its lower bound.
func TestNotBelowTheBound(t *testing.T) {
	testkit.NotShort(t)
	g := testkit.Must(FindGPU("rtx-3090"))(t)
	cases := append(Full.norms(device.BF16), Full.rows(device.BF16)...)
	for _, c := range append(cases, tiny.attention()[:2]...) {
		o := testkit.Must(Count(&c, g))(t)
		for _, l := range o.Launches {
			if b := Longest(l.Bound); l.Expected < b.Seconds {
				t.Errorf("%s, %s: expected %v s, bound by %s %v s", l.Kernel, c.Shape, l.Expected, b.Resource, b.Seconds)
			}
		}
	}
}

// TestTwoForwards: two thread blocks of every bf16 attention forward fit on a multiprocessor, so
// that one computes while the other waits. The GeForce cards here have the least shared memory.
func TestTwoForwards(t *testing.T) {
	for _, name := range []string{"rtx-3080", "rtx-4090", "rtx-5090", "a100-sxm-80gb", "h100-sxm"} {
		g := testkit.Must(FindGPU(name))(t)
		for _, dim := range []int{64, 96, 128, 256} {
			for _, softcap := range []float32{0, 30} {
				r := newRig()
				c := tiny.attend(device.BF16, dim, tiny.Lengths[0], false)
				o := c.make(r).(*op.Attention)
				o.Softcap = softcap
				if err := r.take(o); err != nil || len(r.launches) != 1 {
					t.Fatalf("heads of %d: %d launches, error %v", dim, len(r.launches), err)
				}
				l := &r.launches[0]
				use := testkit.Must(kernels.UseOn(l.kernel.Name, g.Arch.Name))(t)
				fits := g.Arch.Occupancy(Block{Threads: l.threads(), Registers: use.Registers, Shared: use.Static + l.shared})
				if fits.Blocks < 2 {
					t.Errorf("%s has room for %d blocks of %s: no more %s", name, fits.Blocks, l.kernel.Name, fits.Limit)
				}
			}
		}
	}
}

// TestFullShapes: every case of Full, the size that mt prints predictions for, makes valid
// launches. The test does not run their kernels.
func TestFullShapes(t *testing.T) {
	if testing.Short() || testkit.Race {
		t.Skip("-short and the race detector leave it out: it allocates what a GPU would have")
	}
	for _, c := range Cases(Full) {
		if c.DType == device.F32 {
			continue // the same code, and more memory
		}
		r := newRig()
		r.zeros = true
		o := c.make(r)
		if err := r.take(o); err != nil || o.Name() != c.Name || len(r.launches) == 0 {
			t.Errorf("%s, %s: %d launches, of %s, error %v", c.Name, c.Shape, len(r.launches), o.Name(), err)
		}
	}
}

// TestKink: the work of a block falls with its number up to block 37, and grows from there on. The
// estimate finds this bend, although block 37 is not among the blocks that run first, and runs at
// most 40 of 64 blocks. With once, all blocks run and are traced.
func TestKink(t *testing.T) {
	m := testkit.Must(ptx.Parse("kink.ptx", `.version 8.0
.target sm_80
.address_size 64
.visible .entry kink()
{
.reg .pred %p; .reg .b32 %n, %i;
mov.u32 %n, %ctaid.x;
sub.s32 %n, %n, 37;
abs.s32 %n, %n;
mul.lo.s32 %n, %n, 20;
NEXT: sub.s32 %n, %n, 1;
setp.gt.s32 %p, %n, 0;
@%p bra NEXT;
ret;
}`))(t)
	s := &sample{rig: newRig(), launch: &launch{kernel: m.Kernel("kink"), grid: [3]uint32{64, 1, 1}, block: [3]uint32{32, 1, 1}}}
	testkit.NoError(t, s.take())
	all := &ptx.Count{}
	testkit.Must(s.launch.run(s.rig, nil, all))(t)
	got := s.counts()
	if apart(&got, &all.Sum, &all.Sum, 0) > deviation || len(s.ran) > 40 {
		t.Errorf("%d blocks ran; %d instructions, want %d", len(s.ran), got.Issued(), all.Sum.Issued())
	}
	s = &sample{rig: s.rig, launch: s.launch, once: true}
	if err := s.take(); err != nil || len(s.ran) != 64 || len(s.traces) != 64 {
		t.Errorf("%d blocks of 64 ran where all must, %d were traced, error %v", len(s.ran), len(s.traces), err)
	}
}

// TestAttentionOnHopper: attention is counted with the kernels that the GPU in question would run.
// For an H100, the prediction is at least 450 TFLOP/s forward and 400 backward, whose kernel shares two small ones with
// other GPUs.
func TestAttentionOnHopper(t *testing.T) {
	testkit.LongOnly(t)
	shared := []string{"attention_delta_bf16", "attention_marks", "attention_round_d128"}
	for gpu, prefix := range map[string]string{"h100": "attention_sm90a_", "a100": "attention_"} {
		g := testkit.Must(FindGPU(gpu))(t)
		for i, c := range []Case{Full.attend(device.BF16, 128, 8192, false), Full.attend(device.BF16, 128, 8192, true)} {
			o := testkit.Must(Count(&c, g))(t)
			seconds := 0.0
			for _, l := range o.Launches {
				seconds += l.Expected
				if !strings.HasPrefix(l.Kernel, prefix) && !slices.Contains(shared, l.Kernel) || gpu == "a100" && strings.Contains(l.Kernel, "sm90a") {
					t.Errorf("%s is counted for %s", l.Kernel, gpu)
				}
			}
			if rate, want := o.FLOPs/seconds/1e12, []float64{450, 400}[i]; gpu == "h100" && rate < want {
				t.Errorf("%s on %s: %.0f TFLOP/s, want %.0f", c.Name, gpu, rate, want)
			}
		}
	}
}

// TestTypical: the block that represents a launch is the one whose work is closest to the mean. If
// two blocks are equally close, it is the first.
func TestTypical(t *testing.T) {
	s := &sample{known: map[int]*ptx.Counts{}, average: 10}
	for g, n := range map[int]int64{0: 3, 2: 30, 3: 11, 5: 9, 7: 12} {
		s.known[g] = &ptx.Counts{Off: n}
	}
	if got := s.typical(); got != 3 {
		t.Errorf("the typical block is %d, want 3", got)
	}
}

// TestCases: attention cases have query heads and key heads in the proportion that the model size
// states. Every kind of operation has a case.
func TestCases(t *testing.T) {
	cases := Cases(Full)
	for name, shape := range map[string]string{"Attention": "32/8 heads of 128", "AttentionBackward": "64/16 heads of 64", "GLU": "", "RoPE": "", "MatMul": ""} {
		if !slices.ContainsFunc(cases, func(c Case) bool { return c.Name == name && strings.Contains(c.Shape, shape) }) {
			t.Errorf("there is no %s with %q", name, shape)
		}
	}
}
