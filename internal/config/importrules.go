package config

import (
	"maps"
	"regexp"
	"strconv"
	"strings"

	"mt/data"
)

// to gives the value to a key of mt.
func to(key string) rule { return func(im *importer, e entry) { im.give(e, key, e.val) } }

// idle leaves a key out, whatever its value.
func idle(why string) rule { return func(im *importer, e entry) { im.idle(e, why) } }

// unlessOff is a rule for a key, unless its value switches it off.
func unlessOff(r rule) rule {
	return func(im *importer, e entry) {
		if e.val.unset() {
			im.idle(e, "it is off")
			return
		}
		r(im, e)
	}
}

// ifTrue is a rule for a key that is off unless its value is true.
func ifTrue(r rule) rule {
	return func(im *importer, e entry) {
		if !e.val.is("true") {
			im.idle(e, "it is off")
			return
		}
		r(im, e)
	}
}

// lost is a key that is not possible, unless its value switches it off.
func lost(why string) rule { return unlessOff(func(im *importer, e entry) { im.lose(e, why) }) }

// refused is a key of another way to train, unless its value switches it off.
func refused(why string) rule {
	return unlessOff(func(im *importer, e entry) { im.refuse(e, why) })
}

// means gives keys of mt values, each a key and its value, whatever value a key of theirs has; why says how they follow from it.
func means(why string, settings ...[2]string) rule {
	return func(im *importer, e entry) {
		var all []setting
		for _, s := range settings {
			all = append(all, setting{s[0], plainAt(e.val, s[1])})
		}
		im.giveFor(e, why, all...)
	}
}

// orElse gives the value to a key of mt; one that mt does not have is lost, and another takes its place.
func orElse(key, another string) rule {
	return func(im *importer, e entry) {
		if err := byName[key].set(Default(), e.spelled, e.val); err != nil {
			im.lose(e, wanted(err)+"; "+another+" takes its place")
			return
		}
		im.give(e, key, e.val)
	}
}

// templateText takes a chat template: Jinja itself, a file, or a directory with a tokenizer.
func templateText(im *importer, e entry) {
	if err := data.CheckTemplate(e.val.text); err != nil {
		im.lose(e, err.Error())
		return
	}
	im.give(e, "template", textAt(e.val, e.val.text))
}

// with is rules with the same rule for more keys.
func with(rules map[string]rule, r rule, names ...string) {
	for _, n := range names {
		rules[n] = r
	}
}

// is tells whether a value is the word, or the truth value, text.
func (v value) is(text string) bool {
	val, isBool := truth(v.text)
	want, wantsBool := truth(text)
	return v.kind <= quoted && v.kind != null && (v.text == text || isBool && wantsBool && val == want)
}

// count is a value as a whole number; false where it is none.
func (v value) count() (int, bool) {
	n, err := strconv.Atoi(v.text)
	return n, err == nil && (v.kind == plain || v.kind == quoted)
}

// float is a value as a number; false where it is none.
func (v value) float() (float64, bool) {
	x, err := strconv.ParseFloat(v.text, 64)
	return x, err == nil && (v.kind == plain || v.kind == quoted)
}

// each is the items of a list, or what is no list by itself.
func (v value) each() []value {
	if v.kind == list {
		return v.items
	}
	return []value{v}
}

// plainAt is a plain value that stands where v does.
func plainAt(v value, text string) value { return value{kind: plain, text: text, pos: v.pos} }

// textAt is text that stands where v does.
func textAt(v value, text string) value { return value{kind: quoted, text: text, pos: v.pos} }

// trainerRules are those of transformers.TrainingArguments, which LLaMA-Factory and TRL take too.
func trainerRules(more map[string]rule) map[string]rule {
	rules := map[string]rule{
		"warmup_steps": warmupRule,
		"bf16":         bf16Rule, "fp16": lost("mt computes in bf16 or fp32, which need no scaling of the loss: see compute_dtype"),
		"report_to": reportRule, "optim_args": optimArgs,
		"tf32": tf32Rule, "fp8": lost("mt computes in bf16 or fp32"),
		"data_seed": func(im *importer, e entry) { im.lose(e, "one seed decides all: see seed") },
	}
	with(rules, lost("mt computes in bf16 or fp32"), "fp8_backend", "fp8_enable_fsdp_float8_all_gather")
	with(rules, lost("it chooses the layers of an optimizer that mt does not have"), "optim_target_modules")
	with(rules, refused("mt train trains; mt eval and mt generate try a model"), "do_predict", "predict_with_generate")
	maps.Copy(rules, more)
	return rules
}

// warmupRule takes warmup_steps, where since Transformers 5 a share of all steps may stand.
func warmupRule(im *importer, e entry) {
	if x, ok := e.val.float(); ok && x > 0 && x < 1 {
		im.give(e, "warmup_ratio", e.val)
		return
	}
	im.give(e, "warmup_steps", e.val)
}

var tf32Rule = idle("products are of bf16, or of fp32 throughout")

// bf16Rule takes bf16, or a type: bf16 is what mt computes in on a GPU, all else is compute_dtype: fp32.
func bf16Rule(im *importer, e entry) {
	switch {
	case e.val.is("auto"), e.val.is("true"), e.val.is("full"), e.val.is("bf16"), e.val.is("bfloat16"):
		im.idle(e, "so it is on a GPU, beside fp32 masters: see compute_dtype and master_dtype")
	case im.doc.get("fp16").is("true"):
		im.idle(e, "fp16 is on instead")
	case e.val.is("false"):
		im.give(e, "compute_dtype", plainAt(e.val, "fp32"))
	default:
		im.give(e, "compute_dtype", e.val)
	}
}

// reportRule takes report_to: the boards that mt has are kept.
func reportRule(im *importer, e entry) {
	var keep []value
	lostOne := ""
	for _, item := range e.val.each() {
		if e := (&setter{key: byName["report_to"], spelled: "report_to", v: item}); e.list(&[]string{}) != nil {
			lostOne = item.text
			continue
		}
		keep = append(keep, item)
	}
	if len(keep) > 0 {
		im.give(e, "report_to", value{kind: list, items: keep, pos: e.val.pos})
	}
	if lostOne != "" {
		im.lose(e, lostOne+" is not reported to; metrics.jsonl is always written, and tensorboard and mlflow can be")
	}
}

// stepsOfEpochs gives a number of steps from a number for each epoch.
func (im *importer) stepsOfEpochs(e entry, epochs float64, key string) {
	n, ok := e.val.count()
	switch {
	case !ok:
		im.give(e, key, e.val) // the error says what it wants
	case n == 0:
		im.idle(e, "it is off")
	default:
		im.giveFor(e, "a share of all steps, as over there", setting{key, plainAt(e.val, number(1/(float64(n)*epochs)))})
	}
}

// optimKeysOf are the names that other tools have for an optimizer's numbers, and the keys of mt.
var optimKeysOf = map[string]string{
	"name": "optim", "wd": "weight_decay", "weight_decay": "weight_decay", "momentum": "momentum", "nesterov": "nesterov", "ns_steps": "ns_steps",
	"eps": "adam_epsilon", "epsilon": "adam_epsilon", "adam_epsilon": "adam_epsilon", "adamw_eps": "adam_epsilon",
	"beta1": "adam_beta1", "adam_beta1": "adam_beta1", "beta2": "adam_beta2", "adam_beta2": "adam_beta2",
}

// optimNumbers gives the numbers of an optimizer: a mapping, or a text such as "eps=1e-8,beta2=0.95" as Transformers reads it.
func (im *importer) optimNumbers(e entry, more ...setting) {
	fields := e.val.fields
	if e.val.kind == plain || e.val.kind == quoted {
		fields = append(fields, optimFields(e.val)...)
	}
	var settings []setting
	for _, f := range fields {
		switch key := optimKeysOf[f.name]; {
		case key != "":
			settings = append(settings, setting{key, f.val})
		case (f.name == "betas" || f.name == "adamw_betas") && len(f.val.items) == 2:
			settings = append(settings, setting{"adam_beta1", f.val.items[0]}, setting{"adam_beta2", f.val.items[1]})
		default:
			im.lose(entry{e.spelled + "." + f.name, f.pos, f.val}, "mt knows no such key of an optimizer")
		}
	}
	if settings = append(settings, more...); len(settings) > 0 {
		im.giveFor(e, "", settings...)
	}
}

// optimPart is a name with a number, or with numbers in brackets, in a text of optim_args.
var optimPart = regexp.MustCompile(`[^,(\[]*(?:[(\[][^)\]]*[)\]])?[^,]*`)

// optimFields returns the fields of a text such as "betas=(0.9,0.95),eps=1e-8". Numbers in brackets become a list.
func optimFields(v value) (fields []field) {
	for _, part := range optimPart.FindAllString(v.text, -1) {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, text, _ := strings.Cut(part, "=")
		text = strings.TrimSpace(text)
		val := plainAt(v, text)
		if inner := strings.Trim(text, "()[]"); inner != text {
			val = value{kind: list, pos: v.pos}
			for number := range strings.SplitSeq(inner, ",") {
				val.items = append(val.items, plainAt(v, strings.TrimSpace(number)))
			}
		}
		fields = append(fields, field{strings.TrimSpace(name), v.pos, val})
	}
	return fields
}

// optimArgs takes optim_args, which AdamW of Transformers does not read.
func optimArgs(im *importer, e entry) {
	if optim := im.doc.get("optim"); optim.kind == null || optimizers[optim.text] == "adamw" {
		im.idle(e, "AdamW of Transformers reads adam_beta1, adam_beta2 and adam_epsilon instead")
		return
	}
	im.optimNumbers(e)
}
