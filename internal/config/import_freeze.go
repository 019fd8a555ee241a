package config

import (
	"fmt"
	"regexp"
	"strings"

	"mt/model"
)

// freezeRules are those of LLaMA-Factory's finetuning_type and of the keys that belong to freeze.
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
	// The configs of examples/v1 have all of it in one mapping, without use_llama_pro.
	rules["peft_config"] = func(im *importer, e entry) {
		if e.val.get("name").is("freeze") {
			im.freeze(e, e.val, im.doc.get("model"))
			return
		}
		im.lose(e, noAdapter)
	}
	return rules
}

// freeze takes finetuning_type: freeze (LLaMA-Factory, model/adapter.py) of the model of that name, whose numbers are in keys: some layers
// are trained, the last ones, the first or, with use_llama_pro, one in so many; of these all modules or some; and modules
// outside of layers. A tensor is trained where its name has one of these parts anywhere.
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

// unfrozenLayers are the numbers of the layers that are trained of the model of that name; why says what is missing for that.
func unfrozenLayers(keys value, name string) (layers []int, why string) {
	trained := 2 // where nothing is said
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
