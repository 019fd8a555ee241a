package ptx

import (
	"math"
	"strconv"
	"strings"
)

// statement is one instruction as it is written.
type statement struct {
	line  int
	guard string // predicate name, empty when there is none
	not   bool   // the statement is executed where the predicate is false
	words []string
	args  []operand
	scope *scope
}

// operand is one argument as it is written.
type operand struct {
	name string // register, symbol, label or number
	not  bool   // written as !name
	pair string // the second name of a|b
	list []operand
	vec  bool // written as {…}
	mem  bool // written as [name+offset]
	off  int64
}

// scope is what a pair of braces encloses: the names of registers, variables and
// labels.
type scope struct {
	parent *scope
	regs   map[string]reg
	vars   map[string]*variable
	labels map[string]int
	tables map[string][]string // the lists of .branchtargets
}

func newScope(parent *scope) *scope {
	return &scope{parent, map[string]reg{}, map[string]*variable{}, map[string]int{}, map[string][]string{}}
}

// variable is a declared piece of memory.
type variable struct {
	name    string
	space   string // param, shared, local, const, global
	size    int
	align   int
	dynamic bool // shared memory sized by the launch
	offset  int  // in bytes, within its space
	data    []byte
}

// reader parses one file.
type reader struct {
	*source
	module *Module
	global *scope
	scope  *scope
	kernel *builder
}

// Parse reads the text of a PTX module. name is what errors call the file; an error
// reads "name:line: what".
func Parse(name, src string) (m *Module, err error) {
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(fault)
			if !ok {
				panic(r)
			}
			m, err = nil, f.err
		}
	}()
	r := &reader{source: scan(name, src), module: &Module{kernels: map[string]*Kernel{}}, global: newScope(nil)}
	r.scope = r.global
	for r.peek().text != "" {
		r.topLevel()
	}
	return r.module, nil
}

func (r *reader) topLevel() {
	t := r.next()
	switch t.text {
	case ".version", ".address_size":
		r.next()
	case ".target":
		r.next()
		for r.accept(",") {
			r.next()
		}
	case ".file":
		r.skipLine(t.line)
	case ".visible", ".weak", ".extern", ".common", ";":
	case ".entry":
		r.entry(t.line)
	case ".shared", ".const", ".global":
		r.variables(t.text[1:])
	default:
		r.failAt(t.line, "%q is not known here", t.text)
	}
}

func (r *reader) skipLine(line int) {
	for r.peek().text != "" && r.peek().line == line {
		r.at++
	}
}

// entry reads one kernel.
func (r *reader) entry(line int) {
	b := newBuilder(r, r.next().text, line)
	if r.module.kernels[b.kernel.Name] != nil {
		r.failAt(line, "kernel %s is there twice", b.kernel.Name)
	}
	r.kernel, r.scope = b, newScope(r.global)
	if r.accept("(") && !r.accept(")") {
		for {
			r.expect(".param")
			v := r.declaration("param")
			b.kernel.ParamBytes = alignUp(b.kernel.ParamBytes, v.align)
			v.offset = b.kernel.ParamBytes
			b.kernel.ParamBytes += v.size
			if r.accept(")") {
				break
			}
			r.expect(",")
		}
	}
	r.directives()
	r.body()
	b.finish()
	r.module.kernels[b.kernel.Name] = b.kernel
	r.module.names = append(r.module.names, b.kernel.Name)
	r.kernel, r.scope = nil, r.global
}

// directives reads the directives between the parameters of a kernel and its body.
func (r *reader) directives() {
	for !r.accept("{") {
		t := r.next()
		switch t.text {
		case ".maxntid", ".reqntid", ".minnctapersm", ".maxnreg", ".maxnctapersm":
			product := 1
			for {
				product *= int(r.integer(r.next()))
				if !r.accept(",") {
					break
				}
			}
			switch t.text {
			case ".maxntid", ".reqntid":
				r.kernel.kernel.MaxThreads = product
			case ".maxnreg":
				r.kernel.kernel.maxRegisters = product
			case ".minnctapersm":
				r.kernel.kernel.minBlocks = product
			}
		case ".pragma":
			r.next()
			r.accept(";")
		default:
			r.failAt(t.line, "%q is not known here", t.text)
		}
	}
}

// body reads statements up to the brace that closes the kernel.
func (r *reader) body() {
	for depth := 1; depth > 0; {
		t := r.next()
		switch {
		case t.text == "{":
			r.scope = newScope(r.scope)
			depth++
		case t.text == "}":
			r.scope = r.scope.parent
			depth--
		case t.text == ";":
		case t.text == ".reg":
			r.registers()
		case t.text == ".shared" || t.text == ".local" || t.text == ".param" || t.text == ".const" || t.text == ".global":
			r.variables(t.text[1:])
		case t.text == ".loc" || t.text == ".file":
			r.skipLine(t.line)
		case t.text == ".pragma":
			r.next()
		case t.text == ".branchtargets":
			r.failAt(t.line, ".branchtargets without a label")
		case r.peek().text == ":" && t.text != "@":
			r.next()
			r.label(t)
		default:
			r.instruction(t)
		}
	}
}

func (r *reader) label(t token) {
	if r.accept(".branchtargets") {
		var targets []string
		for {
			targets = append(targets, r.next().text)
			if !r.accept(",") {
				break
			}
		}
		r.expect(";")
		r.scope.tables[t.text] = targets
		return
	}
	if _, twice := r.scope.labels[t.text]; twice {
		r.failAt(t.line, "label %s is there twice", t.text)
	}
	r.scope.labels[t.text] = len(r.kernel.statements)
}

func (r *reader) instruction(t token) {
	st := statement{line: t.line, scope: r.scope}
	if t.text == "@" {
		st.not = r.accept("!")
		st.guard = r.next().text
		t = r.next()
	}
	st.line = t.line
	st.words = strings.Split(t.text, ".")
	for !r.accept(";") {
		st.args = append(st.args, r.operand())
		if !r.accept(",") {
			r.expect(";")
			break
		}
	}
	r.kernel.statements = append(r.kernel.statements, st)
}

func (r *reader) operand() operand {
	var o operand
	switch {
	case r.accept("["):
		o = r.operand()
		o.mem = true
		for {
			switch {
			case r.accept("]"):
				return o
			case r.accept("+"):
				sign := int64(1)
				if r.accept("-") {
					sign = -1
				}
				o.off += sign * r.integer(r.next())
			case r.accept("-"):
				o.off -= r.integer(r.next())
			case r.accept(","): // the coordinates in a tensor
				o.list = append(o.list, r.operand())
			default:
				r.failAt(r.peek().line, "%q in an address", r.peek().text)
			}
		}
	case r.accept("{"):
		o.vec = true
		for {
			o.list = append(o.list, r.operand())
			if r.accept("}") {
				return o
			}
			r.expect(",")
		}
	case r.accept("!"):
		o.not = true
	case r.accept("-"):
		o.name = "-"
	}
	o.name += r.next().text
	if r.accept("|") {
		o.pair = r.next().text
	}
	return o
}

func (r *reader) integer(t token) int64 {
	v, ok := parseInteger(t.text)
	if !ok {
		r.failAt(t.line, "%q is not an integer", t.text)
	}
	return v
}

// parseInteger reads an integer constant; a trailing U is allowed.
func parseInteger(s string) (int64, bool) {
	s = strings.TrimSuffix(s, "U")
	if v, err := strconv.ParseInt(s, 0, 64); err == nil {
		return v, true
	}
	v, err := strconv.ParseUint(s, 0, 64)
	return int64(v), err == nil
}

// parseFloat reads 0fXXXXXXXX, 0dXXXXXXXXXXXXXXXX or a decimal number.
func parseFloat(s string) (float64, bool) {
	sign := 1.0
	if strings.HasPrefix(s, "-") {
		sign, s = -1, s[1:]
	}
	if len(s) == 10 && (s[:2] == "0f" || s[:2] == "0F") {
		v, err := strconv.ParseUint(s[2:], 16, 32)
		return sign * float64(math.Float32frombits(uint32(v))), err == nil
	}
	if len(s) == 18 && (s[:2] == "0d" || s[:2] == "0D") {
		v, err := strconv.ParseUint(s[2:], 16, 64)
		return sign * math.Float64frombits(v), err == nil
	}
	v, err := strconv.ParseFloat(s, 64)
	return sign * v, err == nil
}

func alignUp(n, to int) int { return (n + to - 1) / to * to }
