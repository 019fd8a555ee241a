package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"mt/internal/testkit"
)

// TestAverageBeginsBeforeTheEnd: a weight average (ema_update_after_step) that would start with the
// last step or later is rejected. One that starts a step earlier is accepted.
func TestAverageBeginsBeforeTheEnd(t *testing.T) {
	for text, ok := range map[string]bool{
		"max_steps: 5\nema_decay: 0.9\nema_update_after_step: 3":  true,
		"max_steps: 5\nema_decay: 0.9\nema_update_after_step: 4":  false,
		"max_steps: 5\nema_decay: 0.9\nema_update_after_step: 5":  false,
		"max_steps: 5\nema_update_after_step: 5":                  true,
		"max_steps: 1\nema_decay: 0.9":                            true,
		"max_steps: -1\nema_decay: 0.9\nema_update_after_step: 9": true, // how many steps there are is not known
	} {
		if _, err := Parse("run.yaml", []byte("model: tiny\ndataset: x\n"+text), Args{}); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestDeviceList: the key devices accepts auto, a number and a list of GPU numbers. Other values
// are errors.
func TestDeviceList(t *testing.T) {
	for text, want := range map[string]any{
		"auto": DeviceList{All: true}, "3": DeviceList{Count: 3}, "[0, 2]": DeviceList{Count: 2, Ordinals: []int{0, 2}}, "[0]": DeviceList{Count: 1, Ordinals: []int{0}},
		"[1, 1]": "devices names GPU 1 twice: name each GPU once", "0": "devices is 0: give at least 1 device", "-1": wantDevices, "65": wantDevices, "[]": wantDevices, "both": wantDevices,
	} {
		c := Default()
		c.Devices = text
		got, err := c.DeviceList()
		if says, bad := want.(string); bad != (err != nil) || bad && !strings.Contains(err.Error(), says) || !bad && !reflect.DeepEqual(got, want) {
			t.Errorf("devices: %s is %+v (%v), want %v", text, got, err, want)
		}
	}
}

// TestLRGroups: lr_groups parses to the same groups from a file and from a flag. The groups'
// learning rates follow the schedule of learning_rate.
func TestLRGroups(t *testing.T) {
	zero := 0.0
	want := []LRGroup{{Name: "embed", Modules: []string{`embed_tokens|lm_head`}, LR: 1e-5, WeightDecay: &zero}, {Name: "q", Modules: []string{"q_proj", "k,v"}, LR: 4}}
	text := `[{name: embed, modules: "embed_tokens|lm_head", lr: 1e-5, weight_decay: 0}, {name: q, modules: [q_proj, "k,v"], lr: 4}]`
	inFile := mustParse(t, "weight_decay: 0.5\nlr_groups: "+text)
	byFlag := testkit.Must(parse(t, "", "--lr-groups", text))(t)
	for _, c := range []*Config{inFile, byFlag} {
		if !reflect.DeepEqual(c.LRGroups, want) {
			t.Errorf("%+v, want %+v", c.LRGroups, want)
		}
	}
	inFile.LearningRate = 2
	if got := inFile.GroupRates(0.5); !reflect.DeepEqual(got, map[string]float64{"embed": 0.25e-5, "q": 1}) {
		t.Errorf("rates %v", got)
	}
	if inFile.Decay(want[0]) != 0 || inFile.Decay(want[1]) != 0.5 {
		t.Error("the groups decay otherwise than they say")
	}
	if Default().GroupRates(1) != nil {
		t.Error("there are rates of no groups")
	}
}

// TestLRGroupsAreChecked: the error for a wrong group names the group and what is wrong with it.
func TestLRGroupsAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"lr_groups: 3": "must be a list of groups such as",
		"lr_groups: {name: a, modules: [x], lr: 1}": "must be a list of groups such as",
		"lr_groups: [x]":                                                              "lr_groups[0] must be a mapping such as",
		"lr_groups: [{modules: [x], lr: 1}]":                                          "lr_groups[0] has no name",
		"lr_groups: [{name: a, lr: 1}]":                                               "lr_groups[0] has no modules",
		"lr_groups: [{name: a, modules: [x]}]":                                        "lr_groups[0] has no lr",
		"lr_groups: [{name: a, modules: [x], lr: 0}]":                                 "lr_groups[0].lr must be more than 0",
		"lr_groups: [{name: a, modules: [x], lr: -1}]":                                "lr_groups[0].lr must be more than 0",
		"lr_groups: [{name: a, modules: [x], lr: 1, weight_decay: -1}]":               "lr_groups[0].weight_decay must be at least 0",
		"lr_groups: [{name: a, modules: [x], lr: 1, module: y}]":                      `lr_groups[0] has an unknown key "module"; did you mean "modules"?`,
		"lr_groups: [{name: a, modules: [x], lr: 1}, {name: a, modules: [y], lr: 1}]": "lr_groups[1]: another group has the name a: choose another name",
		"learning_rate: 0\nlr_groups: [{name: a, modules: [x], lr: 1}]":               "learning_rate is 0, but lr_groups follow its schedule",
		"lr_groups: [{name: a, modules: [x], lr: 1, weight_decay: 0.1, lr_scale: 2}]": `has an unknown key "lr_scale"`,
	} {
		if _, err := Parse("run.yaml", []byte("model: tiny\ndataset: x\n"+text), Args{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	want := "--lr-groups: lr_groups[0].weight_decay must be at least 0, not -1"
	if _, err := parse(t, "", "--lr-groups", "[{name: a, modules: [x], lr: 1, weight_decay: -1}]"); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestImportedGroups: axolotl's embedding_lr and embedding_lr_scale become a group of lr_groups. If
// the config has both, the scale counts, as in axolotl.
func TestImportedGroups(t *testing.T) {
	for text, want := range map[string]string{
		"learning_rate: 0.5\nembedding_lr: 0.25":                            `[{name: embeddings, modules: ["embed_tokens|lm_head"], lr: 0.25, weight_decay: 0.0}]`,
		"learning_rate: 0.5\nembedding_lr: 0.25\nembedding_lr_scale: 0.1":   `[{name: embeddings, modules: ["embed_tokens|lm_head"], lr: 0.05, weight_decay: 0.0}]`,
		"learning_rate: 0.5\nembedding_lr_scale: null":                      `[]`,
		"learning_rate: 0.5\nlr_groups: [{name: a, modules: [b.c], lr: 2}]": `[{name: a, modules: ["b\\.c"], lr: 2.0}]`,
		"learning_rate: 0.5\nweight_decay: 0.1\nlr_groups: [{name: a, modules: [b], lr: 2}]": `[{name: a, modules: [b], lr: 2.0}, ` +
			`{name: embeddings, modules: ["embed_tokens|lm_head"], lr: 0.5, weight_decay: 0.0}]`,
		"learning_rate: 0.5\nweight_decay: 0.1\nunfrozen_parameters: [b]\nlr_groups: [{name: a, modules: [b], lr: 2}]": `[{name: a, modules: [b], lr: 2.0}]`,
	} {
		im := testkit.Must(ParseImport("a.yaml", []byte("base_model: x\ndatasets: [{path: y, type: completion}]\n"+text), "axolotl"))(t)
		if got := mustConfig(t, im).Values()["lr_groups"]; got != want || len(im.Lost()) > 0 {
			t.Errorf("%s\nbecomes %s, want %s; lost %v", text, got, want, im.Lost())
		}
	}
	im, err := ParseImport("a.yaml", []byte("base_model: x\ndatasets: [{path: y, type: completion}]\nembedding_lr_scale: 0.1"), "axolotl")
	if err != nil || len(im.Lost()) != 1 {
		t.Errorf("a scale without learning_rate is not lost: %v, %v", err, im)
	}
}

// TestPreference: settings under `dpo:` are parsed, and those that are absent have TRL's defaults.
// They print as given.
func TestPreference(t *testing.T) {
	for text, want := range map[string]Preference{
		"":                                    {},
		"dpo: {}":                             {},
		"dpo: {beta: 0.5}":                    {LossType: "sigmoid", Beta: 0.5},
		"dpo: {beta: }":                       {LossType: "sigmoid", Beta: 0.1},
		"dpo: {loss_type: ipo, rpo_alpha: 1}": {LossType: "ipo", Beta: 0.1, RPOAlpha: 1},
		"dpo:\n  label_smoothing: 0.1\n  reference_model: ./ref": {LossType: "sigmoid", Beta: 0.1, LabelSmoothing: 0.1, ReferenceModel: "./ref"},
	} {
		c := mustParse(t, text)
		if got := c.Preference(); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
		if got := c.DataSpec().Pairs; got != (want.LossType != "") {
			t.Errorf("%q: pairs %t", text, got)
		}
		if again := mustParse(t, string(c.YAML(""))); again.Preference() != want {
			t.Errorf("%q: printed and read again: %+v", text, again.Preference())
		}
	}
	for text, want := range map[string]string{
		"dpo: 3":                                            "dpo must be a mapping such as {beta: 0.1}, not 3",
		"dpo: {bta: 1}":                                     "dpo.bta: unknown key; dpo takes beta, label_smoothing, loss_type, reference_model, rpo_alpha; did you mean \"beta\"?",
		"dpo: {beta: 0}":                                    "dpo.beta must be at least 1e-06, not 0",
		"dpo: {beta: 1e-50}":                                "dpo.beta must be at least 1e-06, not 1.0e-50",
		"dpo: {beta: 1e39}":                                 "dpo.beta must be at most 1e+06, not 1.0e+39",
		"dpo: {rpo_alpha: 1e39}":                            "dpo.rpo_alpha must be at most 1e+06, not 1.0e+39",
		"dpo: {beta: high}":                                 "dpo.beta must be a number, not high",
		"dpo: {label_smoothing: 0.7}":                       "dpo.label_smoothing must be at most 0.5, not 0.7",
		"dpo: {rpo_alpha: -1}":                              "dpo.rpo_alpha must be at least 0, not -1",
		"dpo: {loss_type: sigmod}":                          `dpo.loss_type must be sigmoid, hinge or ipo, not "sigmod"; did you mean "sigmoid"?`,
		"dpo: {loss_type: 2}":                               "dpo.loss_type must be text, not 2",
		"dpo: {loss_type: hinge, label_smoothing: 0.1}":     "dpo.label_smoothing needs loss_type sigmoid, but loss_type is hinge: remove dpo.label_smoothing",
		"dpo: {beta: 1}\nlabel_smoothing_factor: 0.1":       "label_smoothing_factor smooths the targets of tokens, but dpo trains on pairs: use dpo.label_smoothing",
		"dpo: {beta: 1}\nz_loss_coef: 0.1":                  "z_loss_coef adds a loss to each token, but dpo has one loss for each pair: remove it",
		"dpo: {beta: 1}\nneftune_noise_alpha: 5":            "neftune_noise_alpha adds noise to the model, but dpo compares it with a reference without noise: remove it",
		"dpo: {beta: 1}\ntrain_on_prompt: true":             "train_on_prompt trains on prompts, but the two answers of a pair share their prompt: remove it",
		"dpo: {beta: 1}\ncompare_bigram: true\nval_size: 1": "compare_bigram compares losses of tokens",
	} {
		if _, err := Parse("t.yaml", []byte(text), Args{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestTemplateVars: chat_template_kwargs and enable_thinking become variables of the chat template
// with their YAML types, from a file and from flags.
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
		testkit.NoError(t, err)
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
		"chat_template_kwargs: high":                                           "c.yaml:1:23: chat_template_kwargs must be a mapping such as {enable_thinking: false}, not high",
		"chat_template_kwargs: [1]":                                            "must be a mapping",
		"chat_template_kwargs: {messages: []}":                                 "chat_template_kwargs has messages, which mt sets itself: remove it",
		"chat_template_kwargs: {tools: []}":                                    "has tools, which mt sets itself",
		"chat_template_kwargs: {add_generation_prompt: true}":                  "has add_generation_prompt",
		"enable_thinking: true\nchat_template_kwargs: {enable_thinking: true}": "c.yaml:1:18: enable_thinking and chat_template_kwargs.enable_thinking are both given: give one of them",
		"enable_thinking: much":                                                "c.yaml:1:18: enable_thinking must be true, false or auto, not much",
	} {
		_, err := Parse("c.yaml", []byte(text), Args{})
		if err == nil || !IsUsage(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestTemplateVarsOfAResume: another value of a template variable counts as other data. A resumed
// run without enable_thinking does not take its value from the checkpoint. If this changes the
// tokens, the comparison of the data detects it.
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
