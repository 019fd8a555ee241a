package config

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"mt/data"
	"mt/internal/testkit"
	"mt/model"
)

var rewrite = flag.Bool("rewrite", false, "write docs/configuration.md anew")

// TestReference keeps docs/configuration.md equal to the table of keys.
func TestReference(t *testing.T) {
	const file = "../../../docs/configuration.md"
	var want bytes.Buffer
	testkit.NoError(t, reference(&want))
	if *rewrite {
		testkit.NoError(t, os.WriteFile(file, want.Bytes(), 0o644))
	}
	got := testkit.Must(os.ReadFile(file))(t)
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("docs/configuration.md is not what the table of keys says: go test ./internal/run/config -run Reference -rewrite")
	}
}

const referenceHead = `# Configuration

<!-- Written from the table in internal/run/config/keys.go by
     go test ./internal/run/config -run Reference -rewrite -->

A run is described by a YAML file, by flags, or by both; a flag wins. Every key is a flag: ` + "`learning_rate: 1e-4`" + ` in
the file is ` + "`--learning-rate 1e-4`" + ` or ` + "`--learning_rate=1e-4`" + ` on the command line. A key inside a
mapping is reached by a dot there (` + "`--pipeline.weight-slots 4`, `--model.vocab-size 512`" + `), and a switch may stand alone.

Every list is written in one way, in the file and on the command line: ` + "`[a, b]`" + `, or text with commas between the
items, as in ` + "`--freeze embed_tokens,lm_head`" + `. Commas inside the braces of a glob or the brackets of a regular expression
do not count. ` + "`sample_prompts`" + ` takes text without brackets as one prompt, since prompts have commas.

Sizes take a unit: ` + "`10GiB`, `512MiB`" + `. A relative path is relative to the working directory; ` + "`${NAME}`" + ` in a path is a
variable of the environment, and ` + "`${GOROOT}`" + ` is found without one. A ` + "`~`" + ` that begins a path is the
home folder. ` + "`auto`" + ` is resolved before the run starts;
` + "`config.yaml`" + ` in ` + "`output_dir`" + ` says to what, and can be given to ` + "`mt train`" + ` again.

An unknown or repeated key, a wrong type or an impossible value is an error with file, line and column. A value that has
no effect beside the others gives a note.
`

const referenceSets = `
## Keys of a data set

An item of ` + "`datasets` or `eval_datasets`" + ` is a path, or a mapping with these keys. Where ` + "`type`" + ` is not given, the fields that are
tell it, else each file's first row. ` + "`message_property_mappings: {role: from, content: value}`" + ` is another way to give ` + "`message_field_role` and `message_field_content`" + `.

| key | meaning |
| --- | --- |
`

const referencePresets = `
## Presets

` + "`model: NAME`" + ` trains one of these architectures from scratch; ` + "`model: {preset: NAME, vocab_size: 512}`" + ` changes keys of
it. An inline ` + "`model`" + ` has the keys of a Hugging Face ` + "`config.json`" + `.

`

const referenceForeign = `
## Keys of other tools

Configs written for LLaMA-Factory, Axolotl, torchtune or ` + "`transformers.TrainingArguments`" + ` often hold keys that say what
` + "`mt`" + ` does anyway, or that mean nothing to it. They are accepted with one note, and a value that contradicts what ` + "`mt`" + `
does (` + "`finetuning_type: lora`" + `) is an error that says so:

`

// reference writes docs/configuration.md: every key with its default, values,
// meaning and aliases, presets, and the keys of other tools.
func reference(w io.Writer) error {
	b := bytes.NewBufferString(referenceHead)
	d := Default()
	for _, s := range sections {
		fmt.Fprintf(b, "\n## %s\n\n| key | default | values | meaning | also |\n| --- | --- | --- | --- | --- |\n", s.title)
		for i := range s.keys {
			k := &s.keys[i]
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", code(k.name), code(k.defaultText(d)), k.values(), k.doc, code(k.aliases...))
		}
	}
	b.WriteString(referenceSets)
	for _, k := range setKeys {
		fmt.Fprintf(b, "| %s | %s |\n", code(k.name), k.doc)
	}
	b.WriteString(referencePresets)
	b.WriteString(code(model.PresetNames()...) + "\n")
	b.WriteString(referenceForeign)
	b.WriteString(code(slices.Sorted(maps.Keys(foreign))...) + "\n")
	_, err := w.Write(b.Bytes())
	return err
}

// code is words as Markdown shows code, with commas between them.
func code(words ...string) string {
	var out []string
	for _, w := range words {
		if w != "" {
			out = append(out, "`"+w+"`")
		}
	}
	return strings.Join(out, ", ")
}

// values says in a few words what k can be.
func (k *key) values() string {
	if len(k.choices) > 0 {
		return code(k.choices...)
	}
	auto := ""
	if k.auto {
		auto = "`auto`, "
	}
	switch k.field(Default()).(type) {
	case *bool:
		return code("true", "false")
	case *Toggle:
		return code(string(Auto), "true", "false")
	case *Bytes:
		return auto + "a size from " + Bytes(k.limit.min).String()
	case *int, *int64:
		return auto + "whole, " + k.limit.words()
	case *Interval:
		return "whole, or a share of all steps, " + k.limit.words()
	case *float64:
		return auto + k.limit.words()
	case *[]string:
		return "a list, or one"
	case *[]data.Set:
		return "a list of paths and mappings, see [below](#keys-of-a-data-set)"
	case *[]LRGroup:
		return "a list of mappings with name, modules, lr and weight_decay"
	case *map[string]any:
		return "a mapping"
	case *[]float64:
		return "a list of numbers, " + k.limit.words()
	}
	return "text"
}

// words is l as people say it.
func (l limit) words() string {
	low := fmt.Sprintf("at least %g", l.min)
	if l.open {
		low = fmt.Sprintf("above %g", l.min)
	}
	switch {
	case math.IsInf(l.max, 1) || l.max >= maxDepthValue:
		return low
	case l.below:
		return fmt.Sprintf("from %g, below %g", l.min, l.max)
	}
	return fmt.Sprintf("from %g to %g", l.min, l.max)
}
