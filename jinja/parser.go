package jinja

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// maxNesting bounds how deep statements and expressions of a template may nest.
const maxNesting = 150

// maxSource bounds a template's own length in bytes; those of models have some
// tens of thousands.
const maxSource = 1 << 20

// Parse reads a template. name stands in errors, which are *Error. Statements
// that reach outside (include, import, from, extends) are refused.
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

// endsWithPrompt finds Template.endsWithPrompt.
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

// errorAt is an *Error with at as line and column.
func (t *Template) errorAt(at pos, msg string) *Error {
	before := t.src[:min(int(at), len(t.src))]
	line := strings.Count(before, "\n") + 1
	col := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
	return &Error{Name: t.name, Line: line, Col: col, Msg: msg, Message: NoMessage}
}

// parser reads statements by recursive descent; the grammar is that of Jinja 3.1
// (https://jinja.palletsprojects.com/en/stable/templates/). It panics with a
// syntaxError.
type parser struct {
	tokens []token
	at     int
	t      *Template
	depth  int
	// loops is how many loops around the current place break and continue can end. stores
	// is how many loops around it forbid to assign to the name loop.
	loops, stores int
	// soft says that a filter or test that does not exist is an error only when it runs.
	soft bool
	// missing are the uses of filters and tests that do not exist, except those in
	// conditional expressions, which are errors only when they run.
	missing []syntaxError
	// names notes which special names the macro being read uses; nil outside of macros.
	names *nameUse
}

// nameUse tells which of a macro's special names its body reads.
type nameUse struct {
	outer                   *nameUse
	caller, kwargs, varargs bool
}

func (p *parser) cur() token { return p.tokens[p.at] }

// next gives the current token and goes on to the one after it.
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

func (p *parser) expectKind(k kind) token {
	if p.cur().kind != k {
		syntaxFail(p.cur().pos, "expected %s, got %s", token{kind: k}, p.cur())
	}
	return p.next()
}

func (p *parser) expectName() token {
	if p.cur().kind != tName {
		syntaxFail(p.cur().pos, "expected a name, got %s", p.cur())
	}
	return p.next()
}

// enter begins a level of nesting; the function that it gives ends it.
func (p *parser) enter() func() {
	if p.depth++; p.depth > maxNesting {
		syntaxFail(p.cur().pos, "nested more than %d deep", maxNesting)
	}
	return func() { p.depth-- }
}

// separated reads items with commas between them, up to and including end. With trailing, a
// comma may follow the last item.
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

// body reads statements up to a tag that is named in ends, before which it stops; without
// ends, up to the end of the template.
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

// block reads the end of a tag and then statements, up to a tag that is named in ends and is
// left to be read.
func (p *parser) block(ends ...string) []stmt {
	p.skipOp(":")
	p.expectKind(tBlockEnd)
	return p.body(ends...)
}

// whole is block with one end, whose name it reads too.
func (p *parser) whole(end string) []stmt {
	body := p.block(end)
	p.next()
	return body
}

// refused are statements of Jinja that are not run here, and why.
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

// closed reads the body of a macro or of a block. A break or continue in it cannot end a
// loop around it, and filters in it must exist even inside a conditional expression.
func (p *parser) closed(read func()) {
	loops := p.loops
	p.loops = 0
	p.hard(read)
	p.loops = loops
}

// hard reads something whose filters and tests must exist.
func (p *parser) hard(read func()) {
	soft := p.soft
	p.soft = false
	read()
	p.soft = soft
}
