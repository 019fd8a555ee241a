package data

import "slices"

// Report says what became of each data set and what is wrong with its
// documents. It reads no tokens.
type Report struct {
	Sets []SetReport `json:"sets"`
	// FirstSkipped is the error of the first row that skip_bad_rows left out.
	FirstSkipped string `json:"first_skipped,omitempty"`
	// MissingEOS and DoubledBOS name the first documents concerned, at most
	// ReportExamples of each.
	MissingEOS []string `json:"missing_eos_at,omitempty"`
	DoubledBOS []string `json:"doubled_bos_at,omitempty"`
	// Cut and Dropped name the first rows that were cut to max_seq_len, and those
	// left out because nothing supervised was left of them.
	Cut     []string `json:"cut_at,omitempty"`
	Dropped []string `json:"dropped_at,omitempty"`
}

// ReportExamples is how many places a Report names of each kind.
const ReportExamples = 5

// SetReport is one of the data sets that make up a Dataset.
type SetReport struct {
	Name      string   `json:"name"`
	Formats   []string `json:"formats"` // of its files, each once
	Files     int      `json:"files"`
	Documents int64    `json:"documents"` // as read
	Used      int64    `json:"used"`      // in the mix; a repeated one counts again
	Tokens    int64    `json:"tokens"`    // as read
	Skipped   int64    `json:"skipped_rows"`
}

// Piece is what a row holds of one document, in the order of Row.Docs; a row
// that is not packed has one.
type Piece struct {
	Document int64  // its number, in file order
	From     int64  // its first token that is in the row
	Tokens   int64  // how many are in the row
	Total    int64  // how many it has
	File     string // where it was read
	Line     int64  // its line, or row, there, from 1; 0: all of the file
	Set      string // the data set it belongs to
	Format   string // how it was written: text, messages, ...
	// MissingEOS and DoubledBOS are as in Stats.
	MissingEOS, DoubledBOS bool
}

// Pieces says what row i is made of.
func (d *Dataset) Pieces(i int) []Piece {
	var out []Piece
	switch {
	case d.fitAt != nil:
		d.checked(i)
		for _, doc := range d.fit[d.fitAt[i]:d.fitAt[i+1]] {
			out = append(out, d.piece(doc, 0, int64(d.spec.MaxSeqLen)))
		}
	case d.packing:
		for doc, part := range d.pieces(without(d.drop, d.checked(i))) {
			out = append(out, d.piece(doc, part.from, part.to))
		}
	default:
		doc, first, end := d.docOf(i)
		start, _ := d.c.span(doc)
		out = append(out, d.piece(doc, first-start, end-start))
	}
	return out
}

// docOf is the document that row i, not packed, is of, and its tokens.
func (d *Dataset) docOf(i int) (doc, first, end int64) {
	first, end = d.span(i)
	switch {
	case d.fit != nil:
		doc = d.fit[i]
	case d.first != nil:
		p, _ := slices.BinarySearch(d.first, int64(i)+1)
		doc = d.mix.doc(int64(p) - 1)
	default:
		doc = d.mix.doc(int64(i))
	}
	return doc, first, end
}

// piece describes tokens [from, to) of a document.
func (d *Dataset) piece(doc, from, to int64) Piece {
	first, end := d.c.span(doc)
	f, _ := d.c.fileOf(doc)
	line, flags := d.c.line(doc)
	return Piece{Document: doc, From: from, Tokens: min(to, end-first) - from, Total: end - first, File: f.Path, Line: line,
		Set: d.spec.sets[f.Set].Name, Format: f.Format,
		MissingEOS: flags&flagMissingEOS != 0, DoubledBOS: flags&flagDoubledBOS != 0}
}

// Report looks at all documents.
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
		if flags&flagMissingEOS != 0 {
			r.MissingEOS = d.example(r.MissingEOS, doc)
		}
		if flags&flagDoubledBOS != 0 {
			r.DoubledBOS = d.example(r.DoubledBOS, doc)
		}
	}
	return r
}
