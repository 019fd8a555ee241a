package tokenizer

// shortWord is the number of symbols up to which a word is merged by looking at all its pairs
// again and again. A longer word takes a heap, which needs O(n log n).
const shortWord = 40

// symbol is a piece of a word between merges.
type symbol struct {
	id         int32
	size       int32 // bytes of text; 0: merged into the one before it
	prev, next int32 // the neighbours among the symbols that are left, -1 at the ends; only in long words
	merge      merge // with the next symbol; only in short words
}

// mergeSymbols merges pairs in w.symbols until no pair merges any more: always the pair with
// the least rank, and of equal ones the leftmost.
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

// candidate is a pair that may merge: the symbol at pos with its next.
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
			continue // one of them has merged with another since
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

// offer appends the pair that begins at pos to the heap without restoring the heap's order; false
// where it never merges.
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

// sink restores the heap's order where only the candidate at i may be too far up.
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
