package ptx

import "math/bits"

// The operations (inst.op) of famWarp, which executes instructions by which the threads of a warp
// exchange values.
const (
	opShfl op = iota // inst.size has the mode
	opVote           // inst.size has the kind
	opMatch
	opRedux
)

const (
	shflUp = iota
	shflDown
	shflBfly
	shflIdx
)

const (
	voteAll = iota
	voteAny
	voteUni
	voteBallot
)

// shfl decodes shfl.sync.mode.b32 d[|p], a, b, c, members, which moves values between the threads of a warp.
func (b *builder) shfl(in *inst) {
	m := b.modifiers()
	if m.last() != "b32" || !m.has("sync") {
		b.unknown()
	}
	mode, ok := map[string]uint8{"up": shflUp, "down": shflDown, "bfly": shflBfly, "idx": shflIdx}[m.take("up", "down", "bfly", "idx")]
	if !ok {
		b.unknown()
	}
	b.done(m)
	b.count(5)
	in.fam, in.op, in.size = famWarp, opShfl, mode
	to := b.arg(0)
	in.d = b.out(operand{name: to.name}, in32)
	in.v[1] = -1
	if to.pair != "" {
		in.v[1] = b.out(operand{name: to.pair}, inPreds)
	}
	in.a, in.b, in.c = b.in(b.arg(1), "b32"), b.in(b.arg(2), "b32"), b.in(b.arg(3), "b32")
	in.e = b.in(b.arg(4), "b32")
}

// vote decodes vote.sync, which combines a predicate of all threads of a warp.
func (b *builder) vote(in *inst) {
	m := b.modifiers()
	in.fam = famWarp
	t := m.last()
	kind, ok := map[string]uint8{"all": voteAll, "any": voteAny, "uni": voteUni, "ballot": voteBallot}[m.take("all", "any", "uni", "ballot")]
	if !ok || !m.has("sync") || (kind == voteBallot) != (t == "b32") {
		b.unknown()
	}
	b.done(m)
	b.count(3)
	in.op, in.size = opVote, kind
	in.d = b.out(b.arg(0), pick(kind == voteBallot, uint8(in32), uint8(inPreds)))
	in.a, in.e = b.pred(b.arg(1).name), b.in(b.arg(2), "b32")
	in.n = pick(b.arg(1).not, uint8(1), 0)
}

// match decodes match.any.sync, which gives each thread a mask of the threads that have the same
// value.
func (b *builder) match(in *inst) {
	m := b.modifiers()
	t := m.last()
	if !m.has("any") || !m.has("sync") || typeBytes(t) < 4 {
		b.unknown()
	}
	b.done(m)
	b.count(3)
	in.fam, in.op, in.size = famWarp, opMatch, uint8(typeBytes(t))
	in.d, in.a, in.e = b.out(b.arg(0), in32), b.in(b.arg(1), t), b.in(b.arg(2), "b32")
}

// redux decodes redux.sync.op.type d, a, members, which reduces an integer over the threads of a warp.
func (b *builder) redux(in *inst) {
	m := b.modifiers()
	t := m.last()
	name := m.take("add", "min", "max", "and", "or", "xor")
	if !m.has("sync") || typeBytes(t) != 4 || name == "" {
		b.unknown()
	}
	b.done(m)
	b.count(3)
	in.fam, in.op = famWarp, opRedux
	in.d, in.a, in.e = b.out(b.arg(0), in32), b.in(b.arg(1), t), b.in(b.arg(2), "b32")
	in.x = &extra{update: updates32(name, t)}
	if in.x.update == nil {
		b.unknown()
	}
}

// exchange executes an instruction of famWarp (shfl, vote, match, redux) for the threads of mask.
func (w *warp) exchange(in *inst, mask uint32) {
	if mask == 0 {
		return
	}
	members := &w.r32[in.e]
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		if members[i]>>i&1 == 0 || members[i]&w.live&^mask != 0 || members[i] != members[bits.TrailingZeros32(mask)] {
			w.members(in, mask, members[i], "the instruction")
			w.fail(in, i, "member mask %#08x differs from another thread's", members[i])
		}
	}
	switch in.op {
	case opShfl:
		w.shuffle(in, mask)
	case opVote:
		w.voteSync(in, mask)
	case opMatch:
		w.matchAny(in, mask)
	case opRedux:
		a := &w.r32[in.a]
		sum := a[bits.TrailingZeros32(mask)]
		for m := mask & (mask - 1); m != 0; m &= m - 1 {
			sum = in.x.update(sum, a[bits.TrailingZeros32(m)], 0)
		}
		for m := mask; m != 0; m &= m - 1 {
			w.r32[in.d][bits.TrailingZeros32(m)] = sum
		}
	}
}

func (w *warp) shuffle(in *inst, mask uint32) {
	a, bs, cs := &w.r32[in.a], &w.r32[in.b], &w.r32[in.c]
	var inRange uint32
	for m := mask; m != 0; m &= m - 1 {
		i := uint32(bits.TrailingZeros32(m)) & 31
		by, clamp, seg := bs[i]&31, cs[i]&31, cs[i]>>8&31
		last := i&seg | clamp&^seg
		from, ok := i, false
		switch in.size {
		case shflUp:
			from = i - by
			ok = int32(from) >= int32(last)
		case shflDown:
			from = i + by
			ok = from <= last
		case shflBfly:
			from = i ^ by
			ok = from <= last
		case shflIdx:
			from = i&seg | by&^seg
			ok = from <= last
		}
		if ok {
			inRange |= 1 << i
		} else {
			from = i
		}
		if mask>>(from&31)&1 == 0 {
			w.fail(in, int(i), "shfl reads from thread %d of the warp, which does not take part", from)
		}
		w.tmp32[i] = a[from&31]
	}
	blend32(&w.r32[in.d], &w.tmp32, mask)
	if in.v[1] >= 0 {
		p := &w.preds[in.v[1]]
		*p = *p&^mask | inRange&mask
	}
}

func (w *warp) voteSync(in *inst, mask uint32) {
	v := w.preds[in.a]
	if in.n != 0 {
		v = ^v
	}
	v &= mask
	yes := false
	switch in.size {
	case voteAll:
		yes = v == mask
	case voteAny:
		yes = v != 0
	case voteUni:
		yes = v == 0 || v == mask
	case voteBallot:
		for m := mask; m != 0; m &= m - 1 {
			w.r32[in.d][bits.TrailingZeros32(m)] = v
		}
		return
	}
	w.preds[in.d] &^= mask
	if yes {
		w.preds[in.d] |= mask
	}
}

func (w *warp) matchAny(in *inst, mask uint32) {
	value := func(i int) uint64 {
		if in.size == 8 {
			return w.r64[in.a][i]
		}
		return uint64(w.r32[in.a][i])
	}
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		same := uint32(0)
		for o := mask; o != 0; o &= o - 1 {
			if j := bits.TrailingZeros32(o); value(i) == value(j) {
				same |= 1 << j
			}
		}
		w.tmp32[i] = same
	}
	blend32(&w.r32[in.d], &w.tmp32, mask)
}
