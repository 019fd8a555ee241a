package neon

// Instructions with three registers. The last argument names the lanes: four fp32, two fp64, or bytes. Instructions
// whose names end in 2 read or write the upper halves of registers. d is the destination; n and m are the operands.

func (f *Func) three(code uint32, name string, d, n, m V, dn, nn, mn string) {
	f.word(code|uint32(m)<<16|uint32(n)<<5|uint32(d), "%s v%d.%s, v%d.%s, v%d.%s", name, d, dn, n, nn, m, mn)
}

func (f *Func) same(code uint32, name, lanes string, d, n, m V) {
	f.three(code, name, d, n, m, lanes, lanes, lanes)
}

func (f *Func) FADD(d, n, m V)   { f.same(0x4e20d400, "fadd", "4s", d, n, m) }
func (f *Func) FSUB(d, n, m V)   { f.same(0x4ea0d400, "fsub", "4s", d, n, m) }
func (f *Func) FMUL(d, n, m V)   { f.same(0x6e20dc00, "fmul", "4s", d, n, m) }
func (f *Func) FDIV(d, n, m V)   { f.same(0x6e20fc00, "fdiv", "4s", d, n, m) }
func (f *Func) FMAX(d, n, m V)   { f.same(0x4e20f400, "fmax", "4s", d, n, m) }
func (f *Func) FMIN(d, n, m V)   { f.same(0x4ea0f400, "fmin", "4s", d, n, m) }
func (f *Func) FADDP(d, n, m V)  { f.same(0x6e20d400, "faddp", "4s", d, n, m) }
func (f *Func) FMAXNM(d, n, m V) { f.same(0x4e20c400, "fmaxnm", "4s", d, n, m) }
func (f *Func) FCMEQ(d, n, m V)  { f.same(0x4e20e400, "fcmeq", "4s", d, n, m) }
func (f *Func) ADD(d, n, m V)    { f.same(0x4ea08400, "add", "4s", d, n, m) }
func (f *Func) SUB(d, n, m V)    { f.same(0x6ea08400, "sub", "4s", d, n, m) }
func (f *Func) CMTST(d, n, m V)  { f.same(0x4ea08c00, "cmtst", "4s", d, n, m) }
func (f *Func) CMEQ(d, n, m V)   { f.same(0x6ea08c00, "cmeq", "4s", d, n, m) }
func (f *Func) UMAX(d, n, m V)   { f.same(0x6ea06400, "umax", "4s", d, n, m) }
func (f *Func) UMIN(d, n, m V)   { f.same(0x6ea06c00, "umin", "4s", d, n, m) }
func (f *Func) CMHI(d, n, m V)   { f.same(0x6ea03400, "cmhi", "4s", d, n, m) } // n > m, unsigned
func (f *Func) UMAXP(d, n, m V)  { f.same(0x6ea0a400, "umaxp", "4s", d, n, m) }

// FMLA is d += n·m and FMLS is d −= n·m, each rounded once.
func (f *Func) FMLA(d, n, m V) { f.same(0x4e20cc00, "fmla", "4s", d, n, m) }
func (f *Func) FMLS(d, n, m V) { f.same(0x4ea0cc00, "fmls", "4s", d, n, m) }

// FMLA2D is d += n·m for two fp64, rounded once.
func (f *Func) FMLA2D(d, n, m V) { f.same(0x4e60cc00, "fmla", "2d", d, n, m) }

// FMLALane is d += n times lane i of m.
func (f *Func) FMLALane(d, n, m V, i int) {
	lane := uint32(i&1)<<21 | uint32(i>>1)<<11
	f.word(0x4f801000|lane|uint32(m)<<16|uint32(n)<<5|uint32(d), "fmla v%d.4s, v%d.4s, v%d.s[%d]", d, n, m, i)
}

func (f *Func) AND(d, n, m V) { f.same(0x4e201c00, "and", "16b", d, n, m) }
func (f *Func) BIC(d, n, m V) { f.same(0x4e601c00, "bic", "16b", d, n, m) } // n and not m
func (f *Func) ORR(d, n, m V) { f.same(0x4ea01c00, "orr", "16b", d, n, m) }
func (f *Func) EOR(d, n, m V) { f.same(0x6e201c00, "eor", "16b", d, n, m) }
func (f *Func) BIT(d, n, m V) { f.same(0x6ea01c00, "bit", "16b", d, n, m) } // takes the bits of n where m is set
func (f *Func) BIF(d, n, m V) { f.same(0x6ee01c00, "bif", "16b", d, n, m) } // takes the bits of n where m is clear

// MOV copies a register.
func (f *Func) MOV(d, n V) {
	f.word(0x4ea01c00|uint32(n)<<16|uint32(n)<<5|uint32(d), "mov v%d.16b, v%d.16b", d, n)
}

// UZP1 takes the lower halves of the four 32-bit lanes of n, and then those of m, as eight 16-bit lanes. UZP2 takes the
// upper halves.
func (f *Func) UZP1(d, n, m V) { f.same(0x4e401800, "uzp1", "8h", d, n, m) }
func (f *Func) UZP2(d, n, m V) { f.same(0x4e405800, "uzp2", "8h", d, n, m) }

// SADDW adds the first four 16-bit lanes of m, sign-extended, to n. SADDW2 adds the last four.
func (f *Func) SADDW(d, n, m V)  { f.three(0x0e601000, "saddw", d, n, m, "4s", "4s", "4h") }
func (f *Func) SADDW2(d, n, m V) { f.three(0x4e601000, "saddw2", d, n, m, "4s", "4s", "8h") }

// ADDHN sets the first four 16-bit lanes of d to the upper halves of n + m, and the rest to 0. ADDHN2 sets the last
// four and keeps the rest.
func (f *Func) ADDHN(d, n, m V)  { f.three(0x0e604000, "addhn", d, n, m, "4h", "4s", "4s") }
func (f *Func) ADDHN2(d, n, m V) { f.three(0x4e604000, "addhn2", d, n, m, "8h", "4s", "4s") }

// The functions below are instructions with two registers: d is the destination, n the operand.

func (f *Func) two(code uint32, name string, d, n V, dn, nn, end string) {
	f.word(code|uint32(n)<<5|uint32(d), "%s v%d.%s, v%d.%s%s", name, d, dn, n, nn, end)
}

func (f *Func) FSQRT(d, n V) { f.two(0x6ea1f800, "fsqrt", d, n, "4s", "4s", "") }
func (f *Func) FNEG(d, n V)  { f.two(0x6ea0f800, "fneg", d, n, "4s", "4s", "") }

// FCMEQ0 sets all bits of the lanes of d where n is 0. A NaN is not 0.
func (f *Func) FCMEQ0(d, n V) { f.two(0x4ea0d800, "fcmeq", d, n, "4s", "4s", ", #0.0") }

// FCVTL converts the first two fp32 lanes of n to fp64. FCVTL2 converts the last two.
func (f *Func) FCVTL(d, n V)  { f.two(0x0e617800, "fcvtl", d, n, "2d", "2s", "") }
func (f *Func) FCVTL2(d, n V) { f.two(0x4e617800, "fcvtl2", d, n, "2d", "4s", "") }

// SHLL moves each of the first four 16-bit lanes of n to the upper half of a 32-bit lane, which converts bf16 to fp32.
// SHLL2 takes the last four.
func (f *Func) SHLL(d, n V)  { f.two(0x2e613800, "shll", d, n, "4s", "4h", ", #16") }
func (f *Func) SHLL2(d, n V) { f.two(0x6e613800, "shll2", d, n, "4s", "8h", ", #16") }

// UADDW adds the first four 16-bit lanes of m, zero-extended, to n.
func (f *Func) UADDW(d, n, m V) { f.three(0x2e601000, "uaddw", d, n, m, "4s", "4s", "4h") }

// USHR, SSHR and SHL shift 32-bit lanes by s bits.
func (f *Func) USHR(d, n V, s int) { f.shift(0x6f000400, "ushr", 64-s, s, d, n) }
func (f *Func) SSHR(d, n V, s int) { f.shift(0x4f000400, "sshr", 64-s, s, d, n) }
func (f *Func) SHL(d, n V, s int)  { f.shift(0x4f005400, "shl", 32+s, s, d, n) }

func (f *Func) shift(code uint32, name string, imm, s int, d, n V) {
	f.word(code|uint32(imm)<<16|uint32(n)<<5|uint32(d), "%s v%d.4s, v%d.4s, #%d", name, d, n, s)
}

// DUP copies lane i of n to all lanes of d.
func (f *Func) DUP(d, n V, i int) {
	f.word(0x4e000400|uint32(i<<3|4)<<16|uint32(n)<<5|uint32(d), "dup v%d.4s, v%d.s[%d]", d, n, i)
}

// ZIP1 interleaves the first two lanes of n and m: n0, m0, n1, m1. ZIP2 interleaves the last two.
func (f *Func) ZIP1(d, n, m V) { f.same(0x4e803800, "zip1", "4s", d, n, m) }
func (f *Func) ZIP2(d, n, m V) { f.same(0x4e807800, "zip2", "4s", d, n, m) }

// ZIP1D concatenates the first two lanes of n and of m. ZIP1B and ZIP2B interleave bytes, ZIP1H and ZIP2H 16-bit lanes.
func (f *Func) ZIP1D(d, n, m V) { f.same(0x4ec03800, "zip1", "2d", d, n, m) }
func (f *Func) ZIP1B(d, n, m V) { f.same(0x4e003800, "zip1", "16b", d, n, m) }
func (f *Func) ZIP2B(d, n, m V) { f.same(0x4e007800, "zip2", "16b", d, n, m) }
func (f *Func) ZIP1H(d, n, m V) { f.same(0x4e403800, "zip1", "8h", d, n, m) }
func (f *Func) ZIP2H(d, n, m V) { f.same(0x4e407800, "zip2", "8h", d, n, m) }

// UZP1B concatenates the even bytes of n and of m.
func (f *Func) UZP1B(d, n, m V) { f.same(0x4e001800, "uzp1", "16b", d, n, m) }

// TBL looks up bytes: each byte of m is an index into the bytes of n. An index above 15 gives 0.
func (f *Func) TBL(d, n, m V) {
	f.word(0x4e000000|uint32(m)<<16|uint32(n)<<5|uint32(d), "tbl v%d.16b, {v%d.16b}, v%d.16b", d, n, m)
}

// FMAXNMP sets d to the maxima of pairs of adjacent lanes, first of the two pairs in n, then of the two in m.
func (f *Func) FMAXNMP(d, n, m V) { f.same(0x6e20c400, "fmaxnmp", "4s", d, n, m) }
