package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"mt/data/jinja"
)

// conversation is a chat in the form that chat templates take: messages with roles, and the tools that the model may
// call.
type conversation struct {
	messages []any    // *jinja.Object with role and content
	names    []string // names of the messages in errors, by their place in the row: "messages[2]"
	tools    []any    // nil: none
	vars     *jinja.Object
	// from is the index of the first message that may be in the loss; earlier messages are context only.
	from int
	// plain reports that the row is a prompt and its answer, which need no chat template. verbatim reports that the
	// two are concatenated without anything between.
	plain, verbatim bool
}

// conversation parses a row to train on, whose columns are c, and checks the order of its turns. Errors name the
// field, the value and what to do.
func (c *columns) conversation(f format, fields map[string]json.RawMessage) (*conversation, error) {
	v, err := c.turns(f, fields)
	if err != nil {
		return nil, err
	}
	return v, v.check()
}

// noImages returns an error if a row has images or other media. The model would learn answers without seeing what
// they are about.
func noImages(fields map[string]json.RawMessage) error {
	for _, k := range notText {
		if raw := given(fields[k]); raw != nil && !slices.Contains([]string{"[]", `""`, "{}"}, string(raw)) {
			return fmt.Errorf("%s is %s; mt trains on text alone, and a model with a vision tower on its text part: remove the row, or the field if the text makes sense without", k, clip(raw))
		}
	}
	return nil
}

// notText are the usual names of fields with media.
var notText = []string{"images", "image", "videos", "video", "audios", "audio"}

// noImageColumns is noImages for a table or Parquet file, given the names of its columns. Columns with media are
// never read from such a file, so noImages would not find them in the rows.
func noImageColumns(names []string) error {
	about := slices.IndexFunc(names, func(n string) bool { return slices.Contains(notText, n) })
	for _, m := range marks {
		if about >= 0 && m.format.kind() == kindChat && slices.Contains(names, m.field) {
			return fmt.Errorf("a column %q beside the column %q; mt trains on text alone, and a model with a vision tower on its text part: "+
				"remove the rows with images and then that column, or the column alone if the text makes sense without", names[about], m.field)
		}
	}
	return nil
}

// turns parses a row of the format f into a conversation. It checks the row's fields, but not the
// order of the turns.
func (c *columns) turns(f format, fields map[string]json.RawMessage) (*conversation, error) {
	if err := checkUTF8(fields); err != nil {
		return nil, err
	}
	if err := noImages(fields); err != nil {
		return nil, err
	}
	if err := checkLabel(fields); err != nil {
		return nil, err
	}
	v := &conversation{}
	var err error
	switch f {
	case fmtAlpaca:
		err = c.alpaca(v, fields)
	case fmtPrompt:
		err = c.prompt(v, fields)
	default:
		err = c.chat(v, fields)
	}
	if err != nil {
		return nil, err
	}
	return v, c.extras(v, fields)
}

// extras parses the row's tools and its variables for the chat template (chat_template_kwargs) into
// v.
func (c *columns) extras(v *conversation, fields map[string]json.RawMessage) (err error) {
	if v.tools, err = c.toolsOf(fields); err != nil {
		return err
	}
	if raw := given(fields["chat_template_kwargs"]); raw != nil {
		vars, err := jinja.DecodeJSON(raw)
		if text, ok := vars.(string); ok { // JSON in text, as in tables
			vars, err = jinja.DecodeJSON([]byte(text))
		}
		o, ok := vars.(*jinja.Object)
		switch {
		case err != nil:
			return fmt.Errorf("chat_template_kwargs: %w; it must be an object", err)
		case !ok:
			return fmt.Errorf("chat_template_kwargs is %s; it must be an object", clip(raw))
		}
		for _, name := range OwnVars {
			if _, has := o.Get(name); has {
				return fmt.Errorf("chat_template_kwargs has %s, which mt sets itself; remove it there", name)
			}
		}
		v.vars = o
	}
	return nil
}

// checkUTF8 returns an error if a field of the row is not valid UTF-8.
func checkUTF8(fields map[string]json.RawMessage) error {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if err := notUTF8(name, fields[name]); err != nil {
			return err
		}
	}
	return nil
}

// notUTF8 returns an error that names the first invalid byte of text; nil: text is valid UTF-8. name says in the
// error what the text is.
func notUTF8(name string, text []byte) error {
	if utf8.Valid(text) {
		return nil
	}
	at := 0
	for {
		r, n := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && n == 1 {
			return fmt.Errorf("%s is no valid UTF-8: byte %d is 0x%02x; convert the file (iconv -t UTF-8)", name, at, text[at])
		}
		at += n
	}
}

// add appends a turn with this role and plain text as its content.
func (v *conversation) add(role, content string) {
	v.messages = append(v.messages, jinja.NewObject("role", role, "content", content))
	v.names = append(v.names, "the "+role+"'s turn")
}

// textField returns the content of an optional field; "": it is absent or null. A value other than a string is an
// error.
func textField(name string, fields map[string]json.RawMessage) (string, error) {
	if name == "" {
		return "", nil
	}
	raw := given(fields[name])
	if raw == nil {
		return "", nil
	}
	if raw[0] != '"' {
		return "", fmt.Errorf("%s is %s; it must be a string", name, clip(raw))
	}
	if err := halfSurrogate(name, raw); err != nil {
		return "", err
	}
	return string(unquote(nil, raw[1:len(raw)-1])), nil
}

// alpaca parses a row with the fields instruction, input, output, system and history into v.
func (c *columns) alpaca(v *conversation, fields map[string]json.RawMessage) error {
	answer, err := textField(c.Response, fields)
	switch {
	case err != nil:
		return err
	case given(fields[c.Response]) == nil:
		return missingField(c.Response, fields)
	}
	if err := c.question(v, fields); err != nil {
		return err
	}
	v.add("assistant", answer)
	v.plain = true
	return nil
}

// question adds the system turn, the turns of the history, and then the user turn, which joins instruction and input.
func (c *columns) question(v *conversation, fields map[string]json.RawMessage) error {
	var parts [3]string // system, instruction, input
	for i, name := range []string{c.System, c.Prompt, c.Query} {
		var err error
		if parts[i], err = textField(name, fields); err != nil {
			return err
		}
	}
	if parts[1] == "" && parts[2] == "" {
		return fmt.Errorf("%s is empty or missing; remove the row", c.Prompt)
	}
	if parts[0] != "" {
		v.add("system", parts[0])
	}
	if err := c.addHistory(v, fields); err != nil {
		return err
	}
	query := parts[1]
	if query != "" && parts[2] != "" {
		query += "\n"
	}
	v.add("user", query+parts[2])
	if parts[1] != "" && parts[2] != "" { // for templates that place them separately
		asked := v.messages[len(v.messages)-1].(*jinja.Object)
		asked.Set("instruction", parts[1])
		asked.Set("input", parts[2])
	}
	return nil
}

// addHistory adds the turns of the field history: a list of [question, answer] pairs that come before the row's own
// question.
func (c *columns) addHistory(v *conversation, fields map[string]json.RawMessage) error {
	raw := given(fields[c.History])
	if c.History == "" || raw == nil {
		return nil
	}
	if err := halfSurrogate(c.History, raw); err != nil {
		return err
	}
	var pairs [][]string
	if err := json.Unmarshal(raw, &pairs); err != nil {
		return fmt.Errorf("%s is %s; it must be a list of pairs of strings", c.History, clip(raw))
	}
	for i, p := range pairs {
		if len(p) != 2 {
			return fmt.Errorf("%s[%d] has %d strings; it must have two, a prompt and its answer", c.History, i, len(p))
		}
		v.add("user", p[0])
		v.add("assistant", p[1])
	}
	return nil
}

// prompt parses a prompt and its completion into v. Both are strings or both are lists of messages.
func (c *columns) prompt(v *conversation, fields map[string]json.RawMessage) error {
	p, r := given(fields[c.Prompt]), given(fields[c.Response])
	switch {
	case p == nil:
		return missingField(c.Prompt, fields)
	case r == nil:
		return missingField(c.Response, fields)
	}
	if p[0] == '[' && r[0] == '[' {
		if err := c.list(v, c.Prompt, p); err != nil {
			return err
		}
		v.from = len(v.messages)
		return c.list(v, c.Response, r)
	}
	system, err := textField(c.System, fields)
	if err != nil {
		return err
	}
	prompt, err := textField(c.Prompt, fields)
	if err != nil {
		return err
	}
	response, err := textField(c.Response, fields)
	if err != nil {
		return err
	}
	if prompt == "" {
		return fmt.Errorf("%s is empty; remove the row, or give text alone", c.Prompt)
	}
	if system != "" {
		v.add("system", system)
	}
	v.add("user", prompt)
	v.add("assistant", response)
	v.plain, v.verbatim = true, true
	return nil
}

// chat parses a list of messages into v. The system message stands in a field of its own or in the list.
func (c *columns) chat(v *conversation, fields map[string]json.RawMessage) error {
	raw := given(fields[c.Messages])
	if raw == nil {
		return missingField(c.Messages, fields)
	}
	system, err := textField(c.System, fields)
	if err != nil {
		return err
	}
	if system != "" {
		v.add("system", system)
	}
	return c.list(v, c.Messages, raw)
}

// check returns an error if the turns stand in an order that cannot be trained on, such as a chat without an answer.
func (v *conversation) check() error {
	answers := 0
	for i, m := range v.messages {
		switch role := roleOf(m); {
		case role == "system" || role == "developer":
			continue
		case role == "assistant" && !slices.ContainsFunc(v.messages[:i], func(m any) bool { return roleOf(m) == "user" || roleOf(m) == "tool" }):
			return errors.New("the assistant's turn comes first; a chat begins with the user's: remove that turn, or the row")
		case role == "assistant" && i >= v.from:
			answers++
		}
	}
	if answers == 0 {
		return &badRow{class: classUnsupervised, err: errors.New("no token is supervised: no turn is the assistant's; remove the row")}
	}
	return nil
}

func roleOf(m any) string {
	role, _ := m.(*jinja.Object).Get("role")
	s, _ := role.(string)
	return s
}

// toolsIn returns the name of the field that holds a row's tools; "": the format has no such field. If the usual
// field tools is missing, it is functions, OpenAI's older name.
func (c *columns) toolsIn(fields map[string]json.RawMessage) string {
	if c.Tools == usualTools && given(fields[usualTools]) == nil && given(fields[olderTools]) != nil {
		return olderTools
	}
	return c.Tools
}

const (
	usualTools = "tools"
	olderTools = "functions"
)

// toolsOf returns the tools of a row; nil: none. They are a list, or a string that holds the list as JSON. In
// ShareGPT and in OpenAI's older field the list holds plain functions, which are wrapped as tools.
func (c *columns) toolsOf(fields map[string]json.RawMessage) ([]any, error) {
	name := c.toolsIn(fields)
	raw := given(fields[name])
	if raw == nil {
		return nil, nil
	}
	text := []byte(raw)
	if raw[0] == '"' {
		if err := halfSurrogate(c.Tools, raw); err != nil {
			return nil, err
		}
		if text = unquote(nil, raw[1:len(raw)-1]); len(strings.TrimSpace(string(text))) == 0 {
			return nil, nil
		}
	}
	tools, err := jinja.DecodeJSON(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; it must be a list of tools, or a string that holds one", name, err)
	}
	list, ok := tools.([]any)
	if !ok && tools != nil {
		return nil, fmt.Errorf("%s is %s; it must be a list of tools", name, clip(text))
	}
	for i, t := range list {
		o, ok := t.(*jinja.Object)
		if !ok {
			return nil, fmt.Errorf("%s[%d] is %s; it must be an object", name, i, clipValue(t))
		}
		if c.Role == columnsOf(fmtShareGPT).Role || name == olderTools {
			list[i] = wrapped(o)
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	return list, nil
}

// list appends the messages in field, whose JSON is raw, to v.
func (c *columns) list(v *conversation, field string, raw []byte) error {
	decoded, err := jinja.DecodeJSON(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	messages, ok := decoded.([]any)
	text, _ := decoded.(string)
	switch {
	case strings.HasPrefix(text, "[{'"):
		return fmt.Errorf("%s is %s, a list as Python prints it and not JSON; write the rows as JSONL or Parquet, which keep lists", field, clip(raw))
	case strings.HasPrefix(text, "["):
		return fmt.Errorf("%s is %s, a text that begins like a list in JSON and is none; it may be cut off", field, clip(raw))
	case !ok:
		return fmt.Errorf("%s is %s; it must be a list of messages", field, clip(raw))
	case len(messages) == 0:
		return fmt.Errorf("%s is empty; remove the row", field)
	}
	for i, m := range messages {
		where := fmt.Sprintf("%s[%d]", field, i)
		o, ok := m.(*jinja.Object)
		if !ok {
			return fmt.Errorf("%s is %s; it must be an object with %s and %s", where, clipValue(m), c.Role, c.Content)
		}
		if o, err = c.message(o, where); err != nil {
			return err
		}
		v.messages, v.names = append(v.messages, o), append(v.names, where)
	}
	return nil
}

// message returns m, a message of a row, with the field names that chat templates expect. Null
// fields are dropped, except for content. Parquet stores a field in all messages or in none, so an
// absent field is null there. In errors, where locates m.
func (c *columns) message(m *jinja.Object, where string) (*jinja.Object, error) {
	role, err := c.role(m, where)
	if err != nil {
		return nil, err
	}
	if err := checkMarks(m, role, where); err != nil {
		return nil, err
	}
	content, has := m.Get(c.Content)
	if role == functionCall {
		call, err := called(content, where+"."+c.Content)
		if err == nil {
			copyMarks(call, m)
		}
		return call, err
	}
	out := jinja.NewObject("role", role)
	calls, err := callsOf(m, where)
	switch {
	case err != nil:
		return nil, err
	case has:
		if content, err = contentOf(content, where+"."+c.Content); err != nil {
			return nil, err
		}
		if content == nil && (role != "assistant" || calls == nil) {
			return nil, fmt.Errorf("%s.%s is null; it must be a string", where, c.Content)
		}
		out.Set("content", content)
	case calls == nil || role != "assistant":
		return nil, fmt.Errorf("%s has no %s", where, c.Content)
	default: // OpenAI's messages with calls have null content or none
		out.Set("content", nil)
	}
	for _, k := range m.Keys() {
		if v, _ := m.Get(k); v != nil && k != c.Role && k != c.Content && k != "tool_calls" && k != functionCall {
			out.Set(k, v)
		}
	}
	if calls != nil {
		out.Set("tool_calls", calls)
	}
	return out, nil
}

// turnMark is a message's field by which another program says whether to train on the message.
type turnMark struct {
	field string
	whose string // the program that uses the field
	skips bool   // true means not trained on
}

// turnMarks are the fields of messages by which other programs say whether to train on a message; docs/data.md lists
// them.
var turnMarks = []turnMark{
	{field: "weight", whose: "OpenAI"}, {field: "loss", whose: "ms-swift"}, {field: "loss_scale", whose: "ms-swift"},
	{field: "train", whose: "axolotl"}, {field: "training", whose: "axolotl"}, {field: "loss_mask", whose: "slime"}, {field: "step_loss_mask", whose: "slime"},
	{field: "loss_weight", whose: "LLaMA-Factory v1"}, {field: "trainable", whose: "Tinker"},
	{field: "masked", skips: true, whose: "torchtune"},
}

// partMarks are axolotl's fields that select parts of a message for training. mt cannot follow them, so they are
// errors.
var partMarks = []string{"train_detail", "training_detail"}

// checkMarks returns an error if mt cannot follow a field of message m that says whether to train
// on m (see turnMarks). There are three cases: a value that is neither yes nor no, a request to
// train on a role that is never trained on, and a selection of parts of the message. In errors,
// where locates m.
func checkMarks(m *jinja.Object, role, where string) error {
	for _, mark := range turnMarks {
		v, _ := m.Get(mark.field)
		if v == nil {
			continue
		}
		on, known := yesNo(v)
		switch {
		case !known:
			return fmt.Errorf("%s.%s is %s (%s's mark of what is trained on): mt trains on a message or not, so it must be 0 or 1, true or false", where, mark.field, clipValue(v), mark.whose)
		case on && mark.whose == "axolotl" && role != "assistant" && role != functionCall:
			return fmt.Errorf("%s.%s is %s: the message is the %s's, and mt trains on the assistant's alone; set it to false", where, mark.field, clipValue(v), role)
		}
	}
	for _, field := range partMarks {
		if v, _ := m.Get(field); v != nil {
			return fmt.Errorf("%s.%s divides the message into parts, and mt trains on a message as a whole; remove it, or write the parts as turns", where, field)
		}
	}
	return nil
}

// yesNo interprets a value (a boolean, a number or a text) as yes or no; known is false if it is neither.
func yesNo(v any) (yes, known bool) {
	switch v := v.(type) {
	case bool:
		return v, true
	case int64:
		return v == 1, v == 0 || v == 1
	case float64:
		return v == 1, v == 0 || v == 1
	case string:
		text := strings.ToLower(strings.TrimSpace(v))
		yes = slices.Contains([]string{"1", "1.0", "true"}, text)
		return yes, yes || slices.Contains([]string{"0", "0.0", "false"}, text)
	}
	return false, false
}

// copyMarks copies the fields that say whether to train on a message (turnMarks) from one message
// to another.
func copyMarks(to, from *jinja.Object) {
	for _, mark := range turnMarks {
		if v, _ := from.Get(mark.field); v != nil {
			to.Set(mark.field, v)
		}
	}
}

// weightless reports whether a field of message m, such as weight 0, excludes the message from
// training.
func weightless(m any) bool {
	o := m.(*jinja.Object)
	return slices.ContainsFunc(turnMarks, func(mark turnMark) bool {
		v, _ := o.Get(mark.field)
		on, known := yesNo(v)
		return known && on == mark.skips
	})
}

// notAnswers are fields of a row that say, when false, that the answer is a bad example. Sources: TRL's KTOTrainer
// (label), LLaMA-Factory's kto_tag.
var notAnswers = []string{"label", "kto_tag"}

// checkLabel returns an error if a field of notAnswers marks the answer of this chat row as a bad example.
func checkLabel(fields map[string]json.RawMessage) error {
	for _, name := range notAnswers {
		if string(fields[name]) == "false" {
			return fmt.Errorf("%s is false: the answer is marked as one not to give (unpaired preferences, for KTO), which mt does not train on; remove the row", name)
		}
	}
	return nil
}

// role returns the role of message m, translated to the name that chat templates use. where locates m in errors.
func (c *columns) role(m *jinja.Object, where string) (string, error) {
	v, ok := m.Get(c.Role)
	if !ok {
		return "", fmt.Errorf("%s has no %s", where, c.Role)
	}
	name, _ := v.(string)
	role, ok := c.Roles[name]
	if !ok {
		return "", fmt.Errorf("%s.%s is %s; known roles are %s", where, c.Role, clipValue(v), strings.Join(slices.Sorted(maps.Keys(c.Roles)), ", "))
	}
	return role, nil
}

// Values of the field type in the parts of a message's content. textParts mark text, thoughtParts a model's
// reasoning. input_text and output_text are from OpenAI's Responses API.
var (
	textParts    = []string{"text", "input_text", "output_text"}
	thoughtParts = []string{"thinking", "reasoning"}
)

// contentOf returns a message's content v in the form that templates take: a string or a list of parts. nil stays
// nil. Null fields of parts are dropped. where locates the message in errors.
func contentOf(v any, where string) (any, error) {
	list, ok := v.([]any)
	if !ok {
		if _, ok := v.(string); ok || v == nil {
			return v, nil
		}
		return nil, fmt.Errorf("%s is %s; it must be a string, or a list of text parts", where, clipValue(v))
	}
	parts := make([]any, len(list))
	for i, part := range list {
		if s, ok := part.(string); ok {
			parts[i] = s
			continue
		}
		o, ok := part.(*jinja.Object)
		if !ok {
			return nil, fmt.Errorf("%s[%d] is %s; it must be a part with type and text", where, i, clipValue(part))
		}
		kind, _ := o.Get("type")
		name, _ := kind.(string)
		if !slices.Contains(textParts, name) && !slices.Contains(thoughtParts, name) {
			return nil, fmt.Errorf("%s[%d].type is %s; mt reads text alone", where, i, clipValue(kind))
		}
		out := jinja.NewObject()
		for _, k := range o.Keys() {
			if v, _ := o.Get(k); v != nil {
				out.Set(k, v)
			}
		}
		if slices.Contains(textParts, name) {
			out.Set("type", "text")
		}
		if key, _ := partText(out); key == "" {
			text, _ := o.Get(name)
			return nil, fmt.Errorf("%s[%d].text is %s; it must be a string", where, i, clipValue(text))
		}
		parts[i] = out
	}
	return parts, nil
}

// partText returns the text of a content part and the name of the field that holds it. Both are "" if the part has no
// text.
func partText(part *jinja.Object) (key, text string) {
	keys := []string{"text"}
	if isThought(part) {
		keys = []string{"thinking", "reasoning", "text"}
	}
	for _, key := range keys {
		v, _ := part.Get(key)
		if text, ok := v.(string); ok {
			return key, text
		}
	}
	return "", ""
}

// isThought reports whether a content part is a thought, the model's reasoning before its answer.
func isThought(part any) bool {
	o, ok := part.(*jinja.Object)
	if !ok {
		return false
	}
	kind, _ := o.Get("type")
	name, _ := kind.(string)
	return slices.Contains(thoughtParts, name)
}

// contentText returns the text of a message's content and, separately, the text of those parts that
// hold the model's thoughts. It puts between between the texts of two parts.
func contentText(content any, between string) (text, thought string) {
	if s, ok := content.(string); ok {
		return s, ""
	}
	list, _ := content.([]any)
	var said, thoughts []string
	for _, part := range list {
		s, _ := part.(string)
		if o, ok := part.(*jinja.Object); ok {
			_, s = partText(o)
		}
		if isThought(part) {
			thoughts = append(thoughts, s)
		} else {
			said = append(said, s)
		}
	}
	return strings.Join(said, between), strings.Join(thoughts, between)
}

// called returns an assistant message that calls functions. content is a string that holds the calls as JSON: one
// object {"name", "arguments"} or a list of them. where locates the message in errors.
func called(content any, where string) (*jinja.Object, error) {
	text, ok := content.(string)
	if !ok {
		return nil, fmt.Errorf("%s is %s; a function call is a string that holds JSON", where, clipValue(content))
	}
	v, err := jinja.DecodeJSON([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("%s is %s: %w; a function call is JSON with name and arguments", where, clip([]byte(text)), err)
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	calls := make([]any, len(list))
	for i, c := range list {
		call, err := callOf(c, where)
		if err != nil {
			return nil, err
		}
		calls[i] = wrapped(call)
	}
	return jinja.NewObject("role", "assistant", "content", "", "tool_calls", calls), nil
}

// callsOf returns the tool_calls of message m; nil: none. If the message has the field
// function_call, OpenAI's older form, this is its single call. A message with both fields must give
// the same call in both. where locates m in errors.
func callsOf(m *jinja.Object, where string) ([]any, error) {
	v, _ := m.Get("tool_calls")
	if text, ok := v.(string); ok {
		if inside, err := jinja.DecodeJSON([]byte(text)); err == nil {
			v = inside
		}
	}
	if one, _ := m.Get(functionCall); one != nil {
		call, err := callOf(jinja.NewObject("type", "function", "function", one), where+"."+functionCall)
		if err != nil {
			return nil, err
		}
		if list, ok := v.([]any); v == nil || ok && len(list) == 0 {
			return []any{call}, nil
		} else if ok && len(list) == 1 && sameCall(list[0], call) {
			return callsIn(list, where)
		}
		return nil, fmt.Errorf("%s has %s beside tool_calls that say something else, and a message's calls are in one of them: move the call into tool_calls, or remove one of the two", where, functionCall)
	}
	if v == nil {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("%s.tool_calls is %s; it must be a list", where, clipValue(v))
	}
	if len(list) == 0 {
		return nil, nil
	}
	return callsIn(list, where)
}

// callsIn parses each call in list, the value of a message's tool_calls. where locates the message in errors.
func callsIn(list []any, where string) ([]any, error) {
	calls := make([]any, len(list))
	for i, c := range list {
		var err error
		if calls[i], err = callOf(c, fmt.Sprintf("%s.tool_calls[%d]", where, i)); err != nil {
			return nil, err
		}
	}
	return calls, nil
}

// sameCall reports whether the calls a and b name the same function with the same arguments. The
// arguments may be an object in one call and JSON text in the other.
func sameCall(a, b any) bool {
	var plain [2]any
	for i, c := range []any{a, b} {
		o, ok := c.(*jinja.Object)
		if !ok {
			return false
		}
		arguments, _ := innerOf(decodeArguments.call(o)).Get("arguments")
		plain[i] = jinja.NewObject("name", functionOf(o), "arguments", arguments)
	}
	return sameMessage(plain[0], plain[1])
}

// callOf returns the call v without its null fields. Arguments given as a string must be valid JSON. where locates
// the call in errors.
func callOf(v any, where string) (*jinja.Object, error) {
	call, ok := v.(*jinja.Object)
	if !ok {
		return nil, fmt.Errorf("%s is %s; a call is an object with name and arguments", where, clipValue(v))
	}
	out := jinja.NewObject()
	inner, result := call, out
	for _, k := range call.Keys() {
		v, _ := call.Get(k)
		if k == "function" {
			where += ".function"
			if inner, ok = v.(*jinja.Object); !ok {
				return nil, fmt.Errorf("%s is %s; it must be an object with name and arguments", where, clipValue(v))
			}
			result = jinja.NewObject()
			v = result
		}
		if v != nil {
			out.Set(k, v)
		}
	}
	if name, _ := inner.Get("name"); name == nil {
		return nil, fmt.Errorf("%s has no name of a function", where)
	}
	for _, k := range inner.Keys() {
		v, _ := inner.Get(k)
		if s, ok := v.(string); ok && k == "arguments" {
			if _, err := jinja.DecodeJSON([]byte(s)); err != nil {
				return nil, fmt.Errorf("%s.arguments is %s, which is no whole JSON (%w); write the arguments out, {} where there are none, or remove the row", where, clipValue(v), err)
			}
		}
		if v != nil && (inner != call || k != "function") {
			result.Set(k, v)
		}
	}
	return out, nil
}

// clipValue returns a decoded JSON value as text, shortened for an error message.
func clipValue(v any) string {
	switch v := v.(type) {
	case nil:
		return "missing or null"
	case string:
		return fmt.Sprintf("%q", clip([]byte(v)))
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	case *jinja.Object:
		return fmt.Sprintf("an object with %q", v.Keys())
	}
	return fmt.Sprint(v)
}
