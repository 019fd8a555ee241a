package model

import (
	"maps"
	"slices"
	"strings"
)

// nested says how the config.json of a larger model, such as one with a vision tower, holds the keys of the language
// model. Only the language model is trained.
type nested struct {
	key   string   // the key of the mapping with the language model's keys
	types []string // the possible values of model_type in the mapping
	alone string   // the model_type of the family of the language model alone
	flat  bool     // the keys may be at the top instead, as in older files
	// topTies says that tie_word_embeddings at the top overrides the mapping's.
	topTies bool
	// headTells says that without tie_word_embeddings anywhere, embeddings are tied if no head is stored.
	headTells bool
}

// tiedKey is the key that ties the head to the embedding.
const tiedKey = "tie_word_embeddings"

// fields returns the language model's keys with the family's defaults; nil if there are none. The larger model's token
// ids take precedence over a nested language model's, as in Transformers' generation.
func (a *family) fields(top *fields) *fields {
	f := top
	if a.nested != nil {
		if f = a.nested.fields(top); f == nil {
			return nil
		}
	}
	f.renamed(a.names)
	f.setDefaults(a.defaults)
	if a.prepare != nil {
		a.prepare(f)
	}
	of := []string{"bos_token_id", "eos_token_id", "pad_token_id"}
	if a.nested != nil && a.nested.topTies {
		of = append(of, tiedKey)
	}
	for _, key := range of {
		if top.has(key) {
			f.vals[key] = top.vals[key]
		}
	}
	return f
}

// fields returns the keys of the mapping or, if n.flat, those at the top; nil if there are none.
func (n *nested) fields(top *fields) *fields {
	f := top.object(n.key)
	if f == nil {
		if n.flat && top.err == nil {
			return &fields{where: top.where, vals: maps.Clone(top.vals)}
		}
		top.fail(n.key, "missing")
		return nil
	}
	if t := f.str("model_type", n.types[0]); !slices.Contains(n.types, t) {
		f.fail("model_type", "%q is not supported here; known: %s", t, strings.Join(n.types, ", "))
	}
	return f
}
