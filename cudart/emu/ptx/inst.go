package ptx

// lanes32 and lanes64 are one register of a warp: one value for each of its 32 threads (lanes). Floats are stored
// as their bits. Narrow integers are zero-extended.
type (
	lanes32 = [32]uint32
	lanes64 = [32]uint64
)

const full = ^uint32(0) // the mask of a warp with all its threads

// reg identifies a register of the decoded kernel: its file (predicates, 32-bit or 64-bit), the width declared in
// the PTX text, and its index in the file.
type reg struct {
	file  uint8 // inPreds, in32 or in64
	bytes uint8
	index int32
}

const (
	inPreds = iota
	in32
	in64
)

// family groups instructions that the same function of the interpreter executes. inst.op then
// selects the operation within the family.
type family uint8

const (
	fam32      family = iota // d32 ← a32, b32, c32
	famWrapped               // like fam32, with conversions of operands or result (inst.wrap)
	fam64                    // d64 ← a64, b64, c64; shifts take b32
	famMixed                 // operands and result differ in width
	famConvert               // cvt
	famCompare               // predicates
	famLoad
	famStore
	famAtomic
	famCopy    // cp.async
	famMatrix  // mma, ldmatrix
	famWarp    // shfl, vote, match
	famControl // branches, exits
	famBarrier // block barriers
	famMbar    // mbarriers, setmaxnreg
	famBulk    // cp.async.bulk
	famGroup   // wgmma
)

// inst is one decoded instruction. d is its result; a, b, c and e are its operands. They are
// indices into the warp's registers.
type inst struct {
	fam   family
	op    op
	wrap  wrap
	not   bool  // the guard is negated
	guard int32 // predicate register that selects the threads that execute it; -1: all threads
	d, a  int32
	b, c  int32
	e     int32
	line  int32
	imm   int64    // a constant, such as the offset of an address
	v     [4]int32 // registers of a vector
	n     uint8    // elements of a vector
	size  uint8    // bytes of an element
	space space
	flags uint8
	imm32 uint32
	slot  int32 // memory accesses: index into block.slots
	x     *extra
}

// extra holds fields that only a few instructions need.
type extra struct {
	regs    []int32 // the registers of matrix fragments
	guards  []int32 // wgmma.mma_async: regs as indices into warp.guards
	bulk    *bulkSpec
	targets []int32 // the targets of brx.idx
	run     func(d, a, b, c *lanes32)
	convert *conversion

	// update is for atomic instructions: it returns the new value of the memory, given the old one
	// and the operands.
	update func(old, b, c uint32) uint32

	// The rest is for setp: its comparison, and how the result is combined with a predicate.
	compare *comparison
	logic   string // and, or, xor: combines the result with the predicate inst.c
	notC    bool
	flush   bool
}

// Flags of instructions (inst.flags), mostly of memory accesses.
const (
	flagSigned   = 1 << iota // narrow values are sign-extended
	flagWide                 // the registers are 64-bit, the elements narrower
	flagNarrow               // the address register is 32-bit
	flagSrcReg               // cp.async: a register holds the number of bytes to read
	flagTrans                // ldmatrix.trans
	flagNoResult             // red, and shfl without a predicate
	flagStrong               // volatile, relaxed, acquire or release: warps may synchronize through the access
)

// space is one of PTX's state spaces, such as global or shared memory. A generic address may lie in
// any of them.
type space uint8

const (
	spaceGeneric space = iota
	spaceGlobal
	spaceShared
	spaceParam
	spaceLocal
)

// Generic addresses at which the state spaces other than global begin.
const (
	sharedWindow = uint64(0x7d) << 56
	localWindow  = uint64(0x7e) << 56
	constWindow  = uint64(0x7f) << 56
	paramWindow  = uint64(0x7c) << 56
	windowBytes  = uint64(1) << 32
)

// wrap is a set of conversions that an instruction of famWrapped makes: of its 32-bit operands before, and of its
// result after the operation.
type wrap uint16

const (
	wrapFlushIn  wrap = 1 << iota // replaces denormal f32 operands by zeros
	wrapFlushOut                  // replaces a denormal f32 result by zero
	wrapSign16                    // operands a and b are s16
	wrapSign8
	wrapMask16 // the result is 16-bit
	wrapMask8
)

type op uint16

// The operations (inst.op) of fam32, the family of arithmetic on 32-bit registers.
const (
	opMov op = iota
	opAdd
	opSub
	opMul
	opMad
	opMulHiS
	opMulHiU
	opDivS
	opDivU
	opRemS
	opRemU
	opMinS
	opMinU
	opMaxS
	opMaxU
	opAbs
	opNeg
	opAnd
	opOr
	opXor
	opNot
	opShl
	opShrU
	opShrS
	opShfL
	opShfR
	opShfLClamp
	opShfRClamp
	opPrmt
	opBfeU
	opBfeS
	opBfi
	opPopc
	opClz
	opCall // calls x.run
	opFAdd
	opFSub
	opFMul
	opFMA
	opFDiv
	opFMin
	opFMax
	opFMinNaN
	opFMaxNaN
	opFNeg
	opFAbs
	opFSqrt
	opFRsqrt
	opFRcp
	opFEx2
	opFLg2
)

// The operations (inst.op) of famMixed, the family whose operands and result differ in width.
const (
	opMulWideS op = iota
	opMulWideU
	opSelp32
	opSelp64
	opPopc64
	opClz64
	opPack64   // d64 ← {a32, b32}
	opUnpack64 // {d32, e32} ← a64
	opPack32   // d32 ← {a16, b16}
	opUnpack32 // {d16, e16} ← a32
	opBits32   // d32 ← predicate
	opBits64   // the same as 64 bits
	opLow      // d32 ← low half of a64
	opZeroHigh // d64 ← a32
	opSignHigh
	opClock32
	opClockHigh
	opClock64
)

// The operations (inst.op) of famControl, the family of branches, exits and fences.
const (
	opBra op = iota
	opBrx
	opExit
	opNop
	opTrap
	opFenceProxy // fence.proxy.async
	opFenceMbar  // fence.mbarrier_init
)
