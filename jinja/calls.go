package jinja

import "slices"

func (p *parser) call(e expr) expr {
	at := p.cur().pos
	return &callExpr{at, e, p.arguments()}
}

// arguments reads a call's arguments with their parentheses.
func (p *parser) arguments() argList {
	var a argList
	open := p.expectOp("(")
	ensure := func(ok bool) {
		if !ok {
			syntaxFail(p.cur().pos, "this argument cannot stand here, in a call that begins at byte %d", open.pos)
		}
	}
	p.separated(")", true, func() {
		switch {
		case p.isOp("*"):
			ensure(a.star == nil && a.stars == nil)
			p.next()
			a.star = p.expression(true)
		case p.isOp("**"):
			ensure(a.stars == nil)
			p.next()
			a.stars = p.expression(true)
		case p.cur().kind == tName && p.tokens[p.at+1].kind == tOp && p.tokens[p.at+1].text == "=":
			ensure(a.stars == nil)
			t := p.next()
			if slices.Contains(a.names, t.text) {
				syntaxFail(t.pos, "argument '%s' comes twice", t.text)
			}
			p.next()
			a.names, a.named = append(a.names, t.text), append(a.named, p.expression(true))
		default:
			ensure(a.star == nil && a.stars == nil && len(a.names) == 0)
			a.args = append(a.args, p.expression(true))
		}
	})
	return a
}

// filters reads filters, each behind a |.
func (p *parser) filters(e expr) expr {
	for p.skipOp("|") {
		e = p.filter(e, p.expectName())
	}
	return e
}

// dotted reads a name that goes on with dots.
func (p *parser) dotted(name string) string {
	for p.skipOp(".") {
		name += "." + p.expectName().text
	}
	return name
}

// filter reads what follows a filter's name.
func (p *parser) filter(e expr, name token) expr {
	f := &filterExpr{pos: name.pos, node: e, name: p.dotted(name.text)}
	if p.isOp("(") {
		f.args = p.arguments()
	}
	p.mustExist(f)
	return f
}

// mustExist notes where the filter or test of f does not exist.
func (p *parser) mustExist(f *filterExpr) {
	if _, missing := named(f.name, f.test); missing != "" && !p.soft {
		p.missing = append(p.missing, syntaxError{f.pos, missing})
	}
}

func (p *parser) test(e expr) expr {
	at := p.next().pos
	negated := p.skipName("not")
	name := p.expectName()
	f := &filterExpr{pos: name.pos, node: e, name: p.dotted(name.text), test: true}
	t := p.cur()
	switch {
	case p.isOp("("):
		f.args = p.arguments()
	case t.kind == tName && (t.text == "else" || t.text == "or" || t.text == "and"):
	case p.isName("is"):
		syntaxFail(t.pos, "tests cannot be chained with 'is'")
	case t.kind == tName || t.kind == tString || t.kind == tInt || t.kind == tFloat || p.isOp("[") || p.isOp("{"):
		f.args.args = []expr{p.postfix(p.primary(false))}
	}
	p.mustExist(f)
	if negated {
		return &unaryExpr{at, "not", f}
	}
	return f
}
