package data

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/internal/long"
	"mt/tokenizer"
)

// withBOS is the byte tokenizer with a token that begins a text: byte 1.
type withBOS struct{ tokenizer.Tokenizer }

func (withBOS) BOS() (int32, bool)             { return 1, true }
func (withBOS) AddSpecial(ids []int32) []int32 { return append([]int32{1}, ids...) }
func (t withBOS) IsSpecial(id int32) bool      { return id == 1 || t.Tokenizer.IsSpecial(id) }
func (withBOS) ID() string                     { return "with BOS" }
func (t withBOS) Split(text []byte) int        { return t.Tokenizer.(tokenizer.Splitter).Split(text) }

// withEnd is withBOS with a post-processor that adds EOS as well.
type withEnd struct{ withBOS }

func (withEnd) AddSpecial(ids []int32) []int32 { return append(append([]int32{1}, ids...), 0) }
func (withEnd) ID() string                     { return "with BOS and EOS" }

// endless is the byte tokenizer without a token that ends a text.
type endless struct{ tokenizer.Tokenizer }

func (endless) EOS() (int32, bool) { return 0, false }
func (endless) ID() string         { return "endless" }

// TestSpecialTokensOfText: a text begins with BOS, where the tokenizer adds one, and ends
// with EOS. It has each exactly once, whether or not the text itself brings them.
func TestSpecialTokensOfText(t *testing.T) {
	bytes := tokenizer.Bytes()
	for _, tok := range []tokenizer.Tokenizer{bytes, withBOS{bytes}, withEnd{withBOS{bytes}}} {
		bos := strings.Repeat("\x01", len(specialOf(tok).before))
		for text, want := range map[string]string{
			"abc":               bos + "abc$",
			"abc<|endoftext|>":  bos + "abc$",
			"a<|endoftext|>c":   bos + "a$c$",
			"\\u0001abc":        "\x01abc$",
			"\\u0001\\u0001abc": "\x01\x01abc$",
		} {
			s := textSpec(t, 64, write(t, t.TempDir(), "a.jsonl", `{"text":"`+text+`"}`))
			s.Tokenizer = tok
			d := mustOpen(t, s)
			if got := texts(d.All()); !slices.Equal(got, []string{want}) {
				t.Errorf("%s, %q: %q, want %q", tok.ID(), text, got, want)
			}
			doubled := bos != "" && strings.HasPrefix(want, "\x01\x01")
			if st := d.Stats(); st.DoubledBOS != map[bool]int64{true: 1}[doubled] || st.MissingEOS != 0 || doubled != (len(d.Report().DoubledBOS) == 1) {
				t.Errorf("%s, %q: stats %+v", tok.ID(), text, st)
			}
		}
	}
}

// TestTextOfOneToken: a text that makes one token has nothing to predict and is a bad row.
// With a token that ends it, it has something.
func TestTextOfOneToken(t *testing.T) {
	s := textSpec(t, 64, write(t, t.TempDir(), "a.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"c\"}\n{\"text\":\"de\"}\n"))
	s.Packing = set(false)
	if got := texts(mustOpen(t, s).All()); !slices.Equal(got, []string{"ab$", "c$", "de$"}) {
		t.Errorf("with an end: rows %q", got)
	}
	s.Tokenizer = endless{tokenizer.Bytes()}
	_, err := Open(s)
	wantError(t, err, "a.jsonl:2: the text makes 1 token(s)", "at least 2", "remove it")
	s.SkipBadRows = true
	d := mustOpen(t, s)
	if got := texts(d.All()); !slices.Equal(got, []string{"ab", "de"}) || d.Stats().Skipped != 1 {
		t.Errorf("without: rows %q, %d skipped", got, d.Stats().Skipped)
	}
}

func TestPrompt(t *testing.T) {
	tok := withEnd{withBOS{tokenizer.Bytes()}}
	for text, want := range map[string]string{"ab": "\x01ab", "\x01ab": "\x01ab", "": "\x01"} {
		ids, err := Prompt(tok, []byte(text))
		if got := rowText(Row{IDs: ids}); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	if _, err := Prompt(tok, []byte("a\xff")); err == nil {
		t.Error("a prompt that is no UTF-8 passes")
	}
}

// TestSpecialTokensOfLongText: a long text that is read in pieces has its BOS and its EOS once.
func TestSpecialTokensOfLongText(t *testing.T) {
	long.NotShort(t)
	text := strings.Repeat("0123456789abcde\n", wholeFile/16+1)
	for _, name := range []string{"a.txt", "a.txt.gz"} {
		s := textSpec(t, len(text)+2, write(t, t.TempDir(), name, squeeze(t, name, text)))
		s.Tokenizer, s.Threads = withBOS{tokenizer.Bytes()}, 2
		d := mustOpen(t, s)
		row := d.Row(0)
		if n := len(row.IDs); d.Rows() != 1 || n != len(text)+2 || row.IDs[0] != 1 || row.IDs[n-1] != 0 || slices.Contains(row.IDs[1:n-1], 0) || slices.Contains(row.IDs[1:], 1) {
			t.Errorf("%s: %d rows, the first of %d tokens", name, d.Rows(), n)
		}
	}
}

func TestMissingEOS(t *testing.T) {
	s := textSpec(t, 64, write(t, t.TempDir(), "a.jsonl", "{\"text\":\"abc\"}\n{\"text\":\"de\"}"))
	s.Tokenizer = endless{tokenizer.Bytes()}
	d := mustOpen(t, s)
	if w := d.Warnings(); d.Stats().MissingEOS != 2 || len(w) != 1 || len(d.Notes()) != 0 || !strings.Contains(w[0], "eos_token") || !slices.Equal(texts(d.All()), []string{"abcde"}) {
		t.Errorf("rows %q, %d without EOS, warnings %q", texts(d.All()), d.Stats().MissingEOS, w)
	}
	ended := strings.ReplaceAll(small, "}}|", "}}{{ eos_token }}")
	ended = strings.ReplaceAll(ended, "{% endfor %}|{% endfor %}", "{% endfor %}{{ eos_token }}{% endfor %}")
	d = mustOpen(t, chatSpec(t, ended, write(t, t.TempDir(), "a.jsonl", chat("user", "h", "assistant", "g"))))
	if got := masked(d.Row(0)); got != "u:h$a:[g$]" || d.Stats().MissingEOS != 0 || len(d.Warnings()) != 0 {
		t.Errorf("%q, %d without EOS, warnings %q", got, d.Stats().MissingEOS, d.Warnings())
	}
}

// TestRecordedTokenizers: texts begin with BOS where the post-processor of a recorded
// tokenizer adds one.
func TestRecordedTokenizers(t *testing.T) {
	names, err := filepath.Glob("../../shared/fixtures/tokenizers/*/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(names) == 0 {
		t.Skip("no ../shared/fixtures/tokenizers beside the repository")
	}
	bos := map[string]string{"gemma": "<bos>", "llama2": "<s>", "phi3": "<s>", "llama3": "<|begin_of_text|>"}
	for _, name := range names {
		dir := filepath.Dir(name)
		tok, err := tokenizer.Load(dir, 1<<17)
		if err != nil {
			t.Fatal(err)
		}
		s := textSpec(t, 64, write(t, t.TempDir(), "a.jsonl", "{\"text\":\"Hello wörld\"}\n{\"text\":\"no \xff\"}"))
		s.Tokenizer = tok
		_, err = Open(s)
		wantError(t, err, "a.jsonl:2: text is no valid UTF-8: byte 3 is 0xff")
		s.SkipBadRows = true
		first := bos[filepath.Base(dir)]
		if got := string(tok.DecodeSpecial(mustOpen(t, s).Row(0).IDs)); !strings.HasPrefix(got, first) || strings.Count(got, "<") != min(1, len(first)) || !strings.HasSuffix(got, "Hello wörld") {
			t.Errorf("%s: the row decodes to %q", dir, got)
		}
	}
}
