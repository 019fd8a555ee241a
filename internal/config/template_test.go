package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestTemplateVars: chat_template_kwargs and enable_thinking become variables of
// the chat template, in a file and as flags, with the types that they are written
// in.
func TestTemplateVars(t *testing.T) {
	for _, c := range []struct {
		text  string
		flags []string
		want  map[string]any
	}{
		{"", nil, nil},
		{"chat_template_kwargs: {}", nil, nil},
		{"chat_template_kwargs:\n", nil, nil},
		{"enable_thinking: auto", nil, nil},
		{"enable_thinking: false", nil, map[string]any{"enable_thinking": false}},
		{"enable_thinking: true\nchat_template_kwargs: {level: high}", nil, map[string]any{"enable_thinking": true, "level": "high"}},
		{"chat_template_kwargs:\n  enable_thinking: false\n  n: 2\n  x: 2.0\n  s: '2'\n  l: [1, null]\n  d: {k: true}\n", nil,
			map[string]any{"enable_thinking": false, "n": int64(2), "x": 2.0, "s": "2", "l": []any{int64(1), nil}, "d": map[string]any{"k": true}}},
		{"enable_thinking: true", []string{"--enable-thinking", "false"}, map[string]any{"enable_thinking": false}},
		{"", []string{"--enable_thinking"}, map[string]any{"enable_thinking": true}},
		{"chat_template_kwargs: {a: 1, b: 2}", []string{"--chat-template-kwargs", `{"a": "x"}`}, map[string]any{"a": "x"}},
	} {
		args, _, err := parseFlags(c.flags, func(*pflag.FlagSet) {})
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := Parse("c.yaml", []byte(c.text), args)
		if err != nil {
			t.Errorf("%q %q: %v", c.text, c.flags, err)
			continue
		}
		for i, got := range []map[string]any{cfg.DataSpec().TemplateVars, cfg.EvalSpec().TemplateVars} {
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("%q %q, spec %d: %#v, want %#v", c.text, c.flags, i, got, c.want)
			}
		}
	}
	for text, want := range map[string]string{
		"chat_template_kwargs: high":                                           "c.yaml:1:23: chat_template_kwargs: wants a mapping such as {enable_thinking: false}, is high",
		"chat_template_kwargs: [1]":                                            "wants a mapping",
		"chat_template_kwargs: {messages: []}":                                 "chat_template_kwargs has messages, which mt sets itself; remove it there",
		"chat_template_kwargs: {tools: []}":                                    "has tools, which mt sets itself",
		"chat_template_kwargs: {add_generation_prompt: true}":                  "has add_generation_prompt",
		"enable_thinking: true\nchat_template_kwargs: {enable_thinking: true}": "c.yaml:1:18: enable_thinking is given and so is chat_template_kwargs.enable_thinking: give one of them",
		"enable_thinking: much":                                                "c.yaml:1:18: enable_thinking: wants true, false or auto, is much",
	} {
		_, err := Parse("c.yaml", []byte(text), Args{})
		if err == nil || !IsUsage(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestTemplateVarsOfAResume: other variables for the template make another data set. An
// enable_thinking that is left out is not taken from the checkpoint's run: where that
// changes the data, the data shows it, since its tokens differ.
func TestTemplateVarsOfAResume(t *testing.T) {
	const base = "model: tiny\ndataset: x\n"
	for _, c := range []struct{ was, now, key string }{
		{"enable_thinking: false\n", "enable_thinking: false\n", ""},
		{"chat_template_kwargs: {a: 1, b: 2}\n", "chat_template_kwargs: {b: 2, a: 1}\n", ""},
		{"enable_thinking: false\n", "", ""},
		{"", "enable_thinking: true\n", "enable_thinking"},
		{"chat_template_kwargs: {a: 1}\n", "chat_template_kwargs: {a: 1.0}\n", "chat_template_kwargs"},
	} {
		saved, now := mustParse(t, base+c.was), mustParse(t, base+c.now)
		given := now.EnableThinking
		now.KeepResolved(saved, true)
		if now.EnableThinking != given {
			t.Errorf("%q, then %q: enable_thinking is %s", c.was, c.now, now.EnableThinking)
		}
		got := now.Changes(saved)
		if c.key == "" && len(got) > 0 || c.key != "" && (len(got) != 1 || got[0].Key != c.key || got[0].Part != PartDataset) {
			t.Errorf("%q, then %q: %v", c.was, c.now, got)
		}
	}
	c := mustParse(t, base+"chat_template_kwargs: {a: 1}\n")
	c.Clone().ChatTemplateKwargs["a"] = int64(2)
	if c.ChatTemplateKwargs["a"] != int64(1) {
		t.Error("a clone shares chat_template_kwargs")
	}
}
