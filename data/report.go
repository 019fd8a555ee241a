package data

import "slices"

// Report says how much of each data set is used, and which documents have something wrong
// with them. Making it reads no tokens.
type Report struct {
	Sets []SetReport `json:"sets"`
	// FirstSkipped is the error of the first row that was left out by skip_bad_rows.
	FirstSkipped string `json:"first_skipped,omitempty"`
	// MissingEOS and DoubledBOS name the first documents that Stats counts under these
	// names, at most ReportExamples of each.
	MissingEOS []string `json:"missing_eos_at,omitempty"`
	DoubledBOS []string `json:"doubled_bos_at,omitempty"`
	// LeftThinking, LeftText and LeftCalls name those of which the chat template left
	// something out.
	LeftThinking []string `json:"left_thinking_at,omitempty"`
	LeftText     []string `json:"left_text_at,omitempty"`
	LeftCalls    []string `json:"left_calls_at,omitempty"`
	// PromptCut names the first pairs that Stats counts under this name.
	PromptCut []string `json:"prompt_cut_at,omitempty"`
	// Joined, Decoded, Encoded and Reshaped name the first chats that Stats counts under
	// these names.
	Joined   []string `json:"joined_parts_at,omitempty"`
	Decoded  []string `json:"decoded_arguments_at,omitempty"`
	Encoded  []string `json:"encoded_arguments_at,omitempty"`
	Reshaped []string `json:"reshaped_at,omitempty"`
	// Cut and Dropped name the first documents that were cut to max_seq_len, and the first
	// that were left out because nothing supervised was left of them.
	Cut     []string `json:"cut_at,omitempty"`
	Dropped []string `json:"dropped_at,omitempty"`
}

// places are the lists of named documents, by the flag that leads to each list.
func (r *Report) places() map[uint64]*[]string {
	return map[uint64]*[]string{flagMissingEOS: &r.MissingEOS, flagDoubledBOS: &r.DoubledBOS,
		flagLeftThinking: &r.LeftThinking, flagLeftText: &r.LeftText, flagLeftCalls: &r.LeftCalls, flagPromptCut: &r.PromptCut,
		flagJoined: &r.Joined, flagDecoded: &r.Decoded, flagEncoded: &r.Encoded, flagReshaped: &r.Reshaped}
}

// ReportExamples is how many documents of each kind a Report names at most.
const ReportExamples = 5

// SetReport is what a Report says of one of the data sets.
type SetReport struct {
	Name      string   `json:"name"`
	Formats   []string `json:"formats"` // the formats of its files, each once
	Files     int      `json:"files"`
	Documents int64    `json:"documents"` // how many were read
	Used      int64    `json:"used"`      // how many are in the mix; a repeated one counts each time
	Tokens    int64    `json:"tokens"`    // how many were read
	Skipped   int64    `json:"skipped_rows"`
}

// Piece is the range of one document that a row holds. A packed row has several, in the
// order of Row.Docs; another has one.
type Piece struct {
	Document int64  `json:"document"` // its number, in file order
	From     int64  `json:"from"`     // the number of its first token that is in the row
	Tokens   int64  `json:"tokens"`   // how many of its tokens are in the row
	Total    int64  `json:"total"`    // how many tokens it has
	File     string `json:"file"`     // where it was read
	Line     int64  `json:"line"`     // its line or row in the file, from 1; 0: it is the whole file
	Where    string `json:"-"`        // File and Line in one, for messages
	Set      string `json:"set"`      // the data set it belongs to
	Format   string `json:"format"`   // the format of its row: text, messages, ...
	// Side is which document of a pair it is, chosen or rejected, by itself; Document is then
	// the pair's ID. It is empty where documents are no pairs.
	Side string `json:"side,omitempty"`
	// MissingEOS and DoubledBOS say whether Stats counts the document under these names.
	MissingEOS bool `json:"missing_eos"`
	DoubledBOS bool `json:"doubled_bos"`
	// LeftThinking, LeftText and LeftCalls do too.
	LeftThinking bool `json:"left_thinking,omitempty"`
	LeftText     bool `json:"left_text,omitempty"`
	LeftCalls    bool `json:"left_calls,omitempty"`
}

// Pieces says which documents row i is made of.
func (d *Dataset) Pieces(i int) []Piece {
	var out []Piece
	for doc, part := range d.pieces(i) {
		out = append(out, d.piece(doc, part))
	}
	return out
}

// piece describes the range part of a document.
func (d *Dataset) piece(doc int64, part stretch) Piece {
	first, end := d.c.span(doc)
	f, _ := d.c.fileOf(doc)
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

// Report makes the Report, for which it looks at the flags of all documents.
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
