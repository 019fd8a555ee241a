package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"

	"mt/checkpoint"
	"mt/data"
	"mt/internal/chart"
)

// dataStats prints data.Stats with the report and the rows asked for.
type dataStats struct {
	data.Stats
	Report  data.Report `json:"report"`
	Samples []sample    `json:"samples,omitempty"`
}

// WriteTable prints the figures of s for people.
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

// documents is what the documents of the data are called.
func (s dataStats) documents() string {
	if s.Kind == "pairs" {
		return "pairs"
	}
	return "documents"
}

// chats is what the documents of the data are called that went through a chat template.
func (s dataStats) chats() string {
	if s.Kind == "pairs" {
		return "pairs"
	}
	return "chats"
}

// used says how often the documents of a data set are in the mix, unless it is once
// each.
func used(set data.SetReport) string {
	if set.Used == set.Documents {
		return ""
	}
	return fmt.Sprintf("; %s in the mix", humanize.Comma(set.Used))
}

// finding is something that is left out of training, or that looks wrong, and how
// often.
type finding struct {
	name string
	n    int64
	at   []string // where the first of them are
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

// first names the first of some places, in brackets.
func first(at []string) string {
	if len(at) == 0 {
		return ""
	}
	return " (first: " + at[0] + ")"
}

// lengths are the documents by their tokens.
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

// problem is the error of data that teaches a model something wrong.
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

// replaceFile replaces the content of a file, which keeps its permissions, or makes the
// file.
func replaceFile(name string, content []byte) error {
	st, err := os.Stat(name)
	if err != nil {
		return checkpoint.WriteFile(checkpoint.OS(), name, content)
	}
	if !st.Mode().IsRegular() {
		return os.WriteFile(name, content, 0o644)
	}
	if name, err = filepath.EvalSymlinks(name); err != nil { // the file, not a link to it
		return err
	}
	if err := checkpoint.WriteFile(checkpoint.OS(), name, content); err != nil {
		return err
	}
	return os.Chmod(name, st.Mode().Perm())
}
