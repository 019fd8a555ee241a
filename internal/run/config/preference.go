package config

import (
	"maps"
	"slices"
	"strings"

	"mt/base/human"
)

const preferenceKey = "dpo"

// Preference holds the settings of `dpo:` under TRL's names. The zero value means no preference training.
type Preference struct {
	LossType       string // sigmoid, hinge, ipo; empty: no preference training
	Beta           float64
	LabelSmoothing float64 // sigmoid: probability that a pair's labels are swapped
	RPOAlpha       float64 // weight of the chosen answers' mean −log p per token
	ReferenceModel string  // a model; empty: the model that training starts from
}

// lossTypes lists the values of dpo.loss_type.
var lossTypes = []string{"sigmoid", "hinge", "ipo"}

// preferenceArgs has, for each numeric key of `dpo:`, its limit and a function that returns its field. Within the
// limits the numbers, their squares and their inverses stay inside the range of fp32.
var preferenceArgs = map[string]struct {
	limit  limit
	number func(*Preference) *float64
	text   func(*Preference) *string
}{
	"beta":            {limit: between(1e-6, 1e6, ""), number: func(p *Preference) *float64 { return &p.Beta }},
	"label_smoothing": {limit: between(0, 0.5, ""), number: func(p *Preference) *float64 { return &p.LabelSmoothing }},
	"rpo_alpha":       {limit: between(0, 1e6, ""), number: func(p *Preference) *float64 { return &p.RPOAlpha }},
	"loss_type":       {text: func(p *Preference) *string { return &p.LossType }},
	"reference_model": {text: func(p *Preference) *string { return &p.ReferenceModel }},
}

// Preference returns the settings of preference training, with defaults for keys that are not given.
func (c *Config) Preference() Preference {
	if len(c.DPO) == 0 {
		return Preference{}
	}
	p := Preference{LossType: lossTypes[0], Beta: 0.1}
	for name, v := range c.DPO {
		arg := preferenceArgs[name]
		if x, ok := asNumber(v); ok && arg.number != nil {
			*arg.number(&p) = x
		} else if s, ok := v.(string); ok && arg.text != nil {
			*arg.text(&p) = s
		}
	}
	return p
}

// checkPreference rejects wrong entries of `dpo:`, and other keys that contradict training on preference pairs. fail
// records an error about a key.
func (c *Config) checkPreference(fail func(key, format string, args ...any)) {
	names := slices.Sorted(maps.Keys(preferenceArgs))
	for _, name := range slices.Sorted(maps.Keys(c.DPO)) {
		key, v := preferenceKey+"."+name, c.DPO[name]
		arg, known := preferenceArgs[name]
		text, isText := v.(string)
		switch {
		case !known:
			fail(key, "%s: unknown key; dpo takes %s%s", key, strings.Join(names, ", "), human.Suggest(name, names))
		case v == nil: // left empty: the default
		case arg.number != nil:
			if want := (schedulerArg{limit: arg.limit}).wants(v); want != "" {
				fail(key, "%s must be %s, not %s", key, want, flow(v))
			}
		case !isText:
			fail(key, "%s must be text, not %s", key, flow(v))
		case name == "loss_type" && !slices.Contains(lossTypes, text):
			fail(key, "%s must be %s, not %q%s", key, oneOf(lossTypes), text, human.Suggest(text, lossTypes))
		}
	}
	p := c.Preference()
	if p.LossType == "" {
		return
	}
	if p.LabelSmoothing > 0 && p.LossType != lossTypes[0] {
		fail(preferenceKey+".label_smoothing", "dpo.label_smoothing needs loss_type sigmoid, but loss_type is %s: remove dpo.label_smoothing", p.LossType)
	}
	for _, k := range []struct {
		key   string
		given bool
		why   string
	}{
		{"label_smoothing_factor", c.LabelSmoothing > 0, "smooths the targets of tokens, but dpo trains on pairs: use dpo.label_smoothing"},
		{"z_loss_coef", c.ZLoss > 0, "adds a loss to each token, but dpo has one loss for each pair: remove it"},
		{"neftune_noise_alpha", c.NoiseAlpha > 0, "adds noise to the model, but dpo compares it with a reference without noise: remove it"},
		{"train_on_prompt", c.TrainOnPrompt, "trains on prompts, but the two answers of a pair share their prompt: remove it"},
		{"compare_bigram", c.CompareBigram, "compares losses of tokens, but dpo has one loss for each pair: remove it"},
	} {
		if k.given {
			fail(k.key, "%s %s", k.key, k.why)
		}
	}
}
