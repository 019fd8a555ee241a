package data

import "math/bits"

// Stats describes a data set. Tokens and the fields after it count what is in the rows;
// what was cut off is not counted.
type Stats struct {
	ID         string `json:"id"`
	Kind       string `json:"kind"` // text, chat, input_ids or pairs
	Packed     bool   `json:"packed"`
	Files      int    `json:"files"`
	Documents  int64  `json:"documents"` // a pair counts as one
	Rows       int    `json:"rows"`
	TrainRows  int    `json:"train_rows"`
	EvalRows   int    `json:"eval_rows"`
	Tokens     int64  `json:"tokens"`
	Supervised int64  `json:"supervised_tokens"`
	VocabSize  int    `json:"vocab_size"`
	VocabUsed  int    `json:"vocab_used"`     // different ids
	Truncated  int64  `json:"truncated_rows"` // rows, or pairs, that were cut to max_seq_len
	Unused     int    `json:"unused_rows"`    // packed rows that were left out: they have no supervised token
	Binary     int    `json:"binary_files"`   // skipped
	Hidden     int    `json:"hidden_files"`   // skipped
	// CutTokens are the tokens that were cut off Truncated rows. Dropped are the chats and pairs
	// that were left out since nothing supervised was left of them before the cut.
	CutTokens int64 `json:"cut_tokens,omitempty"`
	Dropped   int64 `json:"dropped_rows,omitempty"`
	// Skipped are the rows that skip_bad_rows left out; Unsupervised are those of them that
	// had no supervised token.
	Skipped      int64 `json:"skipped_rows,omitempty"`
	Unsupervised int64 `json:"unsupervised_rows,omitempty"`
	// MissingEOS are the chats with a supervised turn that does not end with a special
	// token, and the texts that do not end with EOS. DoubledBOS are the documents that
	// begin with two BOS.
	MissingEOS int64 `json:"missing_eos,omitempty"`
	DoubledBOS int64 `json:"doubled_bos,omitempty"`
	// LeftThinking, LeftText and LeftCalls are the chats of which the chat template left
	// out some thoughts, some text of a message, or tools or calls.
	LeftThinking int64 `json:"left_thinking,omitempty"`
	LeftText     int64 `json:"left_text,omitempty"`
	LeftCalls    int64 `json:"left_calls,omitempty"`
	// PromptCut are the pairs whose prompt ends with other tokens before an answer than alone.
	// These tokens count as the answer's.
	PromptCut int64 `json:"prompt_cut,omitempty"`
	// Joined, Decoded, Encoded and Reshaped are the chats that the chat template did not take
	// as their rows have them: it was given parts of a content as one text, arguments of
	// calls as objects, arguments as JSON in strings, or functions, texts and thoughts in
	// another shape.
	Joined   int64    `json:"joined_parts,omitempty"`
	Decoded  int64    `json:"decoded_arguments,omitempty"`
	Encoded  int64    `json:"encoded_arguments,omitempty"`
	Reshaped int64    `json:"reshaped,omitempty"`
	Lengths  []Bucket `json:"document_lengths"`
}

// Bucket counts the documents, or pairs, that, as read, have From to To tokens.
type Bucket struct {
	From      int64 `json:"from"`
	To        int64 `json:"to"`
	Documents int64 `json:"documents"`
}

// IsText tells whether documents are text that was tokenised, and not input_ids.
func (d *Dataset) IsText() bool { return d.c.Kind == kindText }

// IsChat tells whether documents are chats, or prompts with their answers; of pairs, whether
// some are not of texts that are taken as they are.
func (d *Dataset) IsChat() bool {
	return d.c.Kind == kindChat || d.IsPairs() && d.c.Verbatim < d.c.Docs
}

// IsPairs tells whether documents are pairs of answers to prompts.
func (d *Dataset) IsPairs() bool { return d.c.Kind == kindPairs }

// Pairs is how many pairs were read: the IDs of pairs in rows are below it. Rows may lack some,
// which were too long or are not in the mix, and have others several times. It is 0 where
// documents are no pairs.
func (d *Dataset) Pairs() int64 {
	if !d.IsPairs() {
		return 0
	}
	return d.c.Docs
}

// PairsInRows is how many pairs all rows hold together.
func (d *Dataset) PairsInRows() int64 {
	switch {
	case !d.IsPairs():
		return 0
	case d.fit != nil:
		return int64(len(d.fit))
	}
	return d.mix.n
}

// ChatTemplates are the templates that chats went through, as files of a model directory, which belong beside the
// trained model; nil where they are the model's own, or where none was used.
func (d *Dataset) ChatTemplates() map[string]string {
	if f := &d.spec.chat; d.IsChat() && f.tmpl != nil && !f.own {
		return f.tmpl.Files()
	}
	return nil
}

// Stats counts, for which it reads all rows.
func (d *Dataset) Stats() Stats {
	s := Stats{
		ID: d.ID(), Kind: string(d.c.Kind), Packed: d.packing, Files: len(d.c.Files),
		Documents: d.c.Docs, Rows: d.Rows(), TrainRows: d.Train().Rows(), EvalRows: d.Eval().Rows(),
		VocabSize: d.VocabSize(), Truncated: d.truncated, CutTokens: d.cutTokens, Dropped: d.dropped, Unused: len(d.drop), Binary: d.binary, Hidden: d.hidden,
		Skipped: d.c.Skipped, Unsupervised: d.c.Unsupervised, MissingEOS: d.c.MissingEOS, DoubledBOS: d.c.DoubledBOS,
		LeftThinking: d.c.LeftThinking, LeftText: d.c.LeftText, LeftCalls: d.c.LeftCalls, PromptCut: d.c.PromptCut,
		Joined: d.c.Joined, Decoded: d.c.Decoded, Encoded: d.c.Encoded, Reshaped: d.c.Reshaped,
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

// lengths is a histogram of the documents' lengths by powers of two, without the empty buckets at
// its ends.
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
		case n == 0 && out == nil: // no document is that short
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

// bucket is the Bucket of the lengths that have k binary digits.
func bucket(k int, n int64) Bucket {
	return Bucket{From: 1 << k >> 1, To: 1<<k - 1, Documents: n}
}
