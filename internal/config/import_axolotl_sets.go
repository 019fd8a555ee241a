package config

import (
	"fmt"
	"slices"
	"strings"
)

// axolotlTypes are the types of axolotl's data sets, and what they are called here; a type with a
// layout of its own has a template too.
var axolotlTypes = map[string]struct{ name, template string }{
	"alpaca": {"alpaca", "stanford_alpaca"}, "chat_template": {"messages", ""}, "chat_template.default": {"messages", ""},
	"completion": {"text", ""}, "pretrain": {"text", ""}, "sharegpt": {"sharegpt", ""},
}

// axolotlSets takes datasets, pretraining_dataset or test_datasets.
func axolotlSets(key string) rule {
	return func(im *importer, e entry) {
		out := value{kind: list, pos: e.val.pos}
		layouts := map[string]bool{}
		for i, item := range e.val.each() {
			name := fmt.Sprintf("%s[%d]", e.spelled, i)
			if item.kind != mapping {
				out.items = append(out.items, item)
				continue
			}
			set, layout := im.axolotlSet(name, item)
			layouts[layout] = true
			out.items = append(out.items, set)
		}
		im.give(e, key, out)
		im.axolotlLayout(e, layouts)
	}
}

// axolotlLayout gives template the layout that the types of the data sets have.
func (im *importer) axolotlLayout(e entry, layouts map[string]bool) {
	if len(layouts) > 1 {
		im.lose(entry{e.spelled + "[].type", e.pos, e.val}, "mt has one template for all data sets, and these have layouts of their own; the model's chat template takes their place")
		return
	}
	for layout := range layouts {
		if _, given := im.given["template"]; layout != "" && !given {
			im.giveFor(entry{e.spelled + "[].type", e.pos, layoutType(e.val)}, "the layout of this type", setting{"template", textAt(e.val, layout)})
		}
	}
}

// layoutType is the type of the first data set in a list that has one.
func layoutType(sets value) value {
	for _, item := range sets.items {
		if v := item.get("type"); v.kind != null {
			return v
		}
	}
	return sets.get("type")
}

// axolotlSet is one data set as an item of datasets, with the template that its type has.
func (im *importer) axolotlSet(name string, item value) (set value, layout string) {
	set = value{kind: mapping, pos: item.pos}
	for _, f := range item.fields {
		e := entry{name + "." + f.name, f.pos, f.val}
		switch {
		case f.val.kind == null:
		case f.name == "type":
			var typed []field
			typed, layout = im.axolotlType(e)
			set.fields = append(set.fields, typed...)
		case f.name == mappingsKey:
			set.fields = append(set.fields, im.axolotlMappings(e)...)
		case f.name == "text_column":
			set.fields = append(set.fields, field{"field", f.pos, f.val})
		case slices.ContainsFunc(setKeys, func(k setKey) bool { return k.name == f.name }):
			set.fields = append(set.fields, f)
		case f.name == "roles_to_train" && flow(f.val.inline()) == "[assistant]", f.name == "train_on_eos" && f.val.is("turn"), f.name == "train_on_eot" && f.val.is("turn"),
			f.name == "message_field_training" && (f.val.text == "train" || f.val.text == "training"), f.name == "trust_remote_code", f.name == "revision", f.name == "preprocess_shards", f.name == "skip":
			im.idle(e, "it is so here, or changes nothing")
		case f.name == "chat_template":
			axolotlTemplate(im, e)
		case f.name == "field_thinking", f.name == "template_thinking_key":
			im.lose(e, "fields of messages keep their names: rename them in the rows")
		default:
			im.lose(e, "mt has no such key of a data set")
		}
	}
	return set, layout
}

// axolotlFields takes the fields of a mapping that says what rows hold; renamed are those that have another name here.
func (im *importer) axolotlFields(e entry, renamed map[string]string) (fields []field) {
	for _, f := range e.val.fields {
		to, another := renamed[f.name]
		switch {
		case f.val.kind == null:
		case another:
			fields = append(fields, field{to, f.pos, f.val})
		case slices.ContainsFunc(setKeys, func(k setKey) bool { return k.name == f.name }):
			fields = append(fields, f)
		default:
			im.lose(entry{e.spelled + "." + f.name, f.pos, f.val}, "the layout of a prompt is a template's: write one in Jinja, and name it in template")
		}
	}
	return fields
}

// axolotlType takes the type of a data set: a name, or a mapping of fields.
func (im *importer) axolotlType(e entry) (fields []field, layout string) {
	if axolotlOnPairs(im) {
		if fields, layout, ok := im.axolotlPairs(e); ok {
			return fields, layout
		}
	}
	if e.val.kind == mapping {
		return append(im.axolotlFields(e, nil), field{"type", e.pos, textAt(e.val, "alpaca")}), ""
	}
	to, ok := axolotlTypes[e.val.text]
	if !ok {
		base, _, _ := strings.Cut(strings.ReplaceAll(e.val.text, ":", "."), ".")
		im.lose(e, "mt does not know this layout"+suggest(base, []string{"alpaca", "chat_template", "completion"})+"; each file's first row says what rows hold, and the model's chat template how they are laid out")
		return nil, ""
	}
	return []field{{"type", e.pos, textAt(e.val, to.name)}}, to.template
}

// axolotlMappings takes message_property_mappings: role and content have places here.
func (im *importer) axolotlMappings(e entry) []field {
	out := value{kind: mapping, pos: e.val.pos}
	for _, f := range e.val.fields {
		if f.name == "role" || f.name == "content" {
			out.fields = append(out.fields, f)
			continue
		}
		im.lose(entry{e.spelled + "." + f.name, f.pos, f.val}, "fields of messages keep their names: rename them in the rows")
	}
	return []field{{mappingsKey, e.pos, out}}
}
