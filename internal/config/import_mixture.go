package config

import (
	"fmt"
	"math"
	"strings"
)

// trlMixture takes dataset_mixture: {datasets: [{id, config, split, columns, weight}], seed, test_split_size}. Source:
// the ScriptArguments of huggingface/alignment-handbook and huggingface/open-r1.
func trlMixture(im *importer, e entry) {
	for _, f := range e.val.fields {
		part := entry{e.spelled + "." + f.name, f.pos, f.val}
		switch f.name {
		case "datasets":
			im.trlMixed(part)
		case "seed":
			im.idle(part, "seed decides the order of rows")
		case "test_split_size":
			im.give(part, "val_size", f.val)
		default:
			im.lose(part, "mt knows no such key of a mixture")
		}
	}
	if !e.val.has("datasets") {
		im.lose(e, "it has no list of datasets")
	}
}

// trlMixed takes a list of data sets: of TRL (path, name, split, data_files, columns), or of a mixture.
func (im *importer) trlMixed(e entry) {
	out := value{kind: list, pos: e.val.pos}
	for i, item := range e.val.each() {
		if item.kind != mapping {
			out.items = append(out.items, item)
			continue
		}
		out.items = append(out.items, im.trlMixedSet(fmt.Sprintf("%s[%d]", e.spelled, i), item))
	}
	im.give(e, "datasets", out)
}

// mixedKeys are the keys of a mixture's item, by the keys that items of datasets have for them.
var mixedKeys = map[string]string{"id": "path", "path": "path", "config": "name", "name": "name", "split": "split", "data_files": "data_files"}

// trlMixedSet is an item of a mixture as an item of datasets. Its split is train unless it says another.
func (im *importer) trlMixedSet(name string, item value) value {
	set := value{kind: mapping, pos: item.pos}
	for _, f := range item.fields {
		part := entry{name + "." + f.name, f.pos, f.val}
		switch to := mixedKeys[f.name]; {
		case f.val.kind == null || f.name == "split" || f.name == "weight":
		case to != "":
			set.fields = append(set.fields, field{to, f.pos, f.val})
		case f.name == "columns":
			im.idle(part, "columns that are not read cost nothing")
		case f.name == "data_dir":
			im.lose(part, "name the files in data_files")
		default:
			im.lose(part, "mt has no such key of a data set")
		}
	}
	split := item.get("split")
	if split.kind == null {
		split = textAt(item, "train")
	}
	weight := item.get("weight")
	share, isNumber := weight.float()
	percent := math.Round(share * 100)
	part := entry{name + ".weight", weight.pos, weight}
	switch {
	case weight.kind == null, share == 1:
	case !isNumber, share <= 0, share > 1, math.Abs(share*100-percent) > 1e-9:
		im.lose(part, "a share of a data set is given in whole hundredths, up to 1: see split")
	default:
		im.idle(part, "the first rows of the split are taken; over there as many are drawn")
		split = textAt(split, fmt.Sprintf("%s[:%.0f%%]", split.text, percent))
	}
	set.fields = append(set.fields, field{"split", split.pos, textAt(split, split.text)})
	return set
}

// trlMixer takes dataset_mixer: {NAME: SHARE}, with dataset_splits and dataset_configs beside it: the form that
// alignment-handbook had before dataset_mixture. A split whose name has train in it is trained on, one with test is held out.
func trlMixer(im *importer, e entry) {
	train, held := value{kind: list, pos: e.val.pos}, value{kind: list, pos: e.val.pos}
	splits, configs := im.doc.get("dataset_splits"), im.doc.get("dataset_configs")
	if splits.kind == null {
		splits = value{kind: list, pos: e.val.pos, items: []value{textAt(e.val, "train"), textAt(e.val, "test")}}
	}
	for _, split := range splits.each() {
		if !strings.Contains(split.text, "train") && !strings.Contains(split.text, "test") {
			im.lose(entry{"dataset_splits", split.pos, split}, "a split's name has train or test in it")
		}
	}
	for i, f := range e.val.fields {
		for _, split := range splits.each() {
			item := value{kind: mapping, pos: f.pos, fields: []field{{"path", f.pos, value{kind: quoted, text: f.name, pos: f.pos}}, {"split", split.pos, split}}}
			if i < len(configs.items) {
				item.fields = append(item.fields, field{"config", configs.items[i].pos, configs.items[i]})
			}
			name := e.spelled + "." + f.name
			switch {
			case strings.Contains(split.text, "train"):
				item.fields = append(item.fields, field{"weight", f.val.pos, f.val})
				train.items = append(train.items, im.trlMixedSet(name, item))
			case strings.Contains(split.text, "test"):
				held.items = append(held.items, im.trlMixedSet(name, item))
			}
		}
	}
	im.give(e, "datasets", train)
	if when := im.doc.get("eval_strategy"); len(held.items) > 0 && !when.unset() && !when.is("no") {
		im.giveFor(entry{"dataset_splits", splits.pos, splits}, "the splits with test in their names", setting{"eval_datasets", held})
	}
}
