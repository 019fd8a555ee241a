package config

import (
	"reflect"
	"strings"
	"testing"
)

// TestLRGroups: groups are read from files and from flags alike, and their rates follow that of the rest.
func TestLRGroups(t *testing.T) {
	zero := 0.0
	want := []LRGroup{{Name: "embed", Modules: []string{`embed_tokens|lm_head`}, LR: 1e-5, WeightDecay: &zero}, {Name: "q", Modules: []string{"q_proj", "k,v"}, LR: 4}}
	text := `[{name: embed, modules: "embed_tokens|lm_head", lr: 1e-5, weight_decay: 0}, {name: q, modules: [q_proj, "k,v"], lr: 4}]`
	inFile := mustParse(t, "weight_decay: 0.5\nlr_groups: "+text)
	byFlag, err := parse(t, "", "--lr-groups", text)
	if err != nil {
		t.Fatal(err)
	}
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

// TestLRGroupsAreChecked: the error says which group, and what it lacks.
func TestLRGroupsAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"lr_groups: 3": "wants a list of groups such as",
		"lr_groups: {name: a, modules: [x], lr: 1}": "wants a list of groups such as",
		"lr_groups: [x]":                                                              "lr_groups[0]: wants a mapping such as",
		"lr_groups: [{modules: [x], lr: 1}]":                                          "lr_groups[0] has no name",
		"lr_groups: [{name: a, lr: 1}]":                                               "lr_groups[0] has no modules",
		"lr_groups: [{name: a, modules: [x]}]":                                        "lr_groups[0] has no lr",
		"lr_groups: [{name: a, modules: [x], lr: 0}]":                                 "lr_groups[0].lr: wants more than 0",
		"lr_groups: [{name: a, modules: [x], lr: -1}]":                                "lr_groups[0].lr: wants more than 0",
		"lr_groups: [{name: a, modules: [x], lr: 1, weight_decay: -1}]":               "lr_groups[0].weight_decay: wants at least 0",
		"lr_groups: [{name: a, modules: [x], lr: 1, module: y}]":                      `lr_groups[0] has an unknown key "module"; did you mean "modules"?`,
		"lr_groups: [{name: a, modules: [x], lr: 1}, {name: a, modules: [y], lr: 1}]": "lr_groups[1]: another group is called a too",
		"learning_rate: 0\nlr_groups: [{name: a, modules: [x], lr: 1}]":               "learning_rate is 0, and the rates of lr_groups follow",
		"lr_groups: [{name: a, modules: [x], lr: 1, weight_decay: 0.1, lr_scale: 2}]": `has an unknown key "lr_scale"`,
	} {
		if _, err := Parse("run.yaml", []byte("model: tiny\ndataset: x\n"+text), Args{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	want := "--lr-groups: lr_groups[0].weight_decay: wants at least 0, is -1"
	if _, err := parse(t, "", "--lr-groups", "[{name: a, modules: [x], lr: 1, weight_decay: -1}]"); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestImportedGroups: axolotl's rates of the embedding become a group, and of two that contradict each other its own choice counts.
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
		im, err := ParseImport("a.yaml", []byte("base_model: x\ndatasets: [{path: y, type: completion}]\n"+text), "axolotl")
		if err != nil {
			t.Fatal(err)
		}
		if got := mustConfig(t, im).Values()["lr_groups"]; got != want || len(im.Lost()) > 0 {
			t.Errorf("%s\nbecomes %s, want %s; lost %v", text, got, want, im.Lost())
		}
	}
	im, err := ParseImport("a.yaml", []byte("base_model: x\ndatasets: [{path: y, type: completion}]\nembedding_lr_scale: 0.1"), "axolotl")
	if err != nil || len(im.Lost()) != 1 {
		t.Errorf("a scale without learning_rate is not lost: %v, %v", err, im)
	}
}
