package ptx

import "sync"

// Module is a parsed PTX file. It never changes.
type Module struct {
	kernels map[string]*Kernel
	names   []string
	consts  []byte
}

// Kernel returns the kernel with the given name; nil if there is none.
func (m *Module) Kernel(name string) *Kernel { return m.kernels[name] }

// Kernels returns the names of the kernels in file order.
func (m *Module) Kernels() []string { return m.names }

// Kernel is one decoded .entry function. Its instructions never change, and several launches may
// run it at the same time.
type Kernel struct {
	Name string
	// ParamBytes is the size of all parameters in bytes, each at its natural alignment.
	ParamBytes int
	// StaticShared is the size in bytes of the shared arrays that have a declared length.
	StaticShared int
	// MaxThreads is the product of the .maxntid values; 0: no .maxntid.
	MaxThreads int

	module   *Module
	file     string
	code     []inst
	regs32   int // includes registers for constants and special registers
	regs64   int
	preds    int
	slots    int // number of memory instructions
	local    int // bytes of local memory per thread
	consts32 []constant32
	consts64 []constant64
	always   []int32 // predicates that are true for all threads
	specials []special
	dynamic  int // offset of the dynamic shared memory
	pool     sync.Pool

	// These are only for kernels that use instructions of sm_90a:
	async        bool      // the kernel uses mbarriers, bulk copies or wgmma
	maxRegisters int       // .maxnreg; 0: none
	minBlocks    int       // .minnctapersm; 0: none
	touches      [][]int32 // per instruction: the guarded registers that it touches; nil: the kernel has none
	guardNames   []string  // names of the guarded registers

	statements []statement // source form, for Meanings
	understand sync.Once
	meanings   []Meaning
}

// constant32 is a register that the decoder has made for a constant of the PTX text. The warp sets
// it before the first instruction.
type constant32 struct {
	reg   int32
	value uint32
}

type constant64 struct {
	reg   int32
	value uint64
}

// special is a register that the decoder has made for a special register, such as %tid.x. The warp
// sets the register before the first instruction. wide: 64 bits.
type special struct {
	reg  int32
	name string
	wide bool
}
