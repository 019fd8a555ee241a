package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// trl reads configs of huggingface/trl's commands sft and dpo: the keys of ScriptArguments, SFTConfig or DPOConfig,
// and ModelConfig. alignment-handbook and open-r1 add a few keys.
var trl = &tool{
	name: "TRL", word: "trl",
	is: func(doc value) bool {
		return slices.ContainsFunc([]string{"dataset_name", "dataset_mixture", "dataset_mixer", "test_split_size"}, doc.has)
	},
	rules: trlRules(), last: trlLast,
	empty: map[string]string{"max_length": anyLength, "max_seq_length": anyLength},
}

func trlRules() map[string]rule {
	rules := trainerRules("trl", map[string]rule{
		"optim":              orElse("optim", "adamw"),
		"dataset_name":       trlSets,
		"dataset_test_split": trlTestSplit,
		"model_revision":     idleIf("main", "the cache's main is taken", "of the cache refs/main is taken: give the snapshot's directory as model_name_or_path"),
		"dtype":              trlDType, "torch_dtype": trlDType,
		"chat_template_path": templateText, "chat_template": templateText,
		"dataset_mixture": trlMixture, "dataset_mixer": trlMixer,
		"datasets":        func(im *importer, e entry) { im.trlMixed(e) },
		"truncation_mode": idleIf("keep_start", "rows that are longer are cut at their end", "rows that are longer are cut at their end"),
		"max_completion_length": func(im *importer, e entry) {
			if trlSurelyDPO(im) {
				im.lose(e, tooLongTogether)
				return
			}
			im.refuse(e, noOtherTRL)
		},
		"assistant_only_loss":  trlOnly("completion_only_loss", "mt trains on what the assistant says"),
		"completion_only_loss": trlOnly("assistant_only_loss", "mt trains on completions"),
		"eos_token": func(im *importer, e entry) {
			im.giveFor(e, "", setting{specialTokensKey, value{kind: mapping, pos: e.val.pos, fields: []field{{"eos_token", e.val.pos, textAt(e.val, e.val.text)}}}})
		},
	})
	maps.Copy(rules, trlDPO())
	return rules
}

// trlLast runs after all keys. For each key that the config leaves open it writes the default of TRL's SFTConfig if
// mt's default differs.
func trlLast(im *importer) {
	if trlOnPairs(im) {
		trlPairsLast(im)
		return
	}
	im.orDefault("learning_rate", "2e-5", "")
	trlLength(im)
	im.orDefault("packing", "false", "")
	if im.doc.get("completion_only_loss").kind == null && im.doc.get("assistant_only_loss").kind == null {
		im.orDefault("train_on_prompt", "true", "TRL trains on all of a conversation; of rows with prompt and completion on the completion: leave this out for those")
	}
}

// noOtherTRL is the reason why the config of another TRL trainer is refused.
const noOtherTRL = "mt reads configs of TRL only for supervised fine-tuning and DPO"

// anyLength is the reason why a maximal length of null, which means no limit in TRL, is Lost.
const anyLength = "mt needs a limit: give max_seq_len (default 2048); longer chats are cut"

// trlLength writes TRL's default of max_length into the converted config. If the config sets the length to null (no
// limit), it does not, and the key is Lost.
func trlLength(im *importer) {
	for _, key := range []string{"max_length", "max_seq_length"} {
		if im.doc.has(key) && im.doc.get(key).kind == null {
			return
		}
	}
	im.orDefault("max_seq_len", "1024", "")
}

// trlSets converts dataset_name to mt's `dataset`, or to an item of `datasets` if the config also has dataset_config
// or dataset_train_split, which belong to the item.
func trlSets(im *importer, e entry) {
	name, split := im.doc.get("dataset_config"), im.doc.get("dataset_train_split")
	if name.kind == null && split.kind == null {
		im.give(e, "dataset", textAt(e.val, strings.TrimSpace(e.val.text)))
		return
	}
	im.give(e, "datasets", value{kind: list, pos: e.val.pos, items: []value{trlSet(e.val, name, split)}})
}

// trlSet returns an item of `datasets` with the given path, subset name and split. A name or split of kind null is
// left out.
func trlSet(path, name, split value) value {
	set := value{kind: mapping, pos: path.pos, fields: []field{{"path", path.pos, textAt(path, strings.TrimSpace(path.text))}}}
	if name.kind != null {
		set.fields = append(set.fields, field{"name", name.pos, textAt(name, name.text)})
	}
	if split.kind != null {
		set.fields = append(set.fields, field{"split", split.pos, textAt(split, split.text)})
	}
	return set
}

// trlTestSplit converts dataset_test_split to held-out data. It drops the key if eval_strategy is no, since TRL then
// evaluates nothing.
func trlTestSplit(im *importer, e entry) {
	path := im.doc.get("dataset_name")
	if when := im.doc.get("eval_strategy"); when.unset() || path.kind == null {
		im.idle(e, "nothing is evaluated: eval_strategy is no")
		return
	}
	im.giveFor(e, "", setting{"eval_datasets", value{kind: list, pos: e.val.pos, items: []value{trlSet(path, im.doc.get("dataset_config"), e.val)}}})
}

// trlDType converts dtype, the type in which TRL loads and trains the weights. mt keeps fp32 master weights anyway, so
// auto and float32 set nothing.
func trlDType(im *importer, e entry) {
	if e.val.is("auto") || e.val.is("float32") {
		im.idle(e, "the master weights are fp32, whatever the model's files have")
		return
	}
	bf16Rule(im, e)
}

// trlOnly returns a rule for TRL's key assistant_only_loss or completion_only_loss. other is the name of the second of
// these keys. If the value is false, mt trains on prompts too, unless the other key is true: TRL supervises only
// tokens that both masks keep. `why` is the reason for dropping a key that is true.
func trlOnly(other, why string) rule {
	return func(im *importer, e entry) {
		switch {
		case e.val.is("true"):
			im.idle(e, why)
		case im.doc.get(other).is("true"):
			im.idle(e, other+" is true")
		default:
			im.give(e, "train_on_prompt", plainAt(e.val, "true"))
		}
	}
}

// trlMixture converts dataset_mixture: {datasets: [{id, config, split, columns, weight}], seed, test_split_size}.
// Source: the ScriptArguments of huggingface/alignment-handbook and huggingface/open-r1.
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

// trlMixed converts a list of data sets to mt's datasets. The items are those of TRL's key datasets (path, name,
// split, data_files, columns), or those of a mixture.
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

// mixedKeys maps the keys of one data set in a mixture to the keys of an item of mt's `datasets`.
var mixedKeys = map[string]string{"id": "path", "path": "path", "config": "name", "name": "name", "split": "split", "data_files": "data_files"}

// trlMixedSet converts item, one data set of a mixture, to an item of `datasets`. name stands for the item in errors.
// Without a split the set's split is train.
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

// trlMixer converts dataset_mixer, {NAME: SHARE}, with dataset_splits and dataset_configs. alignment-handbook had
// this form before dataset_mixture. A split with "train" in its name is trained on; one with "test" is held out.
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
