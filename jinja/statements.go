package jinja

import "slices"

func (p *parser) forLoop(at pos) stmt {
	p.stores++
	defer func() { p.stores-- }()
	s := &forStmt{pos: at}
	s.target = p.target(false, "in")
	if !p.skipName("in") {
		syntaxFail(p.cur().pos, "expected 'in', got %s", p.cur())
	}
	s.iter = p.tuple(tupleMode{end: "recursive"})
	p.hard(func() {
		if p.skipName("if") {
			s.test = p.expression(true)
		}
		s.recursive = p.skipName("recursive")
		p.loops++
		s.body = p.block("endfor", "else")
		p.loops--
		if p.next().text == "else" {
			s.none = p.whole("endfor")
		}
	})
	return s
}

func (p *parser) ifElse(at pos) stmt {
	soft := p.soft
	defer func() { p.soft = soft }()
	first := &ifStmt{pos: at}
	for s := first; ; {
		p.soft = true
		s.test = p.tuple(tupleMode{})
		s.body = p.block("elif", "else", "endif")
		switch t := p.next(); t.text {
		case "elif":
			more := &ifStmt{pos: t.pos}
			s.orElse, s = []stmt{more}, more
		case "else":
			s.orElse = p.whole("endif")
			return first
		default:
			return first
		}
	}
}

func (p *parser) set(at pos) stmt {
	target := p.target(true, "")
	if p.skipOp("=") {
		return &setStmt{at, target, p.tuple(tupleMode{cond: true})}
	}
	s := &setBlockStmt{pos: at, target: target}
	p.hard(func() {
		if p.isOp("|") {
			s.filter = p.filters(nil)
		}
		s.body = p.whole("endset")
	})
	return s
}

// signature reads the parameters of a macro.
func (p *parser) signature(m *macroStmt) {
	p.expectOp("(")
	p.separated(")", false, func() {
		t := p.expectName()
		if reserved[t.text] {
			syntaxFail(t.pos, "can't assign to '%s'", t.text)
		}
		if slices.Contains(m.params, t.text) {
			syntaxFail(t.pos, "parameter '%s' comes twice", t.text)
		}
		if p.skipOp("=") {
			m.defaults = append(m.defaults, p.expression(true))
		} else if len(m.defaults) > 0 {
			syntaxFail(t.pos, "parameter '%s' without a default follows one with a default", t.text)
		}
		m.params = append(m.params, t.text)
	})
}

// macroBody reads a macro's statements up to end and notes which special names
// they read.
func (p *parser) macroBody(m *macroStmt, end string) {
	use := &nameUse{outer: p.names}
	p.names = use
	p.closed(func() { m.body = p.whole(end) })
	p.names = use.outer
	m.caller, m.kwargs, m.varargs = use.caller, use.kwargs, use.varargs
	if i := slices.Index(m.params, "caller"); i >= 0 && m.caller && i < len(m.params)-len(m.defaults) {
		syntaxFail(m.pos, "the special parameter 'caller' must have a default or be left out")
	}
}

func (p *parser) macro(at pos) stmt {
	name := p.expectName()
	if reserved[name.text] {
		syntaxFail(name.pos, "can't assign to '%s'", name.text)
	}
	m := &macroStmt{pos: at, name: name.text}
	p.hard(func() { p.signature(m) })
	p.macroBody(m, "endmacro")
	return m
}

func (p *parser) callBlock(at pos) stmt {
	m := &macroStmt{pos: at}
	if p.isOp("(") {
		p.hard(func() { p.signature(m) })
	}
	call, ok := p.expression(true).(*callExpr)
	if !ok {
		syntaxFail(at, "{%% call %%} needs a call")
	}
	p.macroBody(m, "endcall")
	return &callStmt{at, call, m}
}

func (p *parser) filterBlock(at pos) stmt {
	s := &filterStmt{pos: at}
	p.hard(func() {
		s.filter = p.filter(nil, p.expectName())
		if p.isOp("|") {
			s.filter = p.filters(s.filter)
		}
		s.body = p.whole("endfilter")
	})
	return s
}

func (p *parser) with(at pos) stmt {
	s := &withStmt{pos: at}
	for p.cur().kind != tBlockEnd {
		if len(s.targets) > 0 {
			p.expectOp(",")
		}
		stores := p.stores
		p.stores = 0
		s.targets = append(s.targets, p.target(false, ""))
		p.stores = stores
		p.expectOp("=")
		s.values = append(s.values, p.expression(true))
	}
	p.hard(func() { s.body = p.whole("endwith") })
	return s
}

func (p *parser) namedBlock(at pos) stmt {
	name := p.expectName().text
	s := &blockStmt{pos: at, name: name, scoped: p.skipName("scoped"), required: p.skipName("required")}
	if p.t.blocks[name] != nil {
		syntaxFail(at, "block '%s' is defined twice", name)
	}
	p.t.blocks[name] = s
	p.closed(func() { s.body = p.whole("endblock") })
	p.skipName(name)
	return s
}

func (p *parser) print(at pos) stmt {
	s := &printStmt{pos: at}
	for p.cur().kind != tBlockEnd {
		if len(s.exprs) > 0 {
			p.expectOp(",")
		}
		s.exprs = append(s.exprs, p.expression(true))
	}
	return s
}

// reserved are names that nothing can be assigned to.
var reserved = map[string]bool{"true": true, "false": true, "none": true, "True": true, "False": true, "None": true}

// target reads what something is assigned to: a name, several, or with spaces a
// namespace's attribute too. end is a name at which a tuple may end.
func (p *parser) target(spaces bool, end string) expr {
	e := p.tuple(tupleMode{targets: true, spaces: spaces, end: end})
	p.assignable(e)
	return e
}

func (p *parser) assignable(e expr) {
	switch e := e.(type) {
	case *nameExpr:
		if p.stores > 0 && e.name == "loop" {
			syntaxFail(e.pos, "can't assign to 'loop' in a for loop")
		}
		return
	case *nsExpr:
		return
	case *listExpr:
		if e.tuple {
			for _, item := range e.items {
				p.assignable(item)
			}
			return
		}
	}
	syntaxFail(e.at(), "can't assign to this")
}
