package ptx

// setmaxnreg decodes setmaxnreg.inc|dec.sync.aligned.u32 n, which changes how many registers the threads of a warp
// have.
func (b *builder) setmaxnreg(in *inst) {
	m := b.modifiers()
	kind := m.take("inc", "dec")
	if !m.has("sync") || !m.has("aligned") || !m.has("u32") || kind == "" {
		b.unknown()
	}
	b.done(m)
	b.count(1)
	n, ok := parseInteger(b.arg(0).name)
	if !ok || n < 24 || n > 256 || n%8 != 0 {
		b.fail("setmaxnreg takes a multiple of 8 from 24 to 256")
	}
	in.fam, in.op, in.imm, in.size = famMbar, opRegisters, n, pick(kind == "inc", uint8(flagMore), 0)
	b.kernel.async = true
}

// registersAtStart returns the number of registers per thread at kernel start. It is .maxnreg, or else the share of a
// multiprocessor's 65,536 registers for .maxntid and .minnctapersm, rounded down to a multiple of 8. 0: the kernel has
// no such directive. Source: PTX ISA, "setmaxnreg", "Performance-Tuning Directives".
func (k *Kernel) registersAtStart() int {
	if k.maxRegisters > 0 {
		return k.maxRegisters
	}
	if k.MaxThreads == 0 {
		return 0
	}
	threads := (k.MaxThreads + 127) / 128 * 128
	return min(256, (64<<10)/(threads*max(1, k.minBlocks))) &^ 7
}

// setRegisters executes setmaxnreg. It returns true if the warp has to wait until other warps release registers.
func (w *warp) setRegisters(in *inst, mask uint32) bool {
	p, n := w.block.proxy, int(in.imm)
	w.wholeGroup(in, mask, "setmaxnreg")
	more := in.size == flagMore
	switch {
	case w.registers == 0:
		w.fail(in, 0, "setmaxnreg in a kernel without .maxnreg or .maxntid: it is not known how many registers its threads have")
	case more && n < w.registers, !more && n > w.registers:
		w.fail(in, 0, "setmaxnreg.%s to %d registers, and each thread has %d", pick(more, "inc", "dec"), n, w.registers)
	case more && !w.registersFree(in):
		w.poll, w.polled = in, mask
		return true
	}
	w.poll = nil
	p.pool -= (n - w.registers) * 32
	w.registers = n
	p.news++
	p.groups[w.index/4].same(w, groupStep{in: in, warp: w.index})
	return false
}

// registersFree reports whether the block has enough free registers for a warp's setmaxnreg.inc.
func (w *warp) registersFree(in *inst) bool {
	return w.block.proxy.pool >= (int(in.imm)-w.registers)*32
}
