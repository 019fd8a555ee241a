package jinja

import (
	"fmt"
	"slices"
	"time"
)

// The budget of one rendering. Chat templates use some hundreds of steps for a message; a
// million steps take a tenth to half a second.
const (
	// Each byte of text in the variables adds stepsPerByte and bytesPerByte to these.
	maxSteps     = 4_000_000
	stepsPerByte = 4
	maxBytes     = 64 << 20
	maxOutput    = 16 << 20
	bytesPerByte = 64
	// maxDepth bounds the depth of macros that call each other, of recursive loops and of
	// nested values, all counted together.
	maxDepth = 900
)

// run is one rendering. Where the template fails it panics with a failure, and pos says at
// which place.
type run struct {
	t         *Template
	vars      map[string]any
	root      *scope
	now       func() time.Time
	out       *buffer
	pos       pos
	steps     int
	maxSteps  int
	bytes     int
	maxBytes  int
	maxOutput int
	depth     int
	// messages finds a message's place by its identity; it is ToolResult for an element of
	// a message's tool_responses.
	messages map[*Object]int
	// standing are the iterations of loops that are under way, innermost last.
	standing []*iteration
}

// failure is what a run panics with.
type failure struct {
	msg    string
	raised bool
	limit  bool
}

func (r *run) fail(format string, args ...any) {
	panic(failure{msg: fmt.Sprintf(format, args...)})
}

// overrun fails at a bound of a run.
func (r *run) overrun(format string, args ...any) {
	panic(failure{msg: fmt.Sprintf(format, args...), limit: true})
}

// stopped is what a run panics with when Template.Stop ends it.
type stopped struct{}

// askEvery is the binary logarithm of how many steps pass until Stop is asked again, which
// takes a thousandth of a second or less.
const askEvery = 12

// step uses n steps of the budget.
func (r *run) step(n int) {
	was := r.steps
	if r.steps -= n; r.steps < 0 {
		r.overrun("the template takes more than %d steps", r.maxSteps)
	}
	if r.steps>>askEvery != was>>askEvery && r.t.Stop != nil && r.t.Stop() {
		panic(stopped{})
	}
}

// message is the message at which the innermost loop over messages stands.
func (r *run) message() int {
	for _, i := range slices.Backward(r.standing) {
		if i.message >= 0 {
			return i.message
		}
	}
	return NoMessage
}

// read uses the steps that it costs to read all of s.
func (r *run) read(s string) { r.step(len(s) >> 8) }

// grow uses n bytes of the budget, for a value that is about to be made.
func (r *run) grow(n int) {
	if r.bytes -= n; r.bytes < 0 || n < 0 {
		r.overrun("the template makes more than %d bytes of values", r.maxBytes)
	}
}

// enter counts a level of nesting, which leave ends.
func (r *run) enter() {
	if r.depth++; r.depth > maxDepth {
		r.fail("the template nests macros, loops or values more than %d deep", maxDepth)
	}
}

func (r *run) leave() { r.depth-- }

// scope is the variables of a template, a loop's iteration, a macro call or a
// block; a name that it lacks is looked up in the one around.
type scope struct {
	names []string
	vals  []any
	outer *scope
}

func (s *scope) set(name string, v any) {
	for i, n := range s.names {
		if n == name {
			s.vals[i] = v
			return
		}
	}
	s.names, s.vals = append(s.names, name), append(s.vals, v)
}

// lookup is the value of a name, *undefined where there is none.
func (r *run) lookup(s *scope, name string) any {
	for ; s != nil; s = s.outer {
		for i, n := range s.names {
			if n == name {
				if s.vals[i] == (missing{}) {
					return &undefined{"'" + name + "' is undefined"}
				}
				return s.vals[i]
			}
		}
	}
	if v, ok := r.vars[name]; ok {
		return v
	}
	if v, ok := globals[name]; ok {
		return v
	}
	return &undefined{"'" + name + "' is undefined"}
}

// buffer is output, with the generation spans and the messages' turns in it.
type buffer struct {
	text  []byte
	gens  []Span
	turns []Turn
}

// spanned is text that a macro wrote, with the generation spans and the messages' turns in
// it. Printed as it is, it keeps them; any other use makes a plain string of it.
type spanned struct {
	text  string
	gens  []Span
	turns []Turn
}

// write prints v.
func (r *run) write(v any) {
	if s, ok := v.(*spanned); ok {
		at := len(r.out.text)
		for _, g := range s.gens {
			r.out.gens = append(r.out.gens, Span{g.From + at, g.To + at})
		}
		for _, t := range s.turns {
			r.out.turns = append(r.out.turns, Turn{Message: t.Message, Span: Span{t.From + at, t.To + at}})
		}
	}
	r.writeText(r.str(v))
}

func (r *run) writeText(text string) {
	if len(r.out.text)+len(text) > r.maxOutput {
		r.overrun("the template writes more than %d bytes", r.maxOutput)
	}
	r.out.text = append(r.out.text, text...)
}

// capture runs f and gives what it wrote: a string, or a *spanned where
// generation blocks or messages' turns are in it.
func (r *run) capture(f func()) any {
	outer := r.out
	r.out = &buffer{}
	defer func() { r.out = outer }()
	f()
	r.grow(len(r.out.text))
	if len(r.out.gens) == 0 && len(r.out.turns) == 0 {
		return string(r.out.text)
	}
	return &spanned{string(r.out.text), r.out.gens, r.out.turns}
}

// plain is v, or its text where v is a *spanned.
func plain(v any) any {
	if s, ok := v.(*spanned); ok {
		return s.text
	}
	return v
}
