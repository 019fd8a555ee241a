package jinja

import "slices"

// tupleMode says how a list of expressions without brackets is read.
type tupleMode struct {
	cond    bool // x if y else z may stand in it
	parens  bool // it stands in parentheses: may be empty
	targets bool // only what can be assigned to
	spaces  bool // with targets: a.b too
	end     string
}

// tuple reads expressions with commas between them; one without a comma is that
// expression itself.
func (p *parser) tuple(m tupleMode) expr {
	from := p.cur().pos
	var items []expr
	for comma := false; ; comma = true {
		if t := p.cur(); t.kind == tVarEnd || t.kind == tBlockEnd || p.isOp(")") || m.end != "" && p.isName(m.end) {
			if comma || m.parens {
				return &listExpr{from, items, true}
			}
			syntaxFail(t.pos, "an expression is missing before %s", t)
		}
		if m.targets {
			items = append(items, p.primary(m.spaces))
		} else {
			items = append(items, p.expression(m.cond || m.parens))
		}
		if !p.skipOp(",") {
			if comma {
				return &listExpr{from, items, true}
			}
			return items[0]
		}
	}
}

func (p *parser) expression(cond bool) expr {
	defer p.enter()()
	if !cond {
		return p.or()
	}
	from, missing := p.cur().pos, len(p.missing)
	e := p.or()
	for p.skipName("if") {
		c := &condExpr{pos: from, yes: e, test: p.or()}
		if p.skipName("else") {
			c.no = p.expression(true)
		}
		e = c
		p.missing = p.missing[:missing]
	}
	return e
}

func (p *parser) or() expr {
	e := p.and()
	for p.isName("or") {
		at := p.next().pos
		e = &logicExpr{at, true, e, p.and()}
	}
	return e
}

func (p *parser) and() expr {
	e := p.not()
	for p.isName("and") {
		at := p.next().pos
		e = &logicExpr{at, false, e, p.not()}
	}
	return e
}

func (p *parser) not() expr {
	if p.isName("not") {
		defer p.enter()()
		at := p.next().pos
		return &unaryExpr{at, "not", p.not()}
	}
	return p.compare()
}

var comparisons = []string{"==", "!=", "<", "<=", ">", ">="}

func (p *parser) compare() expr {
	c := &compareExpr{first: p.sum()}
	for {
		t := p.cur()
		switch {
		case t.kind == tOp && slices.Contains(comparisons, t.text):
			c.ops = append(c.ops, t.text)
		case p.isName("in"):
			c.ops = append(c.ops, "in")
		case p.isName("not") && p.tokens[p.at+1].kind == tName && p.tokens[p.at+1].text == "in":
			p.next()
			c.ops = append(c.ops, "notin")
		case len(c.ops) == 0:
			return c.first
		default:
			return c
		}
		if len(c.ops) == 1 {
			c.pos = t.pos
		}
		p.next()
		c.rest = append(c.rest, p.sum())
	}
}

// binary reads operands with operators of ops between them, from the left.
func (p *parser) binary(operand func() expr, ops ...string) expr {
	e := operand()
	for p.cur().kind == tOp && slices.Contains(ops, p.cur().text) {
		t := p.next()
		e = &binaryExpr{t.pos, t.text, e, operand()}
	}
	return e
}

func (p *parser) sum() expr { return p.binary(p.concat, "+", "-") }

func (p *parser) concat() expr {
	e := p.product()
	if !p.isOp("~") {
		return e
	}
	c := &concatExpr{p.cur().pos, []expr{e}}
	for p.skipOp("~") {
		c.parts = append(c.parts, p.product())
	}
	return c
}

func (p *parser) product() expr { return p.binary(p.power, "*", "/", "//", "%") }

func (p *parser) power() expr { return p.binary(func() expr { return p.unary(true) }, "**") }

func (p *parser) unary(filters bool) expr {
	var e expr
	if p.isOp("-") || p.isOp("+") {
		leave := p.enter()
		t := p.next()
		e = &unaryExpr{t.pos, t.text, p.unary(false)}
		leave()
	} else {
		e = p.primary(false)
	}
	if e = p.postfix(e); !filters {
		return e
	}
	for {
		switch {
		case p.isOp("|"):
			e = p.filters(e)
		case p.isName("is"):
			e = p.test(e)
		case p.isOp("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

// primary reads a name or a literal; with spaces a.b is read as a namespace's
// attribute.
func (p *parser) primary(spaces bool) expr {
	t := p.next()
	switch {
	case t.kind == tName:
		return p.nameOrConst(t, spaces)
	case t.kind == tString:
		s := t.text
		for p.cur().kind == tString {
			s += p.next().text
		}
		return &constExpr{t.pos, s}
	case t.kind == tInt || t.kind == tFloat:
		return &constExpr{t.pos, t.value}
	case t.kind == tOp && t.text == "(":
		defer p.enter()()
		e := p.tuple(tupleMode{cond: true, parens: true})
		p.expectOp(")")
		return e
	case t.kind == tOp && t.text == "[":
		defer p.enter()()
		return p.list(t.pos)
	case t.kind == tOp && t.text == "{":
		defer p.enter()()
		return p.dict(t.pos)
	}
	syntaxFail(t.pos, "an expression cannot begin with %s", t)
	return nil
}

func (p *parser) nameOrConst(t token, spaces bool) expr {
	switch t.text {
	case "true", "True":
		return &constExpr{t.pos, true}
	case "false", "False":
		return &constExpr{t.pos, false}
	case "none", "None":
		return &constExpr{t.pos, nil}
	case "caller", "kwargs", "varargs":
		for use := p.names; use != nil; use = use.outer {
			use.caller = use.caller || t.text == "caller"
			use.kwargs = use.kwargs || t.text == "kwargs"
			use.varargs = use.varargs || t.text == "varargs"
		}
	}
	if spaces && p.skipOp(".") {
		return &nsExpr{t.pos, t.text, p.expectName().text}
	}
	return &nameExpr{t.pos, t.text}
}

func (p *parser) list(at pos) expr {
	l := &listExpr{pos: at}
	p.separated("]", true, func() { l.items = append(l.items, p.expression(true)) })
	return l
}

func (p *parser) dict(at pos) expr {
	d := &dictExpr{pos: at}
	p.separated("}", true, func() {
		d.keys = append(d.keys, p.expression(true))
		p.expectOp(":")
		d.vals = append(d.vals, p.expression(true))
	})
	return d
}

func (p *parser) postfix(e expr) expr {
	for {
		switch {
		case p.isOp("."):
			e = p.attribute(e)
		case p.isOp("["):
			e = p.subscript(e)
		case p.isOp("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) attribute(e expr) expr {
	at := p.next().pos
	switch t := p.next(); t.kind {
	case tName:
		return &attrExpr{at, e, t.text}
	case tInt:
		return &itemExpr{at, e, &constExpr{t.pos, t.value}}
	default:
		syntaxFail(t.pos, "expected a name or a number behind '.', got %s", t)
		return nil
	}
}

func (p *parser) subscript(e expr) expr {
	at := p.next().pos
	var items []expr
	p.separated("]", false, func() { items = append(items, p.index()) })
	if len(items) == 1 {
		return &itemExpr{at, e, items[0]}
	}
	for _, item := range items {
		if s, ok := item.(*sliceExpr); ok {
			syntaxFail(s.pos, "a slice cannot stand in a tuple")
		}
	}
	return &itemExpr{at, e, &listExpr{at, items, true}}
}

// index reads an expression or a slice.
func (p *parser) index() expr {
	at := p.cur().pos
	var parts [3]expr
	if !p.isOp(":") {
		e := p.expression(true)
		if !p.isOp(":") {
			return e
		}
		parts[0] = e
	}
	p.next()
	if !p.isOp(":") && !p.isOp("]") && !p.isOp(",") {
		parts[1] = p.expression(true)
	}
	if p.skipOp(":") && !p.isOp("]") && !p.isOp(",") {
		parts[2] = p.expression(true)
	}
	return &sliceExpr{at, parts[0], parts[1], parts[2]}
}
