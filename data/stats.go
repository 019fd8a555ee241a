package data

import "math/bits"

// Stats describes a data set. Tokens and what follows count what the rows hold;
// what was cut off takes no part.
type Stats struct {
	ID         string   `json:"id"`
	Kind       string   `json:"kind"` // text or input_ids
	Packed     bool     `json:"packed"`
	Files      int      `json:"files"`
	Documents  int64    `json:"documents"`
	Rows       int      `json:"rows"`
	TrainRows  int      `json:"train_rows"`
	EvalRows   int      `json:"eval_rows"`
	Tokens     int64    `json:"tokens"`
	Supervised int64    `json:"supervised_tokens"`
	VocabSize  int      `json:"vocab_size"`
	VocabUsed  int      `json:"vocab_used"`     // different ids
	Truncated  int64    `json:"truncated_rows"` // cut to max_seq_len
	Unused     int      `json:"unused_rows"`    // packed rows without a supervised token
	Binary     int      `json:"binary_files"`   // skipped
	Hidden     int      `json:"hidden_files"`   // skipped
	Lengths    []Bucket `json:"document_lengths"`
}

// Bucket counts the documents, as read, of From to To tokens.
type Bucket struct {
	From      int64 `json:"from"`
	To        int64 `json:"to"`
	Documents int64 `json:"documents"`
}

// IsText tells whether documents are text, and not tokens that came as such.
func (d *Dataset) IsText() bool { return d.c.Kind == kindText }

// Stats reads all rows.
func (d *Dataset) Stats() Stats {
	s := Stats{
		ID: d.ID(), Kind: string(d.c.Kind), Packed: d.packing, Files: len(d.c.Files),
		Documents: d.c.Docs, Rows: d.Rows(), TrainRows: d.Train().Rows(), EvalRows: d.Eval().Rows(),
		VocabSize: d.VocabSize(), Truncated: d.truncated, Unused: len(d.drop), Binary: d.binary, Hidden: d.hidden,
		Lengths: d.lengths(),
	}
	used := make([]bool, d.VocabSize())
	var r Row
	for i := range s.Rows {
		d.fill(i, &r)
		s.Tokens += int64(len(r.IDs))
		s.Supervised += r.Supervised()
		for _, id := range r.IDs {
			used[id] = true
		}
	}
	for _, u := range used {
		if u {
			s.VocabUsed++
		}
	}
	return s
}

// lengths is a histogram by powers of two, without empty buckets at its ends.
func (d *Dataset) lengths() []Bucket {
	var counts [64]int64
	for i := range d.c.Docs {
		first, end := d.c.span(i)
		counts[bits.Len64(uint64(end-first))]++
	}
	var out []Bucket
	empty := 0
	for k, n := range counts {
		switch {
		case n == 0 && out == nil: // none yet
		case n == 0:
			empty++
			out = append(out, bucket(k, 0))
		default:
			empty = 0
			out = append(out, bucket(k, n))
		}
	}
	return out[:len(out)-empty]
}

// bucket is that of lengths with k binary digits.
func bucket(k int, n int64) Bucket {
	return Bucket{From: 1 << k >> 1, To: 1<<k - 1, Documents: n}
}
