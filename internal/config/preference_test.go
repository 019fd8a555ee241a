package config

import (
	"strings"
	"testing"
)

// TestPreference: what `dpo:` says, and what it does not say has TRL's values. It is printed as it was given.
func TestPreference(t *testing.T) {
	for text, want := range map[string]Preference{
		"":                                    {},
		"dpo: {}":                             {},
		"dpo: {beta: 0.5}":                    {LossType: "sigmoid", Beta: 0.5},
		"dpo: {beta: }":                       {LossType: "sigmoid", Beta: 0.1},
		"dpo: {loss_type: ipo, rpo_alpha: 1}": {LossType: "ipo", Beta: 0.1, RPOAlpha: 1},
		"dpo:\n  label_smoothing: 0.1\n  reference_model: ./ref": {LossType: "sigmoid", Beta: 0.1, LabelSmoothing: 0.1, ReferenceModel: "./ref"},
	} {
		c := mustParse(t, text)
		if got := c.Preference(); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
		if got := c.DataSpec().Pairs; got != (want.LossType != "") {
			t.Errorf("%q: pairs %t", text, got)
		}
		if again := mustParse(t, string(c.YAML(""))); again.Preference() != want {
			t.Errorf("%q: printed and read again: %+v", text, again.Preference())
		}
	}
	for text, want := range map[string]string{
		"dpo: 3":                                            "dpo: wants a mapping such as {beta: 0.1}, is 3",
		"dpo: {bta: 1}":                                     "dpo.bta: unknown key; did you mean \"beta\"?",
		"dpo: {beta: 0}":                                    "dpo.beta: wants at least 1e-06, is 0",
		"dpo: {beta: 1e-50}":                                "dpo.beta: wants at least 1e-06, is 1e-50",
		"dpo: {beta: 1e39}":                                 "dpo.beta: wants at most 1e+06, is 1e+39",
		"dpo: {rpo_alpha: 1e39}":                            "dpo.rpo_alpha: wants at most 1e+06, is 1e+39",
		"dpo: {beta: high}":                                 "dpo.beta: wants a number, is high",
		"dpo: {label_smoothing: 0.7}":                       "dpo.label_smoothing: wants at most 0.5, is 0.7",
		"dpo: {rpo_alpha: -1}":                              "dpo.rpo_alpha: wants at least 0, is -1",
		"dpo: {loss_type: sigmod}":                          `dpo.loss_type: "sigmod" is not one of sigmoid, hinge, ipo`,
		"dpo: {loss_type: 2}":                               "dpo.loss_type: wants a text, is 2",
		"dpo: {loss_type: hinge, label_smoothing: 0.1}":     "dpo.label_smoothing belongs to loss_type sigmoid",
		"dpo: {beta: 1}\nlabel_smoothing_factor: 0.1":       "label_smoothing_factor is about the targets of tokens",
		"dpo: {beta: 1}\nz_loss_coef: 0.1":                  "z_loss_coef adds to the losses of tokens",
		"dpo: {beta: 1}\nneftune_noise_alpha: 5":            "neftune_noise_alpha adds noise to the model in steps",
		"dpo: {beta: 1}\ntrain_on_prompt: true":             "train_on_prompt asks for targets in prompts",
		"dpo: {beta: 1}\ncompare_bigram: true\nval_size: 1": "compare_bigram compares losses of tokens",
	} {
		if _, err := Parse("t.yaml", []byte(text), Args{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
