package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
)

const (
	maxAdded    = 512     // bytes of an added token
	maxAllAdded = 8 << 20 // of all of them: each takes some memory
)

// readAdded reads "added_tokens".
func (t *hf) readAdded(raw []byte) error {
	t.added, t.addedIDs, t.specials = map[int32]*added{}, map[string]int32{}, map[string]bool{}
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var all []addedToken
	err := jsonArray(raw, func(n int, value []byte) error {
		f := addedToken{ID: -1}
		if err := json.Unmarshal(value, &f); err != nil {
			return fmt.Errorf("[%d]: %w", n, err)
		}
		if err := f.check(); err != nil {
			return fmt.Errorf("[%d]: %w", n, err)
		}
		all = append(all, f)
		return nil
	})
	if err != nil {
		return fmt.Errorf("added_tokens%w", err)
	}
	return t.addTokens(all)
}

// check refuses an added token that no published tokenizer has.
func (f *addedToken) check() error {
	switch {
	case len(f.Content) > maxAdded:
		return fmt.Errorf("its content is longer than %d bytes", maxAdded)
	case f.ID < 0 || f.ID >= maxID:
		return fmt.Errorf("the id of %q is %d, and ids go from 0 to %d", f.Content, f.ID, maxID-1)
	}
	return nil
}

// addTokens adds tokens, and changes those that are there with the same content. As
// `tokenizers` does, it ignores their ids: a token of the vocabulary keeps its own, and any
// other gets the next one after all.
func (t *hf) addTokens(all []addedToken) error {
	known := make([]addedToken, 0, len(all))
	for _, f := range all {
		if f.Content == "" {
			continue
		}
		if t.addedBytes += len(f.Content); t.addedBytes > maxAllAdded {
			return fmt.Errorf("added_tokens: they are longer than %d bytes together", maxAllAdded)
		}
		known = append(known, f)
		if f.Special && !t.specials[f.Content] {
			t.specials[f.Content] = true
			t.order[0] = append(t.order[0], f.Content)
		}
	}
	for _, f := range known {
		tok := added{content: f.Content, spelled: f.Content, singleWord: f.SingleWord, lstrip: f.LStrip, rstrip: f.RStrip, normalized: f.Normalized}
		id, ok := t.TokenID(f.Content)
		if !ok {
			id = int32(max(t.lastAdded+1, len(t.model.ids)))
		}
		if tok.id = id; id >= maxID {
			return fmt.Errorf("added_tokens: ids go from 0 to %d", maxID-1)
		}
		t.added[id], t.addedIDs[f.Content] = &tok, id
		t.lastAdded = max(t.lastAdded, int(id))
		if !t.specials[f.Content] {
			t.order[1] = append(t.order[1], f.Content)
		}
	}
	return nil
}

// index prepares the search for added tokens. Where two are spelled alike, special ones come
// first, then those that were added first.
func (t *hf) index() error {
	t.raw, t.normal = newTrie(), newTrie()
	for _, content := range slices.Concat(t.order[0], t.order[1]) {
		tok := t.added[t.addedIDs[content]]
		if !tok.normalized {
			t.raw.add(content, tok)
			continue
		}
		s := span{text: []byte(content), left: newBudget(len(content))}
		for _, n := range t.norms {
			var err error
			if s, err = n.normalize(s, false); err != nil {
				return fmt.Errorf("added_tokens: %q: %w", content, err)
			}
		}
		tok.spelled = string(s.text)
		t.normal.add(tok.spelled, tok)
	}
	t.size = len(t.model.tokens)
	for id := range t.added {
		t.size = max(t.size, int(id)+1)
	}
	return nil
}
