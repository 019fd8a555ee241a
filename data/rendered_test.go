package data

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"mt/data/jinja"
	"mt/data/tokenizer"
	"mt/internal/testkit"
)

// callingChat returns a row whose second message calls a tool. `more` is additional JSON of this
// message.
func callingChat(more string) string {
	return `{"tools":[{"name":"f"}],"messages":[{"role":"user","content":"h"},{"role":"assistant",` + more + `"tool_calls":[{"type":"function","function":{"name":"f","arguments":"{\"k\": \"None\"}"}}]},` +
		`{"role":"tool","content":"r"},{"role":"assistant","content":"g"}]}`
}

// TestContentBesideCalls: OpenAI's messages with tool calls have null content or none, and every
// kind of template accepts that. The tokens equal those of empty text. The exceptions are templates
// that test for null or write messages as JSON.
func TestContentBesideCalls(t *testing.T) {
	const (
		begin = "{% for m in messages %}{{ m.role[0] }}:"
		calls = "{% for c in m.tool_calls or [] %}!{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}"
		end   = "|{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
	)
	const want = `u:h|a:[!f{"k": "None"}|]t:r|a:[g|]`
	for name, body := range map[string]string{
		"prints it":        begin + "{{ m.content }}" + calls + end,
		"adds it to text":  begin + "{{ '' + m.content }}" + calls + end,
		"trims it":         begin + "{{ m.content.strip() }}" + calls + end,
		"asks for text":    begin + "{% if m.content is not string %}{{ raise_exception('no text') }}{% endif %}{{ m.content }}" + calls + end,
		"prints JSON":      begin + "{{ m.content if m.content is string else m.content | tojson }}" + calls + end,
		"tells it by none": begin + "{% if m.content is none %}" + calls + "{% else %}{{ m.content }}{% endif %}" + end,
		"asks for it":      begin + "{% if m.content is not defined %}{{ raise_exception('no content') }}{% endif %}{% if m.content %}{{ m.content }}{% endif %}" + calls + end,
	} {
		for _, content := range []string{`"content":null,`, ""} {
			d, err := Open(chatSpec(t, body, write(t, t.TempDir(), "a.jsonl", callingChat(content))))
			if err != nil {
				t.Errorf("a template that %s: %q: %v", name, content, err)
				continue
			}
			if got := masked(d.Row(0)); got != want {
				t.Errorf("a template that %s: %q: %q, want %q", name, content, got, want)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	const whole = `{% for m in messages %}{{ m.role[0] }}:{{ m | tojson }}|{% endfor %}{% if add_generation_prompt %}a:{% endif %}`
	if got := masked(mustOpen(t, chatSpec(t, whole, write(t, t.TempDir(), "a.jsonl", callingChat(`"content":null,`)))).Row(0)); !strings.Contains(got, `"content": null`) {
		t.Errorf("a template that writes messages as JSON: %s", got)
	}
	for row, want := range map[string]string{
		`{"messages":[{"role":"user","content":null},{"role":"assistant","content":"g"}]}`:                                                   "messages[0].content is null",
		`{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":null}]}`:                                                   "messages[1].content is null",
		`{"messages":[{"role":"user","content":"h"},{"role":"assistant"}]}`:                                                                  "messages[1] has no content",
		`{"messages":[{"role":"user","tool_calls":[{"name":"f","arguments":{}}]},{"role":"assistant","content":"g"}]}`:                       "messages[0] has no content",
		`{"messages":[{"role":"user","content":null,"tool_calls":[{"name":"f","arguments":{}}]},{"role":"assistant","content":"g"}]}`:        "messages[0].content is null",
		`{"chat_template_kwargs":{"messages":[]},"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"}]}`:             "chat_template_kwargs has messages, which mt sets itself",
		`{"chat_template_kwargs":{"add_generation_prompt":1},"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"}]}`: "add_generation_prompt",
	} {
		_, err := Open(chatSpec(t, small, write(t, t.TempDir(), "a.jsonl", row)))
		wantError(t, err, "a.jsonl:1: ", want)
	}
}

// TestTemplateErrors: a template's error names the file, the row, the message, the place in the template and what
// to do.
func TestTemplateErrors(t *testing.T) {
	const refuses = "{% for m in messages %}{% if m.content == 'x' %}{{ raise_exception('no x here') }}{% endif %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}{% endif %}"
	const fails = "{% for m in messages %}{{ m.content + m.more }}{% endfor %}"
	for _, c := range []struct {
		template, row string
		want          []string
	}{
		{refuses, chat("user", "h", "assistant", "x"), []string{"a.jsonl:2: messages[1]: the chat template refuses the row: ", "chat.jinja:1:", "no x here", "template: FILE", "skip_bad_rows"}},
		{refuses, share("human", "x", "gpt", "h"), []string{"a.jsonl:2: conversations[0]: the chat template refuses"}},
		{refuses, `{"system":"s","conversations":[{"from":"human","value":"x"},{"from":"gpt","value":"y"}]}`, []string{"a.jsonl:2: conversations[0]: "}},
		{refuses, `{"prompt":[{"role":"user","content":"h"}],"completion":[{"role":"assistant","content":"x"}]}`, []string{"a.jsonl:2: completion[0]: "}},
		{refuses, `{"instruction":"h","output":"x"}`, []string{"a.jsonl:2: the assistant's turn: the chat template refuses"}},
		{fails, chat("user", "h", "assistant", "g"), []string{"a.jsonl:2: messages[0]: the chat template fails: ", "chat.jinja:1:37", "template: FILE"}},
	} {
		_, err := Open(chatSpec(t, c.template, write(t, t.TempDir(), "a.jsonl", "\n"+c.row)))
		wantError(t, err, c.want...)
	}
}

// TestTurnsEnd: a turn that ends with a special token counts as ended even if white space follows
// the token.
func TestTurnsEnd(t *testing.T) {
	row := chat("user", "h", "assistant", "g", "user", "i", "assistant", "j")
	for end, missing := range map[string]int64{"{{ eos_token }}": 0, "{{ eos_token }}\\n": 0, "{{ eos_token }} \\n\\t": 0, "\\n": 1, "{{ eos_token }}.\\n": 1, "{{ eos_token }}\\n.": 1} {
		marked := "{% for m in messages %}{{ m.role[0] }}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}" + strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(end) + "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
		for _, whole := range []bool{false, true} {
			s := chatSpec(t, marked, write(t, t.TempDir(), "a.jsonl", row))
			s.TrainOnPrompt = whole
			d := mustOpen(t, s)
			if got := d.Stats().MissingEOS; got != missing || d.Pieces(0)[0].MissingEOS != (missing > 0) || len(d.Report().MissingEOS) != int(missing) || len(d.Warnings()) != int(missing) {
				t.Errorf("%q, train_on_prompt %v: %d without an end, want %d; %q", end, whole, got, missing, d.Warnings())
			}
		}
	}
}

// TestFlagsLeaveTheID: the flag of a document whose template leaves out text does not change the
// data set's ID, nor does any other flag that mt got after the ID was defined. Checkpoints compare
// this ID when a run resumes.
func TestFlagsLeaveTheID(t *testing.T) {
	ids := map[string]bool{}
	for _, text := range []string{"h", "hh"} { // the template writes one letter of either, so the tokens are the same
		s := chatSpec(t, "{% for m in messages %}{{ m.role[0] }}:{{ m.content | first }}|{% endfor %}{% if add_generation_prompt %}a:{% endif %}",
			write(t, t.TempDir(), "a.jsonl", chat("user", "h", "assistant", text)))
		d := mustOpen(t, s)
		if left := d.Stats().LeftText; left != int64(len(text)-1) {
			t.Errorf("%q: %d with text left out", text, left)
		}
		d.c.Files[0].SHA256 = "" // the files are not the same, only their tokens are
		ids[d.ID()] = true
	}
	if len(ids) != 1 {
		t.Errorf("%d IDs", len(ids))
	}
}

// TestAnswerSaidElsewhere: if the template cuts an answer, the answer counts as left out, even if
// another message has the same text.
func TestAnswerSaidElsewhere(t *testing.T) {
	s := chatSpec(t, "{% for m in messages %}{{ m.role[0] }}:{{ m.content | first if m.role == 'assistant' else m.content }}|{% endfor %}{% if add_generation_prompt %}a:{% endif %}",
		write(t, t.TempDir(), "a.jsonl", chat("user", "gh", "assistant", "gh")))
	if left := mustOpen(t, s).Stats().LeftText; left != 1 {
		t.Errorf("%d with text left out, want 1", left)
	}
}

// TestIDStays: the ID of one data set, whose turns end with a line break, is the recorded one. The
// ID must never change, since checkpoints compare it.
func TestIDStays(t *testing.T) {
	s := chatSpec(t, "{% for m in messages %}{{ m.role[0] }}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}\n{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
		write(t, t.TempDir(), "a.jsonl", chat("user", "h", "assistant", "g")))
	if got, want := mustOpen(t, s).ID(), "70a2d2c92b29d0c6eb961335fa4c0881"; got != want {
		t.Errorf("%s, and was %s", got, want)
	}
}

// TestLooseMarks: text that a template marks with {% generation %} after its loop over messages is
// supervised. If a setting needs to know which message the text belongs to, it is an error.
func TestLooseMarks(t *testing.T) {
	const loop = "{% for m in messages %}{{ m.role[0] }}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}.{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
	const tail = "{% generation %}{{ eos_token }}{% endgeneration %}"
	row := chat("user", "h", "assistant", "g", "user", "i", "assistant", "j")
	file := write(t, t.TempDir(), "a.jsonl", row)
	s := chatSpec(t, loop+tail, file)
	if got, want := masked(mustOpen(t, s).Row(0)), "uha[g.]uia[j.$]"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	s.MaskHistory = true
	if got, want := masked(mustOpen(t, s).Row(0)), "uhag.uia[j.$]"; got != want {
		t.Errorf("the last turn: %q, want %q", got, want)
	}
	const loose = "u{% generation %}a{% endgeneration %}"
	if got, want := masked(mustOpen(t, chatSpec(t, loose, file)).Row(0)), "u[a]"; got != want {
		t.Errorf("without a loop: %q, want %q", got, want)
	}
	s = chatSpec(t, loose, file)
	s.MaskHistory = true
	_, err := Open(s)
	wantError(t, err, "a.jsonl:1: ", "mask_history needs that: put them into the loop", "{% generation %}")
	_, err = Open(chatSpec(t, loose, write(t, t.TempDir(), "a.jsonl", `{"prompt":[{"role":"user","content":"h"},{"role":"assistant","content":"q"},{"role":"user","content":"h"}],"completion":[{"role":"assistant","content":"x"}]}`)))
	wantError(t, err, "a completion needs that")
	_, err = Open(chatSpec(t, loose, write(t, t.TempDir(), "a.jsonl", `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g","weight":0},{"role":"assistant","content":"g"}]}`)))
	wantError(t, err, "a turn of weight 0 needs that")
}

// TestTemplateVars: configured variables reach the template, and a row's own variables replace
// them. Other variables lead to another cache. A variable that no template reads gives a note.
func TestTemplateVars(t *testing.T) {
	const shows = `{{ level | tojson }}{{ deep | tojson }}{% for m in messages %}{{ m.role[0] }}:{{ m.content }}|{% endfor %}{% if add_generation_prompt %}a:{% endif %}`
	file := write(t, t.TempDir(), "a.jsonl", chat("user", "h", "assistant", "g")+"\n"+`{"chat_template_kwargs":{"level":"own"},"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"}]}`)
	s := chatSpec(t, shows, file)
	for _, c := range []struct {
		level any
		want  string
	}{{int64(1), "1"}, {1.0, "1.0"}, {"1", `"1"`}, {[]any{int64(1)}, "[1]"}, {[]any{nil, true}, "[null, true]"}} {
		s.TemplateVars = map[string]any{"level": c.level, "deep": map[string]any{"k": c.level}}
		d, cached := reopen(t, s)
		deep := `{"k": ` + c.want + `}`
		want := []string{c.want + deep + "u:h|a:[g|]", `"own"` + deep + "u:h|a:[g|]"}
		if got := maskedRows(d.All()); cached || !slices.Equal(got, want) || len(d.Notes()) != 0 {
			t.Errorf("%v: %q, want %q (cached %v, notes %q)", c.level, got, want, cached, d.Notes())
		}
		if _, cached := reopen(t, s); !cached {
			t.Errorf("%v: the cache is not found again", c.level)
		}
	}
	s.TemplateVars = map[string]any{"levl": true}
	s.Paths = []string{write(t, t.TempDir(), "a.jsonl", chat("user", "h", "assistant", "g"))}
	s.Template = write(t, t.TempDir(), "plain.jinja", small)
	if got := mustOpen(t, s).Notes(); len(got) != 1 || got[0] != "levl has no effect: the chat template does not read it" {
		t.Errorf("notes %q", got)
	}
	s.Template = "default"
	if got := mustOpen(t, s).Notes(); len(got) != 1 || got[0] != "levl has no effect: no chat template is used" {
		t.Errorf("notes %q", got)
	}
}

// TestLeftOut: thoughts, texts and calls that the template does not write are counted, each in its
// own field of Stats.
func TestLeftOut(t *testing.T) {
	const (
		turn     = "{% for m in messages %}{{ m.role[0] }}:"
		end      = "|{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
		thinking = turn + "{% if '</think>' in m.content %}{% if loop.last %}{{ m.content }}{% else %}{{ m.content.split('</think>')[-1].lstrip() }}{% endif %}{% else %}{{ m.content }}{% endif %}" + end
		either   = "{{ tools | tojson }}" + turn + "{% if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function | tojson }}{% endfor %}{% else %}{{ m.content }}{% endif %}" + end
		bare     = turn + "{{ m.content }}" + end
		spaced   = turn + "{% for l in m.content.split('\n') %}  {{ l | trim }}\n\n{% endfor %}" + end
		noSystem = "{% for m in messages if m.role != 'system' %}{{ m.role[0] }}:{{ m.content }}" + end
		apart    = "{{ messages[0].content }}{% for m in messages[1:] %}{{ m.role[0] }}:{{ m.content }}" + end
		results  = "{{ tools | tojson }}" + turn + "{% if m.role == 'tool' %}{{ m.content | tojson }}{% else %}{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}{% endif %}" + end
		reasons  = turn + "{% if m.reasoning_content and loop.last %}({{ m.reasoning_content }}){% endif %}{{ m.content }}" + end
	)
	thought := func(first, last string) string {
		return chat("user", "h", "assistant", first, "user", "i", "assistant", last)
	}
	reasoned := func(at int) string {
		more := [2]string{}
		more[at] = `,"reasoning_content":"because"`
		return `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"` + more[0] + `},{"role":"user","content":"h"},{"role":"assistant","content":"g"` + more[1] + `}]}`
	}
	for _, c := range []struct {
		name, template, row   string
		thoughts, text, calls int64
	}{
		{"all is written", thinking, thought("g", "<think>t</think>g"), 0, 0, 0},
		{"an earlier thought", thinking, thought("<think>\nt\nu\n</think>\ng", "<think>v</think>g"), 1, 0, 0},
		{"a thought without its opening mark", thinking, thought(`first\n</think>g`, "g"), 1, 0, 0},
		{"an empty thought", thinking, thought("<think>\n\n</think>g", "g"), 0, 0, 0},
		{"a thought that another turn repeats", thinking, thought("<think>same</think>g", "<think>same</think>g"), 1, 0, 0},
		{"reasoning of an earlier turn", reasons, reasoned(0), 1, 0, 0},
		{"reasoning of the last turn", reasons, reasoned(1), 0, 0, 0},
		{"text beside calls", either, callingChat(`"content":"let me see",`), 0, 1, 0},
		{"no text beside calls", either, callingChat(`"content":null,`), 0, 0, 0},
		{"calls and tools", bare, callingChat(`"content":"x",`), 0, 0, 1},
		{"a result as JSON", results, strings.Replace(callingChat(`"content":"",`), `"content":"r"`, `"content":"say \"a\\b\"\n<é>\n"`, 1), 0, 0, 0},
		{"lines with other spaces", spaced, chat("user", "  a\n\tb  \n", "assistant", "c\n\n d"), 0, 0, 0},
		{"a line is missing", turn + "{{ m.content.split('\n')[0] }}" + end, chat("user", "a\nb", "assistant", "c"), 0, 1, 0},
		{"lines in another order", turn + "{{ m.content.split('\n') | reverse | join('\n') }}" + end, chat("user", "aa\nbb", "assistant", "c"), 0, 1, 0},
		{"the system's turn", noSystem, chat("system", "be good", "user", "a", "assistant", "c"), 0, 1, 0},
		{"the system's turn apart", apart, chat("system", "be good", "user", "a", "assistant", "c"), 0, 0, 0},
	} {
		row := strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(c.row)
		d := mustOpen(t, chatSpec(t, c.template, write(t, t.TempDir(), "a.jsonl", row)))
		s, r, p := d.Stats(), d.Report(), d.Pieces(0)[0]
		if got, want := fmt.Sprint(s.LeftThinking, s.LeftText, s.LeftCalls), fmt.Sprint(c.thoughts, c.text, c.calls); got != want {
			t.Errorf("%s: thoughts, text, calls: %s, want %s: %s", c.name, got, want, masked(d.Row(0)))
		}
		if got, want := fmt.Sprint(len(r.LeftThinking), len(r.LeftText), len(r.LeftCalls), p.LeftThinking, p.LeftText, p.LeftCalls),
			fmt.Sprint(c.thoughts, c.text, c.calls, c.thoughts > 0, c.text > 0, c.calls > 0); got != want {
			t.Errorf("%s: the report says %s, want %s", c.name, got, want)
		}
		told := strings.Join(d.Warnings(), "\n")
		for part, n := range map[string]int64{"leaves out thoughts": c.thoughts, "leaves out text": c.text, "leaves out tools": c.calls} {
			if strings.Contains(told, part) != (n > 0) {
				t.Errorf("%s: warnings %q", c.name, told)
			}
		}
	}
}

// slowTemplate runs, for each row, until it exceeds the limit of steps that jinja allows a
// template.
const slowTemplate = "{% for m in messages %}{{ m.content }}{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}{% endfor %}"

// TestStopInsideRow: closing Spec.Stop ends the reading even while a template renders one row.
func TestStopInsideRow(t *testing.T) {
	tmpl := testkit.Must(jinja.Parse("slow", slowTemplate))(t)
	stop := make(chan struct{})
	s := Spec{Tokenizer: tokenizer.Bytes(), VocabSize: 256, Stop: stop, SkipBadRows: true, chat: chatForm{tmpl: tmpl}}
	c := &chunk{form: form{format: fmtMessages, cols: columnsOf(fmtMessages)}, known: true, given: true, unit: unitLine, src: source{path: "a.jsonl"}}
	for n := range int64(3) {
		c.add(record{n: n + 1}, []byte(chat("user", "h", "assistant", "g")))
	}
	e := newEncoder(&s)
	asked := 0
	e.abandoned = func() bool {
		if asked++; asked == 4 { // the first call is before the row, later calls are during its rendering
			close(stop)
		}
		return s.stopped()
	}
	if e.encode(c); c.err != ErrStopped || len(c.docs) != 0 || asked != 4 {
		t.Errorf("%v, %d documents, asked %d times", c.err, len(c.docs), asked)
	}
}

// tallying is a tokenizer that counts the texts it encodes.
type tallying struct {
	tokenizer.Tokenizer
	n *atomic.Int64
}

func (c tallying) EncodeSpans(ids []int32, starts []int, text []byte) ([]int32, []int, error) {
	c.n.Add(1)
	return c.Tokenizer.EncodeSpans(ids, starts, text)
}

// TestFirstErrorAtOnce: the first bad row ends the reading before any later row is tokenized,
// whether that row is in the same chunk of the file or in a later one.
func TestFirstErrorAtOnce(t *testing.T) {
	good := chat("user", strings.Repeat("h", 1000), "assistant", "g") + "\n"
	for _, name := range []string{"a.jsonl", "b.jsonl"} {
		bad := chat("user", "h") + "\n"
		if name == "b.jsonl" {
			bad = chat("user", "refuse", "assistant", "g") + "\n"
		}
		refusing := "{% if messages[0].content == 'refuse' %}{{ raise_exception('no') }}{% endif %}" + small
		s := chatSpec(t, refusing, write(t, t.TempDir(), name, strings.Repeat(good, 5)+bad+strings.Repeat(good, 3000)))
		var n atomic.Int64
		s.Tokenizer, s.Threads = tallying{s.Tokenizer, &n}, 1
		_, err := Open(s)
		wantError(t, err, name+":6: ")
		if n.Load() != 5 {
			t.Errorf("%s: %d rows were encoded, of which 5 are before the bad one", name, n.Load())
		}
		if errors.Is(err, ErrStopped) {
			t.Error(err)
		}
	}
}

// withMarkers is the byte tokenizer, but the bytes in special are special tokens.
type withMarkers struct {
	tokenizer.Tokenizer
	special string
}

func (t withMarkers) IsSpecial(id int32) bool {
	return id < 256 && strings.IndexByte(t.special, byte(id)) >= 0 || t.Tokenizer.IsSpecial(id)
}
func (t withMarkers) ID() string { return "with markers " + t.special }

// markedSpec returns chatSpec's Spec with a tokenizer in which the bytes U, A, T, E and C are
// special tokens. rows are the lines of the file.
func markedSpec(t *testing.T, template, rows string) Spec {
	s := chatSpec(t, template, write(t, t.TempDir(), "a.jsonl", rows))
	s.Tokenizer = withMarkers{tokenizer.Bytes(), "UATEC"}
	return s
}

// markerRow returns a chat of two questions and answers, then the messages more. If calls is true,
// the second answer calls a tool.
func markerRow(calls bool, more ...string) string {
	row := `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"},{"role":"user","content":"i"},{"role":"assistant","content":"j"`
	if calls {
		row += `,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":{}}}]`
	}
	return row + "}" + strings.Join(more, "") + "]}"
}

// TestMarkerEnds: some templates write no end of a turn, only a special token at the start of the
// next turn. This token then ends every answer and is supervised. After the last message it is the
// token of a turn that could follow.
func TestMarkerEnds(t *testing.T) {
	const (
		bare   = "{% for m in messages %}{{ {'user': 'U', 'assistant': 'A', 'tool': 'T'}[m.role] }}{{ m.content }}{% for c in m.tool_calls or [] %}!{{ c.function.name }}{% endfor %}{% endfor %}{{ 'A' if add_generation_prompt }}"
		lines  = "{% for m in messages %}{{ {'user': 'U', 'assistant': 'A', 'tool': 'T'}[m.role] }}\n{{ m.content }}{{ '!f' if m.tool_calls }}\n{% endfor %}{{ 'A' if add_generation_prompt }}"
		calls  = "{% for m in messages %}{{ {'user': 'U', 'assistant': 'A', 'tool': 'T'}[m.role] }}{{ m.content }}{{ '!C' if m.tool_calls }}{% endfor %}{{ 'A' if add_generation_prompt }}"
		later  = "{% for m in messages %}{{ 'E' if not loop.first }}{{ {'user': 'U', 'assistant': 'A', 'tool': 'T'}[m.role] }}{{ m.content }}{% endfor %}{{ 'EA' if add_generation_prompt }}"
		closed = "{% for m in messages %}{{ {'user': 'U', 'assistant': 'A', 'tool': 'T'}[m.role] }}{{ m.content }}{{ '!C' if m.tool_calls else 'E' }}\n{% endfor %}{{ 'A' if add_generation_prompt }}"
		marked = "{% for m in messages %}{{ {'user': 'U', 'assistant': 'A', 'tool': 'T'}[m.role] }}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}{{ 'A' if add_generation_prompt }}"
		words  = "{% for m in messages %}{{ {'user': 'Q:', 'assistant': 'A', 'tool': 'R:'}[m.role] }}{{ m.content }}{% endfor %}{{ 'A' if add_generation_prompt }}"
		tool   = `,{"role":"tool","content":"r"}`
		more   = tool + `,{"role":"assistant","content":"k"}`
	)
	for _, c := range []struct{ name, template, row, want string }{
		{"the user's marker", bare, markerRow(false), "UhA[gU]iA[jU]"},
		{"a tool's marker", bare, markerRow(true), "UhA[gU]iA[j!fT]"},
		{"a result in the row", bare, markerRow(true, tool), "UhA[gU]iA[j!fT]r"},
		{"an answer to it", bare, markerRow(true, more), "UhA[gU]iA[j!fT]rA[kU]"},
		{"with line breaks between", lines, markerRow(true, more), "U\nh\nA[\ng\nU]\ni\nA[\nj!f\nT]\nr\nA[\nk\nU]"},
		{"a special token that ends no turn", calls, markerRow(true, more), "UhA[gU]iA[j!CT]rA[kU]"},
		{"an end that comes with the next turn", later, markerRow(false), "UhEA[gE]UiEA[jE]"},
		{"ends of its own", closed, markerRow(true, more), "UhE\nA[gE]\nUiE\nA[j!C]\nTrE\nA[kE]\n"},
		{"marks", marked, markerRow(false), "UhA[g]UiA[j]"},
		{"markers of text", words, markerRow(false), "Q:hA[g]Q:iA[j]"},
		{"a turn of weight 0", bare, `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g","weight":0},{"role":"user","content":"i"},{"role":"assistant","content":"j"}]}`, "UhAgUiA[jU]"},
		{"the last of weight 0", bare, `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"},{"role":"user","content":"i"},{"role":"assistant","content":"j","weight":0}]}`, "UhA[gU]iAj"},
	} {
		if got := masked(mustOpen(t, markedSpec(t, c.template, c.row)).Row(0)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	const ( // templates that write the end E only between turns
		unlast  = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{{ 'E\n' if m.role == 'assistant' and not loop.last }}{% endfor %}{{ 'a:' if add_generation_prompt }}"
		between = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{{ 'E' if m.role == 'assistant' and loop.nextitem }}\n{% endfor %}{{ 'a:' if add_generation_prompt }}"
		opens   = "{% for m in messages %}{{ 'E' if loop.previtem and loop.previtem.role == 'assistant' }}{{ m.role[0] }}:{{ m.content }}{% endfor %}{{ 'a:' if add_generation_prompt }}"
	)
	for template, want := range map[string]string{unlast: "u:ha:[gE]\nu:ia:[jE]", between: "u:h\na:[gE]\nu:i\na:[j\nE]", opens: "u:ha:[gE]u:ia:[jE]"} {
		if got := masked(mustOpen(t, markedSpec(t, template, markerRow(false))).Row(0)); got != want {
			t.Errorf("%s: %q, want %q", template, got, want)
		}
		if got := dialogue(t, markedSpec(t, template, "")).Ends(); !slices.Equal(got, []int32{'E'}) {
			t.Errorf("%s: answers end with %q", template, got)
		}
	}
	s := markedSpec(t, bare, markerRow(true, more))
	s.MaskHistory = true
	if got := masked(mustOpen(t, s).Row(0)); got != "UhAgUiAj!fTrA[kU]" {
		t.Errorf("with mask_history: %q", got)
	}
	for template, want := range map[string]string{bare: "UT", closed: "E", later: "E", words: ""} {
		s := markedSpec(t, template, "")
		d := dialogue(t, s)
		var ends []int32
		for _, c := range want {
			ends = append(ends, c)
		}
		if got := d.Ends(); !slices.Equal(got, ends) {
			t.Errorf("%s: answers end with %q, want %q", template, got, want)
		}
	}
}

// TestResultsInsideTurns: some templates write tools' results inside the assistant's turn. The
// results and the brackets around them are not supervised. A special token before the results is
// supervised only if the template also writes it after calls that nothing follows.
func TestResultsInsideTurns(t *testing.T) {
	const (
		begin = "{% set ns = namespace(open=false) %}{% for m in messages %}{% if m.role == 'user' %}U{{ m.content }}E{% elif m.role == 'assistant' %}{{ 'A' if not ns.open }}{% set ns.open = false %}{{ '!f' if m.tool_calls }}"
		each  = "{% for r in messages[loop.index:] %}{% if r.role == 'tool' %}T{{ r.content }};{% set ns.open = true %}{% endif %}{% endfor %}"
		end   = "{{ m.content }}{{ 'E' if not ns.open }}{% endif %}{% endfor %}{{ 'A' if add_generation_prompt and not ns.open }}"
		row   = `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{}}}]},{"role":"tool","content":"r"},{"role":"tool","content":"s"},{"role":"assistant","content":"k"}]}`
	)
	for template, want := range map[string]string{
		begin + "{% if m.tool_calls %}" + each + "{% endif %}" + end:                                                                     "UhEA[!f]Tr;Ts;[kE]",
		begin + "{% if m.tool_calls %}" + each + "{% if not ns.open %}T{% set ns.open = true %}{% endif %}{% endif %}" + end:             "UhEA[!fT]r;Ts;[kE]",
		begin + "{% if m.tool_calls and loop.nextitem and loop.nextitem.role == 'tool' %}({% set a = 1 %}" + each + "){% endif %}" + end: "UhEA[!f](Tr;Ts;)[kE]",
	} {
		d := mustOpen(t, markedSpec(t, template, row))
		if got := masked(d.Row(0)); got != want || d.Stats().MissingEOS != 0 {
			t.Errorf("%s: %q, want %q; %q", template, got, want, d.Warnings())
		}
	}
}

// TestMarkerEndsOfPairs: if the template writes no end of a turn, an answer of a pair ends with the
// special token that begins the next turn, like the answer of a chat.
func TestMarkerEndsOfPairs(t *testing.T) {
	const (
		bare  = "{% for m in messages %}{{ {'user': 'U', 'assistant': 'A', 'tool': 'T'}[m.role] }}{{ m.content }}{{ '!f' if m.tool_calls }}{% endfor %}{{ 'A' if add_generation_prompt }}"
		lines = "{% for m in messages %}{{ {'user': 'U', 'assistant': 'A', 'tool': 'T'}[m.role] }}\n{{ m.content }}\n{% endfor %}{{ 'A\n' if add_generation_prompt }}"
		ended = "{% for m in messages %}{{ {'user': 'U', 'assistant': 'A', 'tool': 'T'}[m.role] }}{{ m.content }}E\n{% endfor %}{{ 'A' if add_generation_prompt }}"
		words = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{% endfor %}{{ 'a:' if add_generation_prompt }}"
		row   = `{"question":"h","chosen":"g","rejected":"jk"}`
		calls = `{"prompt":[{"role":"user","content":"h"}],"chosen":[{"role":"assistant","content":"g","tool_calls":[{"function":{"name":"f","arguments":{}}}]}],"rejected":[{"role":"assistant","content":"j"}]}`
	)
	for _, c := range []struct{ template, row, chosen, rejected string }{
		{bare, row, "UhA[gU]", "UhA[jkU]"},
		{lines, row, "U\nh\nA\n[g\nU]", "U\nh\nA\n[jk\nU]"},
		{bare, calls, "UhA[g!fT]", "UhA[jU]"},
		{ended, row, "UhE\nA[gE\n]", "UhE\nA[jkE\n]"},
		{words, row, "u:ha:[g]", "u:ha:[jk]"},
	} {
		s := markedSpec(t, c.template, c.row)
		s.Pairs, s.Packing = true, nil
		if got := documents(mustOpen(t, s).Row(0)); !slices.Equal(got, []string{c.chosen, c.rejected}) {
			t.Errorf("%s: %q, want %q and %q", c.template, got, c.chosen, c.rejected)
		}
	}
	s := markedSpec(t, bare, `{"question":"h","chosen":"g","rejected":""}`)
	s.Pairs, s.Packing = true, nil
	_, err := Open(s)
	wantError(t, err, "a.jsonl:1: ", "chosen or rejected is empty")
}
