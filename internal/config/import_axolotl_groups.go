package config

import (
	"regexp"
)

// axolotlGroups takes lr_groups, embedding_lr and embedding_lr_scale, which make one list of groups. Over there modules are parts
// of names, embedding and head are the group of embedding_lr alone, and groups leave out what does not decay.
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
	if scale := im.doc.get("embedding_lr_scale"); !scale.unset() { // which comes first over there
		by, ok := scale.float()
		of, known := im.doc.get("learning_rate").float()
		if !ok || !known {
			im.lose(e, "embedding_lr_scale needs learning_rate beside it, and both as numbers")
			return
		}
		rate = plainAt(scale, number(by*of))
	}
	if rate.unset() && !im.doc.get("weight_decay").unset() && im.doc.get("unfrozen_parameters").unset() {
		rate = im.doc.get("learning_rate") // an optimizer with groups decays neither embedding nor head over there
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

// partsOfNames is a list of parts of names as expressions.
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
