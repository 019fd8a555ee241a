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
	// topTies says that tie_word_embeddings at the top of the file overrides the one in the language
	// model's mapping. That one counts in families with flat alone.
	topTies bool
	// headTells says that without a tie_word_embeddings that counts, embeddings are tied if the
	// directory has no tensor for the head.
	headTells bool
}

// tiedKey is the key of config.json that says whether the head shares the embedding's table.
const tiedKey = "tie_word_embeddings"

// fields returns the keys of the language model, with the family's defaults for missing ones. top has the keys of the
// whole file. If the language model's mapping is missing or wrong, the result is nil and top.err says so. Token ids at
// the top take precedence over the language model's, as in Transformers' generation.
func (a *family) fields(top *fields) *fields {
	f := top
	if a.nested != nil {
		if f = a.nested.fields(top); f == nil {
			return nil
		}
	}
	if a.nested != nil && a.nested.topTies && !a.nested.flat {
		delete(f.vals, tiedKey)
	}
	f.renamed(a.names, a.eitherName)
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

// fields returns the keys of the mapping n.key. If the mapping is missing and n.flat is set, it returns the keys at the
// top. nil: neither, and top.err says so.
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
