package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// doubles returns a tokenizer whose tokens are runs of 1, 2, 4, 8 or 16 times a, and b and ab.
// members are further members of its tokenizer.json.
func doubles(t testing.TB, members string) *hf {
	t.Helper()
	tok := testkit.Must(parse([]byte(small(members + `"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "aa": 2, "aaaa": 3, "aaaaaaaa": 4, "ab": 6, "▁": 7},
		"merges": ["a a", "aa aa", ["aaaa", "aaaa"], "a b"]}`))))(t)
	return tok
}

// TestLongWord: one word of a million letters is encoded in seconds. An algorithm of quadratic time
// would take hours.
func TestLongWord(t *testing.T) {
	testkit.NotShort(t)
	const n = 1<<20 + 5
	ids, starts, err := doubles(t, "").EncodeSpans(nil, nil, bytes.Repeat([]byte("a"), n))
	testkit.NoError(t, err)
	if len(ids) != n/8+2 || ids[0] != 4 || starts[1] != 8 || !slices.Equal(ids[n/8:], []int32{3, 0}) || starts[n/8+1] != n-1 {
		t.Errorf("%d ids, the last %d", len(ids), ids[len(ids)-3:])
	}
}

// TestMergesAgree: the two algorithms of merging give the same tokens: mergeShort, which looks at
// all pairs, and mergeLong, which uses a heap.
func TestMergesAgree(t *testing.T) {
	testkit.NotShort(t)
	readShapes(t, "testdata/shapes.json", func(s *shape, text []byte) {
		if s.Name != "scanner gpt4" && s.Name != "llama2" && s.Name != "unknown apart" {
			return
		}
		tok := testkit.Must(parse(text))(t)
		w, r := tok.worker(), rand.New(rand.NewPCG(1, 2))
		for range 2000 {
			var start []symbol
			for range 2 + r.IntN(2*shortWord) {
				start = append(start, symbol{id: int32(r.IntN(len(tok.model.tokens))), size: int32(1 + r.IntN(3))})
			}
			var ids [2][]int32
			for i, merge := range []func(*pairs){w.mergeShort, w.mergeLong} {
				w.symbols = slices.Clone(start)
				merge(&tok.model.pairs)
				for _, c := range w.symbols {
					ids[i] = append(ids[i], c.id, c.size)
				}
			}
			if !slices.Equal(ids[0], ids[1]) {
				t.Fatalf("%s: by pairs %d, by heap %d", s.Name, ids[0], ids[1])
			}
		}
	})
}

// TestMergesAgreeWhereAllMerge: both algorithms of merging give the tokens that BPE's definition
// gives, for few symbols and many merges. Nearly every pair merges then, equal pairs overlap, and
// merges create new pairs.
func TestMergesAgreeWhereAllMerge(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		letters := 1 + r.IntN(3)
		p, ids := newPairs(40), int32(letters)
		for rank := range int32(1 + r.IntN(20)) {
			left, right := r.Int32N(ids), r.Int32N(ids)
			if r.IntN(3) == 0 {
				right = left
			}
			if p.find(left, right).rank == noRank {
				p.set(left, right, merge{rank: rank, id: ids})
				ids++
			}
		}
		for range 20 {
			var start []symbol
			for range 2 + r.IntN(60) {
				start = append(start, symbol{id: r.Int32N(int32(letters)), size: 1})
			}
			// BPE by its definition: merge the pair of the lowest rank, and of equal ranks the
			// leftmost, until no pair merges.
			want := slices.Clone(start)
			for {
				best, least := -1, int32(noRank)
				for i := range len(want) - 1 {
					if m := p.find(want[i].id, want[i+1].id); m.rank < least {
						best, least = i, m.rank
					}
				}
				if best < 0 {
					break
				}
				want[best].id = p.find(want[best].id, want[best+1].id).id
				want[best].size += want[best+1].size
				want = slices.Delete(want, best+1, best+2)
			}
			for name, merge := range map[string]func(*worker, *pairs){"pairs": (*worker).mergeShort, "a heap": (*worker).mergeLong} {
				w := &worker{symbols: slices.Clone(start)}
				merge(w, &p)
				if !slices.EqualFunc(w.symbols, want, func(a, b symbol) bool { return a.id == b.id && a.size == b.size }) {
					t.Fatalf("seed %d, by %s: %+v, want %+v", seed, name, w.symbols, want)
				}
			}
		}
	}
}

// texts returns strings of testdata/shapes.json, and longer texts that are joined from them.
func texts(t testing.TB) []string {
	var all []string
	readShapes(t, "testdata/shapes.json", func(s *shape, _ []byte) {
		for i, c := range s.Cases {
			if i > 4 {
				all = append(all, c.Text)
			}
		}
	})
	r, long := rand.New(rand.NewPCG(3, 4)), make([]string, 300)
	for i := range long {
		for range 1 + r.IntN(8) {
			long[i] += all[r.IntN(len(all))] + []string{" ", "\n", "\n\nand", "  ", "", " <x> ", "x y", ".\r\nBut"}[r.IntN(8)]
		}
	}
	return long
}

// TestSplit: a text that is encoded in pieces, each as long as Split allows, gives the same ids as
// the whole text.
func TestSplit(t *testing.T) {
	testkit.NotShort(t)
	splitters := 0
	all := texts(t)
	readShapes(t, "testdata/shapes.json", func(s *shape, text []byte) {
		tok := testkit.Must(parse(text))(t)
		split, ok := tok.splitter().(Splitter)
		if !ok {
			return
		}
		splitters++
		cuts, r := 0, rand.New(rand.NewPCG(5, 6))
		for _, text := range all {
			want, err := tok.Encode(nil, []byte(text))
			testkit.NoError(t, err)
			var got []int32
			for rest := []byte(text); len(rest) > 0; {
				seen := 1 + r.IntN(len(rest))
				n := split.Split(rest[:seen])
				if n > 0 && n < len(rest) {
					cuts++
				}
				if n == 0 {
					n = len(rest)
				}
				if got, err = split.Encode(got, rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q: piece by piece %d, want %d", s.Name, text, got, want)
			}
		}
		if cuts < 50 {
			t.Errorf("%s: only %d cuts", s.Name, cuts)
		}
	})
	if splitters < 8 {
		t.Errorf("%d shapes can be split, want those of all patterns and of Gemma", splitters)
	}
}

// TestSplitBeforeToken: Split does not cut a text at an offset where an added token may begin that
// text to come completes.
func TestSplitBeforeToken(t *testing.T) {
	readShapes(t, "testdata/shapes.json", func(s *shape, _ []byte) {
		if s.Name != "scanner qwen2" {
			return
		}
		for _, normalized := range []bool{true, false} {
			s.Tokenizer["added_tokens"] = []addedToken{{ID: 420, Content: "b c", Normalized: normalized}}
			text := testkit.Must(json.Marshal(s.Tokenizer))(t)
			tok := testkit.Must(parse(text))(t)
			split, ok := tok.splitter().(Splitter)
			if !ok {
				t.Fatal("it is no Splitter")
			}
			for text, want := range map[string]int{"a b": 1, "a b ": 1, "a b c": 1, "a b cd e": 6, "a b dd eee": 6, "x": 0} {
				if got := split.Split([]byte(text)); got > want || got == 0 && len(text) > 3 {
					t.Errorf("normalized %v: %q is cut at %d, want %d at most", normalized, text, got, want)
				}
			}
		}
	})
}

// TestScanners: each hand-written scanner finds the same matches as its regular expression.
func TestScanners(t *testing.T) {
	u := unicodeClasses()
	for _, s := range scanners {
		re := testkit.Must(compileRegex(s.pattern))(t)
		for _, text := range append(texts(t), "ſ'ſ'S'rE'VEx'", "ǅa ʰʰAB'll \u0301\u0301A日Aa", "\u2028\u2029\r \n\u0085") {
			steps := newBudget(len(text)).steps
			for i := 0; i < len(text); {
				start, end, ok, err := re.find([]byte(text), i, &steps)
				if err != nil || !ok || start != i {
					t.Fatalf("%q in %q: %d to %d, %v, %v", s.pattern, text, start, end, ok, err)
				}
				if got := s.next(u, []byte(text), i); got != end {
					t.Fatalf("%q in %q: from %d to %d, want %d", s.pattern, text, i, got, end)
				}
				i = end
			}
		}
	}
}

func TestSlowPattern(t *testing.T) {
	for _, pattern := range []string{`(a+)+b`, `(?:a|a?)+c`, `(?:(?:a*)*)*d`, `a*a*a*a*a*a*a*b`} {
		tok := doubles(t, `"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "`+pattern+`"}, "behavior": "Isolated"},`)
		if _, err := tok.Encode(nil, bytes.Repeat([]byte("a"), 3000)); !errors.Is(err, ErrSteps) {
			t.Errorf("%s: %v, want ErrSteps", pattern, err)
		}
	}
}

// TestGrowth: a tokenizer whose normalizers make a text many times longer gives ErrGrown.
func TestGrowth(t *testing.T) {
	long := strings.Repeat("a", 1000)
	for what, members := range map[string]string{
		"one normalizer": `"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "` + long + `"},`,
		"several":        `"normalizer": {"type": "Sequence", "normalizers": [` + strings.TrimSuffix(strings.Repeat(`{"type": "Replace", "pattern": {"Regex": "a"}, "content": "aaaa"},`, 50), ",") + `]},`,
		"letters": `"pre_tokenizer": {"type": "Sequence", "pretokenizers": [` +
			strings.TrimSuffix(strings.Repeat(`{"type": "ByteLevel", "use_regex": false, "add_prefix_space": false},`, 50), ",") + `]},`,
	} {
		if _, err := doubles(t, members).Encode(nil, []byte(strings.Repeat("ab \n", 1000))); !errors.Is(err, ErrGrown) {
			t.Errorf("%s: %v, want ErrGrown", what, err)
		}
	}
	tok := doubles(t, `"decoder": {"type": "Replace", "pattern": {"String": "a"}, "content": "`+strings.Repeat(long, 100)+`"},`)
	if got := string(tok.Decode([]int32{0, 1, 0})); got != "aba" {
		t.Errorf("decoded %d bytes, want the tokens as they are", len(got))
	}
}

// TestSlowAddedTokens: the search for added tokens ends with ErrSteps if it takes too long, for
// tokens that nearly match everywhere and for tokens that take surrounding white space.
func TestSlowAddedTokens(t *testing.T) {
	testkit.NotShort(t)
	one := `"added_tokens": [{"id": 9, "content": "` + strings.Repeat("a", 500) + `c"}],`
	if _, err := doubles(t, one).Encode(nil, bytes.Repeat([]byte("a"), 1<<16)); !errors.Is(err, ErrSteps) {
		t.Errorf("%v, want ErrSteps", err)
	}
	const n = 1 << 18 // quadratic time would be many minutes
	for _, flag := range []string{"lstrip", "rstrip"} {
		ids, err := doubles(t, `"added_tokens": [{"id": 9, "content": " ", "`+flag+`": true}],`).Encode(nil, bytes.Repeat([]byte(" "), n))
		if err != nil || len(ids) != n {
			t.Errorf("%s: %d ids, %v, want %d", flag, len(ids), err, n)
		}
	}
}

func TestRegexErrors(t *testing.T) {
	for pattern, want := range map[string]string{
		"(": "a ) is missing", ")": "unmatched )", "[a": "a ] is missing", "*a": "nothing to repeat", `\`: "ends with", `(?<n>a)`: "not supported",
		`\p{Nope}`: "property {Nope}", `\pL`: "without {", "a{3,2}": "3 to 2 times", "a{2000}": "up to 1000", "((a{999}){999}){999}": "repeats too much",
		"(?<=a+)b": "no fixed length", "(?<=a|bc)d": "different lengths", `(a)\1`: `\1 is not supported`, "[[:alpha:]]": "not supported", "[b-a]": "is empty",
		`\x{zz}`: "invalid syntax", `\u12`: "digits are missing", `\xff`: "no character", "[a-\\d]": "ends with a set", "a(?i)|b": "before |",
		strings.Repeat("(", 200): "too deeply", strings.Repeat("[", 200): "too deeply", strings.Repeat("a", 1<<15): "longer than",
	} {
		if _, err := compileRegex(pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", pattern, err, want)
		}
	}
}
