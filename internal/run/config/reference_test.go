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

// TestReference: docs/configuration.md equals the text that reference makes of the table of keys.
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

A run takes its keys from a YAML file, from flags, or from both. A flag wins over the file.

` + "```" + `sh
mt train run.yaml                          # keys in run.yaml
mt train run.yaml --learning-rate 1e-4     # one key replaced
mt train --help                            # the 20 most common keys
mt train --help-all                        # all keys; mt man DIR writes them as manual pages
` + "```" + `

- **Flags.** ` + "`learning_rate: 1e-4`" + ` is ` + "`--learning-rate 1e-4`" + ` or ` + "`--learning_rate=1e-4`" + `. A dot
  reaches into a mapping: ` + "`--pipeline.weight-slots 4`" + `, ` + "`--model.vocab-size 512`" + `.
  A switch needs no value.
- **Lists** are ` + "`[a, b]`" + ` or ` + "`a,b`" + `, in the file and in flags: ` + "`--freeze embed_tokens,lm_head`" + `. Commas
  inside the braces of a glob or the brackets of a regular expression do not separate items.
  ` + "`sample_prompts`" + ` takes text without brackets as one prompt.
- **Sizes** have a unit: ` + "`10GiB`" + `, ` + "`512MiB`" + `.
- **Paths** are relative to the working directory. ` + "`${NAME}`" + ` is an environment variable, and a
  leading ` + "`~`" + ` is the home folder. ` + "`${GOROOT}`" + ` needs no variable.
- **auto** is resolved when the run starts. ` + "`config.yaml`" + ` in ` + "`output_dir`" + ` has every value that the
  run used; ` + "`mt train`" + ` takes this file too.
- **Errors** name file, line and column: an unknown or repeated key, a wrong type, an impossible
  value. A note tells of a key that has no effect beside the others.
`

const referenceSets = `
## Keys of a data set

An item of ` + "`datasets`" + ` or ` + "`eval_datasets`" + ` is a path or a mapping with these keys. Without ` + "`type`" + `,
the given fields or each file's first row decide.
` + "`message_property_mappings: {role: from, content: value}`" + ` sets
` + "`message_field_role`" + ` and ` + "`message_field_content`" + `.

| key | meaning |
| --- | --- |
`

const referencePresets = `
## Presets

` + "`model: NAME`" + ` trains one of these architectures from scratch.
` + "`model: {preset: NAME, vocab_size: 512}`" + ` changes some of its keys. An inline
` + "`model`" + ` takes the keys of a Hugging Face ` + "`config.json`" + `.

`

const referenceForeign = `
## Keys of other tools

` + "`mt`" + ` accepts these keys of LLaMA-Factory, axolotl, torchtune and
` + "`transformers.TrainingArguments`" + ` with one note. They ask for what ` + "`mt`" + ` does
anyway, or have no meaning for it. A value that contradicts what ` + "`mt`" + ` does, such as
` + "`finetuning_type: lora`" + `, is an error.

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
	b.WriteString(columns(code(model.PresetNames()...)) + "\n")
	b.WriteString(referenceForeign)
	b.WriteString(columns(code(slices.Sorted(maps.Keys(foreign))...)) + "\n")
	_, err := w.Write(b.Bytes())
	return err
}

// columns breaks text at spaces into lines of at most 100 characters.
func columns(text string) string { return strings.Join(wrap(text, 100), "\n") }

// code formats words as Markdown code with commas between them.
func code(words ...string) string {
	var out []string
	for _, w := range words {
		if w != "" {
			out = append(out, "`"+w+"`")
		}
	}
	return strings.Join(out, ", ")
}

// values describes the values that k accepts in a few words, for the table of keys.
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
		return auto + "size ≥ " + Bytes(k.limit.min).String()
	case *int, *int64:
		return auto + "integer " + k.limit.words()
	case *Interval:
		return "integer, or share of all steps, " + k.limit.words()
	case *float64:
		return auto + k.limit.words()
	case *[]string:
		return "list"
	case *[]data.Set:
		return "list of [data sets](#keys-of-a-data-set)"
	case *[]LRGroup:
		return "list of mappings: name, modules, lr, weight_decay"
	case *map[string]any:
		return "mapping"
	case *[]float64:
		return "list of numbers " + k.limit.words()
	}
	return "text"
}

// words describes the range l in a few words, such as "≥ 0" or "0 to 1".
func (l limit) words() string {
	low := fmt.Sprintf("≥ %g", l.min)
	if l.open {
		low = fmt.Sprintf("> %g", l.min)
	}
	switch {
	case math.IsInf(l.max, 1) || l.max >= maxDepthValue:
		return low
	case l.below:
		return fmt.Sprintf("≥ %g, < %g", l.min, l.max)
	}
	return fmt.Sprintf("%g to %g", l.min, l.max)
}
