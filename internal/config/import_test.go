package config

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var rewriteImports = flag.Bool("rewrite-imports", false, "write testdata/import anew")

// TestImports: what becomes of configs of other tools, key by key, is what lies beside them, and
// can be trained with.
func TestImports(t *testing.T) {
	files, err := filepath.Glob("testdata/import/*.y*ml")
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	for _, file := range files {
		if strings.HasSuffix(file, ".mt.yaml") {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		im, err := ParseImport(filepath.Base(file), src, "")
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		got, name := im.YAML(), strings.TrimSuffix(file, filepath.Ext(file))+".mt.yaml"
		if *rewriteImports {
			if err := os.WriteFile(name, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s gives\n%s\nwant %s (-rewrite-imports writes it)", file, got, name)
		}
		again, err := Parse("again.yaml", got, Args{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := again.Differences(mustConfig(t, im)); len(d) > 0 {
			t.Errorf("%s: %v", name, d)
		}
	}
}

func mustConfig(t *testing.T, im *Import) *Config {
	t.Helper()
	c, err := im.Config()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestImportedIsTrained: mt train takes a config of another tool where nothing is lost, with its
// own places in errors, with flags; else it says what would be lost and what to run.
func TestImportedIsTrained(t *testing.T) {
	const whole = "stage: sft\ndo_train: true\nfinetuning_type: full\nmodel_name_or_path: org/model\ndataset: one,two\ncutoff_len: 9\nflash_attn: fa2\nlearning_rate: 1e-5\n"
	c := mustParse(t, whole, "--learning-rate=3")
	if c.MaxSeqLen != 9 || c.LearningRate != 3 || c.Packing != Off || c.DatasetDir != "data" || !slices.Equal(c.Dataset, []string{"one", "two"}) {
		t.Errorf("%+v", c)
	}
	if w := strings.Join(c.Warnings, "\n"); !strings.Contains(w, "t.yaml is a config of LLaMA-Factory, which is read as `mt import t.yaml` writes it") || !strings.Contains(w, "flash_attn") {
		t.Errorf("warnings %q", w)
	}
	im, err := ParseImport("t.yaml", []byte(whole), "")
	if err != nil {
		t.Fatal(err)
	}
	if d := mustConfig(t, im).Differences(mustParse(t, whole)); len(d) > 0 {
		t.Errorf("imported it differs: %v", d)
	}
	if c := mustParse(t, strings.Replace(whole, "one,two", "chats.jsonl", 1)); c.DatasetDir != "" {
		t.Errorf("a file is looked for in %s", c.DatasetDir)
	}
	for text, want := range map[string][]string{
		whole + "use_galore: true\nuse_badam: true\n": {"t.yaml:9:13: use_galore: true: not possible: mt has no such optimizer", "t.yaml:10:12: use_badam: true: not possible",
			"t.yaml is a config of LLaMA-Factory, and what is named here would be lost: see what remains with `mt import t.yaml --out mt.yaml`, and train that"},
		whole + "weight_decay: -1\n":                                                      {"t.yaml:9:15: weight_decay: -1: not possible: weight_decay: wants at least 0, is -1"},
		whole + "use_gallore: true\n":                                                     {"t.yaml:9:14: use_gallore: true: not possible: mt knows no such key; did you mean \"use_galore\"?"},
		"stage: kto\nfinetuning_type: full\n":                                             {"t.yaml:1:8: stage: kto: mt does supervised fine-tuning and pre-training (sft or pt), and DPO"},
		"base_model: a\ndatasets: [{path: b}]\nrl: kto\n":                                 {"t.yaml:3:5: rl: kto: of training on preferences mt has dpo"},
		"base_model: a\ndatasets: [{path: b}]\nrl: dpo\ndpo_loss_type: [robust]\n":        {"dpo_loss_type: robust: of training on preferences mt has dpo"},
		"stage: dpo\nfinetuning_type: full\npref_loss: orpo\n":                            {"t.yaml:3:12: pref_loss: orpo: of training on preferences mt has dpo"},
		"dataset_name: a\nbeta: 0.1\nloss_type: robust\n":                                 {"t.yaml:3:12: loss_type: robust: of training on preferences mt has dpo"},
		"dataset_name: a\nbeta: 0.1\nloss_type: [sigmoid, sft]\nloss_weights: [0.5, 1]\n": {"t.yaml:3:12: loss_type: "},
		"dataset_name: a\nval_size: 1\neval_dataset: b\n":                                 {"t.yaml:2:11: val_size holds rows"},
		"loss: {_component_: torchtune.rlhf.loss.SimPOLoss}":                              {"t.yaml:1:21: loss: torchtune.rlhf.loss.SimPOLoss: of training on preferences mt has dpo"},
		"loss: {_component_: torch.nn.MSELoss}":                                           {"t.yaml:1:21: loss: torch.nn.MSELoss: mt trains on the cross-entropy"},
	} {
		_, err := Parse("t.yaml", []byte(text), Args{})
		for _, w := range want {
			if err == nil || !IsUsage(err) || !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %v, want %s", text, err, w)
			}
		}
	}
}

// TestImportErrors: what is no config, of nobody known, or of a tool that there is not.
func TestImportErrors(t *testing.T) {
	for _, tc := range []struct{ text, from, want string }{
		{"- a", "", "t.yaml: a config is `key: value` lines, this is a list"},
		{"seed: 1", "", "t.yaml: none of its keys is one by which LLaMA-Factory"},
		{"seed: 1", "ludwig", "--from ludwig: wants torchtune, llamafactory, axolotl or trl"},
		{"seed: [1", "", "t.yaml:1:7: YAML: "},
		{"", "trl", "this is nothing"},
	} {
		if _, err := ParseImport("t.yaml", []byte(tc.text), tc.from); err == nil || !IsUsage(err) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q --from %q: %v, want %s", tc.text, tc.from, err, tc.want)
		}
	}
	if im, err := ParseImport("t.yaml", []byte("seed: 1"), "trl"); err != nil || im.Tool != "TRL" {
		t.Errorf("--from: %v, %v", im, err)
	}
	if _, err := ReadImport(t.TempDir(), ""); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("a directory: %v", err)
	}
}

// TestImportRules: the tables agree with each other. A key that means nothing has a reason, and no
// key of a tool is in its table and in that of all.
func TestImportRules(t *testing.T) {
	for name, judge := range foreign {
		any := func(text string) bool { return judge(value{kind: plain, text: text}, Default()) == "" }
		if any("anything") && any("false") && idleKeys[name] == "" && name != "gradient_checkpointing" {
			t.Errorf("%s has no reason in idleKeys", name)
		}
	}
	for name := range idleKeys {
		if byName[name] != nil {
			t.Errorf("%s is a key of mt and without meaning", name)
		}
		for _, tool := range tools {
			if tool.rules[name] != nil && tool != axolotl {
				t.Errorf("%s has a rule of %s and is without meaning", name, tool.name)
			}
		}
	}
}
