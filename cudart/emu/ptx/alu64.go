package ptx

import "math/bits"

// exec64 executes an instruction whose operands and result have 64 bits, for all
// threads of the warp. The amount of a shift has 32 bits.
func exec64(in *inst, d *lanes64, w *warp) {
	if in.op >= opFAdd {
		execDouble(in.op, d, &w.r64[in.a], &w.r64[in.b], &w.r64[in.c])
		return
	}
	a := &w.r64[in.a]
	switch in.op {
	case opShl, opShrU, opShrS:
		shift64(in.op, d, a, &w.r32[in.b])
		return
	}
	b := &w.r64[in.b]
	switch in.op {
	case opMov:
		*d = *a
	case opAdd:
		add64(d, a, b)
	case opSub:
		for i := range d {
			d[i] = a[i] - b[i]
		}
	case opMul:
		for i := range d {
			d[i] = a[i] * b[i]
		}
	case opMad:
		c := &w.r64[in.c]
		for i := range d {
			d[i] = a[i]*b[i] + c[i]
		}
	case opAnd:
		for i := range d {
			d[i] = a[i] & b[i]
		}
	case opOr:
		for i := range d {
			d[i] = a[i] | b[i]
		}
	case opXor:
		for i := range d {
			d[i] = a[i] ^ b[i]
		}
	case opNot:
		for i := range d {
			d[i] = ^a[i]
		}
	default:
		f, c := rare64[in.op], &w.r64[in.c]
		for i := range d {
			d[i] = f(a[i], b[i], c[i])
		}
	}
}

func shift64(o op, d, a *lanes64, n *lanes32) {
	switch o {
	case opShl:
		for i := range d {
			d[i] = a[i] << n[i]
		}
	case opShrU:
		for i := range d {
			d[i] = a[i] >> n[i]
		}
	case opShrS:
		for i := range d {
			d[i] = uint64(int64(a[i]) >> n[i])
		}
	}
}

// rare64 are the 64-bit functions that few programs use. They work on one thread at
// a time.
var rare64 = [opCall]func(a, b, c uint64) uint64{
	opDivS: func(a, b, _ uint64) uint64 {
		if b == 0 {
			return ^uint64(0)
		}
		return uint64(int64(a) / int64(b))
	},
	opDivU: func(a, b, _ uint64) uint64 {
		if b == 0 {
			return ^uint64(0)
		}
		return a / b
	},
	opRemS: func(a, b, _ uint64) uint64 {
		if b == 0 {
			return a
		}
		return uint64(int64(a) % int64(b))
	},
	opRemU: func(a, b, _ uint64) uint64 {
		if b == 0 {
			return a
		}
		return a % b
	},
	opMinS: func(a, b, _ uint64) uint64 { return uint64(min(int64(a), int64(b))) },
	opMinU: func(a, b, _ uint64) uint64 { return min(a, b) },
	opMaxS: func(a, b, _ uint64) uint64 { return uint64(max(int64(a), int64(b))) },
	opMaxU: func(a, b, _ uint64) uint64 { return max(a, b) },
	opAbs:  func(a, _, _ uint64) uint64 { return uint64(max(int64(a), -int64(a))) },
	opNeg:  func(a, _, _ uint64) uint64 { return -a },
}

// mixed executes an instruction whose operands and results differ in width.
func (w *warp) mixed(in *inst, mask uint32) {
	switch in.op {
	case opMulWideS, opMulWideU, opSelp64, opPack64, opZeroHigh, opSignHigh, opBits64, opClock64:
		d := &w.r64[in.d]
		if mask != full {
			d = &w.tmp64
		}
		w.mixed64(in, d)
		if mask != full {
			blend64(&w.r64[in.d], d, mask)
		}
	case opUnpack64, opUnpack32:
		w.unpack(in, mask)
	default:
		d := &w.r32[in.d]
		if mask != full {
			d = &w.tmp32
		}
		w.mixed32(in, d)
		if mask != full {
			blend32(&w.r32[in.d], d, mask)
		}
	}
}

// mixed64 executes those of mixed whose result has 64 bits.
func (w *warp) mixed64(in *inst, d *lanes64) {
	switch in.op {
	case opMulWideS:
		mulWideS(d, &w.r32[in.a], &w.r32[in.b])
	case opMulWideU:
		mulWideU(d, &w.r32[in.a], &w.r32[in.b])
	case opSelp64:
		a, b, p := &w.r64[in.a], &w.r64[in.b], w.preds[in.c]
		for i := range d {
			if p>>i&1 != 0 {
				d[i] = a[i]
			} else {
				d[i] = b[i]
			}
		}
	case opPack64:
		a, b := &w.r32[in.a], &w.r32[in.b]
		for i := range d {
			d[i] = uint64(b[i])<<32 | uint64(a[i])
		}
	case opZeroHigh:
		a := &w.r32[in.a]
		for i := range d {
			d[i] = uint64(a[i])
		}
	case opSignHigh:
		a := &w.r32[in.a]
		for i := range d {
			d[i] = uint64(int64(int32(a[i])))
		}
	case opBits64:
		p := w.preds[in.a]
		for i := range d {
			d[i] = -uint64(p >> i & 1)
		}
	case opClock64:
		for i := range d {
			d[i] = uint64(w.steps)
		}
	}
}

// mixed32 executes those of mixed whose result has 32 bits.
func (w *warp) mixed32(in *inst, d *lanes32) {
	switch in.op {
	case opSelp32:
		a, b, p := &w.r32[in.a], &w.r32[in.b], w.preds[in.c]
		for i := range d {
			if p>>i&1 != 0 {
				d[i] = a[i]
			} else {
				d[i] = b[i]
			}
		}
	case opLow:
		a := &w.r64[in.a]
		for i := range d {
			d[i] = uint32(a[i])
		}
	case opPack32:
		a, b := &w.r32[in.a], &w.r32[in.b]
		for i := range d {
			d[i] = b[i]<<16 | a[i]&0xffff
		}
	case opBits32:
		p := w.preds[in.a]
		for i := range d {
			d[i] = uint32(in.imm) * (p >> i & 1)
		}
	case opPopc64:
		for i, a := range &w.r64[in.a] {
			d[i] = uint32(bits.OnesCount64(a))
		}
	case opClz64:
		for i, a := range &w.r64[in.a] {
			d[i] = uint32(bits.LeadingZeros64(a))
		}
	case opClock32:
		for i := range d {
			d[i] = uint32(w.steps)
		}
	case opClockHigh:
		for i := range d {
			d[i] = uint32(w.steps / w.block.launch.period())
		}
	}
}

// unpack splits a register into its halves.
func (w *warp) unpack(in *inst, mask uint32) {
	for ; mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros32(mask)
		switch in.op {
		case opUnpack64:
			v := w.r64[in.a][i]
			w.r32[in.d][i], w.r32[in.e][i] = uint32(v), uint32(v>>32)
		case opUnpack32:
			v := w.r32[in.a][i]
			w.r32[in.d][i], w.r32[in.e][i] = v&0xffff, v>>16
		}
	}
}
