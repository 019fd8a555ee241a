package config

import (
	"maps"
	"slices"
	"strings"

	"mt/data/tokenizer"
)

const (
	specialTokensKey = "special_tokens"
	moreTokensKey    = "additional_special_tokens"
)

// NamedTokens returns the tokens in special_tokens that have one of the names in tokenizer.NamedTokens, such as
// eos_token, by name.
func (c *Config) NamedTokens() map[string]string {
	out := map[string]string{}
	for _, name := range tokenizer.NamedTokens {
		if text, ok := c.SpecialTokens[name].(string); ok {
			out[name] = text
		}
	}
	return out
}

// MoreSpecialTokens returns all tokens in special_tokens, with or without a name of their own. Tokens that the
// vocabulary lacks are added to it before training.
func (c *Config) MoreSpecialTokens() []string {
	named := c.NamedTokens()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(named)) {
		out = append(out, named[name])
	}
	list, _ := c.SpecialTokens[moreTokensKey].([]any)
	for _, item := range list {
		if text, ok := item.(string); ok {
			out = append(out, text)
		}
	}
	return out
}

// checkSpecialTokens rejects entries of special_tokens whose value is no token. fail records an error about a key.
func (c *Config) checkSpecialTokens(fail func(key, format string, args ...any)) {
	for _, name := range slices.Sorted(maps.Keys(c.SpecialTokens)) {
		key, v := specialTokensKey+"."+name, c.SpecialTokens[name]
		text, isText := v.(string)
		list, isList := v.([]any)
		switch {
		case v == nil: // left empty
		case slices.Contains(tokenizer.NamedTokens, name):
			if !isText || text == "" {
				fail(key, "%s must be a token in quotes, not %s", key, flow(v))
			}
		case name != moreTokensKey:
			fail(key, "%s: unknown key; special_tokens takes %s and %s%s", key, strings.Join(tokenizer.NamedTokens, ", "), moreTokensKey, suggest(name, append(slices.Clone(tokenizer.NamedTokens), moreTokensKey)))
		case !isList:
			fail(key, "%s must be a list of tokens, not %s", key, flow(v))
		case slices.ContainsFunc(list, func(x any) bool { text, ok := x.(string); return !ok || text == "" }):
			fail(key, "%s must be a list of tokens: put each token in quotes", key)
		}
	}
}
