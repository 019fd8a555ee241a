package kernels_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"mt/base/accounts"
	"mt/cudart/emu/ptx"
	"mt/device"
	"mt/device/cuda/kernels"
	"mt/device/op"
	"mt/internal/testkit"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/counts.txt anew")

const countsFile = "testdata/counts.txt"

// counted adds the counts of one launch (instructions, memory requests) to the counts of its
// kernel.
func (r *rig) counted(kernel string, c *ptx.Counts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts[kernel] == nil {
		r.counts[kernel] = &ptx.Counts{}
	}
	r.counts[kernel].Add(c, 1)
}

// compareCounts compares every kernel's counts, summed over all conformance cases and countOthers,
// with countsFile. So it fails on every change of a kernel's work. An intended change must rewrite
// the file.
func (r *rig) compareCounts(t *testing.T) {
	r.countOthers(t)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.counts)) {
		writeCounts(&b, name, r.counts[name])
	}
	if *rewrite {
		testkit.NoError(t, os.WriteFile(countsFile, []byte(b.String()), 0o644))
	}
	want := testkit.Must(os.ReadFile(countsFile))(t)
	got, old := strings.Split(b.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(got), len(old)) {
		var g, w string
		if i < len(got) {
			g = got[i]
		}
		if i < len(old) {
			w = old[i]
		}
		if g != w {
			t.Fatalf("%s, line %d:\n%s\nis now\n%s\nIf that is wanted: go test ./device/cuda/kernels -run 'TestOp$' -rewrite", countsFile, i+1, w, g)
		}
	}
	for _, name := range kernels.Modules() {
		m := testkit.Must(module(name))(t)
		for _, name := range m.Kernels() {
			if r.counts[name] == nil {
				t.Errorf("neither a case of the table nor countOthers runs %s", name)
			}
		}
	}
}

// writeCounts writes two lines for a kernel: its memory accesses, and its instructions by class.
func writeCounts(b *strings.Builder, name string, c *ptx.Counts) {
	global, shared := c.Global(), c.Shared()
	fmt.Fprintf(b, "%s: %d blocks, %d instructions, %d divergent; global %d requests, %d bytes, %d sectors, %d of them fresh; shared %d requests, %d wavefronts, %d conflicts\n",
		name, c.Blocks, c.Issued(), c.Divergent, global.Requests, global.Bytes, global.Sectors, c.Fresh, shared.Requests, shared.Wavefronts, shared.Conflicts)
	fmt.Fprintf(b, "\toff %d", c.Off)
	for class, n := range c.By {
		if n > 0 {
			fmt.Fprintf(b, ", %s %d", ptx.Class(class), n)
		}
	}
	b.WriteByte('\n')
}

// countOthers runs, on zeroed memory, the kernels that no conformance case uses.
func (r *rig) countOthers(t *testing.T) {
	s := &rigStream{rig: r}
	zeros := func(dt device.DType, n int) device.Tensor {
		m, _ := r.Alloc(accounts.Workspace, int64(n)*dt.Size()+16) // cannot fail
		clear(r.bytes(m))
		return m.Tensor(dt, 0, int64(n))
	}
	for _, dt := range []device.DType{device.F32, device.BF16} {
		for _, width := range []int{256, 512, 513, 8200, 8201} {
			const rows = 3
			x, dy, w, rstd := zeros(dt, rows*width), zeros(dt, rows*width), zeros(device.F32, width), zeros(device.F32, rows)
			kernels.RMSNorm(s, &op.RMSNorm{Y: dy, RStd: rstd, X: x, W: w, Rows: rows, Groups: 1, Dim: width, XStride: width, YStride: width, Eps: 1})
			kernels.RMSNormBackward(s, &op.RMSNormBackward{DX: dy, DW: w, DY: dy, X: x, W: w, RStd: rstd, Rows: rows, Groups: 1, Dim: width,
				DXStride: width, DYStride: width, XStride: width})
			stats := zeros(device.F32, 2*rows)
			kernels.LayerNorm(s, &op.LayerNorm{Y: dy, Stats: stats, X: x, W: w, B: w, Rows: rows, Dim: width, Eps: 1})
			kernels.LayerNormBackward(s, &op.LayerNormBackward{DX: dy, DW: w, DY: dy, X: x, W: w, Stats: stats, Rows: rows, Dim: width})
		}
		for _, to := range []device.DType{device.F32, device.BF16} {
			kernels.Convert(s, &op.Convert{Dst: zeros(to, 101).Slice(1, 100), Src: zeros(dt, 101).Slice(1, 100), N: 100})
		}
		tiles := map[device.DType][]string{device.F32: {"fp32 large"}, device.BF16: {"bf16 large", "bf16 medium"}}[dt]
		for _, tile := range tiles {
			for way := range 4 {
				const n = 136
				m := op.MatMul{M: n, N: n, K: n, TransA: way&1 != 0, TransB: way&2 != 0, A: zeros(dt, n*n), B: zeros(dt, n*n), D: zeros(dt, n*n)}
				kernels.MatMulBy(s, m, tile, 1)
			}
		}
	}
	for _, c := range []struct {
		dim, shared int
		sm90a, sums bool
	}{{dim: 96}, {dim: 64, sm90a: true}, {dim: 128, sm90a: true}, {dim: 192, sm90a: true}, {dim: 256, sm90a: true}, {dim: 64, sm90a: true, sums: true},
		{dim: 128, sm90a: true, sums: true}, {dim: 96, sums: true},
		{dim: 96, sums: true, shared: 163 << 10}, {dim: 128, sums: true, shared: 163 << 10}} { // no case has heads of 96 elements, and none runs on sm_90a or has much shared memory
		dim := c.dim
		s.rig.sm90a, s.rig.shared = c.sm90a, c.shared
		const tokens = 160
		cu := zeros(device.I32, 2)
		binary.LittleEndian.PutUint32(r.bytes(cu.Mem())[4:], tokens)
		shape := op.AttentionShape{CuQ: cu, CuK: cu, Seqs: 1, TQ: tokens, TK: tokens, MaxQ: tokens, MaxK: tokens, Heads: 2, KVHeads: 1, Dim: dim, Scale: 0.1}
		var sums device.Tensor
		if c.sums {
			sums = zeros(device.F32, shape.SumsLen())
		}
		act := func() device.Tensor { return zeros(device.BF16, tokens*2*dim) }
		q, k, v, o, lse := act(), act(), act(), act(), zeros(device.F32, 2*tokens)
		kernels.Attention(s, &op.Attention{AttentionShape: shape, O: o, LSE: lse, Q: q, K: k, V: v, QStride: 2 * dim, KStride: dim})
		kernels.AttentionBackward(s, &op.AttentionBackward{AttentionShape: shape, DQ: act(), DK: act(), DV: act(), DO: act(), O: o, LSE: lse, Q: q, K: k, V: v,
			QStride: 2 * dim, KStride: dim, DQStride: 2 * dim, DKStride: dim, Delta: zeros(device.F32, 2*tokens), Sums: sums})
	}
	s.rig.sm90a, s.rig.shared = false, 0
	if s.err != nil {
		t.Fatal(s.err)
	}
}
