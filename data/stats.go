package data

import (
	"math/bits"
	"slices"
)

// Stats describes a data set. Tokens and the fields after it count rows as training uses them,
// without truncated tokens.
type Stats struct {
	ID         string `json:"id"`
	Kind       string `json:"kind"` // text, chat, input_ids or pairs
	Packed     bool   `json:"packed"`
	Files      int    `json:"files"`
	Documents  int64  `json:"documents"` // a pair counts once
	Rows       int    `json:"rows"`
	TrainRows  int    `json:"train_rows"`
	EvalRows   int    `json:"eval_rows"`
	Tokens     int64  `json:"tokens"`
	Supervised int64  `json:"supervised_tokens"`
	VocabSize  int    `json:"vocab_size"`
	VocabUsed  int    `json:"vocab_used"`     // number of different ids
	Truncated  int64  `json:"truncated_rows"` // rows, or pairs, truncated to max_seq_len
	Unused     int    `json:"unused_rows"`    // packed rows left out because no token is supervised
	Binary     int    `json:"binary_files"`   // binary files, which were skipped
	Hidden     int    `json:"hidden_files"`   // hidden files, which were skipped
	// CutTokens is the number of tokens cut off the Truncated rows. Dropped counts chats and pairs left out because
	// nothing before the cut is supervised.
	CutTokens int64 `json:"cut_tokens,omitempty"`
	Dropped   int64 `json:"dropped_rows,omitempty"`
	// Skipped counts the rows that skip_bad_rows left out. Unsupervised counts those skipped rows that have no
	// supervised token.
	Skipped      int64 `json:"skipped_rows,omitempty"`
	Unsupervised int64 `json:"unsupervised_rows,omitempty"`
	// MissingEOS counts chats with a supervised turn that does not end with a special token, and texts that do not
	// end with EOS. DoubledBOS counts documents that begin with two BOS.
	MissingEOS int64 `json:"missing_eos,omitempty"`
	DoubledBOS int64 `json:"doubled_bos,omitempty"`
	// LeftThinking, LeftText and LeftCalls count chats whose template dropped thoughts, text of a message, or tools
	// or calls.
	LeftThinking int64 `json:"left_thinking,omitempty"`
	LeftText     int64 `json:"left_text,omitempty"`
	LeftCalls    int64 `json:"left_calls,omitempty"`
	// PromptCut counts pairs whose prompt ends with other tokens when an answer follows it. The
	// tokens that differ count as part of the answer.
	PromptCut int64 `json:"prompt_cut,omitempty"`
	// Joined, Decoded, Encoded and Reshaped count chats that the template accepts only in another
	// form than the row's. Joined: the parts of a content were joined to one text. Decoded: call
	// arguments became objects. Encoded: call arguments became JSON strings. Reshaped: functions,
	// texts or thoughts got another shape.
	Joined   int64    `json:"joined_parts,omitempty"`
	Decoded  int64    `json:"decoded_arguments,omitempty"`
	Encoded  int64    `json:"encoded_arguments,omitempty"`
	Reshaped int64    `json:"reshaped,omitempty"`
	Lengths  []Bucket `json:"document_lengths"`
}

// Bucket counts the documents, or pairs, of From to To tokens before truncation.
type Bucket struct {
	From      int64 `json:"from"`
	To        int64 `json:"to"`
	Documents int64 `json:"documents"`
}

// Pairs returns the number of pairs read; the IDs of pairs are 0 to this number minus 1. Not every pair need be in a
// row: it may be too long, or not be sampled; others may be in several rows. Without pairs the result is 0.
func (d *Dataset) Pairs() int64 {
	if !d.IsPairs() {
		return 0
	}
	return d.c.Docs
}

// PairsInRows returns the number of pairs in all rows.
func (d *Dataset) PairsInRows() int64 {
	switch {
	case !d.IsPairs():
		return 0
	case d.fit != nil:
		return int64(len(d.fit))
	}
	return d.mix.n
}

// ChatTemplates returns the chat templates that wrote the data, as files (name to content) of a
// model directory. They are saved beside the trained model. nil: the model's own templates were
// used, or none.
func (d *Dataset) ChatTemplates() map[string]string {
	if f := &d.spec.chat; d.IsChat() && f.tmpl != nil && !f.own {
		return f.tmpl.Files()
	}
	return nil
}

// Stats computes the statistics. It reads all rows.
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

// lengths counts the documents by length, in Buckets by powers of two. Empty Buckets at either end
// are left out.
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

// bucket returns the Bucket of the lengths that have k binary digits, with n documents.
func bucket(k int, n int64) Bucket {
	return Bucket{From: 1 << k >> 1, To: 1<<k - 1, Documents: n}
}

// Report tells how much of each data set is used, and which documents have problems. It is made without reading any
// tokens.
type Report struct {
	Sets []SetReport `json:"sets"`
	// FirstSkipped is the error of the first row that skip_bad_rows left out.
	FirstSkipped string `json:"first_skipped,omitempty"`
	// MissingEOS and DoubledBOS locate the first documents that Stats counts under these names, at most
	// ReportExamples of each.
	MissingEOS []string `json:"missing_eos_at,omitempty"`
	DoubledBOS []string `json:"doubled_bos_at,omitempty"`
	// LeftThinking, LeftText and LeftCalls locate the first chats that Stats counts under these names.
	LeftThinking []string `json:"left_thinking_at,omitempty"`
	LeftText     []string `json:"left_text_at,omitempty"`
	LeftCalls    []string `json:"left_calls_at,omitempty"`
	// PromptCut locates the first pairs that Stats counts under this name.
	PromptCut []string `json:"prompt_cut_at,omitempty"`
	// Joined, Decoded, Encoded and Reshaped locate the first chats that Stats counts under these names.
	Joined   []string `json:"joined_parts_at,omitempty"`
	Decoded  []string `json:"decoded_arguments_at,omitempty"`
	Encoded  []string `json:"encoded_arguments_at,omitempty"`
	Reshaped []string `json:"reshaped_at,omitempty"`
	// Cut locates the first documents truncated to max_seq_len. Dropped locates the first documents left out
	// because nothing before the cut is supervised.
	Cut     []string `json:"cut_at,omitempty"`
	Dropped []string `json:"dropped_at,omitempty"`
}

// places returns the Report's lists of document locations, keyed by the document flag that each
// list shows.
func (r *Report) places() map[uint64]*[]string {
	return map[uint64]*[]string{flagMissingEOS: &r.MissingEOS, flagDoubledBOS: &r.DoubledBOS,
		flagLeftThinking: &r.LeftThinking, flagLeftText: &r.LeftText, flagLeftCalls: &r.LeftCalls, flagPromptCut: &r.PromptCut,
		flagJoined: &r.Joined, flagDecoded: &r.Decoded, flagEncoded: &r.Encoded, flagReshaped: &r.Reshaped}
}

// ReportExamples is the most documents of each kind that a Report locates.
const ReportExamples = 5

// SetReport is the part of a Report about one data set.
type SetReport struct {
	Name      string   `json:"name"`
	Formats   []string `json:"formats"` // distinct formats of its files
	Files     int      `json:"files"`
	Documents int64    `json:"documents"` // documents read
	Used      int64    `json:"used"`      // documents in the mix; repeated ones count each time
	Tokens    int64    `json:"tokens"`    // tokens read
	Skipped   int64    `json:"skipped_rows"`
}

// Piece is the part of a document that stands in a row. A packed row has several pieces, in the order of Row.Docs;
// other rows have one.
type Piece struct {
	Document int64  `json:"document"` // number of the document in file order
	From     int64  `json:"from"`     // number, in the document, of its first token that is in the row
	Tokens   int64  `json:"tokens"`   // number of its tokens that are in the row
	Total    int64  `json:"total"`    // number of tokens of the whole document
	File     string `json:"file"`     // file it was read from
	Line     int64  `json:"line"`     // line or row in the file, from 1; 0: the whole file
	Where    string `json:"-"`        // File and Line as one text, for messages
	Set      string `json:"set"`      // data set it belongs to
	Format   string `json:"format"`   // format of its row: text, messages, ...
	// Side is chosen or rejected for a document of a pair; Document is then the pair's ID. "": documents are not
	// pairs.
	Side string `json:"side,omitempty"`
	// MissingEOS and DoubledBOS report that Stats counts the document under these names.
	MissingEOS bool `json:"missing_eos"`
	DoubledBOS bool `json:"doubled_bos"`
	// LeftThinking, LeftText and LeftCalls report that Stats counts the document under these names.
	LeftThinking bool `json:"left_thinking,omitempty"`
	LeftText     bool `json:"left_text,omitempty"`
	LeftCalls    bool `json:"left_calls,omitempty"`
}

// Pieces returns the documents, or parts of documents, that row i consists of.
func (d *Dataset) Pieces(i int) []Piece {
	var out []Piece
	for doc, part := range d.pieces(i) {
		out = append(out, d.piece(doc, part))
	}
	return out
}

// piece returns the Piece that describes the range part of document number doc.
func (d *Dataset) piece(doc int64, part tokenRange) Piece {
	first, end := d.c.span(doc)
	f := d.c.fileOf(doc)
	line, flags := d.c.line(doc)
	side := ""
	if cut := first; d.IsPairs() {
		if side, cut = chosenField, first+d.c.chosen(doc); part.from == 0 {
			end = cut
		} else {
			side, part.from, part.to, first = rejectedField, 0, part.to-part.from, cut
		}
	}
	return Piece{Side: side, Document: doc, From: part.from, Tokens: part.to - part.from, Total: end - first, File: f.Path, Line: line, Where: place(f.Path, f.Unit, line),
		Set: d.spec.sets[f.Set].Name, Format: f.Format,
		MissingEOS: flags&flagMissingEOS != 0, DoubledBOS: flags&flagDoubledBOS != 0,
		LeftThinking: flags&flagLeftThinking != 0, LeftText: flags&flagLeftText != 0, LeftCalls: flags&flagLeftCalls != 0}
}

// Report makes the Report. It reads the flags of all documents from the token cache, but no tokens.
func (d *Dataset) Report() Report {
	r := Report{FirstSkipped: d.c.FirstSkipped, Cut: d.cutAt, Dropped: d.dropAt}
	spans := d.setSpans()
	for i, set := range d.spec.sets {
		s := SetReport{Name: set.Name, Documents: spans[i][1] - spans[i][0], Formats: []string{}}
		if s.Documents > 0 {
			first, _ := d.c.span(spans[i][0])
			_, end := d.c.span(spans[i][1] - 1)
			s.Tokens = end - first
		}
		if s.Used = s.Documents; d.mix.seq != nil {
			s.Used = 0
			for _, doc := range d.mix.seq {
				if doc >= spans[i][0] && doc < spans[i][1] {
					s.Used++
				}
			}
		}
		for _, f := range d.c.Files {
			if f.Set != i {
				continue
			}
			s.Files++
			s.Skipped += f.Skipped
			if f.Format != "" && !slices.Contains(s.Formats, f.Format) {
				s.Formats = append(s.Formats, f.Format)
			}
		}
		r.Sets = append(r.Sets, s)
	}
	for doc := range d.c.Docs {
		_, flags := d.c.line(doc)
		for flag, to := range r.places() {
			if flags&flag != 0 {
				*to = d.example(*to, doc)
			}
		}
	}
	return r
}
