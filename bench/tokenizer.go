package bench

import (
	"bytes"
	"context"
	_ "embed" // for tokenizersScript
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"mt/data/tokenizer"
)

//go:embed peers/tokenizers.py
var tokenizersScript string

// TokenizerOptions configures Tokenizer. Zero fields mean the defaults.
type TokenizerOptions struct {
	Dir      string // folder of tokenizer.json
	Text     string // a file of UTF-8 text
	Bytes    int    // bytes of the text to use; default 16 MiB
	Document int    // bytes of a document, which then continues to the end of its line; default 16 KiB
	Rounds   int    // measured runs of each side; default 9
	Peer     bool   // compare with PyPI tokenizers
}

// TokenizerReport has the speed of encoding a text on one thread. Rates are in MB/s (10⁶ bytes).
type TokenizerReport struct {
	Tokenizer string         `json:"tokenizer"`
	Text      string         `json:"text"`
	Bytes     int            `json:"bytes"`
	Documents int            `json:"documents"`
	Tokens    int            `json:"tokens"`
	Rounds    int            `json:"rounds"`
	Load      float64        `json:"load_before"`
	LoadS     float64        `json:"load_s"` // seconds to read the vocabulary
	Ours      Sample         `json:"ours_mb_s"`
	Peer      *Sample        `json:"peer_mb_s,omitempty"`
	Ratio     *Sample        `json:"ratio,omitempty"` // our rate over the peer's, of the same round
	About     map[string]any `json:"peer,omitempty"`
}

// documents splits text into documents of at least size bytes. Each document ends at the end of a line.
func documents(text []byte, size int) (docs [][]byte) {
	for len(text) > 0 {
		end := len(text)
		if size <= len(text) {
			if n := bytes.IndexByte(text[size-1:], '\n'); n >= 0 {
				end = size + n
			}
		}
		docs = append(docs, text[:end])
		text = text[end:]
	}
	return docs
}

// encoding is mt's side of the comparison.
type encoding struct {
	t    tokenizer.Tokenizer
	docs [][]byte
	ids  []int32
}

// run encodes all documents and returns the number of tokens. If sum is true, it also returns the CRC-32 of all token
// ids, 4 bytes each in little endian, so that both sides' ids can be compared.
func (e *encoding) run(sum bool) (tokens int, crc uint32, err error) {
	for _, d := range e.docs {
		if e.ids, err = e.t.Encode(e.ids[:0], d); err != nil {
			return 0, 0, err
		}
		tokens += len(e.ids)
		if sum {
			b, err := binary.Append(nil, binary.LittleEndian, e.ids)
			if err != nil {
				return 0, 0, err
			}
			crc = crc32.Update(crc, crc32.IEEETable, b)
		}
	}
	return tokens, crc, nil
}

func (o *TokenizerOptions) setDefaults() {
	if o.Bytes == 0 {
		o.Bytes = 16 << 20
	}
	if o.Document == 0 {
		o.Document = 16 << 10
	}
	if o.Rounds == 0 {
		o.Rounds = 9
	}
}

// Tokenizer measures the speed of encoding a text and, with o.Peer, the speed of the PyPI package tokenizers on the
// same text. It first checks that both produce the same ids. Both use one thread and run in turns.
func Tokenizer(ctx context.Context, o TokenizerOptions) (*TokenizerReport, error) {
	o.setDefaults()
	r, err := measureTokenizer(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("bench tokenizer: %w", err)
	}
	return r, nil
}

func measureTokenizer(ctx context.Context, o TokenizerOptions) (*TokenizerReport, error) {
	if o.Bytes < 1 || o.Document < 1 || o.Rounds < 1 {
		return nil, fmt.Errorf("%d bytes, documents of %d, %d rounds: want at least 1 each", o.Bytes, o.Document, o.Rounds)
	}
	r := &TokenizerReport{Tokenizer: o.Dir, Text: o.Text, Rounds: o.Rounds, Load: loadNow()}
	text, err := readStart(o.Text, o.Bytes)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(o.Dir, "tokenizer.json")); err != nil {
		return nil, err // otherwise the bytes of the text would count as tokens
	}
	start := time.Now()
	e := &encoding{}
	if e.t, err = tokenizer.Load(o.Dir, 256); err != nil {
		return nil, err
	}
	r.LoadS = time.Since(start).Seconds()
	e.docs = documents(text, o.Document)
	tokens, crc, err := e.run(true)
	if err != nil {
		return nil, err
	}
	r.Bytes, r.Documents, r.Tokens = len(text), len(e.docs), tokens
	if !o.Peer {
		return r, r.rounds(ctx, e, nil)
	}
	p, err := startTokenizers(ctx, o)
	if err != nil {
		return nil, err
	}
	r.About = p.About()
	if want := r.About["crc32"]; want != float64(crc) {
		err = fmt.Errorf("the ids of %s differ: %d tokens with CRC-32 %d, and %v with %v", o.Text, tokens, crc, r.About["tokens"], want)
		return nil, errors.Join(err, p.Close())
	}
	if err := r.rounds(ctx, e, p); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return r, p.Close()
}

// readStart returns the first size bytes of a file, up to the end of the last complete line.
func readStart(name string, size int) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, int64(size)))
	if err != nil {
		return nil, err
	}
	if n := bytes.LastIndexByte(text, '\n'); n >= 0 {
		text = text[:n+1]
	}
	if len(text) == 0 {
		return nil, fmt.Errorf("%s: it is empty", name)
	}
	return text, nil
}

// rounds measures both sides in turns and stores the rates in r. p is the peer; nil: only mt is measured.
func (r *TokenizerReport) rounds(ctx context.Context, e *encoding, p *peer) error {
	var ours, theirs []float64
	sides := []func() error{func() error {
		start := time.Now()
		_, _, err := e.run(false)
		ours = append(ours, r.rate(time.Since(start).Seconds()))
		return err
	}}
	if p != nil {
		sides = append(sides, func() error {
			a, err := p.ask(1)
			if err == nil && len(a.Seconds) != 1 {
				err = fmt.Errorf("tokenizers: asked for 1 run, it reports %d", len(a.Seconds))
			}
			if err != nil {
				return err
			}
			theirs = append(theirs, r.rate(a.Seconds[0]))
			return nil
		})
	}
	for round := range r.Rounds {
		for i := range sides {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := sides[(i+round)%len(sides)](); err != nil {
				return err
			}
		}
	}
	r.Ours = Summarize(ours)
	if p != nil {
		r.Peer, r.Ratio = beside(ours, theirs)
	}
	return nil
}

// rate returns MB/s for encoding all documents in this number of seconds.
func (r *TokenizerReport) rate(seconds float64) float64 { return float64(r.Bytes) / 1e6 / seconds }

// startTokenizers starts the PyPI package tokenizers in a process of its own: see peers/tokenizers.py.
func startTokenizers(ctx context.Context, o TokenizerOptions) (*peer, error) {
	p, err := startPeer(ctx, python(), "tokenizers", "-c", tokenizersScript, "--serve", "--tokenizer", filepath.Join(o.Dir, "tokenizer.json"),
		"--text", o.Text, "--bytes", strconv.Itoa(o.Bytes), "--document", strconv.Itoa(o.Document))
	if err != nil {
		return nil, err
	}
	delete(p.about, "ready")
	return p, nil
}

// WriteTable prints r as a table.
func (r *TokenizerReport) WriteTable(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s (read in %.2f s) on %s: %d bytes in %d documents, %d tokens; one thread, median [range] of %d rounds\n%s",
		r.Tokenizer, r.LoadS, r.Text, r.Bytes, r.Documents, r.Tokens, r.Rounds, busy(r.Load)); err != nil {
		return err
	}
	rows := [][]string{{"MB/s"}, {r.Ours.String()}}
	if r.Peer != nil {
		rows[0] = append(rows[0], fmt.Sprintf("tokenizers %v", r.About["tokenizers"]), "ratio")
		rows[1] = append(rows[1], r.Peer.String(), r.Ratio.String())
	}
	return writeTable(w, rows)
}
