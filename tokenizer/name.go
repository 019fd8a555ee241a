package tokenizer

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// NamedTokens are the keys that Name takes.
var NamedTokens = []string{"bos_token", "eos_token", "unk_token", "pad_token"}

// Name is t with other tokens under keys of NamedTokens, all of which t must know. bos_token and
// eos_token begin and end texts from then on. Files has the names in tokenizer_config.json,
// which is made where it is not there, and in special_tokens_map.json where that is.
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
	if _, ok := files["tokenizer_config.json"]; !ok { // it has to say too what other files said before
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

// EndsWith is the text of a generation_config.json by which generation ends at id too: the
// first of eos_token_id, before those that are there.
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
