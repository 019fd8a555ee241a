package jinja

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"mt/base/files"
)

// Template is a parsed chat template. It is safe for concurrent use; set Now and Stop before the first Render.
type Template struct {
	// Now is the clock of strftime_now; nil means time.Now.
	Now func() time.Time
	// Stop is called every few thousand steps. When Stop returns true, the rendering ends with ErrStopped. nil:
	// never stop. Copies of a Template may have different Stop functions.
	Stop func() bool

	name   string
	named  map[string]*Template // the other templates of the same directory, by name
	source string               // as given
	src    string               // with line breaks normalised
	steps  int                  // limit on steps, before stepsPerByte adds to it
	body   []stmt
	late   []string // names that are undefined until the template sets them; see late
	blocks map[string]*blockStmt
	// marks reports that the template has a {% generation %} block, which marks the text to train on.
	marks bool
	// endsWithPrompt reports that the template ends with {% if add_generation_prompt %} and uses the variable
	// nowhere else. Setting the variable then only appends text.
	endsWithPrompt bool
}

// Span is the range [From, To) of bytes in Rendered.Text.
type Span struct{ From, To int }

// Turn is a part of the output: what a for loop wrote while its item was messages[Message]. Messages are recognised
// by identity, so the loop may run over messages itself, a slice or a filtered copy. It may also run over numbers, if
// its body reads messages[i] with the loop's own variable.
type Turn struct {
	Message int // index into messages; NoMessage: unknown; or ToolResult
	Span
	// Paused reports that text of other messages, such as a tool's result, follows inside this message's turn.
	Paused bool
	// Alone is set together with Paused. It is the text, without the header, that the template writes for this
	// message if the message is the last one; "": unknown.
	Alone string
}

// NoMessage is the index that stands for an unknown message, or for none.
const NoMessage = -1

// ToolResult is the index that stands for an element of a message's list tool_responses, which holds results of
// tools.
const ToolResult = -2

// Rendered is the text that a template made of a conversation, and the origin of its parts.
type Rendered struct {
	Text string
	// Generation lists the spans that {% generation %} blocks wrote, in order.
	Generation []Span
	// Turns are in the order in which they end. A message that wrote nothing has no Turn.
	Turns []Turn
	// last is the offset in Text at which the output of the template's last statement begins.
	last int
}

// ErrStopped is returned by a rendering that Template.Stop ended.
var ErrStopped = errors.New("the rendering was stopped")

// Error reports a template that cannot be parsed or that fails while it runs.
type Error struct {
	// Name is the name given to Parse. Line and Col count from 1; Col counts characters.
	Name      string
	Line, Col int
	Msg       string
	// Raised reports that the template called raise_exception with Msg.
	Raised bool
	// Limit reports that the run exceeded its budget of steps, of bytes of values or of output.
	Limit bool
	// Message is the index of the message that the innermost loop was at; NoMessage: none.
	Message int
}

// Error returns "name:line:col: message".
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.Name, e.Line, e.Col, e.Msg)
}

// Marks reports whether the template marks the trained text with {% generation %}.
func (t *Template) Marks() bool { return t.marks }

// Source returns the text given to Parse.
func (t *Template) Source() string { return t.source }

// Names of the templates that a model directory may hold, as in Transformers: the default, the one for rows with
// tools, and the one for rows with documents.
const (
	DefaultTemplate   = "default"
	ToolTemplate      = "tool_use"
	DocumentsTemplate = "rag"
)

// defaultFile is the file of a model directory that holds the template named default.
const defaultFile = "chat_template.jinja"

// namedFolder is the folder of a model directory that holds further templates, each named after its
// file.
const namedFolder = "additional_chat_templates"

// Load reads the chat templates of a model directory and returns the one named default; Named finds the others.
// Sources, in order of precedence:
//
//   - chat_template.jinja and additional_chat_templates/NAME.jinja
//   - chat_template in tokenizer_config.json: one text or a list of named texts
//   - chat_template.json, which older image processors store beside the tokenizer
//
// If no template is named default but one is for tools, the returned template fails for every conversation. Load
// returns nil without an error if the directory has no template.
func Load(dir string) (*Template, error) {
	path := filepath.Join(dir, defaultFile)
	source, err := files.Read(path, maxFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	texts := map[string]string{}
	where := map[string]string{}
	if err == nil {
		texts[DefaultTemplate], where[DefaultTemplate] = string(source), path
	}
	if err := readNamed(filepath.Join(dir, namedFolder), texts, where); err != nil {
		return nil, err
	}
	for _, name := range []string{"tokenizer_config.json", "chat_template.json"} {
		if _, ok := texts[DefaultTemplate]; ok {
			break
		}
		path := filepath.Join(dir, name)
		found, err := readJSON(path)
		if err != nil {
			return nil, err
		}
		for name, text := range found {
			if _, ok := texts[name]; !ok {
				texts[name], where[name] = text, path+" chat_template"
			}
		}
	}
	return assemble(dir, texts, where)
}

// readNamed reads the templates in a folder. For each it stores the text in texts and the file's
// path in where, under the template's name.
func readNamed(folder string, texts, where map[string]string) error {
	paths, err := filepath.Glob(filepath.Join(folder, "*.jinja"))
	if err != nil {
		return nil // the folder's name is no pattern, and has no such files
	}
	for _, path := range paths {
		source, err := files.Read(path, maxFile)
		if err != nil {
			return fmt.Errorf("chat template: %w", err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".jinja")
		texts[name], where[name] = string(source), path
	}
	return nil
}

// assemble parses the templates of the directory dir and returns the default one; nil: there are no
// templates. Both maps have the template's name as key: texts gives the text, and where the file.
func assemble(dir string, texts, where map[string]string) (*Template, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	names := slices.Sorted(maps.Keys(texts))
	if _, ok := texts[DefaultTemplate]; !ok {
		why := fmt.Sprintf("it has the templates %q, but none named %q: write the one to use to chat_template.jinja", names, DefaultTemplate)
		if _, ok := texts[ToolTemplate]; !ok {
			return nil, fmt.Errorf("%s: chat_template: %s", strings.TrimSuffix(where[names[0]], " chat_template"), why)
		}
		where[DefaultTemplate] = dir
		texts[DefaultTemplate] = "{% set why = " + pythonString(why) + " %}{{ raise_exception(why) }}"
		names = append(names, DefaultTemplate)
	}
	var out *Template
	named := map[string]*Template{}
	for _, name := range names {
		t, err := Parse(where[name], texts[name])
		if err != nil {
			return nil, err
		}
		if named[name] = t; name == DefaultTemplate {
			out = t
		}
	}
	delete(named, DefaultTemplate)
	out.named = named
	return out, nil
}

// pythonString returns s as a string literal of Python, which Jinja can read as well.
func pythonString(s string) string {
	var b strings.Builder
	reprString(&b, s, true)
	return b.String()
}

// Named returns the template with this name from the directory that t was loaded from, or nil.
func (t *Template) Named(name string) *Template { return t.named[name] }

// Files returns t and its named templates as files of a model directory, which Load can read back. Keys are file
// names, values the content.
func (t *Template) Files() map[string]string {
	out := map[string]string{defaultFile: t.Source()}
	for name, other := range t.named {
		out[namedFolder+"/"+name+".jinja"] = other.Source()
	}
	return out
}

// IsFile reports whether name is the path, within a model directory, of a file that holds nothing but a chat
// template.
func IsFile(name string) bool { return name == defaultFile || path.Dir(name) == namedFolder }

// readJSON returns the templates in the JSON file at path, by name. A missing file has none.
func readJSON(path string) (map[string]string, error) {
	text, err := files.Read(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	config, err := DecodeJSON(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	o, ok := config.(*Object)
	if !ok {
		return nil, fmt.Errorf("%s: the file holds no JSON object", path)
	}
	v, _ := o.Get("chat_template")
	found, err := pick(v)
	if err != nil {
		return nil, fmt.Errorf("%s: chat_template: %w", path, err)
	}
	return found, nil
}

// maxFile is the largest size of a file that holds templates, in bytes.
const maxFile = 64 << 20

// pick returns the templates in v, by name; v is the value of chat_template in a configuration. It is a text, a list
// of objects with name and template, or an object of texts.
func pick(v any) (map[string]string, error) {
	out := map[string]string{}
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		return map[string]string{DefaultTemplate: v}, nil
	case *Object:
		for _, name := range v.Keys() {
			source, _ := v.Get(name)
			text, ok := source.(string)
			if !ok {
				return nil, fmt.Errorf("its template %q is a %s, not a string", name, typeName(source))
			}
			out[name] = text
		}
		return out, nil
	case []any:
		for i, item := range v {
			o, _ := item.(*Object)
			if o == nil {
				return nil, fmt.Errorf("item %d is a %s, not an object with name and template", i, typeName(item))
			}
			name, _ := o.Get("name")
			source, _ := o.Get("template")
			n, ok1 := name.(string)
			s, ok2 := source.(string)
			if !ok1 || !ok2 {
				return nil, fmt.Errorf("item %d lacks a name or a template that is a string", i)
			}
			if _, twice := out[n]; !twice {
				out[n] = s
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("it is a %s, not a string or a list", typeName(v))
}

// Render runs the template with vars: messages ([]any of *Object), tools, documents, add_generation_prompt,
// bos_token, enable_thinking and whatever else the template reads. Values have the types that DecodeJSON returns,
// or int, float32, []string, []*Object and map[string]any, whose keys are sorted. vars is not changed.
//
// As in Transformers, tools and documents default to None and add_generation_prompt to false. A message's reasoning
// is available as reasoning_content and as thinking, whichever name the message uses.
//
// A failing template returns an *Error. Its Raised is set after a call of raise_exception.
func (t *Template) Render(vars map[string]any) (out *Rendered, err error) {
	r := &run{t: t, now: t.Now, out: &buffer{}, root: &scope{}}
	if r.now == nil {
		r.now = time.Now
	}
	size, err := r.prepare(vars)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.name, err)
	}
	r.maxBytes, r.maxOutput = maxBytes+bytesPerByte*size, maxOutput+bytesPerByte*size
	r.maxSteps = t.steps + stepsPerByte*size
	r.bytes, r.steps = r.maxBytes, r.maxSteps
	defer func() {
		switch p := recover().(type) {
		case nil:
		case stopped:
			out, err = nil, ErrStopped
		case failure:
			e := t.errorAt(r.pos, p.msg)
			e.Raised, e.Limit, e.Message = p.raised, p.limit, r.message()
			out, err = nil, e
		default:
			panic(p)
		}
	}()
	for _, name := range t.late {
		r.root.set(name, missing{})
	}
	rest := max(len(t.body)-1, 0)
	r.exec(t.body[:rest], r.root)
	last := len(r.out.text)
	r.exec(t.body[rest:], r.root)
	return &Rendered{string(r.out.text), r.out.gens, r.out.turns, last}, nil
}

// promptFlag is the variable that asks the template to write the header of the next answer.
const promptFlag = "add_generation_prompt"

// prepare copies the caller's variables to the run, converted to values of the template. It returns
// the number of bytes of text in the variables, which raises the limits of the rendering.
func (r *run) prepare(vars map[string]any) (size int, err error) {
	r.vars = map[string]any{"tools": nil, "documents": nil, promptFlag: false}
	in := &intake{}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if r.vars[name], err = in.value(vars[name], 0); err != nil {
			return 0, fmt.Errorf("variable %s: %w", name, err)
		}
	}
	v, ok := vars["messages"]
	if !ok {
		return in.size, nil
	}
	list, ok := r.vars["messages"].([]any)
	if !ok {
		return 0, fmt.Errorf("variable messages is a %T, not a list", v)
	}
	list = slices.Clone(list)
	r.messages = make(map[*Object]int, len(list))
	for i, m := range list {
		o, ok := m.(*Object)
		if !ok {
			return 0, fmt.Errorf("variable messages: message %d is a %s, not an object", i, typeName(m))
		}
		if o = withReasoning(o); o == m {
			if _, twice := r.messages[o]; twice {
				o = o.clone() // messages are told apart by their identity
			}
		}
		list[i], r.messages[o] = o, i
		r.noteResults(o)
	}
	r.vars["messages"] = list
	return in.size, nil
}

// noteResults records the objects in a message's list tool_responses as tool results. The output of
// a loop over them then becomes Turns of ToolResult.
func (r *run) noteResults(message *Object) {
	v, _ := message.Get("tool_responses")
	results, _ := v.([]any)
	for _, result := range results {
		if o, ok := result.(*Object); ok {
			if _, known := r.messages[o]; !known {
				r.messages[o] = ToolResult
			}
		}
	}
}

// withReasoning returns a message whose reasoning is stored under both names that templates read, reasoning_content
// and thinking. A message without reasoning is returned as it is.
func withReasoning(message *Object) *Object {
	for _, name := range []string{"reasoning_content", "thinking", "reasoning"} {
		v, _ := message.Get(name)
		if v == nil {
			continue
		}
		o := NewObject("thinking", v)
		for i, k := range message.keys {
			h, _ := hashKey(k)
			o.set(h, k, message.vals[i])
		}
		o.Set("reasoning_content", v)
		return o
	}
	return message
}

// intake converts the caller's Go values to values of the template. size adds up the bytes of their
// text.
type intake struct{ size int }

func (in *intake) value(v any, depth int) (any, error) {
	if depth > maxJSONDepth {
		return nil, fmt.Errorf("nested more than %d deep", maxJSONDepth)
	}
	in.size += 8
	switch v := v.(type) {
	case nil, bool, int64, float64, *big.Int:
		return v, nil
	case string:
		in.size += len(v)
		return v, nil
	case int:
		return int64(v), nil
	case int32:
		return int64(v), nil
	case float32:
		return float64(v), nil
	case *Object:
		return in.object(v, depth)
	case []any:
		return list(in, v, depth)
	case []*Object:
		return list(in, v, depth)
	case []string:
		return list(in, v, depth)
	case map[string]any:
		o := &Object{}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			o.Set(key, v[key])
		}
		return in.object(o, depth)
	}
	return nil, fmt.Errorf("a value of type %T cannot be used in a template", v)
}

// object returns o itself if no value in it needs conversion, otherwise a converted copy. depth is the number of
// values around it.
func (in *intake) object(o *Object, depth int) (*Object, error) {
	if o == nil {
		return nil, fmt.Errorf("an object is nil")
	}
	out := o
	for i, v := range o.vals {
		if s, ok := o.keys[i].(string); ok {
			in.size += len(s)
		}
		w, err := in.value(v, depth+1)
		if err != nil {
			return nil, fmt.Errorf("key %v: %w", o.keys[i], err)
		}
		if !unchanged(v, w) {
			if out == o {
				out = o.clone()
			}
			out.vals[i] = w
		}
	}
	return out, nil
}

// list returns items itself if no item needs conversion, otherwise a converted copy. depth is the number of values
// around it.
func list[T any](in *intake, items []T, depth int) ([]any, error) {
	out, same := any(items).([]any)
	if !same {
		out = make([]any, len(items))
	}
	for i, v := range items {
		w, err := in.value(v, depth+1)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		if same && unchanged(v, w) {
			continue
		}
		if same {
			out, same = slices.Clone(out), false
		}
		out[i] = w
	}
	return out, nil
}

// unchanged reports whether w, the result of intake.value(v), is v itself.
func unchanged(v, w any) bool {
	if x, ok := v.([]any); ok {
		y := w.([]any)
		return len(x) == 0 || &x[0] == &y[0]
	}
	switch v.(type) {
	case []*Object, []string, map[string]any:
		return false
	}
	return v == w
}

// pos is a byte offset into a template's source, after normalize has replaced its line breaks.
type pos int

func (p pos) at() pos { return p }

// errorAt returns an *Error with the line and column of the position at.
func (t *Template) errorAt(at pos, msg string) *Error {
	before := t.src[:min(int(at), len(t.src))]
	line := strings.Count(before, "\n") + 1
	col := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
	return &Error{Name: t.name, Line: line, Col: col, Msg: msg, Message: NoMessage}
}
