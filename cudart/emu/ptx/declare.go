package ptx

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
)

// typeBytes is the size of a fundamental type in bytes, 0 when t is no such type.
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

// registers reads the declaration that follows .reg.
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

// variables reads the declarations that follow .shared, .local, .const or .global,
// up to the semicolon.
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

// declaration reads [.align n] .type name[n] and adds the variable to the scope.
func (r *reader) declaration(space string) *variable {
	v := &variable{space: space}
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

// initial reads the value of a constant, written as = value or = {values}, and
// gives the constant an address among those of the module.
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
