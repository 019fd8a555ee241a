package tokenizer

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// bpe is the model of a tokenizer.json (byte-pair encoding): a vocabulary and the merges. A merge combines two tokens
// into a larger token. It does not change after loading.
type bpe struct {
	ids    map[string]int32
	tokens []string // by id; "": no token has this id
	long   int      // bytes of the longest token
	sizes  []int32  // by id: bytes of text that the token stands for; 0: varies
	pairs  pairs

	unk          int32 // -1: none
	fuseUnk      bool
	ignoreMerges bool   // a word that is itself a token is not merged
	prefix       string // prefix of every piece of a word except the first
	suffix       string // suffix of the last piece of a word

	// raw reports that words are sequences of bytes, not of characters. The vocabulary then spells each byte as a
	// letter (byteAlphabet), and letters holds the ids of these letters.
	raw     bool
	letters [byteVocab]int32
	// fallback holds the ids of the tokens <0x00> to <0xFF>. They stand for the bytes of a character that the
	// vocabulary lacks. -1: there is no such token, or byte fallback is off.
	fallback [byteVocab]int32
	ascii    [utf8.RuneSelf]int32 // ids of single ASCII characters; -1: none
	// cuts reports that a word may be cut before each metaspace (▁) without a change of its tokens,
	// since no merge combines text from both sides. The exceptions are metaspaces after a character
	// in joins.
	cuts  bool
	joins map[rune]bool
}

// metaspace is the character that stands for a space in vocabularies made by SentencePiece or like it.
const metaspace = "▁"

const (
	cacheBits  = 14 // the cache has 1<<cacheBits sets of two words
	cachedSize = 24 // bytes of the longest cached word
	cachedIDs  = 9  // most tokens of a cached word
)

// cached is a word with its tokens, an entry of the cache of words. It fills one cache line of the CPU.
type cached struct {
	key  [3]uint64 // the bytes of the word, padded with zeros
	size uint8     // bytes of the word; 0: empty entry
	n    uint8
	ids  [cachedIDs]int32
}

// worker holds the buffers that one call of Encode needs, and a cache of words. A tokenizer keeps idle workers for
// later calls.
type worker struct {
	t       *hf
	u       *unicodeTable
	cache   []cached
	symbols []symbol
	heap    []candidate
	buf     []byte
	pieces  [2][]piece

	ids    []int32
	starts []int
	spans  bool // append to starts
	last   int  // the largest of starts so far
	track  bool // keep the origins of spans
}

// cacheKey returns the bytes text[i:j] of a word as three numbers, padded with zeros. The word must have at most
// cachedSize bytes.
func cacheKey(text []byte, i, j int) (k [3]uint64) {
	n := j - i
	if i+cachedSize > len(text) {
		var tail [cachedSize]byte
		copy(tail[:], text[i:j])
		return [3]uint64{binary.LittleEndian.Uint64(tail[:]), binary.LittleEndian.Uint64(tail[8:]), binary.LittleEndian.Uint64(tail[16:])}
	}
	b := text[i : i+cachedSize : i+cachedSize]
	switch k[0] = binary.LittleEndian.Uint64(b); {
	case n < 8:
		k[0] &= 1<<(8*n) - 1
	case n <= 16:
		k[1] = binary.LittleEndian.Uint64(b[8:]) & (1<<(8*(n-8)) - 1)
	default:
		k[1] = binary.LittleEndian.Uint64(b[8:])
		k[2] = binary.LittleEndian.Uint64(b[16:]) & (1<<(8*(n-16)) - 1)
	}
	return k
}

// cachePlace returns an index into the cache of words. The word of n bytes with key k may be in the
// entry at this index or in the next one.
func cachePlace(k [3]uint64, n int) uint64 {
	h := (k[0] ^ uint64(n)) * 0x9e3779b97f4a7c15
	if n > 8 {
		h ^= bits.RotateLeft64(k[1]*0xc2b2ae3d27d4eb4f, 29) ^ bits.RotateLeft64(k[2]*0x165667b19e3779f9, 43)
		h *= 0x9e3779b97f4a7c15
	}
	return h >> (64 - cacheBits) * 2
}

// word appends the ids of the word text[i:j] of s. For a short word it looks in the cache first.
func (w *worker) word(m *bpe, s *span, i, j int) {
	n := j - i
	if n > cachedSize {
		w.merged(m, s, i, j)
		return
	}
	k := cacheKey(s.text, i, j)
	at := w.cache[cachePlace(k, n):]
	at = at[:2]
	for c := range at {
		if c := &at[c]; int(c.size) == n && c.key == k {
			if !w.spans {
				w.ids = append(w.ids, c.ids[:c.n]...)
			} else if !w.place(m, s, i, j, c.ids[:c.n]) {
				w.merged(m, s, i, j)
			}
			return
		}
	}
	first := len(w.ids)
	w.merged(m, s, i, j)
	if ids := w.ids[first:]; len(ids) <= cachedIDs {
		at[1] = at[0]
		at[0] = cached{key: k, size: uint8(n), n: uint8(len(ids))}
		copy(at[0].ids[:], ids)
	}
}

// place appends ids, the tokens of the word s.text[i:j], and computes from the tokens' sizes where
// in the text each token starts. If the size of a token is unknown, or the sizes do not add up to
// the word's length, it appends nothing and returns false.
func (w *worker) place(m *bpe, s *span, i, j int, ids []int32) bool {
	at := i
	for _, id := range ids {
		if m.sizes[id] == 0 {
			return false
		}
		at += int(m.sizes[id])
	}
	if at != j {
		return false
	}
	for at = i; len(ids) > 0; ids = ids[1:] {
		w.add(s, ids[0], at)
		at += int(m.sizes[ids[0]])
	}
	return true
}

// add appends one id. If the caller wants the starts of tokens, add also appends the start of this
// one: the offset, in the caller's text, of byte i of s.
func (w *worker) add(s *span, id int32, i int) {
	w.ids = append(w.ids, id)
	if !w.spans {
		return
	}
	w.last = max(w.last, s.at(i)) // normalizing may have reordered marks
	w.starts = append(w.starts, w.last)
}

// merged appends the ids of the word text[i:j] of s without use of the cache, by merging pairs of symbols.
func (w *worker) merged(m *bpe, s *span, i, j int) {
	text := s.text[i:j]
	if m.ignoreMerges {
		if id, ok := m.whole(w, text); ok {
			w.add(s, id, i)
			return
		}
	}
	w.symbols = w.symbols[:0]
	if m.raw {
		for _, b := range text {
			w.symbols = append(w.symbols, symbol{id: m.letters[b], size: 1})
		}
	} else {
		w.characters(m, text)
	}
	w.mergeSymbols(&m.pairs)
	for _, c := range w.symbols {
		w.add(s, c.id, i)
		i += int(c.size)
	}
}

// whole returns the token whose text is exactly text; false: there is none.
func (m *bpe) whole(w *worker, text []byte) (int32, bool) {
	if len(text) > m.long {
		return 0, false
	}
	if m.raw {
		w.buf = w.buf[:0]
		for _, b := range text {
			w.buf = utf8.AppendRune(w.buf, byteAlphabet[b])
		}
		text = w.buf
	}
	id, ok := m.ids[string(text)]
	return id, ok
}

// characters splits text into symbols, one for each character, in w.symbols. A character that the vocabulary lacks
// becomes one symbol for each of its bytes, if all of them are tokens. Otherwise it becomes the unknown token or, if
// there is no unknown token, is dropped.
func (w *worker) characters(m *bpe, text []byte) {
	unknown := int32(0) // bytes of unknown characters that have no symbol yet
	flush := func() {
		if unknown > 0 {
			w.symbols = append(w.symbols, symbol{id: m.unk, size: unknown})
			unknown = 0
		}
	}
	for i := 0; i < len(text); {
		_, n := decodeRune(text[i:])
		id, ok := m.character(w, text, i, n)
		switch {
		case ok:
			flush()
			w.symbols = append(w.symbols, symbol{id: id, size: int32(n)})
		case w.bytesOf(m, text[i:i+n]):
		case m.unk >= 0:
			if !m.fuseUnk {
				flush()
			}
			unknown += int32(n)
		}
		i += n
	}
	flush()
}

// character returns the id of the character of n bytes that stands at offset i of text; false: the vocabulary lacks
// it.
func (m *bpe) character(w *worker, text []byte, i, n int) (int32, bool) {
	if m.prefix == "" && m.suffix == "" {
		if n == 1 {
			return m.ascii[text[i]], m.ascii[text[i]] >= 0
		}
		id, ok := m.ids[string(text[i:i+n])]
		return id, ok
	}
	w.buf = w.buf[:0]
	if i > 0 {
		w.buf = append(w.buf, m.prefix...)
	}
	w.buf = append(w.buf, text[i:i+n]...)
	if i+n == len(text) {
		w.buf = append(w.buf, m.suffix...)
	}
	id, ok := m.ids[string(w.buf)]
	return id, ok
}

// bytesOf appends to w.symbols one symbol for each byte of a character. If the vocabulary lacks a
// token for one of the bytes, it appends nothing and returns false.
func (w *worker) bytesOf(m *bpe, character []byte) bool {
	for _, b := range character {
		if m.fallback[b] < 0 {
			return false
		}
	}
	for _, b := range character {
		w.symbols = append(w.symbols, symbol{id: m.fallback[b], size: 1})
	}
	return true
}

// words appends the ids of text[i:j] of s. If the model allows it (bpe.cuts), it cuts the text into
// words before metaspaces, since short words are often in the cache.
func (w *worker) words(m *bpe, s *span, i, j int) {
	if !m.cuts {
		w.word(m, s, i, j)
		return
	}
	for at := i; at < j; {
		next := bytes.Index(s.text[at+1:j], []byte(metaspace))
		if next < 0 {
			break
		}
		at += 1 + next
		if r, _ := utf8.DecodeLastRune(s.text[i:at]); !m.joins[r] {
			w.word(m, s, i, at)
			i = at
		}
	}
	if i < j {
		w.word(m, s, i, j)
	}
}

// shortWord is the number of symbols up to which mergeShort searches all pairs before each merge. Longer words use a
// heap of the pairs, which takes O(n log n).
const shortWord = 40

// symbol is a piece of a word while pairs are merged: at first a character or byte, later a longer token.
type symbol struct {
	id         int32
	size       int32 // bytes of text; 0: merged into the previous symbol
	prev, next int32 // neighbours among the remaining symbols, -1 at the ends; only in mergeLong
	merge      merge // merge with the next symbol; only in mergeShort
}

// mergeSymbols merges pairs of neighbours in w.symbols until no pair merges. It always takes the pair whose merge has
// the lowest rank (comes first in the file) and, of equal ranks, the leftmost pair.
func (w *worker) mergeSymbols(p *pairs) {
	if len(w.symbols) <= shortWord {
		w.mergeShort(p)
		return
	}
	w.mergeLong(p)
}

func (w *worker) mergeShort(p *pairs) {
	s := w.symbols
	for i := 0; i+1 < len(s); i++ {
		s[i].merge = p.find(s[i].id, s[i+1].id)
	}
	for len(s) > 1 {
		best, rank := 0, int32(noRank)
		for i := range s[:len(s)-1] {
			if r := s[i].merge.rank; r < rank {
				best, rank = i, r
			}
		}
		if rank == noRank {
			break
		}
		s[best].id = s[best].merge.id
		s[best].size += s[best+1].size
		s = s[:best+1+copy(s[best+1:], s[best+2:])]
		if best > 0 {
			s[best-1].merge = p.find(s[best-1].id, s[best].id)
		}
		if best+1 < len(s) {
			s[best].merge = p.find(s[best].id, s[best+1].id)
		}
	}
	w.symbols = s
}

// candidate is a pair of neighbours that may merge, in the heap of mergeLong: the symbol at pos and the symbol after
// it.
type candidate struct {
	merge
	pos int32
}

func (a candidate) before(b candidate) bool {
	return a.rank < b.rank || a.rank == b.rank && a.pos < b.pos
}

func (w *worker) mergeLong(p *pairs) {
	s := w.symbols
	w.heap = w.heap[:0]
	for i := range s {
		s[i].prev, s[i].next = int32(i-1), int32(i+1)
		if i+1 < len(s) {
			w.offer(p, s, int32(i))
		}
	}
	s[len(s)-1].next = -1
	for i := len(w.heap)/2 - 1; i >= 0; i-- {
		w.sink(i)
	}
	for len(w.heap) > 0 {
		c := w.pop()
		left := &s[c.pos]
		if left.size == 0 || left.next < 0 {
			continue
		}
		right := &s[left.next]
		if m := p.find(left.id, right.id); m != c.merge {
			continue // one of the two has merged since
		}
		left.id = c.id
		left.size += right.size
		right.size = 0
		left.next = right.next
		if left.next >= 0 {
			s[left.next].prev = c.pos
			w.push(p, s, c.pos)
		}
		if left.prev >= 0 {
			w.push(p, s, left.prev)
		}
	}
	n := 0
	for i := range s {
		if s[i].size > 0 {
			s[n] = s[i]
			n++
		}
	}
	w.symbols = s[:n]
}

// offer appends the pair that begins with the symbol at pos to the heap, without restoring the heap's order. It
// returns false, and appends nothing, if the pair never merges.
func (w *worker) offer(p *pairs, s []symbol, pos int32) bool {
	m := p.find(s[pos].id, s[s[pos].next].id)
	if m.rank == noRank {
		return false
	}
	w.heap = append(w.heap, candidate{m, pos})
	return true
}

func (w *worker) push(p *pairs, s []symbol, pos int32) {
	if !w.offer(p, s, pos) {
		return
	}
	h := w.heap
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(h[up]) {
			return
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func (w *worker) pop() candidate {
	h := w.heap
	top := h[0]
	h[0] = h[len(h)-1]
	w.heap = h[:len(h)-1]
	w.sink(0)
	return top
}

// sink restores the order of w.heap below index i: it moves the candidate at i down until both of
// its children come later.
func (w *worker) sink(i int) {
	h := w.heap
	for {
		least := 2*i + 1
		if least >= len(h) {
			return
		}
		if least+1 < len(h) && h[least+1].before(h[least]) {
			least++
		}
		if !h[least].before(h[i]) {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// merge is the token that two neighbouring tokens become. Merges with lower ranks come first; the rank is the merge's
// place in the file.
type merge struct {
	rank, id int32
}

// noRank is the rank that pairs.find returns for a pair that never merges.
const noRank = 1<<31 - 1

// pairs is a hash table from two ids to their merge. It is written once and then only read.
type pairs struct {
	slots []pairSlot
	shift uint
}

type pairSlot struct {
	key uint64 // left<<32 | right, plus 1; 0: empty
	merge
}

// newPairs returns an empty table with room for n pairs.
func newPairs(n int) pairs {
	bits := uint(4)
	for 1<<bits < n+n/2 {
		bits++
	}
	return pairs{make([]pairSlot, 1<<bits), 64 - bits}
}

func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) + 1 }

func (p *pairs) slot(key uint64) *pairSlot {
	for i := key * 0x9e3779b97f4a7c15 >> p.shift; ; i++ {
		s := &p.slots[i&uint64(len(p.slots)-1)]
		if s.key == key || s.key == 0 {
			return s
		}
	}
}

// set stores m as the merge of left and right. It replaces an earlier merge.
func (p *pairs) set(left, right int32, m merge) {
	key := pairKey(left, right)
	s := p.slot(key)
	s.key, s.merge = key, m
}

// find returns the merge of left and right. Its rank is noRank if they do not merge.
func (p *pairs) find(left, right int32) merge {
	key := pairKey(left, right)
	if s := p.slot(key); s.key == key {
		return s.merge
	}
	return merge{rank: noRank}
}
