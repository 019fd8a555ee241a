package ptx

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// tensorCopy is the text of a kernel that copies a box to shared memory and from there, as it lies, to out; or bytes from in, as
// they lie, to shared memory and from there to the box.
func tensorCopy(rank, bytes int, at []int, store bool) string {
	coords := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(at)), ", "), "[]")
	first := fmt.Sprintf("cp.async.bulk.tensor.%dd.shared::cluster.global.mbarrier::complete_tx::bytes [space], [%%map, {%s}], [space+65536];", rank, coords)
	then := fmt.Sprintf("cp.async.bulk.global.shared::cta.bulk_group [%%p], [space], %d;", bytes)
	if store {
		first = fmt.Sprintf("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [space], [%%p], %d, [space+65536];", bytes)
		then = fmt.Sprintf("cp.async.bulk.tensor.%dd.global.shared::cta.bulk_group [%%map, {%s}], [space];", rank, coords)
	}
	return hopperHeader + fmt.Sprintf(`.visible .entry k(.param .align 64 .b8 m[128], .param .u64 p)
{
	.reg .pred %%q;
	.reg .b32 %%a, %%z;
	.reg .b64 %%map, %%p;
	.shared .align 1024 .b8 space[65544];
	mov.b64 %%map, m; cvta.param.u64 %%map, %%map;
	ld.param.u64 %%p, [p];
	mbarrier.init.shared::cta.b64 [space+65536], 1;
	mov.u32 %%a, space; mov.u32 %%z, -1;
	FILL: st.shared.v4.b32 [%%a], {%%z, %%z, %%z, %%z}; add.u32 %%a, %%a, 16; setp.lt.u32 %%q, %%a, %d; @%%q bra FILL;
	fence.proxy.async;
	mbarrier.arrive.expect_tx.shared::cta.b64 _, [space+65536], %d;
	%s
	W: mbarrier.try_wait.parity.shared::cta.b64 %%q, [space+65536], 0; @!%%q bra W;
	%s
	cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
	ret;
}`, bytes, bytes, first, then)
}

// TestTensorCopies copies boxes that lie in part outside of tensors of one to five dimensions, and compares with a walk over their
// elements. In shared memory, 16 bytes at address a lie at a XOR (a/128 mod 8)·16, or of fewer rows where the swizzle is narrower.
func TestTensorCopies(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 200 {
		m := &TensorMap{Element: []int{2, 4}[n%2], Rank: 1 + n/2%5, Swizzle: []int{16, 32, 64, 128}[n/10%4]}
		row := m.Swizzle
		if row == 16 {
			row = 16 * (1 + rng.IntN(4))
		}
		size, at := row, make([]int, m.Rank)
		m.Box[0] = uint32(row / m.Element)
		m.Stride[0], m.Size[0] = uint64(m.Element), 1+rng.Uint64N(100)
		pitch := (m.Size[0]*uint64(m.Element)+15)/16*16 + 16*rng.Uint64N(2)
		for i := range m.Rank {
			if i > 0 {
				m.Size[i], m.Box[i], m.Stride[i] = 1+rng.Uint64N(5), 1+rng.Uint32N(4), pitch
				pitch *= m.Size[i]
				size *= int(m.Box[i])
			}
			at[i] = rng.IntN(int(m.Size[i])+3) - 2
		}
		store := n%4 >= 2
		var h heap
		tensor, raw := h.add("tensor", make([]byte, pitch)), h.add("raw", make([]byte, size))
		m.Address = tensor.Base
		for _, b := range [][]byte{tensor.Data, raw.Data} {
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
		}
		wantTensor, wantRaw := bytes.Clone(tensor.Data), bytes.Clone(raw.Data)
		for i := range size / m.Element { // an element of the box
			linear, left, address, inside := i*m.Element, i, 0, true
			for d := range m.Rank {
				x := at[d] + left%int(m.Box[d])
				left /= int(m.Box[d])
				inside = inside && x >= 0 && x < int(m.Size[d])
				address += x * int(m.Stride[d])
			}
			shared := linear ^ linear/128%(m.Swizzle/16)*16
			switch {
			case store && inside:
				copy(wantTensor[address:][:m.Element], raw.Data[shared:])
			case !store && inside:
				copy(wantRaw[shared:][:m.Element], tensor.Data[address:])
			case !store:
				clear(wantRaw[shared:][:m.Element])
			}
		}
		encoded := m.Encode()
		l := Launch{Kernel: parse(t, tensorCopy(m.Rank, size, at, store)).Kernel("k"), Grid: dim(1), Block: dim(1), Memory: h, Seed: uint64(n), CheckGlobal: true,
			Params: append(encoded[:], params(raw.Base)...)}
		if _, err := l.Run(); err != nil {
			t.Fatalf("%+v at %v, store %v: %v", m, at, store, err)
		}
		if !bytes.Equal(tensor.Data, wantTensor) || !bytes.Equal(raw.Data, wantRaw) {
			t.Fatalf("%+v at %v, store %v: bytes differ", m, at, store)
		}
	}
}
