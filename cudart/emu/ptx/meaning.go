package ptx

import "slices"

// Meaning is what a model of a GPU must know of an instruction, beside what it did when it ran.
type Meaning struct {
	Class Class
	// Reads and Writes are the registers, predicates among them, each a number of its own.
	Reads, Writes []int32
	// Groups, of ClassCopyWait, ClassBulkWait and ClassWGMMAOrder, is how many groups of copies or products may be under
	// way after it, Closes where it closes a group, Fences where it does neither.
	Groups int
	// ReadOnly is set where a ClassBulkWait waits only until shared memory has been read, Arrives where a ClassBarrier does not wait.
	ReadOnly, Arrives bool
	Columns           int // of a ClassWGMMA: N
	Line              int // of the PTX file
}

// Values of Meaning.Groups that are no numbers of groups.
const (
	Closes = -1
	Fences = -2
)

// Meanings has the meaning of every instruction of the kernel; Step.At is an index into it.
func (k *Kernel) Meanings() []Meaning {
	k.understand.Do(func() {
		k.meanings = make([]Meaning, len(k.code))
		for i := range k.statements {
			k.meanings[i] = k.statements[i].meaning()
		}
		last := len(k.code) - 1 // the exit that ends every kernel
		k.meanings[last] = Meaning{Class: ClassBranch, Line: int(k.code[last].line)}
	})
	return k.meanings
}

// meaning finds the registers by their places among the arguments: the first argument is
// written, unless the instruction has no result.
func (st *statement) meaning() Meaning {
	m := Meaning{Class: classOf(st.words), Line: st.line}
	switch {
	case m.Class == ClassWGMMA:
		m.Columns = 2 * len(st.args[0].list)
	case m.Class == ClassBarrier:
		m.Arrives = wordIn(st.words, "arrive")
	case m.Class != ClassCopyWait && m.Class != ClassBulkWait && m.Class != ClassWGMMAOrder:
	case wordIn(st.words, "commit_group"):
		m.Groups = Closes
	case wordIn(st.words, "wait_group"):
		n, _ := parseInteger(st.args[0].name) // decoding has seen that it is a number
		m.Groups, m.ReadOnly = int(n), wordIn(st.words, "read")
	case wordIn(st.words, "fence"):
		m.Groups = Fences
	}
	m.Reads = st.registers(m.Reads, operand{name: st.guard})
	for i, o := range st.args {
		if i == 0 && !o.mem && !slices.Contains(withoutResult, st.words[0]) {
			m.Writes = st.registers(m.Writes, o)
		}
		if i > 0 || len(m.Writes) == 0 || m.Class == ClassWGMMA { // sums are read too
			m.Reads = st.registers(m.Reads, o)
		}
	}
	return m
}

// withoutResult are the instructions that write no register.
var withoutResult = []string{"st", "red", "bra", "brx", "bar", "barrier", "cp", "ret", "exit", "trap", "membar", "fence", "prefetch", "prefetchu",
	"nanosleep", "discard", "griddepcontrol", "setmaxnreg"}

// registers appends the registers that an operand names.
func (st *statement) registers(to []int32, o operand) []int32 {
	for _, e := range o.list {
		to = st.registers(to, e)
	}
	for _, name := range []string{o.name, o.pair} {
		if r, ok := st.scope.reg(name); ok {
			to = append(to, 3*r.index+int32(r.file))
		}
	}
	return to
}
