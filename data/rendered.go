package data

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"mt/base/files"
	"mt/data/jinja"
	"mt/data/tokenizer"
)

// chatML is that layout in our own words. Source: OpenAI's chat markup language, as in
// Qwen's model cards.
const chatML = `{% if tools %}{{ raise_exception('chatml has no place for tools; use a chat template that does') }}{% endif %}` +
	`{% for message in messages %}{% if message.tool_calls %}{{ raise_exception('chatml has no place for calls of functions; use a chat template that does') }}{% endif %}` +
	`<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

// stanfordAlpaca is how Alpaca asked: in words that say whether an input comes with the instruction. Sources: the prompts of
// Stanford Alpaca (github.com/tatsu-lab/stanford_alpaca), which axolotl's type alpaca and torchtune's AlpacaToMessages have too.
const stanfordAlpaca = `{% if tools %}{{ raise_exception('stanford_alpaca has no place for tools; use a chat template that does') }}{% endif %}` +
	`{{ bos_token if bos_token is defined }}{% for message in messages %}` +
	`{% if message.tool_calls %}{{ raise_exception('stanford_alpaca has no place for calls of functions; use a chat template that does') }}{% endif %}{% if message.role == 'system' %}{{ message.content }}

{% elif message.role == 'assistant' %}{% generation %}{{ message.content }}{{ eos_token if eos_token is defined }}{% endgeneration %}{% else %}` +
	`{% if messages[0].role != 'system' %}Below is an instruction that describes a task{% if message.input %}, paired with an input that provides further context{% endif %}. Write a response that appropriately completes the request.

{% endif %}### Instruction:
{{ message.instruction if message.input else message.content }}

{% if message.input %}### Input:
{{ message.input }}

{% endif %}### Response:
{% endif %}{% endfor %}`

// maxTemplate is the largest template file that is read, in bytes.
const maxTemplate = 4 << 20

// templateClock is the time that every template is told that asks for it. It never changes,
// so that the same data gives the same tokens. It is the date that Llama 3.1's own template
// uses where none is given.
var templateClock = time.Date(2024, time.July, 26, 0, 0, 0, 0, time.UTC)

// chatForm says how chats are turned into text.
type chatForm struct {
	tmpl   *jinja.Template
	own    bool           // tmpl comes from the model's directory
	layout *layout        // what was asked for by name in place of tmpl; nil: none
	err    error          // why both are nil
	tokens map[string]any // the variables that name special tokens
}

// newChatForm finds the template of s. Where there is none, err says why, which matters only
// if chats are read.
func newChatForm(s *Spec) chatForm {
	f := chatForm{}
	if f.layout = layoutNamed(s.Template); f.layout != nil {
		if s.Tokenizer != nil {
			f.err = f.layout.check(s.Tokenizer)
		}
		return f
	}
	if s.Tokenizer == nil {
		return f
	}
	f.tokens = tokenizer.Named(s.Tokenizer)
	f.err = f.find(s)
	for _, t := range f.all() {
		t.Now = func() time.Time { return templateClock }
	}
	return f
}

// all are the form's templates: tmpl, then those that it has for rows with tools or documents.
func (f *chatForm) all() (out []*jinja.Template) {
	if f.tmpl == nil {
		return nil
	}
	out = append(out, f.tmpl)
	for _, name := range []string{jinja.ToolTemplate, jinja.DocumentsTemplate} {
		if t := f.tmpl.Named(name); t != nil {
			out = append(out, t)
		}
	}
	return out
}

func (f *chatForm) find(s *Spec) (err error) {
	if s.Template == "stanford_alpaca" {
		f.tmpl, err = jinja.Parse(s.Template, stanfordAlpaca)
		return err
	}
	if s.Template != "" && s.Template != "chatml" {
		f.tmpl, err = namedTemplate(s.Template)
		return err
	}
	if s.Template == "" && s.ModelDir != "" {
		if f.tmpl, err = jinja.Load(s.ModelDir); f.tmpl != nil || err != nil {
			f.own = true
			return err
		}
	}
	if hasChatML(s.Tokenizer) {
		f.tmpl, err = jinja.Parse("chatml", chatML)
		return err
	}
	if s.Template == "chatml" {
		return errors.New("template: chatml is made of the tokens <|im_start|> and <|im_end|>, which the model's tokenizer does not have: " +
			`add them with new_special_tokens: ["<|im_start|>", "<|im_end|>"] and resize_vocab: true, or choose another template`)
	}
	return errors.New("the model has no chat template; set template to a Jinja file, or to a built-in one such as chatml, qwen3, llama3 or default")
}

func hasChatML(t tokenizer.Tokenizer) bool {
	_, start := t.TokenID("<|im_start|>")
	_, end := t.TokenID("<|im_end|>")
	return start && end
}

// namedTemplate reads the template that Spec.Template gives: Jinja itself, a directory with a tokenizer, whose template is
// taken, or a Jinja file.
func namedTemplate(name string) (*jinja.Template, error) {
	if isJinja(name) {
		return jinja.Parse("template", name)
	}
	path, err := ExpandVars(name)
	if err != nil {
		return nil, err
	}
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		switch t, err := jinja.Load(path); {
		case err != nil:
			return nil, fmt.Errorf("template: %w", err)
		case t == nil:
			return nil, fmt.Errorf("template: the directory %s has no chat template: neither chat_template.jinja nor chat_template in tokenizer_config.json", name)
		default:
			return t, nil
		}
	}
	text, err := files.Read(path, maxTemplate)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, noTemplate(name)
	case err != nil:
		return nil, fmt.Errorf("template: %w", err)
	}
	return jinja.Parse(name, string(text))
}

// isJinja tells whether a template is given as its text and not by a name.
func isJinja(name string) bool { return strings.Contains(name, "{%") || strings.Contains(name, "{{") }

// CheckTemplate returns the error that reading Spec.Template gives. A name of a file that is not there is no error here.
func CheckTemplate(name string) error {
	if slices.Contains(Templates, name) {
		return nil
	}
	if _, err := os.Stat(name); err != nil && !isJinja(name) {
		return nil
	}
	_, err := namedTemplate(name)
	return err
}

// id stands for the form in the key of a token cache.
func (f *chatForm) id() string {
	switch {
	case f.layout != nil:
		return f.layout.id()
	case f.tmpl == nil:
		return "none"
	}
	h := sha256.New()
	for _, t := range f.all() {
		fmt.Fprintf(h, "%d\n%s", len(t.Source()), t.Source())
	}
	fmt.Fprintf(h, "%q", f.tokens)
	return hex.EncodeToString(h.Sum(nil))
}

// defaultLayout is how rows of a prompt and its answer are laid out where there is no template.
var defaultLayout = layoutNamed("default")

// variables are what the template is given for a conversation. Variables that the row brings
// itself replace those of chat_template_kwargs.
func (e *encoder) variables(v *conversation) map[string]any {
	vars := map[string]any{"messages": v.messages, "tools": nil, "documents": nil, "add_generation_prompt": false}
	if v.tools != nil {
		vars["tools"] = v.tools
	}
	maps.Copy(vars, e.spec.chat.tokens)
	if e.around.bos != IgnoreIndex {
		vars["bos_token"] = e.tok.Token(e.around.bos)
	}
	if e.around.eos != IgnoreIndex {
		vars["eos_token"] = e.tok.Token(e.around.eos)
	}
	for k, x := range e.spec.TemplateVars {
		vars[k] = x
	}
	if v.vars != nil {
		for _, k := range v.vars.Keys() {
			vars[k], _ = v.vars.Get(k)
		}
	}
	return vars
}

// take chooses the conversation's template: the tools template if the conversation has tools, the documents template if the
// variables have documents, otherwise the default template.
func (e *encoder) take(v *conversation) {
	e.tmpl = e.templates[jinja.DefaultTemplate]
	if documents, _ := e.variables(v)["documents"].([]any); len(documents) > 0 && e.templates[jinja.DocumentsTemplate] != nil {
		e.tmpl = e.templates[jinja.DocumentsTemplate]
	}
	if v.tools != nil && e.templates[jinja.ToolTemplate] != nil {
		e.tmpl = e.templates[jinja.ToolTemplate]
	}
}

// unreadVars are notes on variables that have no effect, since no template reads them.
func (s *Spec) unreadVars() (notes []string) {
	for _, name := range slices.Sorted(maps.Keys(s.TemplateVars)) {
		switch f := &s.chat; {
		case f.layout != nil && f.layout.thinks() && name == thinkingVar:
		case f.tmpl == nil:
			notes = append(notes, name+" has no effect: no chat template is used")
		case !slices.ContainsFunc(f.all(), func(t *jinja.Template) bool { return strings.Contains(t.Source(), name) }):
			notes = append(notes, name+" has no effect: the chat template does not read it")
		}
	}
	return notes
}

// typed is v as text in which 1, 1.0 and "1" are different, as they are to templates.
func typed(v any) string {
	var b strings.Builder
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			fmt.Fprintf(&b, "%s,", typed(x))
		}
		return "[" + b.String() + "]"
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			fmt.Fprintf(&b, "%q:%s,", k, typed(v[k]))
		}
		return "{" + b.String() + "}"
	}
	return fmt.Sprintf("%T(%#v)", v, v)
}

// OwnVars are the variables of chat templates that mt sets itself, so that
// chat_template_kwargs cannot set them.
var OwnVars = []string{"messages", "tools", "add_generation_prompt"}

// written is what the template made of a conversation: its text, the turns that are
// supervised, and as flags what was left out.
type written struct {
	*jinja.Rendered
	turns []jinja.Turn
	left  uint64
}

// learned renders a conversation that is trained on, with the turns that are supervised.
func (e *encoder) learned(v *conversation) (written, error) {
	r, turns, err := e.tmpl.SupervisedSpans(e.variables(v))
	if err != nil {
		return written{}, err
	}
	return written{r, turns, leftOut(v, r)}, nil
}

// renderUnchanged renders a conversation as it is.
func (e *encoder) renderUnchanged(v *conversation) (written, error) {
	r, err := e.tmpl.Render(e.variables(v))
	if err != nil {
		return written{}, err
	}
	return written{r, nil, leftOut(v, r)}, nil
}

// asked renders a conversation up to where the answer begins.
func (e *encoder) asked(v *conversation) (written, error) {
	vars := e.variables(v)
	vars["add_generation_prompt"] = true
	r, err := e.tmpl.Render(vars)
	if err != nil {
		return written{}, err
	}
	return written{r, nil, leftOut(v, r)}, nil
}

// writeAny renders a conversation as its row has it. Where the template fails on that, or
// does not write all of it, it is given the conversation with the fewest changes with which
// it does. It gives the conversation that was rendered too.
func (e *encoder) writeAny(v *conversation, write func(*conversation) (written, error)) (written, *conversation, error) {
	e.take(v)
	all := v.repairs()
	chosen := repair(0)
	var err error
	if all != 0 {
		chosen, err = e.choose(v, all)
	}
	var out written
	given := v.repaired(chosen)
	if !endsRepairs(err) {
		out, err = write(given)
	}
	if err != nil && !endsRepairs(err) || out.left&flagLeftText != 0 {
		if parts, as, ok := e.writeParts(v, all, out.left, err != nil, write); ok {
			return parts, as, nil
		}
	}
	if err != nil {
		return written{}, nil, v.templateError(err)
	}
	out.left |= chosen.flags()
	return out, given, nil
}

// rendered sets e.ids and e.labs to what the template makes of a conversation, and tells by
// flags what the template left out.
func (e *encoder) rendered(v *conversation) (left uint64, err error) {
	out, given, err := e.writeAny(v, e.learned)
	if err != nil {
		return 0, err
	}
	if e.ids, e.starts, err = e.tok.EncodeSpans(e.ids[:0], e.starts[:0], []byte(out.Text)); err != nil {
		return 0, err
	}
	return out.left, e.label(v, given, out)
}

// templateError adds to an error of the template at which message it failed and what to do
// about it.
func (v *conversation) templateError(err error) error {
	var t *jinja.Error
	if !errors.As(err, &t) {
		return fmt.Errorf("chat template: %w", err)
	}
	where := ""
	if i := t.Message; i >= 0 && i < len(v.names) {
		where = v.names[i] + ": "
	}
	if t.Raised {
		return fmt.Errorf("%sthe chat template refuses the row: %w; change the row, or take a template that has a place for it (template: FILE)", where, err)
	}
	return fmt.Errorf("%sthe chat template fails: %w; give the row what the template reads there, or mend the template (template: FILE)", where, err)
}

// leftOut tells by flags what the conversation holds and the template did not write: the
// thoughts of earlier answers, which many templates leave out on purpose; text of a message,
// such as the text beside calls of tools; tools or calls of them. Text counts as written
// where its lines are found in order, however they are indented.
func leftOut(v *conversation, r *jinja.Rendered) (flags uint64) {
	if missingNames(v, r) > 0 {
		flags |= flagLeftCalls
	}
	turns := turnTexts(r)
	for i, m := range v.messages {
		o := m.(*jinja.Object)
		answers := roleOf(m) == "assistant"
		text := turns[i]
		if strings.TrimSpace(text) == "" {
			text = r.Text
		}
		content, _ := o.Get("content")
		said, thought := contentText(content, "\n")
		if answers && thought == "" {
			thought, said = thoughtIn(said)
		}
		// An answer must be written in its own turn, since another message may say the same.
		if !writes(text, said) && (answers || !writes(r.Text, said)) {
			flags |= flagLeftText
		}
		for _, field := range []string{"reasoning_content", "reasoning", "thinking"} {
			if own, _ := o.Get(field); own != nil && own != "" {
				thought, _ = own.(string)
			}
		}
		if !writes(text, thought) {
			flags |= flagLeftThinking
		}
	}
	return flags
}

// turnTexts are what was written while a loop stood at each message.
func turnTexts(r *jinja.Rendered) map[int]string {
	turns := map[int]string{}
	for _, t := range r.Turns {
		turns[t.Message] += r.Text[t.From:t.To]
	}
	return turns
}

// missingNames counts the tools whose names are not in the text, and the calls whose
// functions' names are not in the turns of their messages.
func missingNames(v *conversation, r *jinja.Rendered) (n int) {
	for _, t := range v.tools {
		if !strings.Contains(r.Text, functionOf(t.(*jinja.Object))) {
			n++
		}
	}
	turns := turnTexts(r)
	for i, m := range v.messages {
		calls, _ := m.(*jinja.Object).Get("tool_calls")
		list, _ := calls.([]any)
		text := turns[i]
		if strings.TrimSpace(text) == "" {
			text = r.Text
		}
		for _, c := range list {
			if !strings.Contains(text, functionOf(c.(*jinja.Object))) {
				n++
			}
		}
	}
	return n
}

// The marks that reasoning models write before and after their thoughts.
const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
)

// thoughtIn divides an answer into its thoughts and what it says then.
func thoughtIn(answer string) (thought, said string) {
	before, after, found := strings.Cut(answer, thinkClose)
	if !found {
		return "", answer
	}
	return strings.Replace(before, thinkOpen, "", 1), after
}

// writes tells whether text has the lines of part, in order, either as they are or as JSON
// quotes them.
func writes(text, part string) bool {
	if part = strings.TrimSpace(part); part == "" || strings.Contains(text, part) {
		return true
	}
	for line := range strings.Lines(part) {
		line = strings.TrimSpace(line)
		at, n := strings.Index(text, line), len(line)
		if at < 0 {
			line = quoted(line)
			if at, n = strings.Index(text, line), len(line); at < 0 {
				return false
			}
		}
		text = text[at+n:]
	}
	return true
}

// quoted is a line as it stands inside a JSON string.
func quoted(line string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(line); err != nil {
		return line
	}
	out := strings.TrimSpace(b.String())
	return out[1 : len(out)-1]
}
