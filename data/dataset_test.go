package data

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"mt/data/tokenizer"
	"mt/internal/testkit"
)

func TestPackedText(t *testing.T) {
	dir := t.TempDir()
	for i, text := range []string{"abc", "", "defghij", "k", "lm"} {
		write(t, dir, fmt.Sprintf("%d.txt", i), text)
	}
	tests := []struct {
		maxSeqLen int
		rows      []string
		docs      [][]int32
		warned    string
	}{
		{100, []string{"abc$defghij$k$lm$"}, [][]int32{{4, 8, 2, 3}}, ""},
		{4, []string{"abc$", "defg", "hij$", "k$lm"}, [][]int32{{4}, {4}, {4}, {2, 2}}, ""},
		{5, []string{"abc$d", "efghi", "j$k$l", "m$"}, [][]int32{{4, 1}, {5}, {2, 2, 1}, {2}}, ""},
		{2, []string{"ab", "c$", "de", "fg", "hi", "j$", "k$", "lm"}, [][]int32{{2}, {2}, {2}, {2}, {2}, {2}, {2}, {2}}, ""},
	}
	for _, tt := range tests {
		d := mustOpen(t, textSpec(t, tt.maxSeqLen, dir))
		var docs [][]int32
		for i := range d.Rows() {
			docs = append(docs, d.Row(i).Docs)
		}
		if got := texts(d.All()); !slices.Equal(got, tt.rows) || !reflect.DeepEqual(docs, tt.docs) {
			t.Errorf("rows of %d: %q with documents %v, want %q with %v", tt.maxSeqLen, got, docs, tt.rows, tt.docs)
		}
		if !d.Packed() || len(d.Warnings()) != 0 {
			t.Errorf("rows of %d: packed %v, warnings %q", tt.maxSeqLen, d.Packed(), d.Warnings())
		}
	}
}

func TestPackedRowsWithoutSupervisionAreLeftOut(t *testing.T) {
	name := write(t, t.TempDir(), "a.jsonl", strings.Join([]string{
		`{"input_ids":[1,2,3,4,5,6,7,8],"labels":[-100,-100,-100,-100,-100,-100,7,8]}`,
		`{"input_ids":[1,9]}`,
		`{"input_ids":[1,2,3,4],"labels":[-100,-100,-100,4]}`,
	}, "\n"))
	s := idsSpec(t, 3, 10, name)
	s.Packing = set(true)
	d := mustOpen(t, s)
	want := []Row{
		{IDs: []int32{7, 8, 1}, Labels: []int32{7, 8, 1}, Docs: []int32{2, 1}},
		{IDs: []int32{3, 4}, Labels: []int32{-100, 4}, Docs: []int32{2}},
	}
	if got := []Row{d.Row(0), d.Row(1)}; d.Rows() != 2 || !equalRows(got, want) {
		t.Errorf("%d rows, %+v, want %+v", d.Rows(), got, want)
	}
	if w := d.Warnings(); len(w) != 1 || !strings.Contains(w[0], "left out 3 of 5 packed rows") {
		t.Errorf("warnings %q", w)
	}
	if s := d.Stats(); s.Unused != 3 || s.Supervised != 2 {
		t.Errorf("stats %+v, want 3 unused rows and 2 supervised tokens", s)
	}
}

func TestUnpackedTextIsCut(t *testing.T) {
	name := write(t, t.TempDir(), "a.jsonl", "{\"text\":\"abcdefgh\"}\n\n  \r\n{\"text\":\"i\"}\r\n{\"text\":\"jkl\"}\n{\"text\":\"mnopqrs\"}")
	tests := []struct {
		maxSeqLen int
		rows      []string
	}{
		{4, []string{"abcd", "efgh", "i$", "jkl$", "mnop", "qrs$"}}, // a row with "$" alone has nothing to predict
		{5, []string{"abcde", "fgh$", "i$", "jkl$", "mnopq", "rs$"}},
		{9, []string{"abcdefgh$", "i$", "jkl$", "mnopqrs$"}},
	}
	for _, tt := range tests {
		s := textSpec(t, tt.maxSeqLen, name)
		s.Packing = set(false)
		d := mustOpen(t, s)
		if got := texts(d.All()); !slices.Equal(got, tt.rows) {
			t.Errorf("rows of %d: %q, want %q", tt.maxSeqLen, got, tt.rows)
		}
		if r := d.Row(0); d.Packed() || r.Docs != nil || r.Labels != nil {
			t.Errorf("rows of %d: packed %v, row %+v", tt.maxSeqLen, d.Packed(), r)
		}
	}
}

func TestInputIDs(t *testing.T) {
	name := write(t, t.TempDir(), "a.jsonl", `{"input_ids":[1,2,70000,4],"labels":[1,-100,70000,-100]}
{"input_ids":[5,6]}
{"input_ids":[1,2,3,4,5],"labels":[-100,-100,3,4,5]}`)
	for _, vocab := range []int{70001, 1 << 20} {
		d := mustOpen(t, idsSpec(t, 4, vocab, name))
		want := []Row{
			{IDs: []int32{1, 2, 70000, 4}, Labels: []int32{1, -100, 70000, -100}},
			{IDs: []int32{5, 6}, Labels: []int32{5, 6}},
			{IDs: []int32{1, 2, 3, 4}, Labels: []int32{-100, -100, 3, 4}},
		}
		if got := []Row{d.Row(0), d.Row(1), d.Row(2)}; d.Rows() != 3 || !equalRows(got, want) {
			t.Errorf("%d rows, %+v, want %+v", d.Rows(), got, want)
		}
		if w := d.Warnings(); len(w) != 1 || !strings.Contains(w[0], "cut 1 of 3 rows to 4 tokens") {
			t.Errorf("warnings %q", w)
		}
		if d.Packed() || d.All().Longest() != 4 {
			t.Errorf("packed %v, longest row %d", d.Packed(), d.All().Longest())
		}
	}
}

// TestWidths: tokens are stored in 2 or 4 bytes, depending on the vocabulary's size. The largest id
// of each vocabulary is read back unchanged, with labels and without.
func TestWidths(t *testing.T) {
	for _, vocab := range []int{2, 256, 65535, 65536, math.MaxInt32} {
		for _, labels := range []string{"", `,"labels":[-100,%d]`} {
			last := int32(vocab - 1)
			line := fmt.Sprintf(`{"input_ids":[0,%d]`, last)
			want := Row{IDs: []int32{0, last}}
			if labels != "" {
				line += fmt.Sprintf(labels, last)
				want.Labels = []int32{IgnoreIndex, last}
			}
			d := mustOpen(t, idsSpec(t, 8, vocab, write(t, t.TempDir(), "a.jsonl", line+"}")))
			if got := d.Row(0); !equalRows([]Row{got}, []Row{want}) {
				t.Errorf("vocabulary %d: row %+v, want %+v", vocab, got, want)
			}
		}
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	in := func(name, content string) string { return write(t, dir, name, content) }
	text := in("a.txt", "hello")
	tests := []struct {
		name string
		spec Spec // Paths, and what this case sets
		want []string
	}{
		{"no paths", Spec{}, []string{"no files are given"}},
		{"no such file", Spec{Paths: []string{"/none/such.txt"}}, []string{"no such file or directory: /none/such.txt"}},
		{"text where rows are due", Spec{Paths: []string{text}, Format: "alpaca"}, []string{"a.txt:1: not a JSON object", "dataset_format: text"}},
		{"unknown format", Spec{Paths: []string{text}, Format: "xls"}, []string{`"xls" is unknown`}},
		{"short rows", Spec{Paths: []string{text}, MaxSeqLen: 1}, []string{"max_seq_len is 1"}},
		{"negative val_size", Spec{Paths: []string{text}, ValSize: -1}, []string{"val_size is -1"}},
		{"fraction of rows", Spec{Paths: []string{text}, ValSize: 1.5}, []string{"val_size is 1.5"}},
		{"NaN", Spec{Paths: []string{text}, ValSize: math.NaN()}, []string{"val_size is NaN"}},
		{"all rows held out", Spec{Paths: []string{text}, ValSize: 1}, []string{"takes 1 of 1 rows"}},
		{"no tokenizer", Spec{Paths: []string{text}, VocabSize: 9, Tokenizer: nil, TokenizerErr: errors.New("why")}, []string{text, "needs a tokenizer: why"}},
		{"vocabulary too small", Spec{Paths: []string{text}, VocabSize: 100, Tokenizer: tokenizer.Bytes()}, []string{`a.txt: the token "h" is number 104, and the model's vocabulary has 100`}},
		{"vocabulary one too small", Spec{Paths: []string{text}, VocabSize: 104, Tokenizer: tokenizer.Bytes()}, []string{`a.txt: the token "h" is number 104, and the model's vocabulary has 104`}},
		{"no vocabulary", Spec{Paths: []string{text}, VocabSize: -3}, []string{"-3 tokens"}},
		{"empty file", Spec{Paths: []string{in("empty.txt", "")}}, []string{"empty"}},
		{"empty JSONL", Spec{Paths: []string{in("empty.jsonl", "\n \n")}}, []string{"empty"}},
		{"binary", Spec{Paths: []string{in("b.bin", "ab\x00c")}}, []string{"b.bin is binary (byte 2 is NUL)"}},
		{"binary text in JSON", Spec{Paths: []string{in("b.jsonl", "{\"text\":\"ok\"}\n{\"text\":\"a\\u0000\"}")}}, []string{"b.jsonl:2: a NUL byte"}},
		{"parquet", Spec{Paths: []string{in("b.parquet", "PAR1")}}, []string{"b.parquet: parquet: "}},
		{"row", Spec{Paths: []string{in("r.jsonl", "\n{\"input_ids\":[1,2]}\n{\"input_ids\":[1,256]}\n")}}, []string{"r.jsonl:3: input_ids[1] is 256"}},
		{"unsupervised row", Spec{Paths: []string{in("u.jsonl", `{"input_ids":[1,2],"labels":[1,-100]}`)}}, []string{"u.jsonl:1: no token is supervised"}},
		{"mixed rows", Spec{Paths: []string{in("m.jsonl", "{\"input_ids\":[1,2]}\n{\"text\":\"a\"}")}}, []string{"m.jsonl:2: this is text, and what came before is input_ids"}},
		{"mixed files", Spec{Paths: []string{text, in("i.jsonl", `{"input_ids":[1,2]}`)}}, []string{"i.jsonl:1: this is input_ids, and what came before is text"}},
		{"supervision cut off", Spec{Paths: []string{in("t.jsonl", "{\"input_ids\":[1,2,3]}\n\n{\"input_ids\":[1,2,3,4],\"labels\":[-100,-100,-100,4]}")}, MaxSeqLen: 3}, []string{"t.jsonl:3: the row has 4 tokens", "raise max_seq_len"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.spec
			s.CacheDir = t.TempDir()
			if s.TokenizerErr == nil && s.VocabSize == 0 {
				s.Tokenizer = tokenizer.Bytes()
			}
			d, err := Open(s)
			if err == nil {
				d.Close()
			}
			wantError(t, err, tt.want...)
			if left, _ := filepath.Glob(filepath.Join(s.CacheDir, "*.tmp-*")); len(left) != 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

func TestDirectoryWithBinaryAndHiddenFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.txt", "abc")
	write(t, dir, "b.png", "x\x00y")
	write(t, dir, "c/d.o", "\x00")
	write(t, dir, "c/e.txt", "de")
	write(t, dir, ".git/config", "x")
	for i := range 2 { // the first time they are read, then they come from the cache
		s := textSpec(t, 10, dir)
		s.CacheDir = filepath.Join(dir, ".cache")
		d := mustOpen(t, s)
		if got := texts(d.All()); !slices.Equal(got, []string{"abc$de$"}) {
			t.Errorf("rows %q", got)
		}
		hidden := 1 + i // the second time the cache is a hidden file too
		want := fmt.Sprintf("skipped %d file(s): 2 binary (they hold a NUL byte), %d hidden", 2+hidden, hidden)
		if w := d.Warnings(); len(w) != 1 || !strings.Contains(w[0], want) {
			t.Errorf("warnings %q, want one that says %q", w, want)
		}
	}
}

func TestJSONLOddities(t *testing.T) {
	long := strings.Repeat("x", 3<<20)
	content := "\xef\xbb\xbf{\"text\":\"bom\"}\n{\"text\":\"" + long + "\"}\r\n{\"text\":\"\xff\xfe\"}"
	name := write(t, t.TempDir(), "a.json", content)
	s := textSpec(t, 4<<20, name)
	s.Packing = set(false)
	if got := texts(mustOpen(t, s).All()); !slices.Equal(got, []string{"bom$", long + "$", "\xff\xfe$"}) {
		t.Errorf("%d rows of other content", len(got))
	}
	s.Format = "text"
	if got := texts(mustOpen(t, s).All()); !slices.Equal(got, []string{content + "$"}) {
		t.Errorf("as text: %d rows of other content", len(got))
	}
}

// TestLongText: a text file longer than wholeFile is read in chunks, and gives the same tokens as
// if it were read at once.
func TestLongText(t *testing.T) {
	testkit.NotShort(t)
	r := rand.New(rand.NewPCG(5, 6))
	text := make([]byte, wholeFile+12345)
	for i := range text {
		text[i] = byte(1 + r.IntN(255))
	}
	dir := t.TempDir()
	name := write(t, dir, "a.txt", string(text))
	d := mustOpen(t, textSpec(t, len(text)+1, name))
	row := d.Row(0)
	if d.Rows() != 1 || len(row.IDs) != len(text)+1 || row.IDs[len(text)] != 0 || !slices.EqualFunc(row.IDs[:len(text)], text, func(id int32, b byte) bool { return id == int32(b) }) {
		t.Errorf("%d rows; the first has %d tokens, and not those of the file", d.Rows(), len(row.IDs))
	}
	text[wholeFile+77] = 0
	_, err := Open(textSpec(t, 10, write(t, dir, "b.txt", string(text))))
	wantError(t, err, fmt.Sprintf("b.txt is binary (byte %d is NUL)", wholeFile+77))
}

func numbered(t *testing.T, rows int) string {
	var b strings.Builder
	for i := range rows {
		fmt.Fprintf(&b, "{\"input_ids\":[%d,%d]}\n", i, i+1)
	}
	return write(t, t.TempDir(), "n.jsonl", b.String())
}

// firsts returns the first token of each row.
func firsts(rows int, row func(int) Row) []int32 {
	out := []int32{}
	for i := range rows {
		out = append(out, row(i).IDs[0])
	}
	return out
}

func TestSplit(t *testing.T) {
	name := numbered(t, 50)
	tests := []struct {
		val  float64
		want int
	}{{0, 0}, {0.001, 1}, {0.1, 5}, {0.11, 6}, {1, 1}, {7, 7}, {49, 49}}
	for _, tt := range tests {
		s := idsSpec(t, 8, 1000, name)
		s.ValSize, s.Seed = tt.val, 42
		d := mustOpen(t, s)
		train, eval := firsts(d.Train().Rows(), d.Train().Row), firsts(d.Eval().Rows(), d.Eval().Row)
		if len(eval) != tt.want || !slices.IsSorted(eval) || !slices.IsSorted(train) {
			t.Errorf("val_size %v: eval rows %v, train rows %v; want %d, both in file order", tt.val, eval, train, tt.want)
		}
		all := slices.Concat(train, eval)
		slices.Sort(all)
		if !slices.Equal(all, firsts(50, d.Row)) {
			t.Errorf("val_size %v: train and eval make up %v", tt.val, all)
		}
	}
}

func TestSplitFollowsTheSeedAlone(t *testing.T) {
	name := numbered(t, 200)
	eval := func(seed int64, shuffle bool) []int32 {
		s := idsSpec(t, 8, 1000, name)
		s.ValSize, s.Seed, s.Shuffle = 20, seed, shuffle
		d := mustOpen(t, s)
		return firsts(d.Eval().Rows(), d.Eval().Row)
	}
	base := eval(1, false)
	if !slices.Equal(base, eval(1, true)) {
		t.Error("shuffling changes which rows are held out")
	}
	if slices.Equal(base, eval(2, false)) {
		t.Error("another seed holds out the same rows")
	}
}

func TestSampler(t *testing.T) {
	s := idsSpec(t, 8, 1000, numbered(t, 10))
	s.Seed, s.Shuffle = 3, true
	d := mustOpen(t, s)
	plain, shuffled := NewSampler(d.All(), 4, 3, false), d.Sampler(4)
	if plain.StepsPerEpoch() != 3 || plain.Pos(0) != 0 {
		t.Errorf("%d steps an epoch, position %d at the start; want 3, 0", plain.StepsPerEpoch(), plain.Pos(0))
	}
	var epochs [3][]int32
	for n := 1; n <= 9; n++ {
		e, k := (n-1)/3, (n-1)%3
		size := []int{4, 4, 2}[k]
		rows := plain.Step(n)
		got := firsts(len(rows), func(i int) Row { return rows[i] })
		if want := firsts(size, func(i int) Row { return d.Row(4*k + i) }); !slices.Equal(got, want) {
			t.Errorf("file order: step %d has rows %v, want %v", n, got, want)
		}
		if want := int64(10*e + 4*k + size); plain.Pos(n) != want || shuffled.Pos(n) != want {
			t.Errorf("positions after step %d are %d and %d, want %d", n, plain.Pos(n), shuffled.Pos(n), want)
		}
		rows = shuffled.Step(n)
		if len(rows) != size {
			t.Errorf("shuffled: step %d has %d rows, want %d", n, len(rows), size)
		}
		epochs[e] = append(epochs[e], firsts(len(rows), func(i int) Row { return rows[i] })...)
	}
	for e, got := range epochs {
		for before := range e {
			if slices.Equal(got, epochs[before]) {
				t.Errorf("epochs %d and %d have the same order %v", before, e, got)
			}
		}
		if slices.IsSorted(got) {
			t.Errorf("epoch %d has the order of the file", e)
		}
		if rows := slices.Sorted(slices.Values(got)); !slices.Equal(rows, firsts(10, d.Row)) {
			t.Errorf("epoch %d has the rows %v", e, rows)
		}
	}
}

// TestResume: if the data set is opened again, a new sampler gives the same remaining steps as the
// first sampler.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	for i := range 7 {
		write(t, dir, fmt.Sprintf("%d.txt", i), strings.Repeat(fmt.Sprintf("text %d ", i), 20))
	}
	s := textSpec(t, 16, dir)
	s.Seed, s.Shuffle, s.ValSize = 9, true, 0.1
	first := mustOpen(t, s).Sampler(5)
	again, cached := reopen(t, s)
	if !cached {
		t.Error("read again without the cache")
	}
	for n := 2*first.StepsPerEpoch() + 2; n >= 1; n-- { // steps may be asked for in any order
		want, err := first.Batch(n, 64)
		got, again := again.Sampler(5).Batch(n, 64)
		if err != nil || again != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("step %d differs (%v, %v)", n, err, again)
		}
		if got.Step != n || got.Pos != first.Pos(n) {
			t.Errorf("step %d calls itself %d, at %d, want %d", n, got.Step, got.Pos, first.Pos(n))
		}
	}
}

func TestStats(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.txt", "aaaa")
	write(t, dir, "b.txt", strings.Repeat("b", 20))
	write(t, dir, "c.txt", "c")
	s := textSpec(t, 8, dir)
	s.ValSize = 1
	d := mustOpen(t, s)
	want := Stats{
		ID: d.ID(), Kind: "text", Packed: true, Files: 3, Documents: 3, Rows: 4, TrainRows: 3, EvalRows: 1,
		Tokens: 28, Supervised: 28 - 6, VocabSize: 256, VocabUsed: 4,
		Lengths: []Bucket{{2, 3, 1}, {4, 7, 1}, {8, 15, 0}, {16, 31, 1}},
	}
	// The packed rows are aaaa$bbb, bbbbbbbb, bbbbbbbb and b$c$. Row boundaries split the three
	// documents into six pieces.
	if got := d.Stats(); !reflect.DeepEqual(got, want) {
		t.Errorf("stats\n%+v\nwant\n%+v", got, want)
	}
	if d.All().Longest() != 8 || (View{}).Longest() != 0 {
		t.Errorf("longest rows %d and %d, want 8 and 0", d.All().Longest(), View{}.Longest())
	}
}

func TestBigramLoss(t *testing.T) {
	train := mustOpen(t, idsSpec(t, 8, 3, write(t, t.TempDir(), "t.jsonl",
		`{"input_ids":[0,1,0,1]}
{"input_ids":[0,2,2],"labels":[-100,-100,2]}`)))
	eval := mustOpen(t, idsSpec(t, 8, 3, write(t, t.TempDir(), "e.jsonl",
		`{"input_ids":[0,1,2]}
{"input_ids":[2,2,0],"labels":[2,2,-100]}`)))
	// The expected loss by hand, with token pairs a→b. train has 0→1 twice, 1→0 once and 2→2 once.
	// eval has three pairs, with probabilities 0→1 (2+1)/(2+3), 1→2 (0+1)/(1+3) and 2→2
	// (1+1)/(1+3).
	want := -(math.Log(3.0/5) + math.Log(1.0/4) + math.Log(2.0/4)) / 3
	got, err := BigramLoss(train.All(), eval.All())
	if err != nil || math.Abs(got-want) > 1e-12 {
		t.Errorf("loss %v, %v, want %v", got, err, want)
	}
	if _, err := BigramLoss(train.All(), eval.Eval()); err == nil {
		t.Error("no rows to score pass")
	}
	large := mustOpen(t, idsSpec(t, 8, 5000, write(t, t.TempDir(), "l.jsonl", `{"input_ids":[0,1]}`)))
	_, err = BigramLoss(large.All(), large.All())
	wantError(t, err, "5000")
}

func TestBigramLossOfPackedTextStopsAtDocuments(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.txt", "ab")
	write(t, dir, "b.txt", "ab")
	d := mustOpen(t, textSpec(t, 100, dir))
	got, err := BigramLoss(d.All(), d.All())
	// a→b occurs twice and b→$ twice. $→a does not count, since it would cross from one document to
	// the next.
	if want := -math.Log(3.0 / 258); err != nil || math.Abs(got-want) > 1e-12 {
		t.Errorf("loss %v, %v, want %v", got, err, want)
	}
}

// lines returns n rows of JSONL whose texts are prefix0, prefix1 and so on.
func lines(prefix string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"text\":\"%s%d\"}\n", prefix, i)
	}
	return b.String()
}

// TestNoMoreIsRead: once enough rows of a data set are read, reading stops, in every kind of file.
// Damage in the rest of the file causes no error.
func TestNoMoreIsRead(t *testing.T) {
	type row = pqText
	var rows []row
	for i := range 50 {
		rows = append(rows, row{fmt.Sprint("p", i)})
	}
	for name, tt := range map[string]struct{ content, first string }{
		"a.jsonl":    {lines("l", 3) + strings.Repeat("no JSON\n", 5000), "l"},
		"a.json":     {`[{"text":"l0"},{"text":"l1"},{"text":"l2"},` + strings.Repeat("no JSON,", 5000), "l"},
		"a.csv":      {"text\nl0\nl1\nl2\n" + strings.Repeat("one,two\n", 5000), "l"},
		"a.jsonl.gz": {squeeze(t, "a.gz", lines("l", 3)+strings.Repeat("no JSON\n", 5000)), "l"},
		"a.parquet":  {parquetOf(t, rows...), "p"},
	} {
		s := textSpec(t, 64, write(t, t.TempDir(), name, tt.content))
		s.MaxSamples, s.Packing = 3, set(false)
		want := []string{tt.first + "0$", tt.first + "1$", tt.first + "2$"}
		d := mustOpen(t, s)
		if got := texts(d.All()); !slices.Equal(got, want) {
			t.Errorf("%s: %q", name, got)
		}
		if r := d.Report().Sets[0]; r.Documents != 3 || r.Used != 3 {
			t.Errorf("%s: %d documents were read", name, r.Documents)
		}
		s.MaxSamples = 0
		if d, err := Open(s); name != "a.parquet" && err == nil {
			t.Errorf("%s: no error behind the rows", name)
		} else if err == nil {
			if n := d.Rows(); n != 50 {
				t.Errorf("%s: %d rows in all", name, n)
			}
			d.Close()
		}
	}
}

// TestUpTo: for a split such as train[:10%], upTo returns how many rows at the data set's start
// must be read.
func TestUpTo(t *testing.T) {
	for _, tt := range []struct {
		split      string
		most, want int64
	}{
		{"train", 0, 0}, {"train", 5, 5}, {"train[:8]", 0, 8}, {"train[:8]", 5, 5}, {"train[2:8]", 5, 7}, {"train[2:8]", 50, 8},
		{"train[2:]", 5, 7}, {"train[2:]", 0, 0}, {"train[:50%]", 5, 0}, {"train[10%:]", 5, 0}, {"train[10%:20]", 0, 0},
	} {
		p := testkit.Must(parseSplit(tt.split))(t)
		if got := p.upTo(tt.most); got != tt.want {
			t.Errorf("%s, the first %d: %d, want %d", tt.split, tt.most, got, tt.want)
		}
	}
	if got := (split{Shards: 2}).upTo(5); got != 0 {
		t.Errorf("a shard needs %d", got)
	}
}

// TestEnoughOfSeveral: with several data sets of several files and some bad rows, only as much is
// read as the settings need. The rows taken are the same as if everything were read.
func TestEnoughOfSeveral(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		write(t, dir, fmt.Sprintf("a/%d.jsonl", i), "bad\n"+lines(fmt.Sprint("a", i), 2))
		write(t, dir, fmt.Sprintf("b/%d.jsonl", i), lines(fmt.Sprint("b", i), 3)+"bad\n")
	}
	write(t, dir, "c.txt", "one")
	s := textSpec(t, 64, dir+"/a", dir+"/b", dir+"/c.txt")
	s.SkipBadRows, s.Packing, s.MaxSamples = true, set(false), 4
	want := []string{"a00$", "a01$", "a10$", "a11$", "b00$", "b01$", "b02$", "b10$", "one$"}
	d := mustOpen(t, s)
	if got := texts(d.All()); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if r := d.Report(); r.Sets[0].Documents != 4 || r.Sets[1].Documents != 4 {
		t.Errorf("read %d and %d documents", r.Sets[0].Documents, r.Sets[1].Documents)
	}
	s.Threads = 1
	s.CacheDir = t.TempDir()
	if other := mustOpen(t, s); other.ID() != d.ID() {
		t.Error("the same rows have two IDs")
	}
	s.MaxSamples = 5
	if other := mustOpen(t, s); other.ID() == d.ID() {
		t.Error("other rows have the same ID")
	}
	ids := idsSpec(t, 64, 256, write(t, dir, "ids.jsonl", `{"input_ids":[97,98,99,100],"position_ids":[0,1,0,1]}`+"\n"+strings.Repeat(`{"input_ids":[97,98]}`+"\n", 20)))
	ids.MaxSamples = 3
	if d := mustOpen(t, ids); d.Rows() != 2 || d.Report().Sets[0].Documents != 3 {
		t.Errorf("rows of several documents: %d rows, %d documents", d.Rows(), d.Report().Sets[0].Documents)
	}
}

// TestCacheOfAPart: a cache made from the first part of a file is used again as long as that part
// of the file is unchanged.
func TestCacheOfAPart(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.jsonl", lines("x", 20000))
	other := write(t, dir, "b.jsonl", lines("y", 2))
	s := textSpec(t, 64, dir)
	s.MaxSamples = 2
	mustOpen(t, s)
	if _, cached := reopen(t, s); !cached {
		t.Error("the cache is not used again")
	}
	write(t, dir, "b.jsonl", lines("z", 2)) // of the same size, and never read
	if _, cached := reopen(t, s); !cached {
		t.Error("a file that is not needed counts")
	}
	testkit.NoError(t, os.Chtimes(other, time.Time{}, time.Now().Add(-time.Hour)))
	write(t, dir, "a.jsonl", strings.Replace(lines("x", 20000), "x0", "w0", 1))
	d, cached := reopen(t, s)
	if got := texts(d.All()); cached || got[0] != "w0$x1$" {
		t.Errorf("after a change of the first row: %q, from the cache: %v", got, cached)
	}
}

// TestPartIsResumed: if the reading of a data set's first part is stopped, the next run continues
// and reaches the same rows.
func TestPartIsResumed(t *testing.T) {
	name := write(t, t.TempDir(), "a.jsonl", lines("some text in row ", 3000))
	if err := os.Chtimes(name, time.Time{}, time.Now().Add(-time.Hour)); err != nil { // a file that changed just now would be read again from its start
		t.Fatal(err)
	}
	s := textSpec(t, 64, name)
	s.MaxSamples = 2000
	want := mustOpen(t, s)
	s.CacheDir, s.part = t.TempDir(), 2000
	stop := make(chan struct{})
	s.Tokenizer, s.Stop = countTo(1000, func() { close(stop) }), stop
	if _, err := Open(s); err == nil {
		t.Fatal("the reading was not stopped")
	}
	s.Tokenizer, s.Stop = want.spec.Tokenizer, nil
	got := mustOpen(t, s)
	if len(got.Warnings()) != 1 || got.ID() != want.ID() || !slices.Equal(texts(got.All()), texts(want.All())) {
		t.Errorf("%d rows, warnings %q", got.Rows(), got.Warnings())
	}
}
