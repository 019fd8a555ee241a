package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"mt/internal/files"
)

// encodingVersion is part of ID: it changes when the same file encodes
// differently than before.
const encodingVersion = 2

// readFiles reads the files beside tokenizer.json, whose content is text, and
// finds the tokens that begin and end a text.
func (t *hf) readFiles(dir string, text []byte) error {
	t.files = map[string][]byte{"tokenizer.json": text}
	for _, name := range companions[1:] {
		b, err := readFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		t.files[name] = b
	}
	if err := t.readNamed(dir); err != nil {
		return err
	}
	for _, name := range []string{"generation_config.json", "config.json"} {
		if err := t.readEnds(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if t.bos < 0 {
		t.bos = edge(t.post, func(p postProcessor) []int32 { return p.before })
	}
	if t.eos < 0 {
		t.eos = edge(t.post, func(p postProcessor) []int32 { return p.behind })
	}
	t.identify()
	return nil
}

// identify makes the ID, of everything that ids depend on.
func (t *hf) identify() {
	h := sha256.New()
	h.Write(t.files["tokenizer.json"])
	fmt.Fprintf(h, "\n%d %d %q", t.bos, t.eos, t.order)
	for _, id := range slices.Sorted(maps.Keys(t.added)) {
		fmt.Fprintf(h, "\n%d %v %+v", id, t.IsSpecial(id), *t.added[id])
	}
	t.id = fmt.Sprintf("bpe-%d-%s", encodingVersion, hex.EncodeToString(h.Sum(nil)[:16]))
}

// edge is the only token that the post-processors put at one side, -1 where
// there is none or another number.
func edge(post []postProcessor, side func(postProcessor) []int32) int32 {
	var all []int32
	for _, p := range post {
		all = append(all, side(p)...)
	}
	if len(all) != 1 {
		return -1
	}
	return all[0]
}

// readEnds takes bos_token_id and eos_token_id from a file, where they are not
// known yet: a number, or a list of which the first counts.
func (t *hf) readEnds(name string) error {
	_, told := t.files["tokenizer_config.json"] // which would name a token that begins texts
	if (t.bos >= 0 || told) && t.eos >= 0 {
		return nil
	}
	text, err := readFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var f map[string]json.RawMessage
	if err := files.Unmarshal(text, &f); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for key, id := range map[string]*int32{"bos_token_id": &t.bos, "eos_token_id": &t.eos} {
		var list []int64
		if told && id == &t.bos {
			continue
		}
		if raw := f[key]; json.Unmarshal(raw, &list) != nil {
			list = []int64{-1}
			_ = json.Unmarshal(raw, &list[0]) // neither: as if it were not there
		}
		if *id < 0 && len(list) > 0 && t.known("", list[0]) == nil {
			*id = int32(list[0])
		}
	}
	return nil
}
