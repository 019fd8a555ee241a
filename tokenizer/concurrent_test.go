package tokenizer

import (
	"slices"
	"sync"
	"testing"
)

// TestConcurrent encodes the same texts from several goroutines at once, each
// of which has seen other words before.
func TestConcurrent(t *testing.T) {
	all := texts(t)[:40]
	readShapes(t, "testdata/shapes.json", func(s *shape, text []byte) {
		if s.Name != "gpt4" && s.Name != "NFC" && s.Name != "llama2" {
			return
		}
		tok, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		var want [][]int32
		for _, text := range all {
			ids, err := tok.Encode(nil, []byte(text))
			if err != nil {
				t.Fatal(err)
			}
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

// TestStreamPieces prints tokens one at a time and compares with all at once.
func TestStreamPieces(t *testing.T) {
	readShapes(t, "testdata/shapes.json", func(s *shape, text []byte) {
		tok, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if len(tok.decoders) == 0 || s.Name == "end of word" { // the last token prints as no other does
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
