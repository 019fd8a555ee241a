package ptx

import "sync"

// Module is a parsed PTX file. It is immutable.
type Module struct {
	kernels map[string]*Kernel
	names   []string
	consts  []byte
}

// Kernel returns the kernel of that name, nil where there is none.
func (m *Module) Kernel(name string) *Kernel { return m.kernels[name] }

// Kernels are the names of the kernels in the order of the file.
func (m *Module) Kernels() []string { return m.names }

// Kernel is one .entry function, decoded. It is immutable, and several launches may
// run it at the same time.
type Kernel struct {
	Name string
	// ParamBytes is the size of all parameters in bytes, each at its natural
	// alignment.
	ParamBytes int
	// StaticShared is the size in bytes of the shared arrays that are declared with
	// a length.
	StaticShared int
	// MaxThreads is the product of the numbers of .maxntid, 0 where the kernel has
	// none.
	MaxThreads int

	module   *Module
	file     string
	code     []inst
	regs32   int // including those for constants and special registers
	regs64   int
	preds    int
	slots    int // the number of memory instructions
	local    int // bytes of local memory for each thread
	consts32 []constant32
	consts64 []constant64
	always   []int32 // predicates that are true for all threads
	specials []special
	dynamic  int // offset of the dynamic shared memory
	pool     sync.Pool

	// Of kernels for sm_90a.
	async        bool      // it has mbarriers, bulk copies or wgmma
	maxRegisters int       // of .maxnreg, 0: not said
	minBlocks    int       // of .minnctapersm, 0: not said
	touches      [][]int32 // for each instruction, the guarded registers that it reads or writes; nil: the kernel has none
	guardNames   []string  // of the guarded registers

	statements []statement // as they are written, for meanings
	understand sync.Once
	meanings   []Meaning
}

// constant32 is a register that holds a constant.
type constant32 struct {
	reg   int32
	value uint32
}

type constant64 struct {
	reg   int32
	value uint64
}

// special is a register that holds a special register such as %tid.x.
type special struct {
	reg  int32
	name string
	wide bool
}
