package ptx

// lanes32 and lanes64 are one register of a warp, with one value for each thread.
// Floats are kept as their bits, and so are narrow integers, with zeros above them.
type (
	lanes32 = [32]uint32
	lanes64 = [32]uint64
)

const full = ^uint32(0) // the mask of a warp with all its threads

// reg says where a register is kept.
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

// family says which function executes an instruction.
type family uint8

const (
	fam32      family = iota // d32 ← a32, b32, c32
	famWrapped               // the same, with operands or result adjusted first
	fam64                    // d64 ← a64, b64, c64; shifts take b32
	famMixed                 // widths differ
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

// inst is one decoded instruction.
type inst struct {
	fam   family
	op    op
	wrap  wrap
	not   bool  // the guard counts when it is false
	guard int32 // the predicate that decides which threads take part, -1: all do
	d, a  int32
	b, c  int32
	e     int32
	line  int32
	imm   int64    // a constant: the offset of an address and the like
	v     [4]int32 // registers of a vector
	n     uint8    // elements of a vector
	size  uint8    // bytes of an element
	space space
	flags uint8
	imm32 uint32
	slot  int32 // of a memory access: its entry in block.slots
	x     *extra
}

// extra is what only a few instructions have.
type extra struct {
	regs    []int32 // the registers of matrix fragments
	guards  []int32 // of wgmma.mma_async: the same as indices into warp.guards
	bulk    *bulkSpec
	targets []int32 // the targets of brx.idx
	run     func(d, a, b, c *lanes32)
	convert *conversion

	// Of atomic instructions: computes the new value from the old one and the
	// operands.
	update func(old, b, c uint32) uint32

	// Of setp.
	compare *comparison
	logic   string // how the result is combined with the predicate inst.c: and, or, xor
	notC    bool
	flush   bool
}

// flags of memory accesses.
const (
	flagSigned   = 1 << iota // narrow values are extended with their sign
	flagWide                 // the registers are 64 bits wide, the elements narrower
	flagNarrow               // the address is in a 32-bit register
	flagSrcReg               // of cp.async: the number of bytes to read is in a register
	flagTrans                // ldmatrix.trans
	flagNoResult             // red, and shfl without a predicate
	flagStrong               // volatile, relaxed, acquire or release: warps may wait for each other by it
)

// space is a state space.
type space uint8

const (
	spaceGeneric space = iota
	spaceGlobal
	spaceShared
	spaceParam
	spaceLocal
)

// The windows of generic addresses for memory that is not global.
const (
	sharedWindow = uint64(0x7d) << 56
	localWindow  = uint64(0x7e) << 56
	constWindow  = uint64(0x7f) << 56
	paramWindow  = uint64(0x7c) << 56
	windowBytes  = uint64(1) << 32
)

// wrap says how 32-bit operands are adjusted before an instruction, and its result
// after it.
type wrap uint16

const (
	wrapFlushIn  wrap = 1 << iota // f32 operands: denormals become zeros
	wrapFlushOut                  // the same for the result
	wrapSign16                    // operands a, b are s16
	wrapSign8
	wrapMask16 // the result is 16 bits
	wrapMask8
)

type op uint16

// Instructions of fam32.
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

// Instructions of famMixed.
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

// Instructions of famControl.
const (
	opBra op = iota
	opBrx
	opExit
	opNop
	opTrap
	opFenceProxy // fence.proxy.async
	opFenceMbar  // fence.mbarrier_init
)
