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

// chatML is OpenAI's chat markup language as a Jinja template, written for mt. Source: Qwen's model cards.
const chatML = `{% if tools %}{{ raise_exception('chatml has no place for tools; use a chat template that does') }}{% endif %}` +
	`{% for message in messages %}{% if message.tool_calls %}{{ raise_exception('chatml has no place for calls of functions; use a chat template that does') }}{% endif %}` +
	`<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

// stanfordAlpaca is Alpaca's prompt, whose text depends on whether the instruction has an input. Sources: Stanford
// Alpaca (github.com/tatsu-lab/stanford_alpaca), also axolotl's type alpaca and torchtune's AlpacaToMessages.
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

// maxTemplate is the largest size of a template file, in bytes.
const maxTemplate = 4 << 20

// templateClock is the time that every template sees as the present. It is constant, so the same data gives the same
// tokens on every day. Llama 3.1's template uses this date by default.
var templateClock = time.Date(2024, time.July, 26, 0, 0, 0, 0, time.UTC)

// chatForm says how chats become text: by a Jinja template, or by a layout (a format made of text pieces).
type chatForm struct {
	tmpl   *jinja.Template
	own    bool           // tmpl is from the model's directory
	layout *layout        // requested by name instead of tmpl; nil: none
	err    error          // the reason why tmpl and layout are nil
	tokens map[string]any // template variables that name special tokens
}

// newChatForm finds the template or layout of s. If there is none, err says why; the error matters only if the data
// has chats.
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

// all returns the templates of f: tmpl, then its variants for rows with tools and for rows with documents, if the
// model has them.
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
	return ErrNoTemplate
}

// ErrNoTemplate is the error that a model has no chat template and Spec.Template is empty.
var ErrNoTemplate = errors.New("the model has no chat template; set template to default, which every tokenizer can write, to another built-in template such as chatml, or to a Jinja file")

func hasChatML(t tokenizer.Tokenizer) bool {
	_, start := t.TokenID("<|im_start|>")
	_, end := t.TokenID("<|im_end|>")
	return start && end
}

// namedTemplate reads the template that Spec.Template gives: Jinja text, a directory with a tokenizer and a
// template, or a Jinja file.
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

// isJinja reports whether the setting template holds Jinja text itself, and not a file or a name.
func isJinja(name string) bool { return strings.Contains(name, "{%") || strings.Contains(name, "{{") }

// CheckTemplate returns an error if the template called name, or its file, cannot be read or parsed. A name that is
// no file gives no error.
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

// id returns a text that identifies the template or layout. It is part of the name of a token cache.
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

// defaultLayout is the layout of a row with a prompt and an answer, if the model has no template.
var defaultLayout = layoutNamed("default")

// variables returns the variables with which the template renders v. A variable that the row itself gives takes
// precedence over the configured chat_template_kwargs.
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

// take sets e.tmpl to the template for v. If v has tools, that is the model's template for tools;
// otherwise, if the variables have documents, the one for documents; otherwise the default
// template. If the model lacks the special template, the default is used.
func (e *encoder) take(v *conversation) {
	e.tmpl = e.templates[jinja.DefaultTemplate]
	if documents, _ := e.variables(v)["documents"].([]any); len(documents) > 0 && e.templates[jinja.DocumentsTemplate] != nil {
		e.tmpl = e.templates[jinja.DocumentsTemplate]
	}
	if v.tools != nil && e.templates[jinja.ToolTemplate] != nil {
		e.tmpl = e.templates[jinja.ToolTemplate]
	}
}

// unreadVars returns notes for the user on configured variables (chat_template_kwargs) that no template reads.
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

// typed returns v as text that also shows its type: 1, 1.0 and "1" give different texts, since a template may
// distinguish the three. It is part of the name of a token cache.
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

// OwnVars are the template variables that mt sets itself, so chat_template_kwargs must not set them.
var OwnVars = []string{"messages", "tools", "add_generation_prompt"}

// written is a rendered conversation. The spans of the answers to train on are in turns, if they
// were looked for. The document flags in left tell which parts of the conversation the template
// dropped.
type written struct {
	*jinja.Rendered
	turns []jinja.Turn
	left  uint64
}

// learned renders a conversation to train on, and finds the turns that are supervised (in the loss).
func (e *encoder) learned(v *conversation) (written, error) {
	r, turns, err := e.tmpl.SupervisedSpans(e.variables(v))
	if err != nil {
		return written{}, err
	}
	return written{r, turns, leftOut(v, r)}, nil
}

// renderUnchanged renders a conversation without repairs, and does not look for the turns to train on.
func (e *encoder) renderUnchanged(v *conversation) (written, error) {
	r, err := e.tmpl.Render(e.variables(v))
	if err != nil {
		return written{}, err
	}
	return written{r, nil, leftOut(v, r)}, nil
}

// asked renders a conversation up to the place where the model's answer begins (add_generation_prompt).
func (e *encoder) asked(v *conversation) (written, error) {
	vars := e.variables(v)
	vars["add_generation_prompt"] = true
	r, err := e.tmpl.Render(vars)
	if err != nil {
		return written{}, err
	}
	return written{r, nil, leftOut(v, r)}, nil
}

// writeAny renders v with the function write. If the template fails on v or drops parts of v,
// writeAny changes the form of the messages (a repair) and renders again. It uses as few repairs as
// possible. It also returns the conversation that was rendered, v or its repaired copy.
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

// rendered sets e.ids and e.labs to the tokens and labels of v, as the chat template writes it. left holds flags for
// the repairs that v needed, and for parts that the template dropped.
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

// templateError returns err, the error of a template, with the message at which it failed and advice for the user.
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

// leftOut returns flags for the parts of v that the template did not write into r:
//
//   - thoughts of earlier answers, which many templates drop on purpose
//   - text of a message, such as the text beside tool calls
//   - tools or calls
//
// Text counts as written if its lines appear in order, with any indentation.
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
		// An answer must appear in its own turn: text that is found elsewhere may belong to another
		// message.
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

// turnTexts returns the text that the template wrote for each message, by the message's index.
func turnTexts(r *jinja.Rendered) map[int]string {
	turns := map[int]string{}
	for _, t := range r.Turns {
		turns[t.Message] += r.Text[t.From:t.To]
	}
	return turns
}

// missingNames returns how many names the template left out. It counts tools of v whose names are nowhere in the
// text, and calls whose function names are missing in the text of their message.
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

// The marks that reasoning models write around their thoughts.
const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
)

// thoughtIn splits an answer at the mark </think> into its thoughts and the rest. Without the mark, thought is "".
func thoughtIn(answer string) (thought, said string) {
	before, after, found := strings.Cut(answer, thinkClose)
	if !found {
		return "", answer
	}
	return strings.Replace(before, thinkOpen, "", 1), after
}

// writes reports whether text contains the lines of part in order, with any indentation, either unchanged or quoted
// as in a JSON string.
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

// quoted returns a line as it stands inside a JSON string, without the quotes around it.
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
