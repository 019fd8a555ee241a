package data

import (
	"slices"
	"strings"
	"testing"

	"mt/tokenizer"
)

// withMarkers is the byte tokenizer in which some bytes are special tokens.
type withMarkers struct {
	tokenizer.Tokenizer
	special string
}

func (t withMarkers) IsSpecial(id int32) bool {
	return id < 256 && strings.IndexByte(t.special, byte(id)) >= 0 || t.Tokenizer.IsSpecial(id)
}
func (t withMarkers) ID() string { return "with markers " + t.special }

// markedSpec is chatSpec with the special tokens U, A, T, E and C.
func markedSpec(t *testing.T, template, rows string) Spec {
	s := chatSpec(t, template, write(t, t.TempDir(), "a.jsonl", rows))
	s.Tokenizer = withMarkers{tokenizer.Bytes(), "UATEC"}
	return s
}

// markerRow is a chat whose last answer, or the one before a result, calls a tool.
func markerRow(calls bool, more ...string) string {
	row := `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"},{"role":"user","content":"i"},{"role":"assistant","content":"j"`
	if calls {
		row += `,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":{}}}]`
	}
	return row + "}" + strings.Join(more, "") + "]}"
}

// TestMarkerEnds: where a template writes no end of a turn, the marker of the next turn is
// the end, which is learned with every answer; behind the last message it is that of a turn
// that could follow.
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
	const ( // an end that the last turn of a text lacks
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

// TestResultsInsideTurns: results of tools in the assistant's turn are not learned. The
// special token with which they begin is learned where the template also writes it behind
// calls that nothing follows; brackets around the results are not.
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

// TestMarkerEndsOfPairs: an answer of a pair ends with the marker of the next turn as a single
// answer does, where the template writes no end of its own.
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
