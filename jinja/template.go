package jinja

import (
	"errors"
	"fmt"
	"time"
)

// Template is a parsed chat template. It is safe for concurrent use; set Now
// and Stop before the first Render.
type Template struct {
	// Now is the clock of strftime_now; nil means time.Now.
	Now func() time.Time
	// Stop is asked every few thousand steps of a rendering, which ends with
	// ErrStopped once it is true; nil: never. Copies of a Template may have their
	// own.
	Stop func() bool

	name   string
	named  map[string]*Template // others of the same directory
	source string               // as given
	src    string               // with line breaks normalised
	steps  int                  // budget of a rendering without text in its variables
	body   []stmt
	late   []string // names that are missing until the template sets them
	blocks map[string]*blockStmt
	// marks says that the template has a {% generation %} block.
	marks bool
	// endsWithPrompt says that the template ends with {% if add_generation_prompt %} and
	// uses that variable nowhere else, so that setting it only adds text at the end.
	endsWithPrompt bool
}

// Span is the bytes From up to To, To not included, of Rendered.Text.
type Span struct{ From, To int }

// Turn is output that was written while a for loop stood at messages[Message].
// The loop may run over messages itself, over a slice or a filtered copy of it,
// since a message is known by its identity; or over numbers, where the body looks
// up messages[i] with the loop's own variable.
type Turn struct {
	Message int // NoMessage: it is not known which; ToolResult: see there
	Span
	// Paused says that what others say follows inside the message's turn.
	Paused bool
	// Alone is, with Paused, what the template writes for the message where no message
	// follows it, without the header; "": it is not known.
	Alone string
}

// NoMessage stands for the place of a message that is not known.
const NoMessage = -1

// ToolResult stands for an element of a message's own list tool_responses, which holds
// what tools returned.
const ToolResult = -2

// Rendered is what a template made of a conversation.
type Rendered struct {
	Text string
	// Generation are the spans that the template's {% generation %} blocks wrote,
	// in order.
	Generation []Span
	// Turns are in the order in which they end; a message that wrote nothing has
	// none.
	Turns []Turn
	// last is where the template's last statement begins in Text.
	last int
}

// ErrStopped is the error of a rendering that Template.Stop ended.
var ErrStopped = errors.New("the rendering was stopped")

// Error is a template that cannot be parsed, or fails as it runs.
type Error struct {
	// Name is the name given to Parse; Line and Col count from 1, Col in
	// characters.
	Name      string
	Line, Col int
	Msg       string
	// Raised says that the template itself called raise_exception with Msg.
	Raised bool
	// Limit says that the run met its bound of steps, of bytes of values or of text.
	Limit bool
	// Message is the message at which a loop stood, NoMessage where none did.
	Message int
}

// Error is name:line:col: message.
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.Name, e.Line, e.Col, e.Msg)
}

// Marks tells whether the template says with {% generation %} what the model learns.
func (t *Template) Marks() bool { return t.marks }

// Source is the text that was parsed.
func (t *Template) Source() string { return t.source }
