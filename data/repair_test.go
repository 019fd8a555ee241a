package data

import (
	"fmt"
	"testing"

	"mt/data/jinja"
)

// callRow returns a row of JSONL: a chat that ends with a call. arguments is the JSON of the call's
// arguments.
func callRow(arguments string) string {
	return `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":` + arguments + `}}]}]}`
}

// repairsOf returns the names of the repairs that the data set's Stats count, joined.
func repairsOf(d *Dataset) string {
	s, r := d.Stats(), d.Report()
	out := ""
	for _, one := range []struct {
		name string
		n    int64
		at   []string
	}{{"joined", s.Joined, r.Joined}, {"decoded", s.Decoded, r.Decoded}, {"encoded", s.Encoded, r.Encoded}, {"reshaped", s.Reshaped, r.Reshaped}} {
		if one.n > 0 {
			out += one.name
		}
		if int64(len(one.at)) != one.n {
			out += fmt.Sprintf(" (%d of them named)", len(one.at))
		}
	}
	if (out != "") != (len(d.Warnings()) > 0) {
		out += fmt.Sprintf(" with the notes %q", d.Warnings())
	}
	return out
}

// argumentTemplate returns a chat template. body is its Jinja text that writes the arguments a of
// each call.
func argumentTemplate(body string) string {
	return "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{% for c in m.tool_calls or [] %}{% set a = c.function.arguments %}!{{ c.function.name }} " + body + "{% endfor %}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
}

// TestArguments: the template gets a call's arguments as the row has them, an object or JSON in a string. If it
// fails or writes something else, it gets the other form.
func TestArguments(t *testing.T) {
	const object, text = `{"k": "é", "n": {"m": 1}}`, `"{\"k\":\"é\", \"n\":{\"m\":1}}"`
	const opened = `{"k": "é", "n": {"m": 1}}`
	const closed = `{"k":"é", "n":{"m":1}}` // as the string has it
	for _, c := range []struct{ name, body, ofObject, objectRepair, ofText, textRepair string }{
		{"appends", "{{ '(' + a + ')' }}", "(" + opened + ")", "encoded", "(" + closed + ")", ""},
		{"prints", "{{ a }}", opened, "encoded", closed, ""},
		{"takes both", "{{ a if a is string else a | tojson }}", opened, "", closed, ""},
		{"makes JSON", "{{ a | tojson }}", opened, "", opened, "decoded"},
		{"makes JSON with lines", "{{ a | tojson(indent=1) }}", "{\n \"k\": \"é\",\n \"n\": {\n  \"m\": 1\n }\n}", "", "{\n \"k\": \"é\",\n \"n\": {\n  \"m\": 1\n }\n}", "decoded"},
		{"goes through items", "{% for k, v in a.items() %}{{ k }}={{ v if v is string else v | tojson }};{% endfor %}", `k=é;n={"m": 1};`, "", `k=é;n={"m": 1};`, "decoded"},
		{"goes through keys", "{% for k in a %}{{ k }},{% endfor %}", "k,n,", "", "k,n,", "decoded"},
		{"passes over strings", "{% if a is mapping %}{{ a | tojson }}{% endif %}", opened, "", opened, "decoded"},
		{"refuses strings", "{% if a is string %}{{ raise_exception('an object is wanted') }}{% endif %}{{ a | tojson }}", opened, "", opened, "decoded"},
		{"refuses objects", "{% if a is mapping %}{{ raise_exception('a string is wanted') }}{% endif %}{{ a }}", opened, "encoded", closed, ""},
		{"leaves them out", "", "", "", "", ""},
	} {
		for _, side := range []struct{ arguments, want, repair string }{{object, c.ofObject, c.objectRepair}, {text, c.ofText, c.textRepair}} {
			d := mustOpen(t, chatSpec(t, argumentTemplate(c.body), write(t, t.TempDir(), "a.jsonl", callRow(side.arguments))))
			if got, want := masked(d.Row(0)), "u:h$a:[!f "+side.want+"$]"; got != want {
				t.Errorf("a template that %s, %s: %q, want %q", c.name, side.arguments, got, want)
			}
			if got := repairsOf(d); got != side.repair {
				t.Errorf("a template that %s, %s: repairs %q, want %q", c.name, side.arguments, got, side.repair)
			}
		}
	}
	d := mustOpen(t, chatSpec(t, argumentTemplate("{{ a | tojson }}"), write(t, t.TempDir(), "a.jsonl", callRow(`"{}"`))))
	if got := masked(d.Row(0)); got != "u:h$a:[!f {}$]" || repairsOf(d) != "decoded" {
		t.Errorf("no arguments in a string: %q, %s", got, repairsOf(d))
	}
}

// TestCutArguments: a call's arguments that are not complete JSON are an error that names the row.
func TestCutArguments(t *testing.T) {
	for _, arguments := range []string{`""`, `" "`, `"{"`, `"{\"k\": \"v"`, `"{\"k\": 1}}"`} {
		for _, row := range []string{
			callRow(arguments),
			`{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":null,"tool_calls":[{"name":"f","arguments":` + arguments + `}]}]}`,
			`{"chosen":[{"role":"user","content":"h"},{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":` + arguments + `}}]}],"rejected":[{"role":"user","content":"h"},{"role":"assistant","content":"x"}]}`,
		} {
			s := chatSpec(t, argumentTemplate("{{ a }}"), write(t, t.TempDir(), "a.jsonl", row))
			s.Pairs = row[2] == 'c'
			_, err := Open(s)
			wantError(t, err, "a.jsonl:1: ", "arguments is ", "no whole JSON", "{} where there are none")
		}
	}
}

// TestParts: a content given as parts reaches the template unchanged. If the template does not
// write the parts, it gets them joined to one text. If the template does not write a text, it gets
// the text as one part.
func TestParts(t *testing.T) {
	const parts = `[{"type":"text","text":"h "},{"type":"text","text":"i"}]`
	const each = "{% for p in m.content %}{{ p.text | trim }}{% endfor %}"
	for _, c := range []struct{ name, body, ofParts, partsRepair, ofText, textRepair string }{
		{"trims each", "{% if m.content is string %}{{ m.content | trim }}{% else %}" + each + "{% endif %}", "hi", "", "h i", ""},
		{"appends", "{{ '' + m.content }}", "h i", "joined", "h i", ""},
		{"prints", "{{ m.content }}", "h i", "joined", "h i", ""},
		{"takes the first", "{{ m.content if m.content is string else m.content[0].text }}", "h i", "joined", "h i", ""},
		{"passes over lists", "{% if m.content is string %}{{ m.content }}{% endif %}", "h i", "joined", "h i", ""},
		{"takes parts alone", each, "hi", "", "h i", "reshaped"},
		{"fails on text", "{{ m.content[0].text + m.content[-1].text }}", "h i", "", "h ih i", "reshaped"},
		{"makes JSON", "{{ m.content | tojson }}", `[{"type": "text", "text": "h "}, {"type": "text", "text": "i"}]`, "", `"h i"`, ""},
	} {
		template := "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'user' %}" + c.body + "{% else %}{% for p in m.content %}{{ p.text or p }}{% endfor %}{% endif %}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
		for _, side := range []struct{ content, want, repair string }{{parts, c.ofParts, c.partsRepair}, {`"h i"`, c.ofText, c.textRepair}} {
			d := mustOpen(t, chatSpec(t, template, write(t, t.TempDir(), "a.jsonl", `{"messages":[{"role":"user","content":`+side.content+`},{"role":"assistant","content":"g"}]}`)))
			if got, want := masked(d.Row(0)), "u:"+side.want+"$a:[g$]"; got != want {
				t.Errorf("a template that %s, %s: %q, want %q", c.name, side.content, got, want)
			}
			if got := repairsOf(d); got != side.repair {
				t.Errorf("a template that %s, %s: repairs %q, want %q", c.name, side.content, got, side.repair)
			}
		}
	}
	_, err := Open(chatSpec(t, small, write(t, t.TempDir(), "a.jsonl", `{"messages":[{"role":"user","content":[{"type":"image"}]},{"role":"assistant","content":"g"}]}`)))
	wantError(t, err, `messages[0].content[0].type is "image"; mt reads text alone`)
}

// TestThoughtParts: thoughts that are parts of an answer stay parts if the template writes them.
// Otherwise they become the message's field reasoning_content.
func TestThoughtParts(t *testing.T) {
	row := `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":[{"type":"thinking","thinking":"w"},{"type":"text","text":"g"},{"type":"output_text","text":"i"}]}]}`
	for body, want := range map[string][2]string{
		"{% for p in m.content %}{{ '(' + p.thinking + ')' if p.type == 'thinking' else p.text or p }}{% endfor %}": {"(w)gi", ""},
		"{{ '<' + m.reasoning_content + '>' if m.reasoning_content }}{{ '' + m.content }}":                          {"<w>gi", "joinedreshaped"},
		"{{ '<' + m.thinking + '>' if m.thinking }}{% for p in m.content %}{{ p.text or p }}{% endfor %}":           {"<w>gi", "reshaped"},
	} {
		d := mustOpen(t, chatSpec(t, "{% for m in messages %}{{ m.role[0] }}:"+body+"{{ eos_token }}{% endfor %}{% if add_generation_prompt %}a:{% endif %}", write(t, t.TempDir(), "a.jsonl", row)))
		if got := masked(d.Row(0)); got != "u:h$a:["+want[0]+"$]" || repairsOf(d) != want[1] {
			t.Errorf("%s: %q with repairs %q, want %q", body, got, repairsOf(d), want)
		}
	}
	s := textSpec(t, 4096, write(t, t.TempDir(), "a.jsonl", row))
	s.Template = "default"
	_, err := Open(s)
	wantError(t, err, "template default has no place for parts that are thoughts")
}

// TestShapesOfFunctions: a bare function in tools or calls is wrapped as {"type": "function",
// "function": …}, but only if the template does not write it unwrapped.
func TestShapesOfFunctions(t *testing.T) {
	const row = `{"tools":[{"name":"f"}],"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"","tool_calls":[{"name":"f","arguments":{}}]}]}`
	for body, want := range map[string]string{
		"{{ tools | tojson }}{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}":                                                                `[{"name": "f"}]u:ha:[[{"name": "f", "arguments": {}}]]`,
		"{{ tools[0].function.name }}{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{{ m.tool_calls[0].function.name + m.tool_calls[0].type if m.tool_calls }}":                         "fu:ha:[ffunction] reshaped",
		"{% for t in tools %}{{ (t.function or t).name }}{% endfor %}{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}": "fu:ha:[f] reshaped",
	} {
		d := mustOpen(t, chatSpec(t, body+"{% endfor %}{% if add_generation_prompt %}a:{% endif %}", write(t, t.TempDir(), "a.jsonl", row)))
		got := masked(d.Row(0))
		if d.Stats().Reshaped > 0 {
			got += " reshaped"
		}
		if got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}

// TestRepairsEndAtLimits: a template that exceeds a limit is not run again with other forms of the row, since each
// would take as long.
func TestRepairsEndAtLimits(t *testing.T) {
	for is, messages := range map[string]string{
		"none":     `{"role":"user","content":"h"},{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":{}}}]}`,
		"iterable": `{"role":"user","content":[{"type":"text","text":"h"}]},{"role":"assistant","content":"g"}`,
		"string":   `{"role":"user","content":"h"},{"role":"assistant","content":"g"}`,
	} {
		row := write(t, t.TempDir(), "a.jsonl", `{"messages":[`+messages+`]}`)
		if is == "iterable" {
			is += " and m.content is not string"
		}
		template := "{% for m in messages %}{% if m.content is " + is + " %}{{ 'text' * 1000000000000 }}{% endif %}{{ m.role[0] }}:{{ m.content }}{% endfor %}"
		_, err := Open(chatSpec(t, template, row))
		wantError(t, err, "a.jsonl:1: ", "the template makes more than", "bytes of values")
	}
}

// TestRepairsOfPrompts: a prompt to be answered is repaired for the template in the same way as a
// training row.
func TestRepairsOfPrompts(t *testing.T) {
	d := dialogue(t, chatSpec(t, argumentTemplate("{{ '(' + a + ')' }}"), ""))
	c := &Conversation{}
	c.Add("user", "h")
	c.v.messages = append(c.v.messages, jinja.NewObject("role", "assistant", "content", []any{"x", "y"},
		"tool_calls", []any{jinja.NewObject("function", jinja.NewObject("name", "f", "arguments", jinja.NewObject("k", true)))}))
	c.v.names = append(c.v.names, "it")
	c.Add("user", "i")
	ids, err := d.Prompt(c)
	if got, want := rowText(Row{IDs: ids}), `u:h$a:xy!f ({"k": true})$u:i$a:`; err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}
