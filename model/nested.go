package model

import (
	"maps"
	"slices"
	"strings"
)

// nested says how a family's config.json, that of a larger model with a vision tower or the like, holds
// the keys of the language model. Only the language model is trained.
type nested struct {
	key   string   // of the mapping that holds them
	types []string // what model_type may be there
	alone string   // the model_type of the family that is the language model alone
	flat  bool     // the keys may also be at the top, as in older files
	// topTies says that tie_word_embeddings at the top counts, whatever the mapping says.
	topTies bool
	// headTells says that where tie_word_embeddings stands nowhere, embeddings are tied if no head is stored.
	headTells bool
}

// tiedKey is the key that says whether the head is the embedding.
const tiedKey = "tie_word_embeddings"

// fields are the language model's keys, with the family's defaults; nil where there are none.
// For a nested language model the token ids of the larger model count, as they do in
// Transformers' generation.
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

// fields are the keys of the mapping, or those at the top where they may be there; nil where there are none.
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
