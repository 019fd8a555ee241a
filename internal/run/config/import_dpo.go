package config

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// noOtherPreference is the reason for refusing other methods of preference training.
const noOtherPreference = "mt trains on preferences by dpo only, with the loss sigmoid, hinge or ipo"

// tooLongTogether is the reason why separate length limits for prompts and for answers are Lost.
const tooLongTogether = "mt cuts the answer if prompt and answer together are too long"

// dpoPart pairs another tool's key with the key of `dpo:` that takes its value.
type dpoPart struct {
	key, to string
	val     value
}

// giveDPO sets mt's key `dpo` to a mapping made of parts, because the config has e. Without a beta among parts it
// writes 0.1, the default of all four tools. The comment in the output names the parts that come from other keys than
// e.
func (im *importer) giveDPO(e entry, parts ...dpoPart) {
	dpo := value{kind: mapping, pos: e.val.pos}
	if !slices.ContainsFunc(parts, func(p dpoPart) bool { return p.to == "beta" && p.val.kind != null }) {
		parts = append([]dpoPart{{to: "beta", val: plainAt(e.val, "0.1")}}, parts...)
	}
	var from []string
	for _, p := range parts {
		if zero, ok := p.val.float(); p.val.kind == null || p.val.text == "" || ok && zero == 0 && p.to != "beta" {
			continue
		}
		dpo.fields = append(dpo.fields, field{p.to, p.val.pos, p.val})
		if p.key != "" && p.key != e.spelled {
			from = append(from, p.key)
		}
	}
	why := ""
	if len(from) > 0 {
		why = "with " + strings.Join(from, ", ")
	}
	im.giveFor(e, why, setting{preferenceKey, dpo})
}

// part returns the value of key in the other tool's config, paired with to, the key under `dpo:` that takes it. The
// value's kind is null if the config lacks key.
func (im *importer) part(key, to string) dpoPart { return dpoPart{key, to, im.doc.get(key)} }

// inDPO returns a rule for a key whose value giveDPO has already put under `dpo:` as to. The rule only reports this,
// or drops the key if it is 0 or on is false. `on` reports whether the config trains by DPO.
func inDPO(to string, on func(im *importer) bool) rule {
	return func(im *importer, e entry) {
		if zero, ok := e.val.float(); !on(im) || ok && zero == 0 && to != "beta" {
			im.idle(e, map[bool]string{true: "it is off", false: "it belongs to dpo"}[on(im)])
			return
		}
		im.lines = append(im.lines, Line{Key: e.spelled, Fate: Renamed, Why: preferenceKey + "." + to, theirs: e})
	}
}

// lossOfPairs reports whether mt has the DPO loss that e names. If mt lacks the loss, it records an error, with which
// the import fails.
func (im *importer) lossOfPairs(e entry) bool {
	if slices.Contains(lossTypes, e.val.text) {
		return true
	}
	im.refuse(e, noOtherPreference)
	return false
}

// llamaFactoryOnPairs reports whether a config of LLaMA-Factory trains by DPO.
func llamaFactoryOnPairs(im *importer) bool { return im.doc.get("stage").is("dpo") }

// llamaFactoryStage converts LLaMA-Factory's key stage. The stage dpo becomes mt's key `dpo`.
func llamaFactoryStage(im *importer, e entry) {
	if llamaFactoryOnPairs(im) {
		if loss := (entry{"pref_loss", e.pos, im.doc.get("pref_loss")}); loss.val.kind == null || im.lossOfPairs(loss) {
			im.giveDPO(e, im.part("pref_beta", "beta"), im.part("pref_loss", "loss_type"), im.part("dpo_label_smoothing", "label_smoothing"),
				im.part("pref_ftx", "rpo_alpha"), im.part("ref_model", "reference_model"))
		}
		return
	}
	if why := foreign["stage"](e.val, im.c); why != "" {
		im.refuse(e, why)
		return
	}
	im.idle(e, "what rows hold tells")
}

func llamaFactoryDPO() map[string]rule {
	return map[string]rule{
		"pref_beta": inDPO("beta", llamaFactoryOnPairs), "pref_loss": inDPO("loss_type", llamaFactoryOnPairs),
		"pref_ftx":            inDPO("rpo_alpha: the mean is over the answers' tokens, over there first over each answer's", llamaFactoryOnPairs),
		"dpo_label_smoothing": inDPO("label_smoothing", llamaFactoryOnPairs), "ref_model": inDPO("reference_model", llamaFactoryOnPairs),
	}
}

// axolotlOnPairs reports whether a config of axolotl trains by DPO.
func axolotlOnPairs(im *importer) bool {
	rl := im.doc.get("rl")
	return rl.is("dpo") || rl.is("ipo")
}

// axolotlRL converts the key rl if it is dpo, or ipo, which is dpo with another loss. It refuses other methods.
func axolotlRL(im *importer, e entry) {
	loss := im.part("dpo_loss_type", "loss_type")
	if loss.val.kind == list && len(loss.val.items) == 1 {
		loss.val = loss.val.items[0]
	}
	switch {
	case e.val.unset():
		im.idle(e, "it is off")
		return
	case !axolotlOnPairs(im):
		im.refuse(e, noOtherPreference)
		return
	case e.val.is("ipo"):
		loss = dpoPart{"rl", "loss_type", textAt(e.val, "ipo")}
	case loss.val.kind != null && !im.lossOfPairs(entry{loss.key, e.pos, loss.val}):
		return
	}
	beta := im.part("rl_beta", "beta")
	if beta.val.kind == null {
		beta = im.part("dpo_beta", "beta")
	}
	im.giveDPO(e, beta, loss, im.part("dpo_label_smoothing", "label_smoothing"), im.part("rpo_alpha", "rpo_alpha"))
}

func axolotlDPO() map[string]rule {
	return map[string]rule{
		"rl":      axolotlRL,
		"rl_beta": inDPO("beta", axolotlOnPairs), "dpo_beta": inDPO("beta", axolotlOnPairs), "dpo_loss_type": inDPO("loss_type", axolotlOnPairs),
		"dpo_label_smoothing": inDPO("label_smoothing", axolotlOnPairs), "rpo_alpha": inDPO("rpo_alpha", axolotlOnPairs),
	}
}

// axolotlPairTypes describes axolotl's types of data sets with answer pairs. It maps the word after the dot, such as
// intel in chatml.intel, to fields of an item of `datasets`.
var axolotlPairTypes = map[string][]field{
	"intel":        {{name: "field_instruction", val: value{kind: plain, text: "question"}}},
	"icr":          {{name: "field_instruction", val: value{kind: plain, text: "input"}}},
	"prompt_pairs": {{name: "field_instruction", val: value{kind: plain, text: "prompt"}}},
	"argilla": {{name: "field_instruction", val: value{kind: plain, text: "instruction"}}, {name: "field_chosen", val: value{kind: plain, text: "chosen_response"}},
		{name: "field_rejected", val: value{kind: plain, text: "rejected_response"}}},
	"argilla_chat": {}, "ultra": {}, "default": {},
}

// axolotlPairs converts e, the type of a data set of answer pairs, to fields of an item of `datasets`. layout is the
// chat template that the type implies; "" if none. ok is false if mt does not know the type.
func (im *importer) axolotlPairs(e entry) (fields []field, layout string, ok bool) {
	fields = []field{{"type", e.pos, textAt(e.val, "pairs")}}
	if e.val.kind == mapping {
		// axolotl's formats put this prompt into the user's turn.
		return append(fields, im.axolotlFields(e, map[string]string{"field_prompt": "field_instruction"})...), "", true
	}
	base, how, _ := strings.Cut(strings.ReplaceAll(e.val.text, ":", "."), ".")
	if how == "" {
		how = "default"
	}
	columns, known := axolotlPairTypes[how]
	switch {
	case base != "chatml" && base != "llama3" && base != "chat_template", !known, base == "chat_template" && !slices.Contains([]string{"default", "argilla_chat"}, how):
		return nil, "", false
	case base != "chat_template":
		layout = base
	}
	for _, f := range columns {
		f.pos, f.val.pos = e.pos, e.pos
		fields = append(fields, f)
	}
	return fields, layout, true
}

// trlPairKeys lists the keys that TRL's DPOConfig has and its SFTConfig lacks. Keys that other trainers also have are
// left out, except beta, which comes first.
var trlPairKeys = []string{"beta", "precompute_ref_log_probs", "precompute_ref_batch_size", "label_smoothing", "ld_alpha", "f_divergence_type", "f_alpha_divergence_coef", "use_weighting",
	"discopop_tau", "sync_ref_model", "ref_model_mixup_alpha", "ref_model_sync_steps", "loss_weights", "rpo_alpha"}

// trlOtherCommands lists commands and trainers of TRL that also have beta and whose losses mt lacks.
var trlOtherCommands = []string{"orpo", "kto", "cpo", "simpo", "bco", "xpo", "nash", "gkd", "minillm", "online_dpo", "online-dpo"}

// trlCommandNamed returns the command in trlOtherCommands that the config's file, output_dir, run_name or hub_model_id
// mentions; "" if none.
func trlCommandNamed(im *importer) string {
	for _, text := range []string{im.doc.pos.File, im.doc.get("output_dir").text, im.doc.get("run_name").text, im.doc.get("hub_model_id").text} {
		words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && r != '_' })
		for _, c := range trlOtherCommands {
			if slices.Contains(words, c) || strings.Contains(c, "-") && strings.Contains(strings.ToLower(text), c) {
				return c
			}
		}
	}
	return ""
}

// trlWhichCommand handles a config whose only sign of DPO is the key beta, which TRL's orpo, kto and others have too.
// If a name in the config mentions one of these, it refuses the config. Otherwise it notes that mt reads the config as
// one for dpo.
func (im *importer) trlWhichCommand() {
	if slices.ContainsFunc(trlPairKeys[1:], im.doc.has) || im.doc.get("loss_type").kind != null {
		return
	}
	if c := trlCommandNamed(im); c != "" {
		im.refuse(entry{"beta", im.doc.pos, im.doc.get("beta")}, fmt.Sprintf("a config of %s by its names: %s. If it is for trl dpo, add loss_type: sigmoid to it", c, noOtherPreference))
		return
	}
	im.note("no key says for which command of TRL this is: beta is one of dpo, orpo, kto and others. It is read as one for trl dpo.")
}

// trlOnPairs reports whether a config of TRL is for its dpo command, judged by the config's keys.
func trlOnPairs(im *importer) bool { return im.doc.has("beta") || trlSurelyDPO(im) }

// trlSurelyDPO reports whether keys other than beta mark a config of TRL as DPO. Other commands also have beta.
func trlSurelyDPO(im *importer) bool {
	loss := im.doc.get("loss_type")
	return slices.ContainsFunc(trlPairKeys[1:], im.doc.has) || slices.ContainsFunc(append(loss.items, loss), func(v value) bool { return slices.Contains(lossTypes, v.text) })
}

// trlLoss converts DPO's loss_type and loss_weights. mt takes one of its own losses, optionally together with sft,
// whose weight becomes rpo_alpha. ok is false if mt lacks the loss.
func (im *importer) trlLoss() (loss, alpha dpoPart, ok bool) {
	loss, alpha = im.part("loss_type", "loss_type"), im.part("rpo_alpha", "rpo_alpha")
	items, weights := loss.val.items, im.doc.get("loss_weights").items
	one := func(i int) bool {
		if i >= len(weights) {
			return true
		}
		x, isNumber := weights[i].float()
		return isNumber && x == 1
	}
	switch {
	case loss.val.kind != list && loss.val.kind != null:
		items = []value{loss.val}
	case len(items) == 2 && items[1].is("sft") && one(0):
		alpha = dpoPart{"loss_weights", "rpo_alpha", plainAt(items[1], "1.0")}
		if len(weights) == 2 {
			alpha.val = weights[1]
		}
		items = items[:1]
	}
	if len(items) > 1 || len(items) == 1 && (!slices.Contains(lossTypes, items[0].text) || !one(0)) {
		return loss, alpha, false
	}
	if len(items) == 1 {
		loss.val = items[0]
	}
	return loss, alpha, true
}

// trlPart returns a rule for a key that only DPO configs have and whose value becomes the key to under `dpo:`. The
// first such key in a config sets all of `dpo:`, the others only report it.
func trlPart(to string) rule {
	return func(im *importer, e entry) {
		if _, given := im.given[preferenceKey]; given {
			inDPO(to, trlOnPairs)(im, e)
			return
		}
		loss, alpha, ok := im.trlLoss()
		if !ok {
			im.refuse(entry{"loss_type", loss.val.pos, loss.val}, noOtherPreference)
			return
		}
		im.giveDPO(e, im.part("beta", "beta"), loss, alpha)
	}
}

func trlDPO() map[string]rule {
	return map[string]rule{
		"beta": trlPart("beta"), "rpo_alpha": trlPart("rpo_alpha"), "loss_weights": trlPart("rpo_alpha"),
		"loss_type": func(im *importer, e entry) {
			switch {
			case trlOnPairs(im):
				trlPart("loss_type")(im, e)
			case e.val.is("nll"), e.val.is("chunked_nll"):
				im.idle(e, "it is what mt trains on")
			default:
				im.lose(e, noOtherLoss)
			}
		},
		"f_divergence_type": idleIf("reverse_kl", "it is so in dpo", "dpo has the reverse KL divergence"),
	}
}

// trlPairsLast writes out the defaults of TRL's DPOConfig where mt's differ.
func trlPairsLast(im *importer) {
	im.trlWhichCommand()
	im.orDefault("learning_rate", "1e-6", "")
	trlLength(im)
	if _, given := im.given[preferenceKey]; given || im.refused != nil {
		return
	}
	v := value{kind: mapping, fields: []field{{name: "beta", val: value{kind: plain, text: "0.1"}}}}
	if err := byName[preferenceKey].set(im.c, preferenceKey, v); err != nil {
		panic("config: a default of TRL: " + err.Error()) // it is tested
	}
	im.lines = append(im.lines, Line{Fate: Theirs, Why: "of its dpo command, whose keys the config has", ours: []entry{{preferenceKey, Pos{}, v}}})
}

// torchtuneLoss converts loss. It drops cross entropy, which mt trains with anyway, and makes `dpo:` out of a loss on
// preference pairs. Other losses are refused.
func torchtuneLoss(im *importer, e entry) {
	name := e.val.get(component)
	scale := map[string]string{"DPOLoss": "beta", "RSOLoss": "gamma"}[name.text[strings.LastIndex(name.text, ".")+1:]]
	switch {
	case scale != "":
		parts := []dpoPart{{"loss", "beta", e.val.get(scale)}, {"loss", "label_smoothing", e.val.get("label_smoothing")}}
		if scale == "gamma" { // max(0, 1 - gamma·margin)
			parts = append(parts[:1], dpoPart{"loss", "loss_type", textAt(name, "hinge")})
		}
		im.giveDPO(e, append(parts, im.torchtuneReference())...)
	case strings.Contains(name.text, "CrossEntropyLoss"), strings.HasSuffix(name.text, "CEWithChunkedOutputLoss"):
		im.loseOthers(e, "mt knows no such key of a loss", "num_output_chunks", "enable_compile")
		im.idle(e, "it is what mt trains on")
	case strings.Contains(name.text, "rlhf"):
		im.refuse(entry{"loss", e.pos, name}, noOtherPreference)
	default:
		im.refuse(entry{"loss", e.pos, name}, noOtherLoss)
	}
}

// torchtuneOnPairs reports whether a config of torchtune trains by DPO. RSOLoss counts too: it is
// DPO with loss_type hinge.
func torchtuneOnPairs(im *importer) bool {
	name := im.doc.get("loss").get(component).text
	return strings.HasSuffix(name, "DPOLoss") || strings.HasSuffix(name, "RSOLoss")
}

// torchtuneReference returns the directory of ref_checkpointer as the part reference_model. The value is empty if the
// directory is the model's own.
func (im *importer) torchtuneReference() dpoPart {
	dir := im.filled(im.doc.get("ref_checkpointer").get("checkpoint_dir"))
	if dir.text == im.filled(im.doc.get("checkpointer").get("checkpoint_dir")).text {
		return dpoPart{}
	}
	return dpoPart{"ref_checkpointer", "reference_model", dir}
}

// torchtuneRefCheckpointer converts ref_checkpointer. It drops the key if the reference is the model that training
// starts from, and refuses a config without DPO.
func torchtuneRefCheckpointer(im *importer, e entry) {
	switch {
	case !torchtuneOnPairs(im):
		im.refuse(e, "mt does supervised fine-tuning, pre-training and DPO")
	case im.torchtuneReference().val.text == "":
		im.idle(e, "the reference is the model that training starts from")
	default:
		inDPO("reference_model", torchtuneOnPairs)(im, e)
	}
}
