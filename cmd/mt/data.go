package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"mt/checkpoint"
	"mt/data"
	"mt/data/tokenizer"
	"mt/internal/chart"
	"mt/internal/run/config"
	"mt/internal/run/open"
	"mt/internal/run/report"
	"mt/internal/run/settings"
)

func (a *app) dataCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "data",
		Short: "Look at data sets",
		RunE:  group,
	}
	c.AddCommand(a.dataInspect())
	return c
}

func (a *app) dataInspect() *cobra.Command {
	in := inspection{rows: 3}
	c := a.keyed(&cobra.Command{
		Use:   "inspect CONFIG.yaml, or --dataset FILE [--model DIR]",
		Short: "Show what mt makes of a data set",
		Long: `Inspect reads a data set as training would and shows its first rows token by
token, with what is supervised in colour; then rows, tokens, how long documents
are, and what was cut or left out. Chats with a supervised turn that does not end
with a special token, texts without an end-of-text token and documents that begin
with two BOS are reported, and end it with an error. Without a model text is read
as bytes, and any token id is taken. The keys of mt train that say how data is
read are flags.

  --rows N              how many rows are shown (3; 0: none)
  --row I               which is the first of them, from 0
  --color auto|always|never
  --json                the figures, and the rows, as JSON`,
		Example: `  mt data inspect run.yaml
  mt data inspect --dataset chats.jsonl --model path/to/model --max-seq-len 4096 --rows 1`,
	}, func(c *cobra.Command, cfg *config.Config) (err error) {
		if err := cfg.Require("dataset"); err != nil {
			return err
		}
		if err := a.inspection(&in); err != nil {
			return err
		}
		set, tok, err := a.openDataset(c.Context(), cfg)
		if err != nil {
			return err
		}
		defer func() {
			if closing := set.Close(); err == nil {
				err = closing
			}
		}()
		for _, w := range append(cfg.Warnings, set.Notes()...) { // problems are part of the final error
			fmt.Fprintln(a.stderr, "note:", w)
		}
		return a.inspect(in, cfg, set, tok)
	})
	set := c.Flags()
	config.Switch(set, "json", &in.json)
	whole(set, "rows", 0, &in.rows)
	whole(set, "row", 0, &in.first)
	set.StringVar(&in.colour, "color", "auto", "")
	return c
}

// inspection holds the flags of mt data inspect.
type inspection struct {
	rows, first int
	colour      string // auto, always or never
	paint       paint
	json        bool
}

// inspection checks the flags in for mt data inspect and decides whether its output has colours. It
// returns a UsageError for an invalid flag.
func (a *app) inspection(in *inspection) error {
	switch in.colour {
	case "", "auto":
		in.paint.colour = a.colour
	case "always", "never":
		in.paint.colour = in.colour == "always"
	default:
		return config.Usagef("--color: %q is none of auto, always, never", in.colour)
	}
	return nil
}

// inspect prints the report of mt data inspect on set. It returns an error if the report shows a
// reason not to train on set.
func (a *app) inspect(in inspection, c *config.Config, set *data.Dataset, tok tokenizer.Tokenizer) error {
	var s dataStats
	err := set.Read(func() {
		s = dataStats{Stats: set.Stats(), Report: set.Report()}
		for i := in.first; i < set.Rows() && i-in.first < in.rows; i++ {
			s.Samples = append(s.Samples, newSample(set, tok, i))
		}
	})
	if err != nil {
		return err
	}
	if !c.Model.Set() {
		s.VocabSize = 0
	}
	if !in.json {
		if err := in.paint.writeSamples(a.stdout, s.Samples); err != nil {
			return err
		}
	}
	if err := a.report(s, in.json); err != nil {
		return err
	}
	return s.problem()
}

// openDataset opens the data set of c and shows the progress of reading.
func (a *app) openDataset(ctx context.Context, c *config.Config) (*data.Dataset, tokenizer.Tokenizer, error) {
	spec, err := inspectSpec(c)
	if err != nil {
		return nil, nil, err
	}
	spec.Stop, spec.Progress = ctx.Done(), report.Reading(a.options(false))
	set, err := data.Open(spec)
	var wrong *data.SpecError
	switch {
	case errors.Is(err, data.ErrStopped):
		return nil, nil, settings.ErrResumable
	case errors.As(err, &wrong):
		return nil, nil, c.Errorf(cmp.Or(wrong.Key, c.DataKey()), "%w", err)
	case err != nil:
		return nil, nil, fmt.Errorf("%s: %w", c.DataKey(), err)
	}
	return set, spec.Tokenizer, nil
}

// anyVocab is the size of the vocabulary that is assumed without a model. It exceeds every model's, so that every
// token id is allowed.
const anyVocab = 1 << 20

// inspectSpec returns the data.Spec with which training would read the data. If c names a model, the spec has the
// model's vocabulary and tokenizer.
func inspectSpec(c *config.Config) (data.Spec, error) {
	s := c.DataSpec()
	s.VocabSize = anyVocab
	if !c.Model.Set() {
		for _, key := range []string{"add_tokens", "new_special_tokens"} {
			if c.Given(key) {
				return s, c.Errorf(key, "%s: needs a model to add tokens to; give model_name_or_path", key)
			}
		}
		s.Tokenizer = tokenizer.Bytes()
		return s, nil
	}
	m, err := open.OpenModel(c)
	if err != nil {
		return s, err
	}
	s.VocabSize, s.ModelDir, s.Tokenizer, s.TokenizerErr = m.Config.VocabSize, m.Dir, m.Tokenizer, m.Err
	c.Warnings = append(c.Warnings, m.Notes...)
	return s, nil
}

// sample is one training row.
type sample struct {
	Row        int          `json:"row"` // in file order
	IDs        []int32      `json:"input_ids"`
	Labels     []int32      `json:"labels"` // data.IgnoreIndex: no loss
	Tokens     []string     `json:"tokens,omitempty"`
	Supervised int64        `json:"supervised_tokens"`
	Pieces     []data.Piece `json:"documents"`
}

// newSample returns row number i of set for printing. tok may be nil; the sample then has no texts.
func newSample(set *data.Dataset, tok tokenizer.Tokenizer, i int) sample {
	r := set.Row(i)
	s := sample{Row: i, IDs: r.IDs, Labels: r.Labels, Supervised: r.Supervised(), Pieces: set.Pieces(i)}
	if s.Labels == nil {
		s.Labels = r.IDs
	}
	first := 0
	for _, p := range s.Pieces {
		s.Tokens = append(s.Tokens, tokenTexts(tok, r.IDs[first:first+int(p.Tokens)])...)
		first += int(p.Tokens)
	}
	return s
}

// tokenTexts returns for each id of a document the text that it adds to the preceding text. If several tokens form one
// character, the last of them gets the character and the others get "".
func tokenTexts(tok tokenizer.Tokenizer, ids []int32) []string {
	out := make([]string, len(ids))
	if tok == nil {
		for i, id := range ids {
			out[i] = fmt.Sprintf("%d ", id)
		}
		return out
	}
	shown, next := 0, 0 // ids[shown:next] were shown last, ids[next:] are still to show
	for i := range ids {
		before, after := tok.DecodeSpecial(ids[shown:next]), tok.DecodeSpecial(ids[shown:i+1])
		whole := bytes.HasPrefix(after, before) && !cutCharacter(after)
		if !whole && i+1 < len(ids) && i+1-next < maxPieces {
			continue
		}
		out[i] = string(bytes.TrimPrefix(after, before))
		shown, next = next, i+1
	}
	return out
}

// maxPieces is more than the number of tokens that any one character takes. After maxPieces tokens
// without a whole character, tokenTexts gives up and returns their bytes as they are.
const maxPieces = 12

// cutCharacter reports whether text ends in the middle of a UTF-8 character.
func cutCharacter(text []byte) bool {
	r, _ := utf8.DecodeLastRune(text)
	return r == utf8.RuneError && len(text) > 0
}

// paint marks supervised tokens (those with a loss), by colour or else by brackets.
type paint struct{ colour bool }

// Terminal colours (ECMA-48): supervised tokens are green, the others grey. Every other token is underlined, which
// shows the token boundaries.
const (
	green     = "\x1b[32m"
	grey      = "\x1b[90m"
	underline = "\x1b[4m"
	plain     = "\x1b[0m"
)

func (p paint) legend() string {
	if p.colour {
		return green + "supervised" + plain + ", " + grey + "not supervised" + plain + "; every other token is " + underline + "underlined" + plain
	}
	return "⟦supervised⟧; tokens are divided by ·"
}

// writeSamples prints rows, preceded by a legend of the marks. It prints nothing without rows.
func (p paint) writeSamples(w io.Writer, rows []sample) error {
	if len(rows) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w, p.legend()); err != nil {
		return err
	}
	for _, s := range rows {
		if err := p.writeSample(w, s); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}

// writeSample prints a row, document by document.
func (p paint) writeSample(w io.Writer, s sample) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\nrow %d: %s tokens, %s supervised\n", s.Row, humanize.Comma(int64(len(s.IDs))), humanize.Comma(s.Supervised))
	first := 0
	for _, piece := range s.Pieces {
		end := first + int(piece.Tokens)
		fmt.Fprintf(&b, "--- %s\n", place(piece))
		if piece.Side == "" {
			p.tokens(&b, s, first, first, end)
		} else {
			p.side(&b, s, piece.Side, first, end)
		}
		first = end
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// side prints one document of a preference pair: the tokens [first, end). side is chosen or
// rejected. Only the chosen side prints the prompt, since both sides share it.
func (p paint) side(b *strings.Builder, s sample, side string, first, end int) {
	answer := first
	for answer < end && s.Labels[answer] == data.IgnoreIndex {
		answer++
	}
	if side == "chosen" {
		b.WriteString("prompt: ")
		p.tokens(b, s, first, first, answer)
	}
	b.WriteString(side + ": ")
	p.tokens(b, s, first, answer, end)
}

// place says where p, a piece of a document, was read, and which parts of it the chat template dropped.
func place(p data.Piece) string {
	at := fmt.Sprintf("%s (%s), %s tokens", p.Where, p.Format, humanize.Comma(p.Total))
	if p.Side != "" {
		at = fmt.Sprintf("%s (pair %d, %s), %s tokens", p.Where, p.Document, p.Side, humanize.Comma(p.Total))
	}
	switch {
	case p.Tokens < p.Total && p.Side != "":
		at += fmt.Sprintf(", cut to %s", humanize.Comma(p.Tokens))
	case p.Tokens < p.Total:
		at = fmt.Sprintf("%s (%s), tokens %s to %s of %s", p.Where, p.Format, humanize.Comma(p.From), humanize.Comma(p.From+p.Tokens-1), humanize.Comma(p.Total))
	}
	var left []string
	for _, l := range []struct {
		what string
		is   bool
	}{{"text", p.LeftText}, {"tools or calls", p.LeftCalls}, {"thoughts", p.LeftThinking}} {
		if l.is {
			left = append(left, l.what)
		}
	}
	if left == nil {
		return at
	}
	return at + "; the template leaves out " + strings.Join(left, ", ")
}

// tokens prints the tokens [first, end) of the document that starts at token number document. The first token of a
// document never has a loss, since no token before it predicts it.
func (p paint) tokens(b *strings.Builder, s sample, document, first, end int) {
	open := false
	for i := first; i < end; i++ {
		supervised := i > document && s.Labels[i] != data.IgnoreIndex
		text := visible(s.Tokens[i])
		switch {
		case text == "": // a character is shown with its last token
		case p.colour:
			p.coloured(b, text, supervised, i%2 == 1)
		case supervised != open:
			b.WriteString(map[bool]string{true: "⟦", false: "⟧"}[supervised])
			b.WriteString(text)
			open = supervised
		default:
			if i > first {
				b.WriteString("·")
			}
			b.WriteString(text)
		}
	}
	if open {
		b.WriteString("⟧")
	}
	b.WriteString("\n")
}

// coloured writes text, the text of one token, in colour, each of its lines separately. A colour that continues past a
// line's end would fill the rest of the line. odd underlines the token.
func (p paint) coloured(b *strings.Builder, text string, supervised, odd bool) {
	style := grey
	if supervised {
		style = green
	}
	if odd {
		style += underline
	}
	for line := range strings.Lines(text) {
		body, broken := strings.CutSuffix(line, "\n")
		if body != "" {
			b.WriteString(style + body + plain)
		}
		if broken {
			b.WriteString("\n")
		}
	}
}

// visible replaces characters that a terminal would interpret or hide. It marks line ends, and writes control
// characters as code points.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\n':
			b.WriteString("⏎\n")
		case r == '\t':
			b.WriteString("→")
		case r < ' ' || r >= 0x7f && r < 0xa0:
			fmt.Fprintf(&b, "\\x%02x", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// dataStats is data.Stats with the report and the requested rows.
type dataStats struct {
	data.Stats
	Report  data.Report `json:"report"`
	Samples []sample    `json:"samples,omitempty"`
}

// WriteTable prints s as a table.
func (s dataStats) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("kind", "%s%s", s.Kind, map[bool]string{true: ", packed"}[s.Packed])
	row("files", "%s", humanize.Comma(int64(s.Files)))
	row(s.documents(), "%s", humanize.Comma(s.Documents))
	for _, set := range s.Report.Sets {
		row("  "+set.Name, "%s (%s), %s tokens%s", humanize.Comma(set.Documents), strings.Join(set.Formats, ", "),
			humanize.Comma(set.Tokens), used(set))
	}
	row("rows", "%s (%s to train on, %s held out)", humanize.Comma(int64(s.Rows)), humanize.Comma(int64(s.TrainRows)), humanize.Comma(int64(s.EvalRows)))
	row("tokens", "%s (%s supervised)", humanize.Comma(s.Tokens), humanize.Comma(s.Supervised))
	if s.VocabSize > 0 {
		row("vocabulary", "%s of %s ids are used", humanize.Comma(int64(s.VocabUsed)), humanize.Comma(int64(s.VocabSize)))
	} else {
		row("vocabulary", "%s ids are used", humanize.Comma(int64(s.VocabUsed)))
	}
	for _, f := range s.findings() {
		if f.n > 0 {
			row(f.name, "%s%s", humanize.Comma(f.n), first(f.at))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w, s.documents()+" by their tokens"); err != nil {
		return err
	}
	return chart.WriteBars(w, s.lengths())
}

// documents returns the report's word for the items of the data: documents, or pairs for preference
// pairs.
func (s dataStats) documents() string {
	if s.Kind == "pairs" {
		return "pairs"
	}
	return "documents"
}

// chats returns the report's word for items that went through a chat template: chats, or pairs for
// preference pairs.
func (s dataStats) chats() string {
	if s.Kind == "pairs" {
		return "pairs"
	}
	return "chats"
}

// used says how often the documents of a data set occur in the mix of all sets, if that is not once each; otherwise
// "".
func used(set data.SetReport) string {
	if set.Used == set.Documents {
		return ""
	}
	return fmt.Sprintf("; %s in the mix", humanize.Comma(set.Used))
}

// finding is something about the data that the report tells: documents that training drops or that look wrong, with
// their number.
type finding struct {
	name string
	n    int64
	at   []string // location of the first cases
}

func (s dataStats) findings() []finding {
	var skipped []string
	if s.Report.FirstSkipped != "" {
		skipped = []string{s.Report.FirstSkipped}
	}
	return []finding{
		{map[bool]string{true: "pairs with an answer cut to max_seq_len", false: "rows cut to max_seq_len"}[s.Kind == "pairs"], s.Truncated, s.Report.Cut},
		{"tokens cut off", s.CutTokens, nil},
		{s.chats() + " dropped, nothing supervised before the cut", s.Dropped, s.Report.Dropped},
		{"packed rows with nothing supervised", int64(s.Unused), nil},
		{"bad rows skipped", s.Skipped, skipped},
		{"  with nothing supervised", s.Unsupervised, nil},
		{map[bool]string{true: "texts without an end-of-text token", false: "turns without a special token at their end"}[s.Kind == "text"], s.MissingEOS, s.Report.MissingEOS},
		{"documents that begin with two BOS", s.DoubledBOS, s.Report.DoubledBOS},
		{s.chats() + " of which the template leaves out text", s.LeftText, s.Report.LeftText},
		{s.chats() + " of which the template leaves out tools or calls", s.LeftCalls, s.Report.LeftCalls},
		{s.chats() + " of which the template leaves out thoughts", s.LeftThinking, s.Report.LeftThinking},
		{s.chats() + " with the parts of a content joined for the template", s.Joined, s.Report.Joined},
		{s.chats() + " with arguments of calls decoded for the template", s.Decoded, s.Report.Decoded},
		{s.chats() + " with arguments of calls encoded for the template", s.Encoded, s.Report.Encoded},
		{s.chats() + " with functions, texts or thoughts reshaped for the template", s.Reshaped, s.Report.Reshaped},
		{"pairs whose prompt ends otherwise before an answer", s.PromptCut, s.Report.PromptCut},
		{"binary files skipped", int64(s.Binary), nil},
		{"hidden files skipped", int64(s.Hidden), nil},
	}
}

// first returns the first of the locations at, in brackets; "" if there is none.
func first(at []string) string {
	if len(at) == 0 {
		return ""
	}
	return " (first: " + at[0] + ")"
}

// lengths returns a histogram of document lengths in tokens.
func (s dataStats) lengths() (bars []chart.Bar) {
	for _, b := range s.Lengths {
		label := humanize.Comma(b.From) + "–" + humanize.Comma(b.To)
		if b.From == b.To {
			label = humanize.Comma(b.From)
		}
		bars = append(bars, chart.Bar{Label: label, Count: b.Documents})
	}
	return bars
}

// problem returns an error for data that would teach the model something wrong.
func (s dataStats) problem() error {
	switch {
	case s.DoubledBOS > 0:
		return fmt.Errorf("%s document(s) begin with two BOS tokens%s; the chat template writes one and so does the text: leave it out of one of them",
			humanize.Comma(s.DoubledBOS), first(s.Report.DoubledBOS))
	case s.MissingEOS > 0 && s.Kind == "text":
		return fmt.Errorf("%s text(s) do not end with an end-of-text token%s, so a model would not learn where a text ends; "+
			"the tokenizer names none: give it an eos_token in tokenizer_config.json", humanize.Comma(s.MissingEOS), first(s.Report.MissingEOS))
	case s.MissingEOS > 0:
		return fmt.Errorf("%s %s have a supervised turn that does not end with a special token%s, so a model would not learn to stop; "+
			"let the chat template write its end-of-turn token after every assistant turn (template: FILE)",
			humanize.Comma(s.MissingEOS), map[bool]string{true: "pair(s)", false: "chat(s)"}[s.Kind == "pairs"], first(s.Report.MissingEOS))
	}
	return nil
}

// replaceFile replaces the content of a file and keeps its permissions. If the file does not exist, replaceFile
// creates it.
func replaceFile(name string, content []byte) error {
	st, err := os.Stat(name)
	if err != nil {
		return checkpoint.WriteFile(checkpoint.OS(), name, content)
	}
	if !st.Mode().IsRegular() {
		return os.WriteFile(name, content, 0o644)
	}
	if name, err = filepath.EvalSymlinks(name); err != nil { // the target of a symbolic link
		return err
	}
	if err := checkpoint.WriteFile(checkpoint.OS(), name, content); err != nil {
		return err
	}
	return os.Chmod(name, st.Mode().Perm())
}
