package data

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"mt/internal/near"
	"mt/jinja"
	"mt/tokenizer"
)

// layout says how turns are written one after the other. Each of its pieces of text is tokenised by
// itself, with what stands in a turn in place of the sign §. Source: LLaMA-Factory's Template,
// whose layouts these are.
type layout struct {
	name   string
	prefix []string // before everything
	system []string // the system's turn; nil: its text alone
	user   []string // a user's turn, up to where the answer begins; nil: its text alone
	answer []string // nil: its text, and EOS unless efficient
	base   string   // what the system says where the row has no such turn
	// ends are the tokens that an answer ends with. With replaces the first of them is EOS.
	ends     []string
	replaces bool
	// efficient layouts have no EOS in their answers: the row ends with one, and after every earlier answer
	// EOS is what the model is to say.
	efficient bool
	merged    bool // the system's turn is a part of the first user's
	// thought is what stands around thoughts; an answer without any gets empty ones, with closesOnly
	// the end of them alone. Empty: the model does not think.
	thought    [2]string
	closesOnly bool
}

const (
	itsText = "§"    // where the text of a turn comes
	token   = "\x00" // before the name of a token, which no text has
	bos     = token + "bos"
	eos     = token + "eos"
)

// layoutNamed is the layout of that name; nil where there is none.
func layoutNamed(name string) *layout {
	l, ok := layouts[name]
	if !ok {
		return nil
	}
	l.name = name
	alone := []string{itsText}
	if l.system == nil {
		l.system = alone
	}
	if l.user == nil {
		l.user = alone
	}
	switch {
	case l.answer == nil && l.efficient:
		l.answer = alone
	case l.answer == nil:
		l.answer = []string{itsText, eos}
	}
	return &l
}

// thinks tells whether answers have thoughts.
func (l *layout) thinks() bool { return l.thought[0] != "" }

// id stands for the layout in the key of a token cache.
func (l *layout) id() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%#v", *l))
	return "layout " + hex.EncodeToString(sum[:])
}

// Templates are the names that Spec.Template can have instead of a file: chatml, the layout
// that most chat models use, stanford_alpaca, the words with which Alpaca asked, and those of LLaMA-Factory.
var Templates = slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(layouts)), "chatml", "stanford_alpaca")))

// noTemplate is the error of a template that is neither a file nor built in.
func noTemplate(name string) error {
	return fmt.Errorf("template %q is neither a file nor a built-in name such as chatml, qwen3 or llama3%s; docs/data.md lists those. Leave it out to use the model's own",
		name, near.Suggest(name, Templates))
}

// check is an error where the tokenizer lacks a token of the layout.
func (l *layout) check(t tokenizer.Tokenizer) error {
	var lacking []string
	need := func(s string) {
		if _, ok := t.TokenID(s); !ok && !slices.Contains(lacking, s) {
			lacking = append(lacking, s)
		}
	}
	all := slices.Concat(l.prefix, l.system, l.user, l.answer)
	for _, s := range all {
		if named, ok := strings.CutPrefix(s, token); ok && s != bos && s != eos {
			need(named)
		}
	}
	for i, end := range l.ends {
		if i == 0 && l.replaces || slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, end) }) {
			need(end)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return fmt.Errorf("template: %s is made of tokens that the model's tokenizer does not have: add them with new_special_tokens: [\"%s\"] and resize_vocab: true, or choose another template",
		l.name, strings.Join(lacking, `", "`))
}

// eosOf is the token that the layout ends answers with; IgnoreIndex where there is none.
func (l *layout) eosOf(t tokenizer.Tokenizer, own int32) int32 {
	if l.replaces {
		if id, ok := t.TokenID(l.ends[0]); ok {
			return id
		}
	}
	return own
}

// layOut sets e.ids and e.labs to a conversation as the layout l writes it.
func (e *encoder) layOut(l *layout, v *conversation) error {
	if v.tools != nil {
		return l.noTools()
	}
	if l.efficient && e.spec.TrainOnPrompt {
		return &fatalRow{fmt.Errorf("train_on_prompt: in template %s no token ends an answer in the row, so that prompts cannot be trained on; leave train_on_prompt out, or choose another template", l.name)}
	}
	e.ids, e.labs = e.ids[:0], e.labs[:0]
	last := len(v.messages) - 1
	for last > 0 && roleOf(v.messages[last]) != "assistant" {
		last--
	}
	if err := e.layTurns(l, v, last); err != nil {
		return err
	}
	if end := l.eosOf(e.tok, e.around.eos); l.efficient && end != IgnoreIndex {
		e.ids, e.labs = append(e.ids, end), append(e.labs, end)
	}
	e.whole()
	for _, turn := range e.muted {
		if e.spec.TrainOnPrompt {
			e.unlearn(turn.From, turn.To)
		}
	}
	return nil
}

// layTurns appends the turns up to and including number last.
func (e *encoder) layTurns(l *layout, v *conversation, last int) error {
	system, messages := l.base, v.messages
	skipped := 0
	e.muted = e.muted[:0]
	if role, text, err := plainTurn(messages[0], l.name); err != nil {
		return err
	} else if role == "system" || role == "developer" {
		messages, skipped = messages[1:], 1
		if text != "" {
			system = text
		}
	}
	if err := e.elements(l, l.prefix, ""); err != nil {
		return err
	}
	lead := ""
	if system != "" && l.merged {
		lead = strings.Replace(l.system[0], itsText, system, 1)
	} else if system != "" {
		from := len(e.ids)
		if err := e.elements(l, l.system, system); err != nil {
			return err
		}
		if skipped > 0 && weightless(v.messages[0]) {
			e.muted = append(e.muted, jinja.Span{From: from, To: len(e.ids)})
		}
	}
	turn := &laidTurns{l: l, v: v, last: last, think: e.thinking(v)}
	for i := skipped; i <= last; i++ {
		from := len(e.ids)
		role, text, err := plainTurn(messages[i-skipped], l.name)
		due := [2]string{"user", "assistant"}[(i-skipped)%2]
		switch {
		case err != nil:
		case role != due:
			err = fmt.Errorf("%s: a turn of %s stands where one of %s is due; in template %s users and the assistant take turns, behind the system: mend the row", v.names[i], role, due, l.name)
		case role == "user":
			err = e.elements(l, l.user, lead+text)
			lead = ""
		default:
			err = e.answer(turn, i, text)
		}
		if err != nil {
			return err
		}
		if weightless(v.messages[i]) {
			e.muted = append(e.muted, jinja.Span{From: from, To: len(e.ids)})
		}
	}
	return nil
}

// laidTurns is what the answers of one conversation have in common.
type laidTurns struct {
	l     *layout
	v     *conversation
	last  int  // the last answer
	think bool // thoughts are supervised, and not removed
	from  int  // where the prompt of the next answer begins in e.ids
	ended bool // the answer before it is learned, and so is its end
}

// answer appends the answer that message i gives, with the labels of its prompt.
func (e *encoder) answer(t *laidTurns, i int, text string) error {
	l, isLast := t.l, i == t.last
	learned := i >= t.v.from && (!e.spec.MaskHistory || isLast) && !weightless(t.v.messages[i])
	supervised := learned && text != ""
	var empty []int32
	if l.thinks() {
		if !t.think || e.spec.MaskHistory && !isLast {
			text = l.withoutThought(text)
		}
		bare := !strings.Contains(text, strings.TrimSpace(l.thought[0])) && !strings.Contains(text, strings.TrimSpace(l.thought[1]))
		if bare && (!e.spec.MaskHistory || isLast) {
			var err error
			if empty, err = e.tok.Encode(nil, []byte(l.emptyThought())); err != nil {
				return err
			}
		}
	}
	if !t.think { // the model is not to say them
		e.ids, empty = append(e.ids, empty...), nil
	}
	e.labs = ignored(e.labs, len(e.ids)-len(e.labs))
	if end := l.eosOf(e.tok, e.around.eos); l.efficient && t.ended && end != IgnoreIndex && t.from < len(e.labs) {
		e.labs[t.from] = end
	}
	start := len(e.ids)
	e.ids = append(e.ids, empty...)
	if err := e.elements(l, l.answer, text); err != nil {
		return err
	}
	e.labs = ignored(e.labs, len(e.ids)-len(e.labs))
	if supervised {
		copy(e.labs[start:], e.ids[start:])
	}
	t.from, t.ended = len(e.ids), learned
	return nil
}

// elements appends the tokens of pieces of a layout, with text in its place.
func (e *encoder) elements(l *layout, pieces []string, text string) (err error) {
	for _, p := range pieces {
		switch name, isToken := strings.CutPrefix(p, token); {
		case p == bos && e.around.bos != IgnoreIndex:
			e.ids = append(e.ids, e.around.bos)
		case p == eos && l.eosOf(e.tok, e.around.eos) != IgnoreIndex:
			e.ids = append(e.ids, l.eosOf(e.tok, e.around.eos))
		case p == bos, p == eos: // the model has none
		case isToken:
			id, _ := e.tok.TokenID(name) // it has it: see check
			e.ids = append(e.ids, id)
		default:
			if e.ids, err = e.tok.Encode(e.ids, []byte(strings.Replace(p, itsText, text, 1))); err != nil {
				return err
			}
		}
	}
	return nil
}

// thinking tells whether answers of a conversation keep their thoughts, by the variable
// enable_thinking, which the row itself may give.
func (e *encoder) thinking(v *conversation) bool {
	if v.vars != nil {
		if x, ok := v.vars.Get(thinkingVar); ok {
			return x != false
		}
	}
	return e.spec.TemplateVars[thinkingVar] != false
}

// thinkingVar is the variable by which layouts with thoughts go.
const thinkingVar = "enable_thinking"

// withoutThought is text without thoughts.
func (l *layout) withoutThought(text string) string {
	thought := regexp.MustCompile("(?s)" + regexp.QuoteMeta(l.thought[0]) + ".*?" + regexp.QuoteMeta(l.thought[1]))
	return strings.TrimLeft(thought.ReplaceAllLiteralString(text, ""), "\n")
}

// emptyThought is what an answer without thoughts gets.
func (l *layout) emptyThought() string {
	if l.closesOnly {
		return l.thought[1]
	}
	return l.thought[0] + l.thought[1]
}

// plainTurn gives the role and the text of a message, which must have nothing else; template is for the error.
func plainTurn(m any, template string) (role, text string, err error) {
	o := m.(*jinja.Object)
	if _, ok := o.Get("tool_calls"); ok {
		return "", "", fmt.Errorf("template %s has no place for calls of functions; use a chat template that does", template)
	}
	content, _ := o.Get("content")
	text, thought := contentText(content, "")
	if thought != "" {
		return "", "", fmt.Errorf("template %s has no place for parts that are thoughts; use a chat template that does", template)
	}
	return roleOf(m), text, nil
}

// noTools is the error of a row that brings tools.
func (l *layout) noTools() error {
	return fmt.Errorf("template %s has no place for tools; use a chat template that does", l.name)
}
