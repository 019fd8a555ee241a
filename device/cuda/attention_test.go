package cuda

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"mt/cudart/emu"
	"mt/device"
	"mt/device/cuda/kernels"
	"mt/device/op"
	"mt/internal/testkit"
)

// attend computes attention of one sequence of 20 tokens, with all inputs zero. It returns the
// names of the PTX modules that d has loaded for it.
func attend(t *testing.T, d *dev, dim int) (modules []string) {
	t.Helper()
	const rows = 20
	s := newStream(t, d, "s")
	x := alloc(t, d, 1<<16)
	s.Zero(x)
	cu := x.Tensor(device.I32, 0, 2)
	s.CopyH2D(cu.Mem(), []byte{0, 0, 0, 0, rows, 0, 0, 0})
	at := func(i int64) device.Tensor { return x.Tensor(device.BF16, i<<13, int64(rows*dim)) }
	d.Do(s, &op.Attention{AttentionShape: op.AttentionShape{CuQ: cu, CuK: cu, Seqs: 1, TQ: rows, TK: rows, MaxQ: rows, MaxK: rows, Heads: 1, KVHeads: 1, Dim: dim, Scale: 1},
		O: at(1), Q: at(2), K: at(3), V: at(4), QStride: dim, KStride: dim})
	testkit.NoError(t, s.Sync())
	for f := range d.functions {
		modules = append(modules, f.module)
	}
	slices.Sort(modules)
	return modules
}

// TestAttentionKernels: the compute capability, the driver's version, UseAttention and the head
// size decide which module of kernels computes attention. A head size without sm_90a kernel gives
// exactly one note.
func TestAttentionKernels(t *testing.T) {
	for _, c := range []struct {
		name string
		e    emu.Options
		use  string
		dim  int
		want string
	}{
		{"9.0", emu.Options{}, "", 64, "attention_64_sm90a"},
		{"9.0, sm90a", emu.Options{}, SM90a, 128, "attention_128_sm90a"},
		{"9.0, portable", emu.Options{}, Portable, 64, "attention_64"},
		{"9.0, driver for 12.4", emu.Options{DriverVersion: kernels.SM90aDriver}, "", 64, "attention_64_sm90a"},
		{"9.0, driver for 12.3", emu.Options{DriverVersion: kernels.SM90aDriver - 10}, "", 64, "attention_64"},
		{"8.9", emu.Options{ComputeCapability: 89}, "", 64, "attention_64"},
		{"10.0", emu.Options{ComputeCapability: 100}, Portable, 128, "attention_128"},
		{"heads of 96", emu.Options{}, "", 96, "attention_96"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, _ := newDevice(t, c.e, Options{})
			if c.use != "" {
				testkit.NoError(t, d.UseAttention(c.use))
			}
			if got := attend(t, d, c.dim); len(got) != 1 || got[0] != c.want {
				t.Errorf("kernels of %q, want %q", got, c.want)
			}
			attend(t, d, c.dim)
			told := 0
			for _, n := range d.Notes() {
				if strings.Contains(n, "heads of 96 elements runs on the kernels for all GPUs, slower") {
					told++
				}
			}
			if (told == 1) != (c.dim == 96) || told > 1 {
				t.Errorf("told %d times: %q", told, d.Notes())
			}
		})
	}
}

// TestFusedAttention: with Fused and memory for partial sums, one kernel computes all gradients.
// There are two such kernels; the device takes the one that fits the shared memory of its GPU.
func TestFusedAttention(t *testing.T) {
	for capability, want := range map[int]string{80: "attention_gradients_d128", 89: "attention_gradients_small_d128", 100: "attention_gradients_d128"} {
		d, _ := newDevice(t, emu.Options{ComputeCapability: capability}, Options{})
		testkit.NoError(t, d.UseAttention(Fused))
		s := newStream(t, d, "s")
		const rows, dim = 3, 128
		x := alloc(t, d, 1<<16)
		s.Zero(x)
		cu := x.Tensor(device.I32, 0, 2)
		s.CopyH2D(cu.Mem(), []byte{0, 0, 0, 0, rows, 0, 0, 0})
		at := func(i int64) device.Tensor { return x.Tensor(device.BF16, i<<10, int64(rows*dim)) }
		f32 := func(i, n int64) device.Tensor { return x.Tensor(device.F32, i<<10, n) }
		shape := op.AttentionShape{CuQ: cu, CuK: cu, Seqs: 1, TQ: rows, TK: rows, MaxQ: rows, MaxK: rows, Heads: 1, KVHeads: 1, Dim: dim, Scale: 1}
		d.Do(s, &op.AttentionBackward{AttentionShape: shape, DQ: at(1), DK: at(2), DV: at(3), DO: at(4), O: at(5), Q: at(6), K: at(7), V: at(8), LSE: f32(9, rows),
			Delta: f32(10, rows), Sums: f32(11, int64(shape.SumsLen())), QStride: dim, KStride: dim, DQStride: dim, DKStride: dim})
		testkit.NoError(t, s.Sync())
		found := false
		for f := range d.functions {
			found = found || f.name == want
			if strings.Contains(f.name, "dkdv") {
				t.Errorf("capability %d runs %s", capability, f.name)
			}
		}
		if !found {
			t.Errorf("capability %d does not run %s", capability, want)
		}
	}
}

// TestUseAttention: UseAttention refuses kernels that the device does not run, with the reason.
func TestUseAttention(t *testing.T) {
	for cc, words := range map[int]string{80: "of compute capability 8.0, does not run kernels for sm_90a", 100: "of compute capability 10.0"} {
		d, _ := newDevice(t, emu.Options{ComputeCapability: cc}, Options{})
		if err := d.UseAttention(SM90a); err == nil || !strings.Contains(err.Error(), words) || d.RunsSM90a() {
			t.Errorf("%d: error %v, want one with %q", cc, err, words)
		}
	}
	for driver, runs := range map[int]bool{12000: false, 12020: false, 12030: false, 12040: true, 12080: true, 13000: true} {
		d, _ := newDevice(t, emu.Options{DriverVersion: driver}, Options{})
		words := fmt.Sprintf("serves CUDA %s, whose compiler is not safe for kernels for sm_90a: update it to one for CUDA 12.4 (550) or newer", cudaVersion(driver))
		noted := slices.ContainsFunc(d.Notes(), func(n string) bool { return strings.Contains(n, words) })
		if err := d.UseAttention(SM90a); runs != (err == nil) || !runs && !strings.Contains(err.Error(), words) || d.RunsSM90a() != runs || noted == runs || len(d.Notes()) > 1 {
			t.Errorf("driver for CUDA %d: error %v, notes %q", driver, err, d.Notes())
		}
	}
	d, _ := newDevice(t, emu.Options{DriverVersion: 12020, ComputeCapability: 80}, Options{})
	if len(d.Notes()) > 0 {
		t.Errorf("a GPU that has no kernels for sm_90a: %q", d.Notes())
	}
	d, _ = newDevice(t, emu.Options{}, Options{})
	if err := d.UseAttention("fast"); err == nil || !d.RunsSM90a() {
		t.Errorf("kernels of another name: error %v", err)
	}
}
