package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// torchtune reads configs of pytorch/torchtune's recipes for full fine-tuning. Their values are mappings: _component_
// names a class or a function, and the other keys are its arguments.
var torchtune = &tool{
	name: "torchtune", word: "torchtune",
	is: func(doc value) bool {
		return slices.ContainsFunc(doc.fields, func(f field) bool { return f.val.has(component) })
	},
	rules: torchtuneRules(), last: torchtuneLast,
}

const component = "_component_"

func torchtuneRules() map[string]rule {
	rules := tableRules("torchtune")
	maps.Copy(rules, map[string]rule{
		"output_dir":          func(im *importer, e entry) { im.give(e, "output_dir", im.filled(e.val)) },
		"tokenizer":           torchtuneTokenizer,
		"dataset":             torchtuneSets("datasets"),
		"dataset_val":         torchtuneSets("eval_datasets"),
		"checkpointer":        torchtuneCheckpointer,
		"optimizer":           torchtuneOptimizer,
		"lr_scheduler":        torchtuneScheduler,
		"loss":                torchtuneLoss,
		"ref_checkpointer":    torchtuneRefCheckpointer,
		"max_steps_per_epoch": torchtuneSteps,
		"save_every_n_epochs": torchtuneSaves,
		"optimizer_in_bwd":    idle("so layers update here where nothing waits for the norm of all gradients: see max_grad_norm and clip"),
		"dtype":               bf16Rule,
		"metric_logger": func(im *importer, e entry) {
			switch name := e.val.get(component).text; {
			case strings.HasSuffix(name, "TensorBoardLogger"):
				im.giveFor(e, "", setting{"report_to", plainAt(e.val, "tensorboard")})
			case strings.HasSuffix(name, "DiskLogger"), strings.HasSuffix(name, "StdoutLogger"):
				im.idle(e, "metrics.jsonl is always written")
			default:
				im.lose(entry{"metric_logger", e.pos, e.val.get(component)}, "mt reports to metrics.jsonl, tensorboard and mlflow: see report_to")
			}
		},
		"resume_from_checkpoint": to("resume_from_checkpoint"),
	})
	return rules
}

// torchtuneLast runs after all keys. For each key that the config leaves open it writes the default of torchtune's
// recipes if mt's default differs.
func torchtuneLast(im *importer) {
	for _, d := range []struct{ key, text, why string }{
		{"lr_scheduler_type", "constant", "without an lr_scheduler the rate stays"},
		{"max_grad_norm", "0", "without clip_grad_norm nothing is clipped"},
		{"packing", "false", ""},
		{"save_strategy", "epoch", ""},
	} {
		im.orDefault(d.key, d.text, d.why)
	}
}

var placeholder = regexp.MustCompile(`\$\{([a-z_0-9.]+)\}`)

// filled returns v with each ${KEY} in its text replaced by the value that the config gives KEY, as OmegaConf does.
func (im *importer) filled(v value) value {
	for range 8 { // values may contain ${KEY} too; a cycle remains as it is
		v.text = placeholder.ReplaceAllStringFunc(v.text, func(m string) string {
			at := im.doc
			for part := range strings.SplitSeq(m[2:len(m)-1], ".") {
				at = at.get(part)
			}
			if at.kind != plain && at.kind != quoted {
				return m
			}
			return at.text
		})
	}
	return v
}

// loseOthers handles the arguments of e, a mapping with a _component_. It gives each argument that is not in known the
// fate Lost, for the reason why.
func (im *importer) loseOthers(e entry, why string, known ...string) {
	for _, f := range e.val.fields {
		if f.name != component && !slices.Contains(known, f.name) && f.val.kind != null {
			im.lose(entry{e.spelled + "." + f.name, f.pos, f.val}, why)
		}
	}
}

// torchtuneTokenizer converts the tokenizer's max_seq_len to mt's key. It drops arguments that name files, since mt
// reads the tokenizer's files from the model's directory. Other arguments are Lost.
func torchtuneTokenizer(im *importer, e entry) {
	n := e.val.get("max_seq_len")
	im.loseOthers(e, "the model's own tokenizer and chat template are taken as they are",
		"path", "merges_file", "merges_path", "vocab_path", "max_seq_len", "image_size", "max_num_tiles")
	if n.kind == null {
		im.lose(entry{"tokenizer.max_seq_len", e.pos, n}, anyLength)
		return
	}
	im.give(entry{"tokenizer.max_seq_len", e.pos, n}, "max_seq_len", n)
}

// torchtuneCheckpointer converts checkpointer: its checkpoint_dir, the directory of the weights, becomes the model.
func torchtuneCheckpointer(im *importer, e entry) {
	dir := e.val.get("checkpoint_dir")
	if dir.kind == null {
		im.lose(e, "it names no checkpoint_dir")
		return
	}
	if strings.Contains(e.val.get(component).text, "Meta") {
		im.lose(entry{"checkpointer", e.pos, e.val.get(component)}, "mt reads Hugging Face directories: convert Meta's weights, or take those of the Hub")
	}
	im.giveFor(entry{"checkpointer.checkpoint_dir", e.pos, dir}, "with the tokenizer in it", setting{modelKey, im.filled(dir)})
	im.loseOthers(e, "mt knows no such key of a checkpointer", "checkpoint_dir", "checkpoint_files", "model_type", "output_dir", "recipe_checkpoint",
		"safe_serialization", "should_load_recipe_state", "enable_async_checkpointing", "keep_last_n_checkpoints")
	if again := e.val.get("recipe_checkpoint"); again.kind != null {
		im.lose(entry{"checkpointer.recipe_checkpoint", e.pos, again}, "a checkpoint of torchtune cannot be resumed")
	}
}

// torchtuneOptimizer converts an optimizer and its settings. torch.optim.AdamW's default weight decay is 0.01.
func torchtuneOptimizer(im *importer, e entry) {
	name := e.val.get(component)
	settings := []setting{{"optim", name}}
	if err := byName["optim"].set(Default(), "optimizer", name); err != nil {
		im.lose(entry{"optimizer", e.pos, name}, wanted(err)+"; adamw takes its place")
		settings = nil
	}
	decay := false
	for _, f := range e.val.fields {
		sub := entry{"optimizer." + f.name, f.pos, f.val}
		switch f.name {
		case component, "fused", "foreach":
		case "lr":
			settings = append(settings, setting{"learning_rate", f.val})
		case "weight_decay":
			decay = true
			settings = append(settings, setting{"weight_decay", f.val})
		case "eps":
			settings = append(settings, setting{"adam_epsilon", f.val})
		case "betas":
			if len(f.val.items) != 2 {
				im.lose(sub, "it has two numbers")
				continue
			}
			settings = append(settings, setting{"adam_beta1", f.val.items[0]}, setting{"adam_beta2", f.val.items[1]})
		case "momentum", "nesterov", "ns_steps":
			settings = append(settings, setting{f.name, f.val})
		default:
			im.lose(sub, "mt knows no such number")
		}
	}
	if !decay && strings.Contains(name.text, "AdamW") {
		settings = append(settings, setting{"weight_decay", plainAt(e.val, "0.01")})
	}
	im.giveFor(e, "", settings...)
}

// torchtuneScheduler converts lr_scheduler with its arguments. mt knows one of torchtune's schedules, the cosine with
// warm-up; others are Lost.
func torchtuneScheduler(im *importer, e entry) {
	name := e.val.get(component)
	if !strings.HasSuffix(name.text, "get_cosine_schedule_with_warmup") {
		im.lose(entry{"lr_scheduler", e.pos, name}, "mt has the schedules of transformers: see lr_scheduler_type")
		return
	}
	im.loseOthers(e, "mt knows no such key of a schedule", "num_warmup_steps", "num_cycles")
	settings := []setting{{"lr_scheduler_type", plainAt(name, "cosine")}}
	if n := e.val.get("num_warmup_steps"); n.kind != null {
		settings = append(settings, setting{"warmup_steps", n})
	}
	if n := e.val.get("num_cycles"); n.kind != null {
		settings = append(settings, setting{kwargsKey, value{kind: mapping, pos: n.pos, fields: []field{{"num_cycles", n.pos, n}}}})
	}
	im.giveFor(e, "", settings...)
}

// torchtuneSteps converts max_steps_per_epoch to max_steps, which is the product with the number of epochs.
func torchtuneSteps(im *importer, e entry) {
	n, ok := e.val.count()
	epochs, given := im.doc.get("epochs").count()
	if !given {
		epochs = 1
	}
	if !ok || n < 1 {
		im.lose(e, "it is no number of steps")
		return
	}
	why := "so many steps in the only epoch"
	if epochs > 1 {
		why = fmt.Sprintf("so many steps in each of %d epochs", epochs)
	}
	im.giveFor(e, why, setting{"max_steps", plainAt(e.val, fmt.Sprint(n*epochs))})
}

// torchtuneSaves converts save_every_n_epochs. The value 1 becomes save_strategy: epoch.
func torchtuneSaves(im *importer, e entry) {
	if e.val.is("1") {
		im.giveFor(e, "", setting{"save_strategy", plainAt(e.val, "epoch")})
		return
	}
	im.lose(e, "checkpoints are written every epoch, or every save_steps")
}

// torchtuneData maps the names of torchtune's built-in data sets to fields of an item of `datasets`. For its Alpaca
// data sets, torchtune puts Alpaca's wording into the user's turn of the model's own chat template.
var torchtuneData = map[string]map[string]string{
	"alpaca_dataset":                {"path": "tatsu-lab/alpaca", "type": "alpaca"},
	"alpaca_cleaned_dataset":        {"path": "yahma/alpaca-cleaned", "type": "alpaca"},
	"text_completion_dataset":       {"type": "text"},
	"chat_dataset":                  {"type": "messages"},
	"instruct_dataset":              {"type": "prompt_completion"},
	"preference_dataset":            {"type": "pairs"},
	"hh_rlhf_helpful_dataset":       {"path": "RLHFlow/HH-RLHF-Helpful-standard", "type": "pairs"},
	"stack_exchange_paired_dataset": {"path": "lvwerra/stack-exchange-paired", "type": "pairs", "field_instruction": "question", "field_chosen": "response_j", "field_rejected": "response_k"},
}

// torchtuneFields maps keys of torchtune's data sets to keys of an item of datasets.
var torchtuneFields = map[string]string{"source": "path", "split": "split", "data_files": "data_files", "subset": "name", "name": "name", "column": "field", "conversation_column": "field_messages"}

// torchtuneSets returns a rule for torchtune's keys dataset and dataset_val. Their value is one component (a mapping
// with the key _component_) or a list of components. The rule makes a list of data sets, the value of mt's key `key`.
func torchtuneSets(key string) rule {
	return func(im *importer, e entry) {
		out := value{kind: list, pos: e.val.pos}
		for _, item := range e.val.each() {
			if set, ok := im.torchtuneSet(e, item); ok {
				out.items = append(out.items, set)
			}
		}
		if len(out.items) > 0 {
			im.give(e, key, out)
		}
		if packed := e.val.get("packed"); packed.kind != null && key == "datasets" {
			im.give(entry{e.spelled + ".packed", packed.pos, packed}, "packing", packed)
		}
	}
}

// torchtuneSet converts one data set, the component item of the key e, to an item of `datasets`. ok is false if mt
// cannot read the data set.
func (im *importer) torchtuneSet(e entry, item value) (set value, ok bool) {
	name := item.get(component)
	short := name.text[strings.LastIndex(name.text, ".")+1:]
	known, ok := torchtuneData[short]
	if !ok {
		im.lose(entry{e.spelled, e.pos, name}, "mt has no such data set: give dataset, or datasets")
		return set, false
	}
	set = value{kind: mapping, pos: item.pos}
	given := map[string]bool{}
	alpaca := known["type"] == "alpaca"
	for _, f := range item.fields {
		sub := entry{e.spelled + "." + f.name, f.pos, f.val}
		switch key := torchtuneFields[f.name]; {
		case f.val.kind == null, f.name == component, f.name == "packed", f.name == "add_eos" && f.val.is("true"), f.name == "conversation_style":
		case f.name == "column_map" && known["type"] == "pairs":
			for _, c := range f.val.fields {
				key := map[string]string{"prompt": "field_instruction", "chosen": "field_chosen", "rejected": "field_rejected"}[c.name]
				if key == "" {
					im.lose(entry{sub.spelled + "." + c.name, c.pos, c.val}, "a pair has prompt, chosen and rejected")
					continue
				}
				given[key] = true
				set.fields = append(set.fields, field{key, c.pos, c.val})
			}
		case f.name == "train_on_input" && known["type"] == "pairs":
			if !f.val.unset() {
				im.lose(sub, "of a pair the answers alone are trained on")
			}
		case f.name == "train_on_input":
			given["train_on_input"] = true
			im.give(sub, "train_on_prompt", f.val)
		case key != "":
			given[key] = true
			set.fields = append(set.fields, field{key, f.pos, f.val})
		default:
			im.lose(sub, "mt has no such key of a data set")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(known)) {
		if !given[key] {
			set.fields = append(set.fields, field{key, item.pos, textAt(item, known[key])})
		}
	}
	if e.spelled == "dataset" && alpaca {
		im.lose(entry{"dataset", e.pos, name}, "Alpaca's words (\"Below is an instruction ...\") inside the user's turn; here that has the instruction and the input alone")
		if !given["train_on_input"] && im.given["train_on_prompt"] == "" {
			im.giveFor(entry{"dataset", e.pos, name}, "it trains on prompts too", setting{"train_on_prompt", plainAt(item, "true")})
		}
	}
	return set, true
}
