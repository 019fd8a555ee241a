package tokenizer

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"mt/base/files"
)

// names are the keys under which Transformers stores special tokens in its files.
var names = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// named holds the tokens that the files beside tokenizer.json list, or store under a key such as eos_token.
type named struct {
	tokens map[string]addedToken // by key
	extra  []addedToken          // special tokens without a key
	more   []string              // contents of additional_special_tokens
	listed []addedToken          // tokens with ids, sorted by id
}

// readNamed adds the tokens that only the files beside tokenizer.json have, and finds BOS and EOS. As in
// Transformers 5, added_tokens_decoder of tokenizer_config.json changes and adds tokens. If this key is missing,
// special_tokens_map.json overrides the names in tokenizer_config.json, and added_tokens.json adds tokens. A named
// or extra token is special. Unlike Transformers, readNamed does not add a token without an id in any file: the
// model has no row for such a token.
func (t *hf) readNamed(dir string) error {
	n := named{tokens: map[string]addedToken{}}
	name := filepath.Join(dir, "tokenizer_config.json")
	config, err := t.object(name)
	if err != nil {
		return err
	}
	if err := n.read(config); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	list, modern := config["added_tokens_decoder"]
	if err := n.readDecoder(list); err != nil {
		return fmt.Errorf("%s: added_tokens_decoder: %w", name, err)
	}
	if !modern {
		if err := t.readOld(dir, &n); err != nil {
			return err
		}
	}
	err = t.addTokens(n.all(t))
	if err == nil {
		err = t.index()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	t.names = map[string]any{}
	for key, tok := range n.tokens {
		t.names[key] = tok.Content
	}
	if n.more != nil {
		t.names["additional_special_tokens"] = n.more
	}
	for key, id := range map[string]*int32{"bos_token": &t.bos, "eos_token": &t.eos} {
		if i, ok := t.TokenID(n.tokens[key].Content); ok {
			*id = i
		}
	}
	return nil
}

// object returns the file of t.files with the base name of name as a JSON object; nil: t has no such file.
func (t *hf) object(name string) (f map[string]json.RawMessage, err error) {
	text, ok := t.files[filepath.Base(name)]
	if !ok {
		return nil, nil
	}
	if err := files.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

// readOld reads special_tokens_map.json and added_tokens.json into n. Transformers reads these only if
// tokenizer_config.json has no added_tokens_decoder. dir is their directory, for errors.
func (t *hf) readOld(dir string, n *named) error {
	name := filepath.Join(dir, "special_tokens_map.json")
	special, err := t.object(name)
	if err != nil {
		return err
	}
	if err := n.read(special); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for i := range t.order {
		for _, content := range t.order[i] { // tokens of tokenizer.json; a token with a name becomes special
			tok := t.added[t.addedIDs[content]]
			n.listed = append(n.listed, addedToken{ID: int(tok.id), Content: tok.content, SingleWord: tok.singleWord,
				LStrip: tok.lstrip, RStrip: tok.rstrip, Normalized: tok.normalized, Special: t.specials[content]})
		}
	}
	name = filepath.Join(dir, "added_tokens.json")
	ids, err := t.object(name)
	if err != nil {
		return err
	}
	_, isSpecial := n.contents()
	for _, content := range slices.Sorted(maps.Keys(ids)) {
		f := addedToken{Content: content, ID: -1}
		if err := json.Unmarshal(ids[content], &f.ID); err != nil {
			return fmt.Errorf("%s: the id of %q is %s", name, content, shorten(ids[content]))
		}
		if err := f.check(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if _, ok := t.addedIDs[content]; !ok {
			f.Normalized = !isSpecial[content]
			n.listed = append(n.listed, f)
		}
	}
	slices.SortStableFunc(n.listed, func(a, b addedToken) int { return a.ID - b.ID })
	return nil
}

// readDecoder reads raw, the value of added_tokens_decoder: an object with ids as keys and tokens as values.
func (n *named) readDecoder(raw json.RawMessage) error {
	var all map[string]addedToken
	if len(raw) == 0 {
		return nil
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		f := all[key]
		id, err := strconv.Atoi(key)
		if err != nil {
			return fmt.Errorf("%q is not an id", key)
		}
		f.ID = id
		if err := f.check(); err != nil {
			return err
		}
		n.listed = append(n.listed, f)
	}
	slices.SortStableFunc(n.listed, func(a, b addedToken) int { return a.ID - b.ID })
	return nil
}

// read records in n the tokens that f, a file's JSON object, names. These are the tokens under keys such as
// eos_token, and the list of additional special tokens.
func (n *named) read(f map[string]json.RawMessage) error {
	for key, raw := range f {
		known := slices.Contains(names, key)
		if !strings.HasSuffix(key, "_token") || string(raw) == "null" {
			continue
		}
		tok, ok := unmarshalToken(raw)
		if !ok && known {
			return fmt.Errorf("%s: it is %s, neither a string nor an object with a content", key, shorten(raw))
		}
		if ok { // otherwise a key such as add_bos_token
			n.tokens[key] = tok
		}
	}
	for _, key := range []string{"extra_special_tokens", "additional_special_tokens"} {
		var list []json.RawMessage
		var byName map[string]json.RawMessage
		if json.Unmarshal(f[key], &list) != nil && json.Unmarshal(f[key], &byName) == nil {
			list = inOrder(byName)
		}
		for name, raw := range byName {
			if tok, ok := unmarshalToken(raw); ok {
				n.tokens[name] = tok
			}
		}
		for _, raw := range list {
			if tok, ok := unmarshalToken(raw); ok {
				n.extra = append(n.extra, tok)
				if byName == nil && !slices.Contains(n.more, tok.Content) {
					n.more = append(n.more, tok.Content)
				}
			}
		}
	}
	return nil
}

// Named returns the special tokens that t's files name, as chat templates see them. Each has its name, such as
// eos_token or image_token, as the key; additional_special_tokens is a list. The result is nil for a tokenizer
// without such files.
func Named(t Tokenizer) map[string]any {
	switch t := t.(type) {
	case *hf:
		return maps.Clone(t.names)
	case *splitting:
		return maps.Clone(t.hf.names)
	}
	return nil
}

// inOrder returns the values of m, sorted by their keys.
func inOrder[V any](m map[string]V) (values []V) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		values = append(values, m[key])
	}
	return values
}

// unmarshalToken returns the token that raw describes: a string, or an object with a content. ok is false for other
// values.
func unmarshalToken(raw []byte) (f addedToken, ok bool) {
	if json.Unmarshal(raw, &f.Content) != nil && json.Unmarshal(raw, &f) != nil {
		return f, false
	}
	f.Special = true
	return f, f.Content != "" && len(f.Content) <= maxAdded
}

// contents returns two sets of token contents. names has the contents of tokens with a name; special has the contents
// of all special tokens, named or extra.
func (n *named) contents() (names, special map[string]bool) {
	names, special = map[string]bool{}, map[string]bool{}
	for _, f := range n.tokens {
		names[f.Content], special[f.Content] = true, true
	}
	for _, f := range n.extra {
		special[f.Content] = true
	}
	return names, special
}

// all returns the tokens to add to t. First come the listed tokens, in the order of their ids, then the named tokens
// without an id, sorted by content.
func (n *named) all(t *hf) []addedToken {
	all, seen := slices.Clone(n.listed), map[string]bool{}
	names, _ := n.contents()
	for i, f := range all {
		all[i].Special = f.Special || names[f.Content]
		seen[f.Content] = true
	}
	rest := slices.Concat(inOrder(n.tokens), n.extra)
	slices.SortStableFunc(rest, func(a, b addedToken) int { return strings.Compare(a.Content, b.Content) })
	for _, f := range rest {
		_, isAdded := t.addedIDs[f.Content]
		if _, ok := t.model.ids[f.Content]; ok && !isAdded && !seen[f.Content] {
			seen[f.Content] = true
			all = append(all, f)
		}
	}
	return all
}

// NamedTokens are the keys that Name accepts.
var NamedTokens = []string{"bos_token", "eos_token", "unk_token", "pad_token"}

// Name returns a copy of t with other special tokens. The map tokens has the tokens' contents by
// keys of NamedTokens; t must have all these tokens. BOS and EOS follow bos_token and eos_token.
// The result's Files contain the new names. These are in tokenizer_config.json, which is created if
// it is missing, and in special_tokens_map.json, if t has this file.
func Name(t Tokenizer, tokens map[string]string) (Tokenizer, error) {
	old, err := asHF(t)
	if err != nil {
		return nil, err
	}
	bos, eos := old.bos, old.eos
	for _, key := range slices.Sorted(maps.Keys(tokens)) {
		id, ok := old.TokenID(tokens[key])
		switch {
		case !slices.Contains(NamedTokens, key):
			return nil, fmt.Errorf("name tokens: %q is no name of a token", key)
		case !ok:
			return nil, fmt.Errorf("name tokens: %s is %q, which is no token of the vocabulary", key, tokens[key])
		case key == "bos_token":
			bos = id
		case key == "eos_token":
			eos = id
		}
	}
	files := maps.Clone(old.files)
	if _, ok := files["tokenizer_config.json"]; !ok { // a new file must also contain what other files said
		files["tokenizer_config.json"] = []byte("{}")
		tokens = maps.Clone(tokens)
		for key, id := range map[string]int32{"bos_token": bos, "eos_token": eos} {
			if id >= 0 {
				tokens[key] = old.Token(id)
			}
		}
	}
	for _, name := range []string{"tokenizer_config.json", "special_tokens_map.json"} {
		text, ok := files[name]
		if !ok {
			continue
		}
		o, err := readJSONFields(text)
		if err != nil {
			return nil, fmt.Errorf("name tokens: %s: %w", name, err)
		}
		for _, key := range slices.Sorted(maps.Keys(tokens)) {
			o.set(key, jsonQuote(tokens[key]))
		}
		files[name] = append(o.text(""), '\n')
	}
	out, err := reread(files, bos, eos)
	if err != nil {
		return nil, fmt.Errorf("name tokens: %w", err)
	}
	return out.splitter(), nil
}

// EndsWith returns text, the content of a generation_config.json, with id as the first element of eos_token_id.
// Generation then also ends at this token.
func EndsWith(text []byte, id int32) ([]byte, error) {
	o, err := readJSONFields(text)
	if err != nil {
		return nil, fmt.Errorf("generation_config.json: %w", err)
	}
	ends := []int64{int64(id)}
	var list []int64
	var one int64
	raw := o.get("eos_token_id")
	if json.Unmarshal(raw, &one) == nil && given(raw) {
		list = []int64{one}
	} else if given(raw) {
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, fmt.Errorf("generation_config.json: eos_token_id: %w", err)
		}
	}
	for _, was := range list {
		if was != int64(id) {
			ends = append(ends, was)
		}
	}
	if len(ends) == 1 {
		o.set("eos_token_id", strconv.AppendInt(nil, ends[0], 10))
	} else {
		text, _ := json.Marshal(ends)
		o.set("eos_token_id", text)
	}
	return append(o.text(""), '\n'), nil
}
