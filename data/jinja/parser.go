package jinja

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// maxNesting is how deep a template's statements and expressions may be nested.
const maxNesting = 150

// maxSource is the largest size of a template in bytes. The templates of models have some ten thousand.
const maxSource = 1 << 20

// Parse parses a template. name appears in errors, which are *Error. Statements that read other files are errors:
// include, import, from and extends.
func Parse(name, source string) (t *Template, err error) {
	src := normalize(source)
	t = &Template{name: name, source: source, src: src, steps: maxSteps, blocks: map[string]*blockStmt{}}
	defer func() {
		if p := recover(); p != nil {
			e, ok := p.(syntaxError)
			if !ok {
				panic(p)
			}
			t, err = nil, t.errorAt(e.pos, e.msg)
		}
	}()
	if len(src) > maxSource {
		syntaxFail(0, "the template has %d bytes; at most %d are read", len(src), maxSource)
	}
	if !utf8.ValidString(src) {
		syntaxFail(pos(len(src)-len(strings.TrimLeftFunc(src, func(r rune) bool { return r != utf8.RuneError }))), "the template is not UTF-8 here")
	}
	p := &parser{tokens: lex(src), t: t}
	t.body = p.body()
	if len(p.missing) > 0 {
		panic(p.missing[0])
	}
	t.late = late(t.body)
	t.endsWithPrompt = endsWithPrompt(p.tokens, t.body)
	return t, nil
}

// endsWithPrompt reports whether the template's last statement is {% if add_generation_prompt %}
// and no other statement uses this variable. If so, setting the variable only appends text.
func endsWithPrompt(tokens []token, body []stmt) bool {
	if len(body) == 0 {
		return false
	}
	last, ok := body[len(body)-1].(*ifStmt)
	if !ok || last.orElse != nil {
		return false
	}
	name, ok := last.test.(*nameExpr)
	named := 0
	for _, t := range tokens {
		if t.kind == tName && t.text == promptFlag {
			named++
		}
	}
	return ok && name.name == promptFlag && named == 1
}

// parser turns tokens into statements by recursive descent. The grammar is Jinja 3.1's:
// https://jinja.palletsprojects.com/en/stable/templates/. On an error it panics with a syntaxError.
type parser struct {
	tokens []token
	at     int
	t      *Template
	depth  int
	// loops counts the enclosing loops that a break or continue could end. stores counts the enclosing loops in
	// which the name loop must not be assigned to, since it is the loop's own variable.
	loops, stores int
	// soft reports that the parser is inside a conditional expression. There, as in Jinja, an unknown filter or
	// test is an error only when it runs.
	soft bool
	// missing lists the unknown filters and tests that are errors now, not when they run.
	missing []syntaxError
	// names records which special names (caller, kwargs, varargs) the body of the current macro reads; nil
	// outside of macros.
	names *nameUse
}

// nameUse records which special names the body of a macro reads: caller, kwargs, varargs. outer belongs to the macro
// around it.
type nameUse struct {
	outer                   *nameUse
	caller, kwargs, varargs bool
}

func (p *parser) cur() token { return p.tokens[p.at] }

// next returns the current token and moves to the following one.
func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != tEOF {
		p.at++
	}
	return t
}

func (p *parser) isOp(op string) bool { t := p.cur(); return t.kind == tOp && t.text == op }

func (p *parser) isName(names ...string) bool {
	t := p.cur()
	return t.kind == tName && slices.Contains(names, t.text)
}

func (p *parser) skipOp(op string) bool {
	if p.isOp(op) {
		p.at++
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.isName(name) {
		p.at++
		return true
	}
	return false
}

func (p *parser) expectOp(op string) token {
	if !p.isOp(op) {
		syntaxFail(p.cur().pos, "expected '%s', got %s", op, p.cur())
	}
	return p.next()
}

func (p *parser) expectKind(k kind) {
	if p.cur().kind != k {
		syntaxFail(p.cur().pos, "expected %s, got %s", token{kind: k}, p.cur())
	}
	p.next()
}

func (p *parser) expectName() token {
	if p.cur().kind != tName {
		syntaxFail(p.cur().pos, "expected a name, got %s", p.cur())
	}
	return p.next()
}

// enter begins a level of nesting, and fails if there are too many. It returns a function that ends the level.
func (p *parser) enter() func() {
	if p.depth++; p.depth > maxNesting {
		syntaxFail(p.cur().pos, "nested more than %d deep", maxNesting)
	}
	return func() { p.depth-- }
}

// separated parses items separated by commas, up to and including the token end; item parses one item. With trailing,
// a comma may follow the last item.
func (p *parser) separated(end string, trailing bool, item func()) {
	for first := true; !p.isOp(end); first = false {
		if !first {
			if p.expectOp(","); trailing && p.isOp(end) {
				break
			}
		}
		item()
	}
	p.expectOp(end)
}

// body parses statements up to a tag named in ends, and stops before this tag's name. Without ends it parses to the
// end of the template.
func (p *parser) body(ends ...string) []stmt {
	defer p.enter()()
	var body []stmt
	for {
		switch t := p.next(); t.kind {
		case tEOF:
			if len(ends) > 0 {
				syntaxFail(t.pos, "the template ends, but %s is missing", strings.Join(ends, " or "))
			}
			return body
		case tData:
			body = append(body, &textStmt{t.pos, t.text})
		case tVarBegin:
			body = append(body, &printStmt{t.pos, []expr{p.tuple(tupleMode{cond: true})}})
			p.expectKind(tVarEnd)
		case tBlockBegin:
			if p.isName(ends...) {
				return body
			}
			if s := p.statement(ends); s != nil {
				body = append(body, s)
			}
			p.expectKind(tBlockEnd)
		default:
			syntaxFail(t.pos, "unexpected %s", t)
		}
	}
}

// block parses the end of a tag and then statements, up to a tag named in ends. It stops before this tag's name.
func (p *parser) block(ends ...string) []stmt {
	p.skipOp(":")
	p.expectKind(tBlockEnd)
	return p.body(ends...)
}

// whole parses the end of a tag and then statements, up to and including the name of the tag end.
func (p *parser) whole(end string) []stmt {
	body := p.block(end)
	p.next()
	return body
}

// refused maps Jinja's statements that this package refuses to the reasons.
var refused = map[string]string{
	"include": "reads another file", "import": "reads another file", "from": "reads another file", "extends": "reads another file",
	"autoescape": "escapes for HTML, which no chat template needs",
}

func (p *parser) statement(ends []string) stmt {
	tag := p.expectName()
	if why := refused[tag.text]; why != "" {
		syntaxFail(tag.pos, "{%% %s %%} %s: it is refused", tag.text, why)
	}
	switch tag.text {
	case "for":
		return p.forLoop(tag.pos)
	case "if":
		return p.ifElse(tag.pos)
	case "set":
		return p.set(tag.pos)
	case "macro":
		return p.macro(tag.pos)
	case "call":
		return p.callBlock(tag.pos)
	case "filter":
		return p.filterBlock(tag.pos)
	case "with":
		return p.with(tag.pos)
	case "block":
		return p.namedBlock(tag.pos)
	case "print":
		return p.print(tag.pos)
	case "generation":
		p.t.marks = true
		s := &generationStmt{pos: tag.pos}
		p.closed(func() { s.body = p.whole("endgeneration") })
		return s
	case "break", "continue":
		if p.loops == 0 {
			syntaxFail(tag.pos, "{%% %s %%} outside of a loop", tag.text)
		}
		return &jumpStmt{tag.pos, tag.text == "break"}
	}
	msg := "unknown tag '" + tag.text + "'"
	if len(ends) > 0 {
		msg += "; still open is a block that ends with " + strings.Join(ends, " or ")
	}
	syntaxFail(tag.pos, "%s", msg)
	return nil
}

// closed calls read, which parses the body of a macro or block. Inside, a break or continue cannot
// end a loop outside of the body. Unknown filters in the body are errors, even if the macro stands
// in a conditional expression.
func (p *parser) closed(read func()) {
	loops := p.loops
	p.loops = 0
	p.hard(read)
	p.loops = loops
}

// hard calls read, which parses a part of the template. Unknown filters and tests in this part are errors at once.
func (p *parser) hard(read func()) {
	soft := p.soft
	p.soft = false
	read()
	p.soft = soft
}

// expr is an expression. After Parse no node changes, so several goroutines may read it.
type expr interface{ at() pos }

type (
	constExpr struct {
		pos
		value any
	}
	nameExpr struct {
		pos
		name string
	}
	// nsExpr is a.b as the target of an assignment, where a is a namespace.
	nsExpr struct {
		pos
		name, attr string
	}
	// listExpr is a list; if tuple is set, it is a tuple.
	listExpr struct {
		pos
		items []expr
		tuple bool
	}
	dictExpr struct {
		pos
		keys, vals []expr
	}
	// binaryExpr applies the arithmetic operator op, such as "+", to left and right.
	binaryExpr struct {
		pos
		op          string
		left, right expr
	}
	// logicExpr is "left and right"; if or is set, it is "left or right".
	logicExpr struct {
		pos
		or          bool
		left, right expr
	}
	// unaryExpr applies -, + or not to node.
	unaryExpr struct {
		pos
		op   string
		node expr
	}
	concatExpr struct {
		pos
		parts []expr
	}
	compareExpr struct {
		pos
		first expr
		ops   []string // == != < <= > >= in notin
		rest  []expr
	}
	// condExpr is "yes if test else no". no is nil without an else.
	condExpr struct {
		pos
		test, yes, no expr
	}
	attrExpr struct {
		pos
		node expr
		name string
	}
	itemExpr struct {
		pos
		node, index expr
	}
	// sliceExpr is the start:stop:step in an itemExpr, such as a[1:]. Each part may be nil.
	sliceExpr struct {
		pos
		start, stop, step expr
	}
	callExpr struct {
		pos
		fn   expr
		args argList
	}
	// filterExpr is node|name(args). If test is set, it is "node is name(args)". In a filter block
	// node is nil, and the filter applies to the block's output.
	filterExpr struct {
		pos
		node expr
		name string
		args argList
		test bool
	}
)

// argList is the arguments of a call: args by position, named by keyword (with names), then *star and **stars.
type argList struct {
	args        []expr
	names       []string
	named       []expr
	star, stars expr
}

// stmt is a statement.
type stmt interface{ at() pos }

type (
	textStmt struct {
		pos
		text string
	}
	// printStmt writes the values of expressions to the output.
	printStmt struct {
		pos
		exprs []expr
	}
	ifStmt struct {
		pos
		test   expr
		body   []stmt
		orElse []stmt // elif is an ifStmt in here
	}
	forStmt struct {
		pos
		target     expr
		iter       expr
		test       expr // nil: none
		body, none []stmt
		recursive  bool
	}
	setStmt struct {
		pos
		target expr
		value  expr
	}
	setBlockStmt struct {
		pos
		target expr
		filter expr // nil: none
		body   []stmt
	}
	macroStmt struct {
		pos
		name     string
		params   []string
		defaults []expr // of the last len(defaults) params
		body     []stmt
		// caller, kwargs and varargs report whether the body reads these special names.
		caller, kwargs, varargs bool
	}
	callStmt struct {
		pos
		call  *callExpr
		macro *macroStmt
	}
	filterStmt struct {
		pos
		filter expr
		body   []stmt
	}
	withStmt struct {
		pos
		targets, values []expr
		body            []stmt
	}
	blockStmt struct {
		pos
		name             string
		scoped, required bool
		body             []stmt
	}
	generationStmt struct {
		pos
		body []stmt
	}
	// jumpStmt is continue; if stop is set, it is break.
	jumpStmt struct {
		pos
		stop bool
	}
)

// tupleMode says how tuple parses a list of expressions that has no brackets of its own.
type tupleMode struct {
	cond    bool // x if y else z is allowed
	parens  bool // in parentheses: may be empty
	targets bool // only assignable expressions
	spaces  bool // with targets: a.b is allowed
	end     string
}

// tuple parses expressions separated by commas and returns a tuple. A single expression without a comma is returned
// as it is.
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

// binary parses operands separated by any of the operators ops, and groups them from the left.
// operand parses one operand.
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

// primary parses a name, a literal or an expression in brackets. If spaces is set, it parses a.b as
// a namespace's attribute, for the target of an assignment.
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

// index parses the text in square brackets after a value: an expression or a slice.
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

// signature parses the parameters of a macro, with their parentheses and defaults, into m.
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

// macroBody parses the statements of macro m up to the tag end. It records in m which special names (caller, kwargs,
// varargs) they read.
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

// reserved are names that cannot be assigned to.
var reserved = map[string]bool{"true": true, "false": true, "none": true, "True": true, "False": true, "None": true}

// target parses the target of an assignment: a name or a tuple of names. If spaces is set, it may
// also be a namespace's attribute. A tuple also ends at the keyword end, such as in; "": at no
// keyword.
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
