package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"mt/data"
	"mt/model"
)

// llamaFactory reads configs of hiyouga/LLaMA-Factory: its own keys (src/llamafactory/hparams) and the keys of
// transformers.TrainingArguments. Configs like its examples/v1 use another form for a few keys.
var llamaFactory = &tool{
	name: "LLaMA-Factory", word: "llamafactory",
	is: func(doc value) bool {
		return doc.has("stage") && (doc.has("finetuning_type") || doc.has("do_train") || doc.has("do_predict")) || doc.has("train_dataset") && doc.has("model_class")
	},
	rules: llamaFactoryRules(), last: llamaFactoryLast,
}

const (
	noOtherOptimizer = "mt has no such optimizer; the key optim chooses one for all parameters"
	noOtherLoss      = "mt trains on the cross-entropy of the next token"
	noTowers         = "mt trains a model's text part; images, videos and audio are not read"
)

func llamaFactoryRules() map[string]rule {
	rules := trainerRules("llamafactory", map[string]rule{
		"stage": llamaFactoryStage,
		"do_train": func(im *importer, e entry) {
			if why := foreign["do_train"](e.val, im.c); why != "" {
				im.refuse(e, why)
				return
			}
			im.idle(e, "mt train trains")
		},
		"template": templateRule,
		"optim":    orElse("optim", "adamw"),
		// LLaMA-Factory's pure_bf16 keeps bf16 weights without fp32 master weights.
		"pure_bf16": ifTrue(means("updates round by chance, so that small ones are not lost", [2]string{"master_dtype", "bf16"}, [2]string{"compute_dtype", "bf16"})),
		// LLaMA-Factory's Muon scales updates like Moonlight's (third_party/muon).
		"use_muon":          ifTrue(means("", [2]string{"optim", "muon"}, [2]string{"adjust_lr_fn", "match_rms_adamw"})),
		"disable_shuffling": negated("shuffle"),
		"packing": func(im *importer, e entry) {
			if im.doc.get("neat_packing").is("true") {
				im.giveFor(e, "neat_packing switches it on", setting{"packing", plainAt(e.val, "true")})
				return
			}
			im.giveFor(e, "documents in a row do not see each other", setting{"packing", e.val})
		},
		// neat_packing implies packing in LLaMA-Factory.
		"neat_packing": ifTrue(means("documents in a row do not see each other", [2]string{"packing", "true"})),
	})
	maps.Copy(rules, freezeRules())
	maps.Copy(rules, llamaFactoryV1())
	maps.Copy(rules, llamaFactoryDPO())
	return rules
}

// llamaFactoryV1 returns rules for keys that only configs like examples/v1 have.
func llamaFactoryV1() map[string]rule {
	return map[string]rule{
		"model_class": func(im *importer, e entry) {
			if e.val.is("llm") {
				im.idle(e, "mt has language models alone")
				return
			}
			im.refuse(e, "mt trains language models (llm)")
		},
		"train_dataset": func(im *importer, e entry) {
			if strings.HasSuffix(e.val.text, ".yaml") || strings.HasSuffix(e.val.text, ".yml") {
				im.lose(e, "mt reads no YAML file of data sets: name its files in datasets")
				return
			}
			im.give(e, "dataset", e.val)
		},
		"model":        to(modelKey),
		"optim_config": llamaFactoryOptim,
	}
}

// llamaFactoryOptim converts optim_config, a mapping with an optimizer's name and settings.
func llamaFactoryOptim(im *importer, e entry) {
	more := []setting{}
	if e.val.get("name").is("muon") {
		more = append(more, setting{"adjust_lr_fn", plainAt(e.val, "match_rms_adamw")})
	}
	im.optimNumbers(e, more...)
}

// negated returns a rule that gives the opposite of a switch, such as disable_shuffling, to the key of mt called key.
func negated(key string) rule {
	return func(im *importer, e entry) {
		if val, ok := truth(e.val.text); ok {
			im.give(e, key, plainAt(e.val, map[bool]string{true: "false", false: "true"}[val]))
			return
		}
		im.give(e, key, e.val)
	}
}

// templateRule converts the name of a chat template. A template that mt does not have is Lost.
func templateRule(im *importer, e entry) {
	if !slices.Contains(data.Templates, e.val.text) {
		im.lose(e, "mt does not know this layout; the model's own chat template takes its place, or give template a Jinja file")
		return
	}
	im.give(e, "template", e.val)
}

// llamaFactoryLast runs after all keys. For each key that the config leaves open it writes LLaMA-Factory's default if
// mt's default differs.
func llamaFactoryLast(im *importer) {
	packing := "false"
	if im.doc.get("stage").is("pt") {
		packing = "true"
	}
	im.orDefault("packing", packing, "LLaMA-Factory packs rows in pre-training alone")
	if !im.doc.has("finetuning_type") && !im.doc.has("model_class") {
		im.lose(entry{"finetuning_type", im.doc.pos, value{pos: im.doc.pos}}, "it is not given, and LLaMA-Factory takes lora then; "+noAdapter)
	}
	if !im.doc.has("train_dataset") && !slices.ContainsFunc(append(slices.Clone(im.c.Dataset), im.c.EvalDataset...), func(name string) bool { return data.NamesFile(name) || strings.ContainsAny(name, "/*") }) {
		im.orDefault("dataset_dir", "data", "where LLaMA-Factory has dataset_info.json")
	}
}

// freezeRules returns rules for LLaMA-Factory's finetuning_type and for the keys that belong to its value freeze.
func freezeRules() map[string]rule {
	rules := map[string]rule{
		"finetuning_type": func(im *importer, e entry) {
			switch {
			case e.val.is("full"):
				im.idle(e, "mt trains all parameters")
			case e.val.is("freeze"):
				im.freeze(e, im.doc, im.doc.get("model_name_or_path"))
			default:
				im.lose(e, noAdapter)
			}
		},
	}
	with(rules, func(im *importer, e entry) {
		if im.doc.get("finetuning_type").is("freeze") {
			im.idle(e, "unfrozen_parameters has it, for finetuning_type")
			return
		}
		im.idle(e, "it belongs to finetuning_type: freeze")
	}, "freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules")
	rules["use_llama_pro"] = func(im *importer, e entry) {
		if e.val.unset() || im.doc.get("finetuning_type").is("freeze") {
			im.idle(e, "it is off, or unfrozen_parameters has it")
			return
		}
		im.lose(e, "it says which layers get an adapter; "+noAdapter)
	}
	// Configs like examples/v1 keep these keys in one mapping, without use_llama_pro.
	rules["peft_config"] = func(im *importer, e entry) {
		if e.val.get("name").is("freeze") {
			im.freeze(e, e.val, im.doc.get("model"))
			return
		}
		im.lose(e, noAdapter)
	}
	return rules
}

// freeze converts finetuning_type: freeze (LLaMA-Factory, model/adapter.py) to unfrozen_parameters. keys is a mapping
// with the settings, and name is the model. The trained layers are the last ones, the first ones, or with
// use_llama_pro single layers at equal distances. In these layers all modules or some are trained, and
// freeze_extra_modules adds modules outside of layers. A tensor is trained if its name contains one of the resulting
// parts.
func (im *importer) freeze(e entry, keys, name value) {
	layers, why := unfrozenLayers(keys, name.text)
	if why != "" {
		im.lose(e, why)
		return
	}
	parts := func(key string) (of []string) {
		for part := range strings.SplitSeq(keys.get(key).text, ",") {
			if part = strings.TrimSpace(part); part != "" {
				of = append(of, part)
			}
		}
		return of
	}
	modules := parts("freeze_trainable_modules")
	if len(modules) == 0 {
		modules = []string{"all"}
	}
	out := value{kind: list, pos: e.val.pos}
	for _, m := range modules {
		if m == "all" {
			m = ""
		}
		for _, l := range layers {
			out.items = append(out.items, textAt(e.val, regexp.QuoteMeta(fmt.Sprintf(".%d.%s", l, m))))
		}
	}
	for _, m := range parts("freeze_extra_modules") {
		out.items = append(out.items, textAt(e.val, regexp.QuoteMeta(m)))
	}
	im.giveFor(e, "names that have one of these are trained, all else is frozen", setting{"unfrozen_parameters", out})
}

// unfrozenLayers returns the indexes of the trained layers of the model called name. keys is the mapping with the
// settings. If the layers cannot be determined, why names what is missing; otherwise why is "".
func unfrozenLayers(keys value, name string) (layers []int, why string) {
	trained := 2 // LLaMA-Factory's default
	if v := keys.get("freeze_trainable_layers"); v.kind != null {
		n, ok := v.count()
		if !ok || n == 0 {
			return nil, fmt.Sprintf("freeze_trainable_layers is %s: it wants a number of layers, the last ones, or the first where it is negative", v.shown())
		}
		trained = n
	}
	dir, err := ModelDir(name)
	if err != nil {
		return nil, fmt.Sprintf("how many layers the model has says its directory: %v; or give unfrozen_parameters", err)
	}
	c, err := model.LoadDir(dir)
	if err != nil {
		return nil, fmt.Sprintf("how many layers the model has could not be read: %v", err)
	}
	all, stride, first := c.NumLayers, 1, 0
	switch {
	case !keys.get("use_llama_pro").unset():
		if trained < 0 || all%trained != 0 {
			return nil, fmt.Sprintf("use_llama_pro wants freeze_trainable_layers, %d, to divide the model's %d layers", trained, all)
		}
		stride = all / trained
		first = stride - 1
	case trained > 0:
		first = max(0, all-trained)
	default:
		all = min(-trained, all)
	}
	for l := first; l < all; l += stride {
		layers = append(layers, l)
	}
	return layers, ""
}
