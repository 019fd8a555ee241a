package ptx

import (
	"math/bits"
	"slices"
)

// guardedRegister is the state of a register that wgmma.mma_async instructions of the kernel use,
// as an accumulator or as a fragment of A. These instructions are called products below. They run
// asynchronously. Until the warp has waited for them, no other instruction may touch their
// registers.
//
// Only products of the same shape on the same accumulators may follow each other without a fence.
// Source: PTX ISA, "wgmma.fence" and "wgmma.wait_group".
type guardedRegister struct {
	touched int64 // warp.steps at the last access by another instruction
	sums    int32 // pending products that write the register
	a       int32 // pending products that read the register
	shape   int32 // of the last product that writes the register: N and the register's position among the accumulators
	line    int32 // of the last product
}

// guard numbers the registers that the kernel's products use (the guarded registers). For every other instruction
// it lists the guarded registers that the instruction touches.
func (b *builder) guard() {
	k := b.kernel
	index := map[int32]int32{} // of registers in r32
	for i := range k.code {
		if in := &k.code[i]; in.fam == famGroup && in.op == opProduct {
			for _, r := range in.x.regs {
				if _, known := index[r]; !known {
					index[r] = int32(len(index))
				}
				in.x.guards = append(in.x.guards, index[r])
			}
		}
	}
	if len(index) == 0 {
		return
	}
	k.guardNames = make([]string, len(index))
	k.touches = make([][]int32, len(k.code))
	for i := range b.statements {
		st := &b.statements[i]
		own := k.code[i].fam == famGroup
		for _, o := range st.args {
			b.guardOperand(st, o, index, own, &k.touches[i])
		}
	}
}

// guardOperand finds the guarded registers in operand o of st. It appends their numbers, which
// index gives, to the list `to`, and stores their names for errors. If own is true, st is itself a
// wgmma instruction, whose registers are checked elsewhere, and nothing is appended.
func (b *builder) guardOperand(st *statement, o operand, index map[int32]int32, own bool, to *[]int32) {
	for _, e := range o.list {
		b.guardOperand(st, e, index, own, to)
	}
	for _, name := range []string{o.name, o.pair} {
		r, ok := st.scope.reg(name)
		if !ok || r.file != in32 {
			continue
		}
		if g, ok := index[r.index]; ok {
			b.kernel.guardNames[g] = name
			if !own && !slices.Contains(*to, g) {
				*to = append(*to, g)
			}
		}
	}
}

// touch records that an instruction other than wgmma.mma_async reads or writes the guarded registers in list. It
// fails if a pending product still uses one of them.
func (w *warp) touch(in *inst, list []int32, mask uint32) {
	for _, i := range list {
		g := &w.guards[i]
		if g.sums != 0 || g.a != 0 {
			w.fail(in, bits.TrailingZeros32(mask), "register %s is touched while wgmma.mma_async at line %d %s it: wgmma.wait_group is missing",
				w.kernel.guardNames[i], g.line, pick(g.sums != 0, "writes", "reads"))
		}
		g.touched = w.steps
	}
}

// guardProduct checks that a product that starts may use its registers, and marks them as in use.
func (w *warp) guardProduct(in *inst) {
	if w.products.fenced < 0 {
		w.fail(in, 0, "wgmma.fence is missing before the first wgmma.mma_async of the warp")
	}
	sums := int(in.imm / 2)
	for j, i := range in.x.guards {
		g := &w.guards[i]
		shape := int32(in.imm)<<16 | int32(j)
		name := w.kernel.guardNames[i]
		switch {
		case g.touched > w.products.fenced:
			w.fail(in, 0, "register %s was touched after the last wgmma.fence", name)
		case j >= sums && g.sums != 0:
			w.fail(in, 0, "register %s is A, and wgmma.mma_async at line %d still writes it: wgmma.wait_group is missing", name, g.line)
		case j < sums && g.a != 0:
			w.fail(in, 0, "register %s is a sum, and wgmma.mma_async at line %d still reads it as A: wgmma.wait_group is missing", name, g.line)
		case j < sums && g.sums != 0 && g.shape != shape:
			w.fail(in, 0, "register %s is a sum of wgmma.mma_async at line %d too, which has another shape: wgmma.wait_group is missing", name, g.line)
		}
		if j < sums {
			g.sums++
			g.shape = shape
		} else {
			g.a++
		}
		g.line = in.line
	}
}

// releaseProduct is called when the product in has completed: its registers no longer count as used
// by it.
func (w *warp) releaseProduct(in *inst) {
	for j, i := range in.x.guards {
		if j < int(in.imm/2) {
			w.guards[i].sums--
		} else {
			w.guards[i].a--
		}
	}
}
