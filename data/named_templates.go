package data

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"mt/base/human"
	"mt/data/jinja"
	"mt/data/tokenizer"
)

// layout is a chat format made of text pieces, one list per kind of turn. Each piece is tokenized separately; the
// sign § stands for the turn's text. Source: LLaMA-Factory's Template, which defines these layouts.
type layout struct {
	name   string
	prefix []string // before the first turn
	system []string // system turn; nil: only its text
	user   []string // user turn, up to the start of the answer; nil: only its text
	answer []string // answer; nil: its text, and EOS unless efficient
	base   string   // default system text
	// ends are the tokens that end an answer. If replaces is set, ends[0] is used in place of the
	// tokenizer's EOS.
	ends     []string
	replaces bool
	// efficient layouts write no EOS in answers; only the row ends with EOS. After every earlier answer EOS is
	// still the label, so the model learns to stop there.
	efficient bool
	merged    bool // the system text is part of the first user turn
	// thought are the marks before and after the thoughts of an answer; empty: the model does not think. An
	// answer without thoughts gets both marks with nothing between. With closesOnly it gets only the second mark.
	thought    [2]string
	closesOnly bool
}

const (
	itsText = "§"    // placeholder for the text of a turn
	token   = "\x00" // prefix of a token's name; no text contains it
	bos     = token + "bos"
	eos     = token + "eos"
)

// IsLayout reports whether Spec.Template names a built-in layout. A layout is no Jinja text, so a run does not save it
// with the model.
func IsLayout(template string) bool { return layoutNamed(template) != nil }

// layoutNamed returns the layout with this name, or nil.
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

// thinks reports whether answers in this layout may have thoughts.
func (l *layout) thinks() bool { return l.thought[0] != "" }

// id returns a hash of the layout, which is part of the name of a token cache.
func (l *layout) id() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%#v", *l))
	return "layout " + hex.EncodeToString(sum[:])
}

// Templates are the names that Spec.Template accepts besides files: chatml, the format of most chat models;
// stanford_alpaca, Alpaca's prompt; and LLaMA-Factory's names.
var Templates = slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(layouts)), "chatml", "stanford_alpaca")))

// noTemplate returns the error that the template called name is neither a file nor built in.
func noTemplate(name string) error {
	return fmt.Errorf("template %q is neither a file nor a built-in name such as chatml, qwen3 or llama3%s; docs/data.md lists those. Leave it out to use the model's own",
		name, human.Suggest(name, Templates))
}

// check returns an error if the tokenizer lacks a token that the layout writes.
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

// eosOf returns the token that ends answers in the layout. `own` is the tokenizer's own EOS; most layouts use it.
func (l *layout) eosOf(t tokenizer.Tokenizer, own int32) int32 {
	if l.replaces {
		if id, ok := t.TokenID(l.ends[0]); ok {
			return id
		}
	}
	return own
}

// layOut sets e.ids and e.labs to the tokens and labels of a conversation, written in the layout l.
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

// layTurns appends the tokens and labels of the turns with index 0 to last, last included.
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
	turn := &answerState{l: l, v: v, last: last, think: e.thinking(v)}
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

// answerState says how far layTurns has come in the answers of one conversation.
type answerState struct {
	l     *layout
	v     *conversation
	last  int  // index of the last answer
	think bool // thoughts are in the loss; otherwise they are removed
	from  int  // start of the next answer's prompt in e.ids
	ended bool // the previous answer is in the loss; in an efficient layout, so is the EOS label after it
}

// answer appends the answer in message i, whose text is given, and the labels of the answer and of the prompt before
// it.
func (e *encoder) answer(t *answerState, i int, text string) error {
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
	if !t.think { // empty thoughts are part of the prompt
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

// elements appends the tokens of the pieces of layout l. text takes the place of the sign §.
func (e *encoder) elements(l *layout, pieces []string, text string) (err error) {
	for _, p := range pieces {
		switch name, isToken := strings.CutPrefix(p, token); {
		case p == bos && e.around.bos != IgnoreIndex:
			e.ids = append(e.ids, e.around.bos)
		case p == eos && l.eosOf(e.tok, e.around.eos) != IgnoreIndex:
			e.ids = append(e.ids, l.eosOf(e.tok, e.around.eos))
		case p == bos, p == eos: // the model has no such token
		case isToken:
			id, _ := e.tok.TokenID(name) // check has found it
			e.ids = append(e.ids, id)
		default:
			if e.ids, err = e.tok.Encode(e.ids, []byte(strings.Replace(p, itsText, text, 1))); err != nil {
				return err
			}
		}
	}
	return nil
}

// thinking reports whether answers keep their thoughts, by the variable enable_thinking. Without the variable, they
// keep them. The row's value takes precedence over the Spec's.
func (e *encoder) thinking(v *conversation) bool {
	if v.vars != nil {
		if x, ok := v.vars.Get(thinkingVar); ok {
			return x != false
		}
	}
	return e.spec.TemplateVars[thinkingVar] != false
}

// thinkingVar is the template variable that says whether answers keep their thoughts.
const thinkingVar = "enable_thinking"

// withoutThought returns text, an answer, without what stands between the layout's two thought marks, and without the
// marks.
func (l *layout) withoutThought(text string) string {
	thought := regexp.MustCompile("(?s)" + regexp.QuoteMeta(l.thought[0]) + ".*?" + regexp.QuoteMeta(l.thought[1]))
	return strings.TrimLeft(thought.ReplaceAllLiteralString(text, ""), "\n")
}

// emptyThought returns the marks that the layout adds to an answer without thoughts.
func (l *layout) emptyThought() string {
	if l.closesOnly {
		return l.thought[1]
	}
	return l.thought[0] + l.thought[1]
}

// plainTurn returns the role and text of message m. It fails if the message has calls or thoughts, which layouts
// cannot write. template is the layout's name, for errors.
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

// noTools returns the error for a row with tools, which no layout can write.
func (l *layout) noTools() error {
	return fmt.Errorf("template %s has no place for tools; use a chat template that does", l.name)
}

// Text pieces that several layouts share.
var (
	glmPrefix    = []string{"[gMASK]<sop>"}
	glmSystem    = []string{"<|system|>\n§"}
	glmUser      = []string{"<|user|>\n§<|assistant|>"}
	glmAnswer    = []string{"\n§"}
	glmEnds      = []string{"<|user|>", "<|observation|>"}
	imSystem     = []string{"<|im_start|>system\n§<|im_end|>\n"}
	imUser       = []string{"<|im_start|>user\n§<|im_end|>\n<|im_start|>assistant\n"}
	imAnswer     = []string{"§<|im_end|>\n"}
	imEnd        = []string{"<|im_end|>"}
	gemmaUser    = []string{"<start_of_turn>user\n§<end_of_turn>\n<start_of_turn>model\n"}
	gemmaAnswer  = []string{"§<end_of_turn>\n"}
	llama3System = []string{"<|start_header_id|>system<|end_header_id|>\n\n§<|eot_id|>"}
	llama3User   = []string{"<|start_header_id|>user<|end_header_id|>\n\n§<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"}
	llama3Answer = []string{"§<|eot_id|>"}
	llama3Ends   = []string{"<|eot_id|>", "<|eom_id|>"}
	vicunaUser   = []string{"USER: § ASSISTANT:"}
	think        = [2]string{"<think>\n", "\n</think>\n\n"}
)

// layouts are LLaMA-Factory's layouts for text, by name. Source: LLaMA-Factory, src/llamafactory/data/template.py
// (register_template), August 2026.
var layouts = map[string]layout{
	"aeva":                     {prefix: glmPrefix, system: glmSystem, user: glmUser, answer: glmAnswer, base: "You are an AI assistant named Aeva created by Zongzhi Lou. Your answer should be friendly, unbiased, faithful, informative and detailed.", ends: glmEnds, efficient: true, thought: [2]string{"<think>", "</think>"}, closesOnly: true},
	"alpaca":                   {user: []string{"### Instruction:\n§\n\n### Response:\n"}, answer: []string{"§", eos, "\n\n"}, base: "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"},
	"bailing":                  {system: []string{"<role>SYSTEM</role>§"}, user: []string{"<role>HUMAN</role>§<role>ASSISTANT</role>"}, ends: []string{"<|endoftext|>"}, efficient: true},
	"bailing_v2":               {system: []string{"<role>SYSTEM</role>§<|role_end|>"}, user: []string{"<role>HUMAN</role>§<|role_end|><role>ASSISTANT</role>"}, answer: []string{"§<|role_end|>"}, ends: []string{"<|endoftext|>"}, efficient: true},
	"breeze":                   {prefix: []string{bos}, user: []string{"[INST] § [/INST] "}, efficient: true},
	"chatglm3":                 {prefix: []string{token + "[gMASK]", token + "sop"}, system: []string{token + "<|system|>", "\n", "§"}, user: []string{token + "<|user|>", "\n", "§", token + "<|assistant|>"}, answer: []string{"\n", "§"}, ends: glmEnds, efficient: true},
	"chatml_de":                {system: imSystem, user: imUser, answer: imAnswer, base: "Du bist ein freundlicher und hilfsbereiter KI-Assistent.", ends: []string{"<|im_end|>", "<|im_start|>"}, replaces: true},
	"cohere":                   {prefix: []string{bos}, system: []string{"<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>§<|END_OF_TURN_TOKEN|>"}, user: []string{"<|START_OF_TURN_TOKEN|><|USER_TOKEN|>§<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"}},
	"cpm4":                     {prefix: []string{bos}, system: imSystem, user: imUser, answer: imAnswer, ends: imEnd},
	"deepseek":                 {prefix: []string{bos}, system: []string{"§\n\n"}, user: []string{"User: §\n\nAssistant:"}},
	"deepseek3":                {prefix: []string{bos}, user: []string{"<｜User｜>§<｜Assistant｜>"}},
	"deepseekcoder":            {prefix: []string{bos}, user: []string{"### Instruction:\n§\n### Response:"}, answer: []string{"\n§\n<|EOT|>\n"}, base: "You are an AI programming assistant, utilizing the DeepSeek Coder model, developed by DeepSeek Company, and you only answer questions related to computer science. For politically sensitive questions, security and privacy issues, and other non-computer science questions, you will refuse to answer.\n"},
	"deepseekr1":               {prefix: []string{bos}, user: []string{"<｜User｜>§<｜Assistant｜>"}, thought: think},
	"default":                  {system: []string{"System: §", eos, "\n"}, user: []string{"Human: §", eos, "\nAssistant:"}, answer: []string{"§", eos, "\n"}},
	"dots_ocr":                 {system: []string{"<|system|>§<|endofsystem|>\n"}, user: []string{"<|user|>§<|endofuser|><|assistant|>"}, answer: []string{"§<|endofassistant|>"}, ends: []string{"<|endofassistant|>"}, efficient: true},
	"empty":                    {answer: []string{"§"}},
	"ernie":                    {system: []string{"<|im_start|>system\n§<|im_end|>\n\n"}, user: []string{"<|im_start|>user\n§<|im_end|>\n\n<|im_start|>assistant\n"}, answer: []string{"§<|im_end|>\n\n"}, base: "<global_setting>\nthink_mode=True\n</global_setting>", ends: imEnd},
	"ernie_nothink":            {prefix: []string{"<|begin_of_sentence|>"}, system: []string{"§\n"}, user: []string{"User: §\nAssistant: "}, answer: []string{"§<|end_of_sentence|>"}, ends: []string{"<|end_of_sentence|>"}},
	"ernie_vl":                 {system: []string{"§\n"}, user: []string{"User: §"}, answer: []string{"\nAssistant: §<|end_of_sentence|>"}, ends: []string{"<|end_of_sentence|>"}, replaces: true, thought: think},
	"exaone":                   {system: []string{"[|system|]§[|endofturn|]\n"}, user: []string{"[|user|]§\n[|assistant|]"}, answer: []string{"§", eos, "\n"}},
	"falcon":                   {user: []string{"User: §\nFalcon:"}, answer: []string{"§\n"}, efficient: true},
	"falcon_h1":                {prefix: []string{bos}, system: imSystem, user: imUser, answer: imAnswer, ends: []string{"<|im_end|>", "<|end_of_text|>"}},
	"fewshot":                  {answer: []string{"§\n\n"}, efficient: true},
	"gemma":                    {prefix: []string{bos}, system: []string{"§\n\n"}, user: gemmaUser, answer: gemmaAnswer, ends: []string{"<end_of_turn>"}, replaces: true, merged: true},
	"gemma2":                   {prefix: []string{bos}, system: []string{"§\n\n"}, user: gemmaUser, answer: gemmaAnswer, ends: []string{"<eos>", "<end_of_turn>"}, efficient: true, merged: true},
	"gemma3":                   {prefix: []string{bos}, system: []string{"§\n\n"}, user: gemmaUser, answer: gemmaAnswer, ends: []string{"<end_of_turn>"}, replaces: true, merged: true},
	"gemma3n":                  {prefix: []string{bos}, system: []string{"§\n\n"}, user: gemmaUser, answer: gemmaAnswer, ends: []string{"<end_of_turn>"}, replaces: true, merged: true},
	"gemma4":                   {prefix: []string{bos}, system: []string{"<|turn>system\n<|think|>§<turn|>\n"}, user: []string{"<|turn>user\n§<turn|>\n<|turn>model\n"}, answer: []string{"§<turn|>\n"}, base: "You are a helpful assistant.", ends: []string{"<turn|>"}, replaces: true, thought: [2]string{"<|channel>thought\n", "<channel|>"}},
	"gemma4n":                  {prefix: []string{bos}, system: []string{"<|turn>system\n<|think|>§<turn|>\n"}, user: []string{"<|turn>user\n§<turn|>\n<|turn>model\n"}, answer: []string{"§<turn|>\n"}, base: "You are a helpful assistant.", ends: []string{"<turn|>"}, replaces: true, thought: [2]string{"<|channel>thought\n", "<channel|>"}},
	"glm4":                     {prefix: glmPrefix, system: glmSystem, user: glmUser, answer: glmAnswer, ends: glmEnds, efficient: true},
	"glm4_5v":                  {prefix: glmPrefix, system: glmSystem, user: glmUser, answer: glmAnswer, ends: []string{"<|user|>", "<|observation|>", "</answer>"}, efficient: true, thought: think},
	"glm4_7":                   {prefix: glmPrefix, system: glmSystem, user: glmUser, answer: glmAnswer, ends: glmEnds, efficient: true, thought: [2]string{"<think>", "</think>"}, closesOnly: true},
	"glm4_moe":                 {prefix: glmPrefix, system: glmSystem, user: glmUser, answer: glmAnswer, ends: glmEnds, efficient: true, thought: think},
	"glm4v":                    {prefix: glmPrefix, system: glmSystem, user: glmUser, answer: glmAnswer, ends: []string{"<|user|>", "<|observation|>", "</answer>"}, efficient: true, thought: think},
	"glm_ocr":                  {prefix: glmPrefix, system: glmSystem, user: glmUser, answer: glmAnswer, ends: glmEnds, efficient: true},
	"glmz1":                    {prefix: glmPrefix, system: glmSystem, user: glmUser, answer: glmAnswer, ends: glmEnds, efficient: true, thought: think},
	"gpt_oss":                  {system: []string{"<|start|>system<|message|>§<|end|>"}, user: []string{"<|start|>user<|message|>§<|end|><|start|>assistant"}, answer: []string{"§"}, base: "You are ChatGPT, a large language model trained by OpenAI.", efficient: true, thought: [2]string{"<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"}},
	"granite3":                 {system: []string{"<|start_of_role|>system<|end_of_role|>§<|end_of_text|>\n"}, user: []string{"<|start_of_role|>user<|end_of_role|>§<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>"}, answer: []string{"§<|end_of_text|>\n"}},
	"granite3_vision":          {system: []string{"<|system|>\n§\n"}, user: []string{"<|user|>\n§\n<|assistant|>\n"}, base: "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the user's questions."},
	"granite4":                 {system: []string{"<|start_of_role|>system<|end_of_role|>§<|end_of_text|>\n"}, user: []string{"<|start_of_role|>user<|end_of_role|>§<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>"}, answer: []string{"§<|end_of_text|>\n"}, base: "You are Granite, developed by IBM. You are a helpful AI assistant.", ends: []string{"<|end_of_text|>"}},
	"hunyuan":                  {prefix: []string{"<|startoftext|>"}, system: []string{"§<|extra_4|>"}, user: []string{"§<|extra_0|>"}, answer: []string{"§<|eos|>"}, ends: []string{"<|eos|>"}},
	"hunyuan_small":            {prefix: []string{"<｜hy_begin▁of▁sentence｜>"}, system: []string{"§<｜hy_place▁holder▁no▁3｜>"}, user: []string{"<｜hy_User｜>§<｜hy_place▁holder▁no▁8｜>"}, answer: []string{"§<｜hy_place▁holder▁no▁2｜>"}, ends: []string{"<｜hy_place▁holder▁no▁2｜>"}},
	"hy3":                      {prefix: []string{bos}, system: []string{"§"}, user: []string{"<｜hy_User｜>§<｜hy_Assistant｜>"}, answer: []string{"§<｜hy_eos｜>"}, ends: []string{"<｜hy_eos｜>"}, replaces: true, thought: [2]string{"<think>", "</think>"}},
	"hy_dense_1_8b":            {prefix: []string{bos}, system: []string{"§<｜hy_place▁holder▁no▁3｜>"}, user: []string{"<｜hy_User｜>§"}, answer: []string{"<｜hy_Assistant｜>§"}, ends: []string{"<｜hy_place▁holder▁no▁2｜>"}, efficient: true},
	"hy_dense_7b":              {prefix: []string{bos}, system: []string{"§<|extra_4|>"}, user: []string{"§<|extra_0|>"}, answer: []string{"§"}, ends: []string{"<|eos|>"}, efficient: true},
	"index":                    {system: []string{"<unk>§"}, user: []string{"reserved_0§reserved_1"}, efficient: true},
	"intern_s1":                {prefix: []string{bos}, system: imSystem, user: imUser, answer: imAnswer, ends: imEnd},
	"intern_vl":                {prefix: []string{bos}, system: imSystem, user: imUser, answer: imAnswer, base: "你是书生·万象，英文名是InternVL，是由上海人工智能实验室、清华大学及多家合作单位联合开发的多模态大语言模型。", ends: imEnd},
	"keye_vl":                  {system: imSystem, user: imUser, answer: imAnswer, ends: imEnd, replaces: true, thought: think},
	"kimi_vl":                  {system: []string{"<|im_system|>system<|im_middle|>§<|im_end|>"}, user: []string{"<|im_user|>user<|im_middle|>§<|im_end|><|im_assistant|>assistant<|im_middle|>"}, answer: []string{"§<|im_end|>"}, base: "You are a helpful assistant", ends: imEnd, thought: [2]string{"◁think▷", "◁/think▷"}},
	"lfm2":                     {system: imSystem, user: imUser, answer: imAnswer, base: "You are a helpful AI assistant.", ends: imEnd, replaces: true},
	"lfm2_vl":                  {system: imSystem, user: imUser, answer: imAnswer, base: "You are a helpful multimodal assistant by Liquid AI.", ends: imEnd, replaces: true},
	"llama2":                   {system: []string{"<<SYS>>\n§\n<</SYS>>\n\n"}, user: []string{bos, "[INST] § [/INST]"}, merged: true},
	"llama2_zh":                {system: []string{"<<SYS>>\n§\n<</SYS>>\n\n"}, user: []string{bos, "[INST] § [/INST]"}, base: "You are a helpful assistant. 你是一个乐于助人的助手。", merged: true},
	"llama3":                   {prefix: []string{bos}, system: llama3System, user: llama3User, answer: llama3Answer, ends: llama3Ends, replaces: true},
	"llama4":                   {prefix: []string{bos}, system: []string{"<|header_start|>system<|header_end|>\n\n§<|eot|>"}, user: []string{"<|header_start|>user<|header_end|>\n\n§<|eot|><|header_start|>assistant<|header_end|>\n\n"}, answer: []string{"§<|eot|>"}, ends: []string{"<|eot|>", "<|eom|>"}, replaces: true},
	"llava":                    {user: vicunaUser, base: "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the user's questions."},
	"llava_next":               {user: vicunaUser, base: "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the user's questions."},
	"llava_next_llama3":        {prefix: []string{bos}, system: llama3System, user: llama3User, answer: llama3Answer, ends: llama3Ends, replaces: true},
	"llava_next_mistral":       {prefix: []string{bos}, system: []string{"§\n\n"}, user: []string{"[INST] §[/INST]"}, answer: []string{" §", eos}, merged: true},
	"llava_next_qwen":          {system: imSystem, user: imUser, answer: imAnswer, base: "You are a helpful assistant.", ends: imEnd, replaces: true},
	"llava_next_video":         {user: vicunaUser, base: "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the user's questions."},
	"llava_next_video_mistral": {prefix: []string{bos}, system: []string{"§\n\n"}, user: []string{"[INST] §[/INST]"}, answer: []string{" §", eos}, merged: true},
	"llava_next_video_yi":      {system: imSystem, user: imUser, answer: imAnswer, ends: imEnd},
	"llava_next_yi":            {system: imSystem, user: imUser, answer: imAnswer, ends: imEnd},
	"mimo":                     {system: imSystem, user: imUser, answer: imAnswer, base: "You are a helpful assistant.", ends: imEnd, replaces: true, thought: think},
	"mimo_v2":                  {system: imSystem, user: imUser, answer: imAnswer, base: "You are MiMo, a helpful AI assistant engineered by Xiaomi.", ends: imEnd, replaces: true, thought: [2]string{"<think>", "</think>"}},
	"mimo_vl":                  {system: imSystem, user: imUser, answer: imAnswer, base: "You are MiMo, an AI assistant developed by Xiaomi.", ends: imEnd, replaces: true, thought: think},
	"minicpm_o":                {system: imSystem, user: imUser, answer: imAnswer, base: "You are a helpful assistant. You can accept audio and text input and output voice and text.", ends: imEnd},
	"minicpm_v":                {system: imSystem, user: imUser, answer: imAnswer, base: "You are a helpful assistant.", ends: imEnd},
	"minicpm_v_4_6":            {system: imSystem, user: imUser, answer: imAnswer, base: "You are a helpful assistant.", ends: imEnd},
	"minimax1":                 {system: []string{"<beginning_of_sentence>system ai_setting=assistant\n§<end_of_sentence>\n"}, user: []string{"<beginning_of_sentence>user name=user\n§<end_of_sentence>\n<beginning_of_sentence>ai name=assistant\n"}, answer: []string{"§<end_of_sentence>\n"}, base: "You are a helpful assistant.", ends: []string{"<end_of_sentence>"}},
	"minimax2":                 {system: []string{"]~!b[]~b]system\n§[e~[\n"}, user: []string{"]~b]user\n§[e~[\n]~b]ai\n"}, answer: []string{"§[e~[\n"}, base: "You are a helpful assistant. Your name is MiniMax-M2.1 and is built by MiniMax.", ends: []string{"[e~["}, thought: think},
	"ministral":                {prefix: []string{bos}, system: []string{"§\n\n"}, user: []string{"[INST]§[/INST]"}, merged: true},
	"ministral3":               {prefix: []string{bos}, system: []string{"§\n\n"}, user: []string{"[INST]§[/INST]"}, merged: true},
	"mistral":                  {prefix: []string{bos}, system: []string{"§\n\n"}, user: []string{"[INST] §[/INST]"}, answer: []string{" §", eos}, merged: true},
	"mistral_small":            {prefix: []string{bos}, system: []string{"[SYSTEM_PROMPT]§[/SYSTEM_PROMPT]"}, user: []string{"[INST]§[/INST]"}},
	"mllama":                   {prefix: []string{bos}, system: llama3System, user: llama3User, answer: llama3Answer, ends: llama3Ends, replaces: true},
	"moonlight":                {system: []string{"<|im_system|>system<|im_middle|>§<|im_end|>"}, user: []string{"<|im_user|>user<|im_middle|>§<|im_end|><|im_assistant|>assistant<|im_middle|>"}, answer: []string{"§<|im_end|>"}, base: "You are a helpful assistant provided by Moonshot-AI.", ends: imEnd, replaces: true},
	"olmo":                     {prefix: []string{eos}, user: []string{"<|user|>\n§<|assistant|>\n"}},
	"openchat":                 {prefix: []string{bos}, user: []string{"GPT4 Correct User: §", eos, "GPT4 Correct Assistant:"}},
	"openchat-3.6":             {prefix: []string{bos}, user: []string{"<|start_header_id|>GPT4 Correct User<|end_header_id|>\n\n§<|eot_id|><|start_header_id|>GPT4 Correct Assistant<|end_header_id|>\n\n"}, ends: []string{"<|eot_id|>"}},
	"opencoder":                {system: imSystem, user: imUser, answer: imAnswer, base: "You are OpenCoder, created by OpenCoder Team.", ends: imEnd},
	"paligemma":                {prefix: []string{bos}, user: []string{"§\n"}, merged: true},
	"paligemma_chat":           {prefix: []string{bos}, user: gemmaUser, answer: gemmaAnswer, ends: []string{"<end_of_turn>"}, replaces: true, merged: true},
	"phi":                      {system: []string{"<|system|>\n§<|end|>\n"}, user: []string{"<|user|>\n§<|end|>\n<|assistant|>\n"}, answer: []string{"§<|end|>\n"}, ends: []string{"<|end|>"}, replaces: true},
	"phi4":                     {system: []string{"<|im_start|>system<|im_sep|>§<|im_end|>"}, user: []string{"<|im_start|>user<|im_sep|>§<|im_end|><|im_start|>assistant<|im_sep|>"}, answer: []string{"§<|im_end|>"}, ends: imEnd, replaces: true},
	"phi4_mini":                {system: []string{"<|system|>§<|end|>"}, user: []string{"<|user|>§<|end|><|assistant|>"}, answer: []string{"§<|end|>"}, ends: []string{"<|end|>"}, replaces: true},
	"phi_small":                {system: []string{"<|system|>\n§<|end|>\n"}, user: []string{"<|user|>\n§<|end|>\n<|assistant|>\n"}, answer: []string{"§<|end|>\n"}, ends: []string{"<|end|>"}, replaces: true},
	"pixtral":                  {prefix: []string{bos}, system: []string{"§\n\n"}, user: []string{"[INST]§[/INST]"}, merged: true},
	"qwen":                     {system: imSystem, user: imUser, answer: imAnswer, base: "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", ends: imEnd, replaces: true},
	"qwen2_audio":              {system: imSystem, user: imUser, answer: imAnswer, base: "You are a helpful assistant.", ends: imEnd, replaces: true},
	"qwen2_omni":               {system: imSystem, user: imUser, answer: imAnswer, base: "You are a helpful assistant.", ends: imEnd, replaces: true},
	"qwen2_vl":                 {system: imSystem, user: imUser, answer: imAnswer, base: "You are a helpful assistant.", ends: imEnd, replaces: true},
	"qwen3":                    {system: imSystem, user: imUser, answer: imAnswer, ends: imEnd, replaces: true, thought: think},
	"qwen3_5":                  {system: imSystem, user: imUser, answer: imAnswer, ends: imEnd, replaces: true, thought: think},
	"qwen3_5_nothink":          {system: imSystem, user: imUser, answer: imAnswer, ends: imEnd, replaces: true},
	"qwen3_6":                  {system: imSystem, user: imUser, answer: imAnswer, ends: imEnd, replaces: true, thought: think},
	"qwen3_nothink":            {system: imSystem, user: imUser, answer: imAnswer, ends: imEnd, replaces: true},
	"qwen3_omni":               {system: imSystem, user: imUser, answer: imAnswer, ends: imEnd, replaces: true, thought: think},
	"qwen3_omni_nothink":       {system: imSystem, user: imUser, answer: imAnswer, ends: imEnd, replaces: true},
	"qwen3_vl":                 {system: imSystem, user: imUser, answer: imAnswer, ends: imEnd, replaces: true, thought: think},
	"qwen3_vl_nothink":         {system: imSystem, user: imUser, answer: imAnswer, ends: imEnd, replaces: true},
	"sailor":                   {system: imSystem, user: []string{"<|im_start|>question\n§<|im_end|>\n<|im_start|>answer\n"}, answer: imAnswer, base: "You are an AI assistant named Sailor created by Sea AI Lab. Your answer should be friendly, unbiased, faithful, informative and detailed.", ends: imEnd},
	"seed_coder":               {system: []string{bos, "system\n§", eos}, user: []string{bos, "user\n§", eos, bos, "assistant\n"}, base: "You are an AI programming assistant, utilizing the Seed-Coder model, developed by ByteDance Seed, and you only answer questions related to computer science. For politically sensitive questions, security and privacy issues, and other non-computer science questions, you will refuse to answer.\n\n"},
	"seed_oss":                 {system: []string{bos, "system\n§", eos}, user: []string{bos, "user\n§", eos, bos, "assistant\n"}, thought: [2]string{"<seed:think>", "</seed:think>"}},
	"smollm":                   {system: imSystem, user: imUser, answer: imAnswer, ends: imEnd},
	"smollm2":                  {system: imSystem, user: imUser, answer: imAnswer, base: "You are a helpful AI assistant named SmolLM, trained by Hugging Face.", ends: imEnd},
	"solar":                    {system: []string{"### System:\n§\n\n"}, user: []string{"### User:\n§\n\n### Assistant:\n"}, efficient: true},
	"starchat":                 {system: []string{"<|system|>\n§<|end|>\n"}, user: []string{"<|user|>\n§<|end|>\n<|assistant|>"}, answer: []string{"§<|end|>\n"}, ends: []string{"<|end|>"}},
	"telechat2":                {system: []string{"<_system>§"}, user: []string{"<_user>§<_bot>"}, base: "你是中国电信星辰语义大模型，英文名是TeleChat，你是由中电信人工智能科技有限公司和中国电信人工智能研究院（TeleAI）研发的人工智能助手。"},
	"vicuna":                   {user: vicunaUser, base: "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the user's questions."},
	"video_llava":              {user: vicunaUser, base: "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the user's questions."},
	"xuanyuan":                 {user: []string{"Human: § Assistant:"}, base: "以下是用户和人工智能助手之间的对话。用户以Human开头，人工智能助手以Assistant开头，会对人类提出的问题给出有帮助、高质量、详细和礼貌的回答，并且总是拒绝参与与不道德、不安全、有争议、政治敏感等相关的话题、问题和指示。\n"},
	"yi":                       {system: imSystem, user: imUser, answer: imAnswer, ends: imEnd},
	"youtu":                    {prefix: []string{bos}, system: []string{"§"}, user: []string{"<|User|>§<|Assistant|>"}, answer: []string{"§<|end_of_text|>"}, ends: []string{"<|end_of_text|>"}, replaces: true, thought: think},
	"youtu_vl":                 {system: []string{"<|begin_of_text|>system\n§<|end_of_text|>\n"}, user: []string{"<|begin_of_text|>user\n§<|end_of_text|>\n<|begin_of_text|>assistant\n"}, answer: []string{"§<|end_of_text|>\n"}, base: "You are a helpful assistant.", ends: []string{"<|end_of_text|>"}},
	"yuan":                     {user: []string{"§", token + "<sep>"}, answer: []string{"§<eod>\n"}, ends: []string{"<eod>"}},
	"zephyr":                   {system: []string{"<|system|>\n§", eos}, user: []string{"<|user|>\n§", eos, "<|assistant|>\n"}, base: "You are Zephyr, a helpful assistant."},
}
