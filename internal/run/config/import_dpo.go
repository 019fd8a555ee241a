package config

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// noOtherPreference is why another way to train on preferences is refused.
const noOtherPreference = "of training on preferences mt has dpo, with the losses sigmoid, hinge and ipo"

// tooLongTogether is what happens in place of bounds for prompts and answers by themselves.
const tooLongTogether = "of a prompt and an answer that are too long together the answer is cut"

// dpoPart is a key of theirs that says a part of dpo.
type dpoPart struct {
	key, to string
	val     value
}

// giveDPO gives dpo, which e asks for, the parts that are there; beta is 0.1 where none says it, as in
// all four tools. Parts of e itself have no lines of their own.
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

// part is a key of the document that says a part of dpo.
func (im *importer) part(key, to string) dpoPart { return dpoPart{key, to, im.doc.get(key)} }

// inDPO is the rule of a key that is a part of dpo where that is what on finds in the document.
func inDPO(to string, on func(im *importer) bool) rule {
	return func(im *importer, e entry) {
		if zero, ok := e.val.float(); !on(im) || ok && zero == 0 && to != "beta" {
			im.idle(e, map[bool]string{true: "it is off", false: "it belongs to dpo"}[on(im)])
			return
		}
		im.lines = append(im.lines, Line{Key: e.spelled, Fate: Renamed, Why: preferenceKey + "." + to, theirs: e})
	}
}

// lossOfPairs is whether mt has a loss of pairs; else it refuses the config.
func (im *importer) lossOfPairs(e entry) bool {
	if slices.Contains(lossTypes, e.val.text) {
		return true
	}
	im.refuse(e, noOtherPreference)
	return false
}

// llamaFactoryOnPairs tells whether a config of LLaMA-Factory is of DPO.
func llamaFactoryOnPairs(im *importer) bool { return im.doc.get("stage").is("dpo") }

// llamaFactoryStage takes stage.
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

// axolotlOnPairs tells whether a config of axolotl is of DPO.
func axolotlOnPairs(im *importer) bool {
	rl := im.doc.get("rl")
	return rl.is("dpo") || rl.is("ipo")
}

// axolotlRL takes rl: dpo, or ipo, which is that with another loss.
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

// axolotlPairTypes are the types of axolotl's data sets of pairs: what an item of datasets says in the
// place of the word behind the dot.
var axolotlPairTypes = map[string][]field{
	"intel":        {{name: "field_instruction", val: value{kind: plain, text: "question"}}},
	"icr":          {{name: "field_instruction", val: value{kind: plain, text: "input"}}},
	"prompt_pairs": {{name: "field_instruction", val: value{kind: plain, text: "prompt"}}},
	"argilla": {{name: "field_instruction", val: value{kind: plain, text: "instruction"}}, {name: "field_chosen", val: value{kind: plain, text: "chosen_response"}},
		{name: "field_rejected", val: value{kind: plain, text: "rejected_response"}}},
	"argilla_chat": {}, "ultra": {}, "default": {},
}

// axolotlPairs takes the type of a data set of pairs; false where it is none that is known.
func (im *importer) axolotlPairs(e entry) (fields []field, layout string, ok bool) {
	fields = []field{{"type", e.pos, textAt(e.val, "pairs")}}
	if e.val.kind == mapping {
		// Their prompt is the user's turn here, as their formats have it.
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

// trlPairKeys are the keys of TRL's DPOConfig that its SFTConfig lacks, but for those of other trainers.
var trlPairKeys = []string{"beta", "precompute_ref_log_probs", "precompute_ref_batch_size", "label_smoothing", "ld_alpha", "f_divergence_type", "f_alpha_divergence_coef", "use_weighting",
	"discopop_tau", "sync_ref_model", "ref_model_mixup_alpha", "ref_model_sync_steps", "loss_weights", "rpo_alpha"}

// trlOtherCommands are the commands and trainers of TRL whose configs have beta, as those of dpo have, and whose losses mt does not have.
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

// trlWhichCommand settles for which command a config is that has beta and nothing else that tells.
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

// trlOnPairs tells whether a config of TRL is one of its dpo command. Which command a config is for
// is known by its keys alone.
func trlOnPairs(im *importer) bool { return im.doc.has("beta") || trlSurelyDPO(im) }

// trlSurelyDPO tells whether a config of TRL is one of its dpo command by more than beta, which other commands have too.
func trlSurelyDPO(im *importer) bool {
	loss := im.doc.get("loss_type")
	return slices.ContainsFunc(trlPairKeys[1:], im.doc.has) || slices.ContainsFunc(append(loss.items, loss), func(v value) bool { return slices.Contains(lossTypes, v.text) })
}

// trlLoss takes loss_type and loss_weights of DPO: one of the losses, and sft beside it, which is rpo_alpha.
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

// trlPart takes a key of DPO. The first of them gives all of dpo.
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

// trlPairsLast writes out the defaults of TRL's DPOConfig that are not those of mt.
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

// torchtuneLoss takes loss: a cross entropy, or one of pairs.
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

// torchtuneOnPairs tells whether a config of torchtune is of DPO.
func torchtuneOnPairs(im *importer) bool {
	name := im.doc.get("loss").get(component).text
	return strings.HasSuffix(name, "DPOLoss") || strings.HasSuffix(name, "RSOLoss")
}

// torchtuneReference is the directory of ref_checkpointer, where it is another than the model's.
func (im *importer) torchtuneReference() dpoPart {
	dir := im.filled(im.doc.get("ref_checkpointer").get("checkpoint_dir"))
	if dir.text == im.filled(im.doc.get("checkpointer").get("checkpoint_dir")).text {
		return dpoPart{}
	}
	return dpoPart{"ref_checkpointer", "reference_model", dir}
}

// torchtuneRefCheckpointer takes ref_checkpointer.
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
