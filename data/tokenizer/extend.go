package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"mt/base/files"
)

// NewToken is a token that Extend was asked to add.
type NewToken struct {
	Content string
	ID      int32
	// Known reports that the vocabulary already had the token, with the same id.
	Known bool
}

// CheckToken returns an error if content cannot be an added token.
func CheckToken(content string) error {
	switch {
	case content == "":
		return errors.New("a token is empty")
	case len(content) > maxAdded:
		return fmt.Errorf("the token %s is %d bytes long; at most %d are possible", shorten([]byte(content)), len(content), maxAdded)
	case !utf8.ValidString(content):
		return fmt.Errorf("the token %q is not UTF-8 text", content)
	}
	return nil
}

// Extend returns t with more added tokens, plain ones first. They have the flags that Transformers' add_tokens
// sets; plain tokens are searched in the normalized text. New tokens get the ids after all others. A token that t
// already has keeps its id. A token of the vocabulary becomes an added token, and an added token becomes special if
// special contains it. The result's Files contain the changes to tokenizer.json, tokenizer_config.json,
// special_tokens_map.json and added_tokens.json, as far as t has these files. All contents must pass CheckToken.
func Extend(t Tokenizer, plain, special []string) (Tokenizer, []NewToken, error) {
	old, err := asHF(t)
	if err != nil {
		return nil, nil, err
	}
	e := &extension{old: old, next: int32(max(old.lastAdded+1, len(old.model.ids)))}
	for _, content := range plain {
		e.add(content, false)
	}
	for _, content := range special {
		e.add(content, true)
	}
	if len(e.changed) == 0 {
		return t, e.asked, nil
	}
	files, err := e.files()
	if err != nil {
		return nil, nil, fmt.Errorf("add tokens: %w", err)
	}
	out, err := reread(files, old.bos, old.eos)
	if err == nil {
		err = e.verify(out)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("add tokens: %w", err)
	}
	return out.splitter(), e.asked, nil
}

// asHF returns t in the form that is read from a tokenizer.json. For Bytes, it reads the files that Bytes writes.
func asHF(t Tokenizer) (*hf, error) {
	switch t := t.(type) {
	case *hf:
		return t, nil
	case *splitting:
		return t.hf, nil
	}
	eos, ok := t.EOS()
	if !ok {
		eos = -1
	}
	return reread(t.Files(), -1, eos)
}

// reread returns the tokenizer that files (name to content) describe. The caller passes the ids bos and eos, since
// they may come from files that a tokenizer does not keep.
func reread(files map[string][]byte, bos, eos int32) (*hf, error) {
	t, err := parse(files["tokenizer.json"])
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	t.files = files
	if err := t.readNamed(""); err != nil {
		return nil, err
	}
	t.bos, t.eos = bos, eos
	t.identify()
	return t, nil
}

// extension collects the tokens that one call of Extend adds, and the changes that they make to the tokenizer's
// files.
type extension struct {
	old     *hf
	next    int32 // the id of the next new token
	asked   []NewToken
	changed []addedToken // new tokens, and tokens that become special or added; files sorts them by id
}

// add records that the token with this content shall be added, as a special token if special is set.
func (e *extension) add(content string, special bool) {
	if slices.ContainsFunc(e.asked, func(n NewToken) bool { return n.Content == content }) {
		return
	}
	id, known := e.old.TokenID(content)
	if !known {
		id = e.next
		e.next++
	}
	e.asked = append(e.asked, NewToken{content, id, known})
	if e.old.added[id] != nil && (e.old.specials[content] || !special) {
		return // the token stays unchanged; Transformers would clear its flags
	}
	e.changed = append(e.changed, addedToken{ID: int(id), Content: content, Normalized: !special, Special: special})
}

// verify returns an error if t, read from the new files, is not as intended. The requested tokens must have their
// ids, and all other tokens must be unchanged.
func (e *extension) verify(t *hf) error {
	for id := range int32(e.old.size) {
		if was, is := e.old.Token(id), t.Token(id); was != "" && was != is {
			return fmt.Errorf("the ids of tokenizer.json have gaps: id %d, which is %q, would become that of %q; "+
				"let Transformers add the tokens and save tokenizer and model", id, was, is)
		}
	}
	for _, f := range e.changed {
		if id, ok := t.TokenID(f.Content); !ok || int(id) != f.ID || t.IsSpecial(id) != f.Special {
			return fmt.Errorf("the token %q would not be read as it is written; let Transformers add it and save tokenizer and model", f.Content)
		}
	}
	return nil
}

// files returns the files of the extended tokenizer, by name: the files of the old tokenizer with the changes.
func (e *extension) files() (map[string][]byte, error) {
	slices.SortFunc(e.changed, func(a, b addedToken) int { return a.ID - b.ID })
	files := maps.Clone(e.old.files)
	for name, edit := range map[string]func(*jsonFields) error{
		"tokenizer.json":          e.inTokenizer,
		"tokenizer_config.json":   e.inConfig,
		"special_tokens_map.json": e.inMap,
		"added_tokens.json":       e.inAdded,
	} {
		text, ok := files[name]
		if !ok {
			continue
		}
		o, err := readJSONFields(text)
		if err == nil {
			err = edit(&o)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if o.edited {
			files[name] = append(o.text(""), '\n')
		}
	}
	return files, nil
}

// inTokenizer writes the list added_tokens of tokenizer.json. First come the existing entries, some
// of them changed. Then come tokens that until now only tokenizer_config.json or added_tokens.json
// lists, and last the new tokens.
func (e *extension) inTokenizer(o *jsonFields) error {
	todo := map[string]addedToken{}
	for _, f := range e.changed {
		todo[f.Content] = f
	}
	var list [][]byte
	seen := map[string]bool{}
	if raw := o.get("added_tokens"); given(raw) {
		err := jsonArray(raw, func(_ int, value []byte) error {
			var f addedToken
			if err := json.Unmarshal(value, &f); err != nil {
				return err
			}
			if to, ok := todo[f.Content]; ok {
				to.ID = f.ID // nothing reads this id; keep the file's
				value = tokenJSON(to, true)
			}
			seen[f.Content] = true
			list = append(list, value)
			return nil
		})
		if err != nil {
			return fmt.Errorf("added_tokens: %w", err)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(e.old.added)) {
		a := e.old.added[id]
		if _, word := e.old.model.ids[a.content]; word || seen[a.content] {
			continue
		}
		f := addedToken{ID: int(id), Content: a.content, SingleWord: a.singleWord, LStrip: a.lstrip, RStrip: a.rstrip,
			Normalized: a.normalized, Special: e.old.specials[a.content]}
		if to, ok := todo[a.content]; ok {
			f = to
		}
		seen[a.content] = true
		list = append(list, tokenJSON(f, true))
	}
	for _, f := range e.changed {
		if !seen[f.Content] {
			list = append(list, tokenJSON(f, true))
		}
	}
	o.set("added_tokens", jsonList(list, "  "))
	return nil
}

// inConfig updates tokenizer_config.json. It writes added_tokens_decoder only if the file has this
// key already, since a new key would make Transformers ignore the other files. Special tokens are
// also added to a list, under the key that the file's version of Transformers uses.
func (e *extension) inConfig(o *jsonFields) error {
	if raw := o.get("added_tokens_decoder"); raw != nil {
		var decoder jsonFields
		if given(raw) {
			var err error
			if decoder, err = readJSONFields(raw); err != nil {
				return fmt.Errorf("added_tokens_decoder: %w", err)
			}
		}
		for _, f := range e.changed {
			decoder.set(decoder.idOf(f), tokenJSON(f, false))
		}
		o.set("added_tokens_decoder", decoder.text("  "))
	}
	if raw := o.get("extra_special_tokens"); given(raw) && raw[0] == '[' {
		return e.list(o, "extra_special_tokens")
	}
	return e.list(o, "additional_special_tokens")
}

// idOf returns the key of the token f in the object o, an added_tokens_decoder, whose keys are ids.
// If o lacks the token, it returns f's id.
func (o *jsonFields) idOf(f addedToken) string {
	for _, key := range o.keys {
		if has, ok := unmarshalToken(o.values[key]); ok && has.Content == f.Content {
			return key
		}
	}
	return strconv.Itoa(f.ID)
}

// inMap adds the special tokens to additional_special_tokens in special_tokens_map.json.
func (e *extension) inMap(o *jsonFields) error { return e.list(o, "additional_special_tokens") }

// list adds the special tokens among the changed ones to the list under key in o.
func (e *extension) list(o *jsonFields, key string) error {
	var list [][]byte
	var names []string
	if raw := o.get(key); given(raw) {
		err := jsonArray(raw, func(_ int, value []byte) error {
			f, _ := unmarshalToken(value)
			list, names = append(list, value), append(names, f.Content)
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	n := len(list)
	for _, f := range e.changed {
		if f.Special && !slices.Contains(names, f.Content) {
			list = append(list, jsonQuote(f.Content))
		}
	}
	if len(list) > n {
		o.set(key, jsonList(list, "  "))
	}
	return nil
}

// inAdded writes to added_tokens.json the ids of those tokens that are not in the vocabulary.
func (e *extension) inAdded(o *jsonFields) error {
	for _, f := range e.changed {
		if _, word := e.old.model.ids[f.Content]; !word {
			o.set(f.Content, []byte(strconv.Itoa(f.ID)))
		}
	}
	return nil
}

// tokenJSON returns a token as a JSON object: as tokenizer.json writes it if id is set, and
// otherwise without an id, as tokenizer_config.json does.
func tokenJSON(f addedToken, id bool) []byte {
	var o jsonFields
	if id {
		o.set("id", []byte(strconv.Itoa(f.ID)))
	}
	o.set("content", jsonQuote(f.Content))
	for _, flag := range []struct {
		name string
		on   bool
	}{{"single_word", f.SingleWord}, {"lstrip", f.LStrip}, {"rstrip", f.RStrip}, {"normalized", f.Normalized}, {"special", f.Special}} {
		o.set(flag.name, strconv.AppendBool(nil, flag.on))
	}
	return o.text("    ")
}

// jsonFields is a JSON object whose keys keep their order and whose values keep their bytes. When
// it is written again, a file changes only where it must.
type jsonFields struct {
	keys   []string
	values map[string][]byte
	edited bool // changed since it was read
}

func readJSONFields(raw []byte) (o jsonFields, err error) {
	if plain := files.JSON(raw); !json.Valid(plain) {
		var v any
		return o, fmt.Errorf("it is not JSON: %w", json.Unmarshal(plain, &v))
	}
	err = jsonObject(raw, func(key string, value []byte) error {
		o.set(key, value)
		return nil
	})
	o.edited = false
	return o, err
}

// get returns the value of key; nil: none.
func (o *jsonFields) get(key string) []byte { return o.values[key] }

// set stores value under key. A new key goes to the end.
func (o *jsonFields) set(key string, value []byte) {
	if o.values == nil {
		o.values = map[string][]byte{}
	}
	if _, ok := o.values[key]; !ok {
		o.keys = append(o.keys, key)
	}
	o.values[key], o.edited = value, true
}

// text returns the object as JSON, with one key on each line. indent is the indentation of the line on which the
// object begins.
func (o *jsonFields) text(indent string) []byte {
	items := make([][]byte, len(o.keys))
	for i, key := range o.keys {
		items[i] = slices.Concat(jsonQuote(key), []byte(": "), o.values[key])
	}
	return jsonLines("{", items, "}", indent)
}

// jsonList returns items as a JSON array, with one element on each line. indent is the indentation of the line on
// which the array begins.
func jsonList(items [][]byte, indent string) []byte { return jsonLines("[", items, "]", indent) }

func jsonLines(open string, items [][]byte, end, indent string) []byte {
	out := []byte(open)
	for i, item := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, "\n  "+indent...), item...)
	}
	if len(items) > 0 {
		out = append(out, "\n"+indent...)
	}
	return append(out, end...)
}

// jsonQuote returns s as a JSON string; non-ASCII and HTML characters are not escaped.
func jsonQuote(s string) []byte { return []byte(strings.TrimSuffix(string(indented(s)), "\n")) }

// given reports whether raw holds a value other than null.
func given(raw []byte) bool { return len(raw) > 0 && string(raw) != "null" }
