package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// axolotl reads configs of axolotl-ai-cloud/axolotl (src/axolotl/utils/schemas).
var axolotl = &tool{
	name: "axolotl", word: "axolotl",
	is: func(doc value) bool {
		return doc.has("base_model") && (doc.has("datasets") || doc.has("pretraining_dataset"))
	},
	rules: axolotlRules(), last: axolotlLast,
}

func axolotlRules() map[string]rule {
	rules := tableRules("axolotl")
	maps.Copy(rules, map[string]rule{
		"tf32": tf32Rule, "bf16": bf16Rule, "bfloat16": bf16Rule,
		"optimizer":           orElse("optim", "adamw"),
		"optim_args":          func(im *importer, e entry) { im.optimNumbers(e) },
		"datasets":            axolotlSets("datasets"),
		"pretraining_dataset": axolotlSets("datasets"),
		"test_datasets":       axolotlSets("eval_datasets"),
		"chat_template":       axolotlTemplate,
		"chat_template_jinja": templateText,
		"batch_size":          axolotlBatch,
		"lr_scheduler":        orElse("lr_scheduler_type", "cosine"), // mt has no rex, one_cycle and the like
		"warmup_steps":        warmupRule,
		"evals_per_epoch":     func(im *importer, e entry) { im.stepsOfEpochs(e, axolotlEpochs(im), "eval_steps") },
		"saves_per_epoch":     func(im *importer, e entry) { im.stepsOfEpochs(e, axolotlEpochs(im), "save_steps") },
		"tokens":              axolotlTokens,
		"plugins":             axolotlPlugins,
		"unfrozen_parameters": axolotlUnfrozen,
		"base_model_config":   sameAsModel, "tokenizer_config": sameAsModel,
		"resize_token_embeddings_to_32x": unlessOff(means("", [2]string{"resize_vocab", "true"}, [2]string{"resize_vocab_to_multiple_of", "32"})),
		"use_mlflow":                     switchedReport("mlflow"),
		"use_tensorboard":                switchedReport("tensorboard"),
		"model_quantization_config": func(im *importer, e entry) {
			if im.doc.get("model_quantization_config_kwargs").get("dequantize").is("true") {
				im.idle(e, "weights are read into bf16 and trained so")
				return
			}
			im.lose(e, noQuant)
		},
		"excess_length_strategy": idleIf("truncate", "rows that are longer are cut", "rows that are longer are cut, and left out where nothing supervised is left"),
	})
	with(rules, axolotlGroups, groupsKey, "embedding_lr", "embedding_lr_scale")
	maps.Copy(rules, axolotlDPO())
	return rules
}

// axolotlLast runs after all keys. For each key that the config leaves open it writes axolotl's default if mt's
// default differs.
func axolotlLast(im *importer) {
	for _, d := range []struct{ key, text, why string }{
		{"max_seq_len", "512", ""}, {"packing", "false", ""}, {"per_device_train_batch_size", "1", ""}, {"num_train_epochs", "1", ""},
		{"lr_scheduler_type", "cosine", ""},
	} {
		im.orDefault(d.key, d.text, d.why)
	}
	if !im.doc.has("excess_length_strategy") && !axolotlOnPairs(im) {
		im.byDefault("excess_length_strategy", "drop", "rows longer than sequence_len are left out there; mt cuts them, and leaves out those where nothing supervised is left")
	}
	_, steps := im.given["warmup_steps"]
	if !steps {
		im.orDefault("warmup_ratio", "0.03", "3 in 100 steps, and at most 100 steps, rise")
	}
	if _, given := im.given["save_steps"]; !given {
		im.orDefault("save_strategy", "epoch", "")
	}
	if _, given := im.given["eval_steps"]; !given && im.c.held() {
		im.orDefault("eval_strategy", "epoch", "")
	}
}

// axolotlEpochs returns num_epochs; 1 if it is not given.
func axolotlEpochs(im *importer) float64 {
	if x, ok := im.doc.get("num_epochs").float(); ok && x > 0 {
		return x
	}
	return 1
}

// axolotlBatch converts batch_size, the rows of an optimizer step, into gradient_accumulation_steps = batch_size /
// micro_batch_size.
func axolotlBatch(im *importer, e entry) {
	micro, ok := im.doc.get("micro_batch_size").count()
	if !ok {
		micro = 1
	}
	n, ok := e.val.count()
	switch {
	case !ok || micro < 1 || n%micro != 0:
		im.lose(e, "it is no multiple of micro_batch_size")
	default:
		im.giveFor(e, fmt.Sprintf("rows of a step, over micro_batch_size %d", micro), setting{"gradient_accumulation_steps", plainAt(e.val, fmt.Sprint(n/micro))})
	}
}

// sameAsModel handles a key that names the model's config or its tokenizer. If the value equals base_model, it drops
// the key, since mt reads both from the model's directory. Any other path is Lost.
func sameAsModel(im *importer, e entry) {
	if e.val.text == im.doc.get("base_model").text {
		im.idle(e, "it is base_model, which has it all")
		return
	}
	im.lose(e, "mt reads config and tokenizer from the model's directory: put them there")
}

// switchedReport returns a rule for a key such as use_mlflow: if its value switches the key on, the rule adds the
// destination board to report_to.
func switchedReport(board string) rule {
	return unlessOff(means("", [2]string{"report_to", board}))
}

// axolotlTokens converts the key tokens. It is a list of tokens to add or, in older configs, a mapping in the form of
// special_tokens.
func axolotlTokens(im *importer, e entry) {
	if e.val.kind == mapping {
		im.give(e, specialTokensKey, e.val)
		return
	}
	im.giveFor(e, "", setting{"add_tokens", e.val}, setting{"resize_vocab", plainAt(e.val, "true")})
}

// dots matches the dots in a pattern of unfrozen_parameters that axolotl takes literally: those that no + follows.
var dots = regexp.MustCompile(`\.([^+]|$)`)

// axolotlUnfrozen converts unfrozen_parameters, a list of patterns that match the start of a tensor's name and in
// which a dot is literal. A range of rows after a name, such as [:100], is Lost.
func axolotlUnfrozen(im *importer, e entry) {
	out := value{kind: list, pos: e.val.pos}
	for _, item := range e.val.items {
		if strings.Contains(item.text, "[:") || strings.HasSuffix(item.text, ":]") {
			im.lose(e, "a tensor is trained as a whole: "+item.text+" names some of its rows")
			return
		}
		out.items = append(out.items, textAt(item, "^"+strings.TrimPrefix(dots.ReplaceAllString(item.text, `\.$1`), "^")))
	}
	im.give(e, "unfrozen_parameters", out)
}

// axolotlPlugins converts plugins, a list of Python classes. It drops those that only make a run faster; others are
// Lost.
func axolotlPlugins(im *importer, e entry) {
	items := e.val.items
	if e.val.kind != list {
		items = []value{e.val}
	}
	for _, item := range items {
		name := strings.ToLower(item.text)
		if !slices.ContainsFunc([]string{"liger", "cut_cross_entropy", "kernels", "expert_parallel"}, func(s string) bool { return strings.Contains(name, s) }) {
			im.lose(e, fmt.Sprintf("mt has no plugins, and %s changes what is trained", item.text))
			return
		}
	}
	im.idle(e, "mt has kernels of its own")
}

// axolotlChats reports whether one of the config's data sets goes through the chat template.
func (im *importer) axolotlChats() bool {
	return slices.ContainsFunc(im.doc.get("datasets").items, func(v value) bool { return strings.HasPrefix(v.get("type").text, "chat_template") })
}

// axolotlTemplate converts chat_template, the name of one of axolotl's chat templates. mt has only chatml of these. It
// drops names that stand for the model's own template, which mt uses anyway. Others are Lost.
func axolotlTemplate(im *importer, e entry) {
	name := e.val.text
	if rest, ok := strings.CutPrefix(name, "tokenizer_default_fallback_"); ok {
		im.idle(e, "the model's own chat template is taken where it has one; else give template: "+rest)
		return
	}
	if !im.axolotlChats() {
		im.idle(e, "no data set goes through it: their types have layouts of their own")
		return
	}
	switch name {
	case "tokenizer_default":
		im.idle(e, "the model's own chat template is taken anyway")
	case "jinja":
		im.idle(e, "chat_template_jinja is the template")
	case "chatml":
		im.give(e, "template", e.val)
	default:
		im.lose(e, "mt takes the model's own chat template, which for the models that this layout is of is the same but for details")
	}
}

// axolotlGroups converts lr_groups, embedding_lr and embedding_lr_scale into one list of groups. axolotl's modules
// are parts of names. embedding_lr applies to the embedding and the head, without weight decay.
func axolotlGroups(im *importer, e entry) {
	if e.spelled != groupsKey && e.val.unset() {
		im.idle(e, "it is off")
		return
	}
	all := value{kind: list, pos: e.val.pos}
	for _, item := range im.doc.get(groupsKey).items {
		group := value{kind: mapping, pos: item.pos}
		for _, f := range item.fields {
			if f.name == "modules" {
				f.val = partsOfNames(f.val)
			}
			group.fields = append(group.fields, f)
		}
		all.items = append(all.items, group)
	}
	rate := im.doc.get("embedding_lr")
	if scale := im.doc.get("embedding_lr_scale"); !scale.unset() { // embedding_lr_scale wins in axolotl
		by, ok := scale.float()
		of, known := im.doc.get("learning_rate").float()
		if !ok || !known {
			im.lose(e, "embedding_lr_scale needs learning_rate beside it, and both as numbers")
			return
		}
		rate = plainAt(scale, number(by*of))
	}
	if rate.unset() && !im.doc.get("weight_decay").unset() && im.doc.get("unfrozen_parameters").unset() {
		rate = im.doc.get("learning_rate") // with groups, axolotl's optimizer does not decay the embedding and the head
	}
	why := ""
	if e.spelled == groupsKey {
		why = "modules are parts of names over there; norms and biases that match are in the group here"
	}
	if !rate.unset() {
		at := func(name string, v value) field { return field{name: name, pos: rate.pos, val: v} }
		modules := value{kind: list, pos: rate.pos, items: []value{textAt(rate, "embed_tokens|lm_head")}}
		all.items = append(all.items, value{kind: mapping, pos: rate.pos, fields: []field{at("name", textAt(rate, "embeddings")),
			at("modules", modules), at("lr", rate), at("weight_decay", plainAt(rate, "0"))}})
	}
	im.giveFor(e, why, setting{groupsKey, all})
}

// partsOfNames converts a list of parts of tensor names to a list of regular expressions that match these parts
// anywhere in a name.
func partsOfNames(v value) value {
	out := value{kind: v.kind, pos: v.pos}
	for _, item := range v.items {
		out.items = append(out.items, textAt(item, regexp.QuoteMeta(item.text)))
	}
	if v.kind <= quoted {
		out.text = regexp.QuoteMeta(v.text)
	}
	return out
}

// axolotlTypes maps axolotl's types of data sets to mt's types. template names the built-in chat template that the
// type implies; empty: none.
var axolotlTypes = map[string]struct{ name, template string }{
	"alpaca": {"alpaca", "stanford_alpaca"}, "chat_template": {"messages", ""}, "chat_template.default": {"messages", ""},
	"completion": {"text", ""}, "pretrain": {"text", ""}, "sharegpt": {"sharegpt", ""},
}

// axolotlSets converts datasets, pretraining_dataset or test_datasets.
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

// axolotlLayout sets the key template to the chat template that the types of the data sets imply. layouts holds these
// templates. With more than one, e gets the fate Lost, since mt has one template for all data sets.
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

// layoutType returns the type of the first data set in sets that has one, so that the report can show this type and
// its position.
func layoutType(sets value) value {
	for _, item := range sets.items {
		if v := item.get("type"); v.kind != null {
			return v
		}
	}
	return sets.get("type")
}

// axolotlSet converts one data set to an item of `datasets`. layout is the chat template that the set's type implies;
// "" if it implies none.
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

// axolotlFields converts e, a mapping of roles such as field_instruction to columns, to fields of an item of
// `datasets`. renamed maps those keys of axolotl to mt's that have another name in mt.
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

// axolotlType converts the type of a data set: a name, or a mapping of columns. It returns fields for an item of
// `datasets` and the chat template that the type implies; "" if it implies none.
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

// axolotlMappings converts message_property_mappings to fields of an item of `datasets`. Only role and content have a
// counterpart in mt; other properties are Lost.
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
