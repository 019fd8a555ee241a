package data

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// position is a place in the sources: Source of them are done, and Rows rows of the one
// after these.
type position struct {
	Source int   `json:"source"`
	Rows   int64 `json:"rows"`
	// File is the path of the current source; Docs and Skipped are the numbers of
	// documents and bad rows in all before it.
	File    string `json:"file"`
	Docs    int64  `json:"docs_before"`
	Skipped int64  `json:"skipped_before"`
	// Size and MTime are those of the current source.
	Size  int64 `json:"size"`
	MTime int64 `json:"mtime"`
}

// journal says which part of an unfinished cache is committed. It is a file of its own,
// replaced as a whole.
type journal struct {
	Manifest manifest `json:"manifest"`
	At       position `json:"at"`
}

// commit makes everything written so far last, up to the position at, where a document ends.
func (w *cacheWriter) commit(at position) error {
	if w.private {
		return nil
	}
	if err := w.flush(); err != nil {
		return err
	}
	text, err := json.Marshal(journal{w.manifest, at})
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	name := w.name + journalName
	if err := os.WriteFile(name+newName, text, 0o644); err != nil {
		return err
	}
	w.kept = true
	return os.Rename(name+newName, name)
}

// resume goes on from the last commit, if there is one that was made for these sources. It
// cuts the files back to that commit, or to nothing where there is none.
func (w *cacheWriter) resume(sources []source) (position, error) {
	var j journal
	if !w.private {
		text, err := os.ReadFile(w.name + journalName)
		if err != nil || json.Unmarshal(text, &j) != nil || !w.goesOn(&j, sources) {
			j = journal{}
		}
	}
	sizes := [3]int64{}
	if j.Manifest.Docs > 0 {
		w.manifest, w.kept = j.Manifest, true
		sizes = w.partSizes()
		w.resumed = fmt.Sprintf("went on with an interrupted tokenisation: %d documents were done", w.Docs)
	}
	for i, p := range w.parts {
		p.sum = w.Sums[i]
		if err := p.f.Truncate(sizes[i]); err != nil {
			return j.At, err
		}
		if _, err := p.f.Seek(sizes[i], io.SeekStart); err != nil {
			return j.At, err
		}
		p.w.Reset(p.f)
	}
	return j.At, nil
}

// partSizes are the sizes in bytes of the three files of an unfinished cache.
func (m *manifest) partSizes() [3]int64 {
	s := m.sizes()
	if s[1] = s[0]; m.Kind == kindText {
		s[1] = 0
	}
	return s
}

// goesOn tells whether a journal was made for these sources, which have not changed since,
// and whether the files hold what the journal says.
func (w *cacheWriter) goesOn(j *journal, sources []source) bool {
	m, at := &j.Manifest, &j.At
	if m.Tokenizer != w.Tokenizer || m.TokenBytes != w.TokenBytes || len(m.Files) != at.Source || at.Source > len(sources) || m.Docs < 1 {
		return false
	}
	for i, f := range m.Files {
		if !m.holds(f, sources[i]) {
			return false
		}
	}
	if at.Source < len(sources) && at.Rows > 0 {
		src := sources[at.Source]
		if at.File != src.path || at.Size != src.size || !m.vouched(at.MTime, src) {
			return false
		}
	}
	for i, size := range m.partSizes() {
		f := w.parts[i].f
		if _, err := f.Seek(0, io.SeekStart); err != nil || size < 0 {
			return false
		}
		sum := crc32.New(castagnoli)
		if n, err := io.CopyN(sum, f, size); err != nil || n != size || sum.Sum32() != m.Sums[i] {
			return false
		}
	}
	return true
}
