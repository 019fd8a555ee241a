package ptx

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// statement is one instruction as written in the PTX text, before it is decoded.
type statement struct {
	line  int
	guard string // predicate name; "": none
	not   bool   // the guard is negated
	words []string
	args  []operand
	scope *scope
}

// operand is one argument of an instruction as written in the PTX text.
type operand struct {
	name string // register, symbol, label or number
	not  bool   // written as !name
	pair string // the second name of a|b
	list []operand
	vec  bool // written as {…}
	mem  bool // written as [name+offset]
	off  int64
}

// scope holds the registers, variables and labels declared in one pair of braces.
type scope struct {
	parent *scope
	regs   map[string]reg
	vars   map[string]*variable
	labels map[string]int
	tables map[string][]string // .branchtargets lists by name
}

func newScope(parent *scope) *scope {
	return &scope{parent, map[string]reg{}, map[string]*variable{}, map[string]int{}, map[string][]string{}}
}

// variable is a variable that the PTX text declares in one of the state spaces.
type variable struct {
	name    string
	space   string // param, shared, local, const, global
	size    int
	align   int
	dynamic bool // shared memory whose size the launch sets
	module  bool // declared outside kernels
	at      int  // index of the declaration's first token in the file
	offset  int  // in bytes, within its space
	data    []byte
}

// reader parses one PTX file. kernel is the kernel that is being parsed.
type reader struct {
	*source
	module *Module
	global *scope
	scope  *scope
	kernel *builder
}

// Parse parses a PTX module. name is the file name for errors, which have the form "name:line: what".
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

// entry parses one kernel.
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

// directives parses the directives between a kernel's parameters and its body.
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

// body parses statements up to the closing brace of the kernel, and adds them to the kernel's
// builder.
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
			case r.accept(","): // coordinates in a tensor
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

// parseInteger parses an integer constant, with an optional U suffix.
func parseInteger(s string) (int64, bool) {
	s = strings.TrimSuffix(s, "U")
	if v, err := strconv.ParseInt(s, 0, 64); err == nil {
		return v, true
	}
	v, err := strconv.ParseUint(s, 0, 64)
	return int64(v), err == nil
}

// parseFloat parses 0fXXXXXXXX, 0dXXXXXXXXXXXXXXXX or a decimal number.
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

// token is a word (name, mnemonic with its dots, number), a quoted string or a single character.
type token struct {
	text string
	line int
}

// source is a tokenized file.
type source struct {
	name   string
	lines  []string
	tokens []token
	at     int
}

// fault is the value with which the parser and the decoder panic on an error in the PTX. Parse
// recovers the panic and returns err.
type fault struct{ err error }

// failAt ends Parse with an error that quotes the given line.
func (s *source) failAt(line int, format string, args ...any) {
	text := ""
	if line >= 1 && line <= len(s.lines) {
		text = ": " + strings.TrimSpace(s.lines[line-1])
	}
	panic(fault{fmt.Errorf("%s:%d: %s%s", s.name, line, fmt.Sprintf(format, args...), text)})
}

func isWord(c byte) bool {
	return c == '_' || c == '$' || c == '%' || c == '.' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// scan splits text into tokens and drops comments.
func scan(name, text string) *source {
	s := &source{name: name, lines: strings.Split(text, "\n")}
	line := 1
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '\n':
			line++
			i++
		case c == ' ' || c == '\t' || c == '\r':
			i++
		case strings.HasPrefix(text[i:], "//"):
			for i < len(text) && text[i] != '\n' {
				i++
			}
		case strings.HasPrefix(text[i:], "/*"):
			end := strings.Index(text[i+2:], "*/")
			if end < 0 {
				s.failAt(line, "a comment without an end")
			}
			line += strings.Count(text[i:i+2+end], "\n")
			i += end + 4
		case c == '"':
			end := strings.IndexByte(text[i+1:], '"')
			if end < 0 {
				s.failAt(line, "a string without an end")
			}
			s.tokens = append(s.tokens, token{text[i : i+end+2], line})
			i += end + 2
		case isWord(c):
			from := i
			for i < len(text) {
				if strings.HasPrefix(text[i:], "::") {
					i += 2 // L1::no_allocate
				} else if isWord(text[i]) {
					i++
				} else {
					break
				}
			}
			s.tokens = append(s.tokens, token{text[from:i], line})
		default:
			s.tokens = append(s.tokens, token{text[i : i+1], line})
			i++
		}
	}
	s.tokens = append(s.tokens, token{"", line})
	return s
}

// peek returns the next token; its text is "" at the end of the file.
func (s *source) peek() token { return s.tokens[s.at] }

func (s *source) next() token {
	t := s.tokens[s.at]
	if t.text == "" {
		s.failAt(t.line, "the file ends too early")
	}
	s.at++
	return t
}

// accept consumes the next token if it equals text, and reports whether it did.
func (s *source) accept(text string) bool {
	if s.peek().text != text {
		return false
	}
	s.at++
	return true
}

// expect consumes the next token and fails unless it equals text.
func (s *source) expect(text string) {
	if t := s.next(); t.text != text {
		s.failAt(t.line, "%q where %q should be", t.text, text)
	}
}

// typeBytes returns the size of a fundamental type in bytes; 0: not a fundamental type.
func typeBytes(t string) int {
	switch t {
	case "b8", "u8", "s8":
		return 1
	case "b16", "u16", "s16", "bf16":
		return 2
	case "b32", "u32", "s32", "f32", "bf16x2":
		return 4
	case "b64", "u64", "s64", "f64":
		return 8
	}
	return 0
}

// registers parses the register declaration after .reg, and adds the registers to the scope.
func (r *reader) registers() {
	t := r.next()
	kind := strings.TrimPrefix(t.text, ".")
	size := typeBytes(kind)
	if size == 0 && kind != "pred" {
		r.failAt(t.line, "%q is not a type of register", t.text)
	}
	for {
		name := r.next()
		count := -1
		if r.accept("<") {
			if count = int(r.integer(r.next())); count < 0 || count > 1<<16 {
				r.failAt(name.line, "%d registers", count)
			}
			r.expect(">")
		}
		if count < 0 {
			r.scope.regs[name.text] = r.kernel.newReg(size)
		}
		for i := range max(count, 0) {
			r.scope.regs[name.text+strconv.Itoa(i)] = r.kernel.newReg(size)
		}
		if r.accept(";") {
			return
		}
		r.expect(",")
	}
}

// variables parses the declarations after .shared, .local, .const or .global, up to the semicolon.
func (r *reader) variables(space string) {
	for {
		v := r.declaration(space)
		if space == "const" || space == "global" {
			r.initial(v)
		}
		if space == "local" && r.kernel != nil {
			r.kernel.kernel.local = alignUp(r.kernel.kernel.local, v.align)
			v.offset = r.kernel.kernel.local
			r.kernel.kernel.local += v.size
		}
		if r.accept(";") {
			return
		}
		r.failAt(r.peek().line, "%q after a variable", r.peek().text)
	}
}

// declaration parses [.align n] .type name[n] and adds the variable to the scope.
func (r *reader) declaration(space string) *variable {
	v := &variable{space: space, module: r.kernel == nil, at: r.at}
	elem := 0
	for {
		t := r.next()
		switch {
		case t.text == ".align":
			if v.align = int(r.integer(r.next())); v.align < 1 || v.align > 1024 {
				r.failAt(t.line, "an alignment of %d", v.align)
			}
		case t.text == ".ptr" || t.text == ".global" || t.text == ".attribute":
		case strings.HasPrefix(t.text, "."):
			if elem = typeBytes(t.text[1:]); elem == 0 {
				r.failAt(t.line, "%q is not a type", t.text)
			}
		default:
			v.name = t.text
		}
		if v.name != "" {
			break
		}
	}
	v.size = elem
	for r.accept("[") {
		if r.accept("]") {
			v.dynamic = true
			continue
		}
		n := r.next()
		if v.size *= int(r.integer(n)); v.size < 0 || v.size > 1<<26 {
			r.failAt(n.line, "variable %s has %d bytes", v.name, v.size)
		}
		r.expect("]")
	}
	if elem == 0 {
		r.failAt(r.peek().line, "variable %s has no type", v.name)
	}
	if v.align == 0 {
		v.align = elem
	}
	if v.dynamic && space != "shared" {
		r.failAt(r.peek().line, "variable %s has no length", v.name)
	}
	if v.dynamic {
		v.size = 0
	}
	r.scope.vars[v.name] = v
	return v
}

// initial parses the initializer of a constant, "= value" or "= {values}", and appends its bytes to the module's
// constant memory.
func (r *reader) initial(v *variable) {
	v.data = make([]byte, v.size)
	if r.accept("=") {
		elem := v.size
		var words []token
		if r.accept("{") {
			for {
				words = append(words, r.signed())
				if r.accept("}") {
					break
				}
				r.expect(",")
			}
			elem = v.align
			if n := len(words); n > 0 && v.size%n == 0 {
				elem = v.size / n
			}
		} else {
			words = []token{r.signed()}
		}
		for i, w := range words {
			r.putConstant(v.data[min(i*elem, v.size):], elem, w)
		}
	}
	at := alignUp(len(r.module.consts), v.align)
	r.module.consts = append(r.module.consts, make([]byte, at-len(r.module.consts))...)
	v.offset = at
	r.module.consts = append(r.module.consts, v.data...)
}

func (r *reader) signed() token {
	t := r.next()
	if t.text == "-" {
		n := r.next()
		return token{"-" + n.text, n.line}
	}
	return t
}

func (r *reader) putConstant(to []byte, size int, t token) {
	v, ok := parseInteger(t.text)
	if !ok {
		f, isFloat := parseFloat(t.text)
		if !isFloat {
			r.failAt(t.line, "%q is not a constant", t.text)
		}
		v = int64(math.Float64bits(f))
		if size == 4 {
			v = int64(math.Float32bits(float32(f)))
		}
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(v))
	if size > 8 || size > len(to) {
		r.failAt(t.line, "an initialiser that does not fill its variable")
	}
	copy(to[:size], b[:])
}
