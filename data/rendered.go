package data

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"mt/jinja"
)

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

// told renders a conversation as it is.
func (e *encoder) told(v *conversation) (written, error) {
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
	if err := e.placed(v, out.turns); err != nil {
		return 0, err
	}
	last := 0
	for _, t := range out.turns {
		last = max(last, t.Message)
	}
	e.labs = ignored(e.labs[:0], len(e.ids))
	learned := slices.DeleteFunc(slices.Clone(out.turns), func(t jinja.Turn) bool {
		return t.Message != jinja.NoMessage && (t.Message < v.from || e.spec.MaskHistory && t.Message != last || weightless(v.messages[t.Message]))
	})
	for _, t := range learned {
		e.supervise(0, t.Span)
	}
	if !e.tmpl.Marks() {
		if err := e.superviseEnds(given, learned, out.Text); err != nil {
			return 0, err
		}
	}
	e.whole()
	return out.left, e.mute(given, out, out.turns)
}

// placed is an error where it matters to which message a mark of the template belongs, and
// that is not known.
func (e *encoder) placed(v *conversation, turns []jinja.Turn) error {
	if !slices.ContainsFunc(turns, func(t jinja.Turn) bool { return t.Message == jinja.NoMessage }) {
		return nil
	}
	why := ""
	switch {
	case e.spec.MaskHistory:
		why = "mask_history"
	case v.from > 0:
		why = "a completion"
	case slices.ContainsFunc(v.messages, weightless):
		why = "a turn of weight 0"
	default:
		return nil
	}
	return fmt.Errorf("the chat template's {%% generation %%} blocks stand outside a loop over messages, so it is not known which message each is of, and %s needs that: put them into the loop", why)
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
