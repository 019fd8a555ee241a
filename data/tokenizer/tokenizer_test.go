package tokenizer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"mt/internal/testkit"
)

func TestBytesRoundTrip(t *testing.T) {
	all := make([]byte, 0, 255)
	for b := 1; b < 256; b++ {
		all = append(all, byte(b))
	}
	for _, text := range []string{"", "a", "func main() {}\r\n\t", "Zürich 東京 🙂", "\xff\xfe\xc3(", string(all)} {
		ids, err := Bytes().Encode([]int32{7}, []byte(text))
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if ids[0] != 7 || len(ids) != 1+len(text) {
			t.Errorf("%q: %d ids, first %d, want one a byte after the 7 that was there", text, len(ids)-1, ids[0])
		}
		for i, id := range ids[1:] {
			if id != int32(text[i]) {
				t.Errorf("%q: id %d is %d, want the byte's value %d", text, i, id, text[i])
			}
		}
		if got := string(Bytes().Decode(ids[1:])); got != text {
			t.Errorf("%q comes back as %q", text, got)
		}
	}
}

func TestBytesSpecials(t *testing.T) {
	if eos, ok := Bytes().EOS(); eos != 0 || !ok {
		t.Errorf("EOS is %d, %v, want 0, true", eos, ok)
	}
	if got, want := string(Bytes().Decode([]int32{'a', 0, 256, 'b', -1})), "a<256>b<-1>"; got != want {
		t.Errorf("decoded %q, want %q", got, want)
	}
	if _, err := Bytes().Encode(nil, []byte("a\x00b")); !errors.Is(err, ErrBinary) {
		t.Errorf("text with a NUL byte: %v, want ErrBinary", err)
	}
}

// TestBytesEndOfText: if a text spells <|endoftext|>, Bytes encodes it as id 0, as other programs
// that read the files of Bytes do. This also holds with offsets, and if the text comes in two
// pieces.
func TestBytesEndOfText(t *testing.T) {
	tests := []struct {
		text   string
		ids    []int32
		starts []int
	}{
		{EndOfText, []int32{0}, []int{0}},
		{"a" + EndOfText + "b", []int32{'a', 0, 'b'}, []int{0, 1, 14}},
		{EndOfText + EndOfText, []int32{0, 0}, []int{0, 13}},
		{"é" + EndOfText, []int32{0xc3, 0xa9, 0}, []int{0, 1, 2}},
		{"<|end|<" + EndOfText + ">", []int32{'<', '|', 'e', 'n', 'd', '|', '<', 0, '>'}, []int{0, 1, 2, 3, 4, 5, 6, 7, 20}},
	}
	for _, tt := range tests {
		ids, starts, err := Bytes().EncodeSpans(nil, nil, []byte(tt.text))
		if err != nil || !slices.Equal(ids, tt.ids) || !slices.Equal(starts, tt.starts) {
			t.Errorf("%q: %d at %d, %v, want %d at %d", tt.text, ids, starts, err, tt.ids, tt.starts)
		}
		if got := string(Bytes().DecodeSpecial(ids)); got != tt.text {
			t.Errorf("%q comes back as %q", tt.text, got)
		}
		for seen := range len(tt.text) + 1 {
			n := Bytes().(Splitter).Split([]byte(tt.text[:seen]))
			got, err := Bytes().Encode(nil, []byte(tt.text[:n]))
			if err == nil {
				got, err = Bytes().Encode(got, []byte(tt.text[n:]))
			}
			if err != nil || !slices.Equal(got, tt.ids) {
				t.Errorf("%q cut at %d of %d: %d, %v, want %d", tt.text, n, seen, got, err, tt.ids)
			}
		}
	}
}

func TestFilesSpellTheVocabulary(t *testing.T) {
	var f struct {
		AddedTokens []struct {
			ID      int
			Content string
			Special bool
		} `json:"added_tokens"`
		Model struct {
			Vocab  map[string]int
			Merges []any
		}
	}
	testkit.NoError(t, json.Unmarshal(Bytes().Files()["tokenizer.json"], &f))
	if len(f.Model.Vocab) != 256 || f.Model.Merges == nil || len(f.Model.Merges) != 0 {
		t.Errorf("%d tokens and merges %v, want 256 and none", len(f.Model.Vocab), f.Model.Merges)
	}
	ids := map[int]bool{}
	for _, id := range f.Model.Vocab {
		ids[id] = id >= 0 && id < 256
	}
	if len(ids) != 256 {
		t.Errorf("%d different ids, want 256", len(ids))
	}
	for letter, id := range map[string]int{"A": 'A', "Ġ": ' ', "Ċ": '\n', "é": 0xe9, "ŀ": 0x9e, "Ń": 0xad, EndOfText: 0} {
		if f.Model.Vocab[letter] != id {
			t.Errorf("%q has id %d, want %d", letter, f.Model.Vocab[letter], id)
		}
	}
	if len(f.AddedTokens) != 1 || f.AddedTokens[0].ID != 0 || !f.AddedTokens[0].Special {
		t.Errorf("added tokens are %+v, want one special token with id 0", f.AddedTokens)
	}
}

func TestLoadWithoutDirectory(t *testing.T) {
	if got, err := Load("", 256); err != nil || got.ID() != Bytes().ID() {
		t.Errorf("tokenizer %v, error %v, want Bytes", got, err)
	}
}

func TestStream(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string // what each byte completes, then what is flushed
	}{
		{"ASCII", "ab", []string{"a", "b", ""}},
		{"two bytes", "é!", []string{"", "é", "!", ""}},
		{"four bytes", "🙂", []string{"", "", "", "🙂", ""}},
		{"never completed", "\xe6\x9d", []string{"", "", "\xe6\x9d"}},
		{"broken off", "\xe6a", []string{"", "\xe6a", ""}},
		{"no UTF-8", "\xff\x80", []string{"\xff", "\x80", ""}},
		{"only continuations", "\x80\x80\x80\x80\x80", []string{"\x80", "\x80", "\x80", "\x80", "\x80", ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ids := testkit.Must(Bytes().Encode(nil, []byte(tt.text)))(t)
			s := NewStream(Bytes())
			var got []string
			for _, id := range ids {
				got = append(got, s.Next(id))
			}
			if got = append(got, s.Flush()); !slices.Equal(got, tt.want) {
				t.Errorf("came as %q, want %q", got, tt.want)
			}
			if rest := s.Flush(); rest != "" {
				t.Errorf("flushed twice: %q", rest)
			}
		})
	}
}

func FuzzStream(f *testing.F) {
	f.Add([]byte("aé🙂\xff\xe6"))
	f.Fuzz(func(t *testing.T, text []byte) {
		text = bytes.ReplaceAll(text, []byte{0}, nil)
		for bytes.Contains(text, []byte(EndOfText)) { // which prints as nothing
			text = bytes.ReplaceAll(text, []byte(EndOfText), nil)
		}
		ids := testkit.Must(Bytes().Encode(nil, text))(t)
		s, got := NewStream(Bytes()), ""
		for _, id := range ids {
			got += s.Next(id)
		}
		if got += s.Flush(); got != string(text) {
			t.Errorf("%q came as %q", text, got)
		}
	})
}

// recorded is a string with the result of PyPI `tokenizers` for it.
type recorded struct {
	Text         string
	IDs          []int32 // with special tokens around
	IDsPlain     []int32 `json:"ids_plain"`
	Decoded      string  // of IDsPlain
	DecodedClean string  `json:"decoded_clean"` // without special tokens
}

// check encodes and decodes the text of c with tok. It reports whether the results equal the
// recorded ones.
func (c *recorded) check(t *testing.T, tok Tokenizer) bool {
	ids, err := tok.Encode(nil, []byte(c.Text))
	if err != nil {
		t.Errorf("%q: %v", c.Text, err)
		return false
	}
	ok := true
	fail := func(what string, got, want any) {
		t.Errorf("%q: %s: %v, want %v", c.Text, what, got, want)
		ok = false
	}
	if !slices.Equal(ids, c.IDsPlain) {
		fail("ids", ids, c.IDsPlain)
	}
	if all := tok.AddSpecial(ids); !slices.Equal(all, c.IDs) {
		fail("with special tokens", all, c.IDs)
	}
	if got := string(tok.DecodeSpecial(c.IDsPlain)); got != c.Decoded {
		fail("decoded", got, c.Decoded)
	}
	if got := string(tok.Decode(c.IDsPlain)); got != c.DecodedClean {
		fail("decoded without special tokens", got, c.DecodedClean)
	}
	spans, starts, err := tok.EncodeSpans([]int32{7}, []int{9}, []byte(c.Text))
	switch {
	case err != nil || !slices.Equal(spans[1:], ids) || len(starts) != len(spans):
		fail("EncodeSpans", spans, ids)
	case !slices.IsSorted(starts[1:]) || len(ids) > 0 && (starts[1] < 0 || starts[len(starts)-1] >= len(c.Text)):
		fail("starts", starts[1:], "rising within the text")
	}
	return ok
}

// TestFixtures: the recorded strings of every recorded tokenizer have the ids and texts that PyPI
// `tokenizers` gave. MT_TOKENIZERS names another folder of recordings, such as
// testdata/differences.py makes.
func TestFixtures(t *testing.T) {
	root := os.Getenv("MT_TOKENIZERS")
	if root == "" {
		root = "../../../shared/fixtures/tokenizers"
	}
	names := testkit.Must(filepath.Glob(filepath.Join(root, "*", "cases.jsonl")))(t)
	if len(names) == 0 {
		t.Skip("no ../shared/fixtures/tokenizers beside the repository")
	}
	for _, name := range names {
		dir := filepath.Dir(name)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			tok := testkit.Must(Load(dir, 256))(t)
			f := testkit.Must(os.Open(name))(t)
			defer f.Close()
			n, bad := 0, 0
			for lines := json.NewDecoder(bufio.NewReader(f)); lines.More() && bad < 10; n++ {
				var c recorded
				testkit.NoError(t, lines.Decode(&c))
				if !c.check(t, tok) {
					bad++
				}
			}
			t.Logf("%d strings", n)
		})
	}
}

// TestConcurrent: several goroutines that encode the same texts with one tokenizer get the same
// ids, whatever words each has cached.
func TestConcurrent(t *testing.T) {
	all := texts(t)[:40]
	readShapes(t, "testdata/shapes.json", func(s *shape, text []byte) {
		if s.Name != "gpt4" && s.Name != "NFC" && s.Name != "llama2" {
			return
		}
		tok := testkit.Must(parse(text))(t)
		var want [][]int32
		for _, text := range all {
			ids := testkit.Must(tok.Encode(nil, []byte(text)))(t)
			want = append(want, ids)
		}
		var done sync.WaitGroup
		for g := range 4 {
			done.Go(func() {
				for i := range all {
					i = (i*7 + g*11) % len(all)
					if ids, err := tok.Encode(nil, []byte(all[i])); err != nil || !slices.Equal(ids, want[i]) {
						t.Errorf("%s: %q: %d, want %d, %v", s.Name, all[i], ids, want[i], err)
					}
				}
			})
		}
		done.Wait()
	})
}

// TestStreamPieces: the texts that Stream returns token by token join to the text that Decode gives
// for all tokens.
func TestStreamPieces(t *testing.T) {
	readShapes(t, "testdata/shapes.json", func(s *shape, text []byte) {
		tok := testkit.Must(parse(text))(t)
		if len(tok.decoders) == 0 || s.Name == "end of word" { // this decoder treats a text's last token differently
			return
		}
		for _, c := range s.Cases {
			stream, got := NewStream(tok), ""
			for _, id := range c.IDsPlain {
				got += stream.Next(id)
			}
			if got += stream.Flush(); got != c.DecodedClean {
				t.Errorf("%s: %d came as %q, want %q", s.Name, c.IDsPlain, got, c.DecodedClean)
			}
			half := len(c.IDsPlain) / 2
			for half > 0 && incomplete(tok.Decode(c.IDsPlain[:half])) > 0 {
				half--
			}
			if half > 0 {
				stream, got := NewStream(tok, c.IDsPlain[:half]...), string(tok.Decode(c.IDsPlain[:half]))
				for _, id := range c.IDsPlain[half:] {
					got += stream.Next(id)
				}
				if got += stream.Flush(); got != c.DecodedClean {
					t.Errorf("%s: %d after %d came as %q, want %q", s.Name, c.IDsPlain[half:], half, got, c.DecodedClean)
				}
			}
		}
	})
}
