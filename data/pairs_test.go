package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"mt/data/tokenizer"
	"mt/internal/testkit"
)

// pairSpec returns a Spec that reads paths as pairs with this chat template. Its tokenizer has one
// token per byte.
func pairSpec(t *testing.T, template string, paths ...string) Spec {
	s := chatSpec(t, template, paths...)
	s.Pairs, s.Packing = true, nil
	return s
}

// documents returns the texts of a row's documents, with brackets around supervised tokens.
func documents(r Row) []string {
	var out []string
	first := 0
	for n := range r.docs() {
		out = append(out, masked(Row{IDs: r.IDs[first : first+n], Labels: r.labels()[first : first+n]}))
		first += n
	}
	return out
}

// pairRows holds the forms that a row of a pair can have, with the two documents that each must
// become.
var pairRows = []struct {
	name, row        string
	chosen, rejected string
}{
	{"texts", `{"prompt":"ab","chosen":"cd","rejected":"e"}`, "ab[cd$]", "ab[e$]"},
	{"texts with a beginning in common", `{"chosen":"a b c","rejected":"a b d"}`, "a b[ c$]", "a b[ d$]"},
	{"a text that another begins with", `{"chosen":"abc","rejected":"abcde"}`, "ab[c$]", "ab[cde$]"},
	{"an empty answer", `{"prompt":"ab","chosen":"c","rejected":""}`, "ab[c$]", "ab[$]"},
	{"messages", `{"prompt":[{"role":"system","content":"s"},{"role":"user","content":"u"}],"chosen":[{"role":"assistant","content":"c"}],"rejected":[{"role":"assistant","content":"r"}]}`,
		"s:s|u:u|a:[c|]", "s:s|u:u|a:[r|]"},
	{"messages with a beginning in common", `{"chosen":[{"role":"user","content":"u"},{"role":"assistant","content":"c"}],"rejected":[{"content":"u","role":"user"},{"role":"assistant","content":"r"}]}`,
		"u:u|a:[c|]", "u:u|a:[r|]"},
	{"the prompt as a text beside conversations", `{"prompt":"u","chosen":[{"role":"user","content":"u"},{"role":"assistant","content":"c"}],"rejected":[{"role":"user","content":"u"},{"role":"assistant","content":"r"}]}`,
		"u:u|a:[c|]", "u:u|a:[r|]"},
	{"the prompt as a text beside answers", `{"prompt":"u","chosen":[{"role":"assistant","content":"c"}],"rejected":[{"role":"assistant","content":"r"}]}`,
		"u:u|a:[c|]", "u:u|a:[r|]"},
	{"answers of several turns", `{"prompt":[{"role":"user","content":"u"}],"chosen":[{"role":"assistant","content":"c"},{"role":"user","content":"v"},{"role":"assistant","content":"d"}],"rejected":[{"role":"assistant","content":"r"}]}`,
		"u:u|a:[c|u:v|a:d|]", "u:u|a:[r|]"},
	{"alpaca", `{"system":"s","instruction":"i","input":"j","history":[["a","b"]],"chosen":"c","rejected":"r"}`, "s:s|u:a|a:b|u:i\nj|a:[c|]", "s:s|u:a|a:b|u:i\nj|a:[r|]"},
	{"sharegpt", `{"conversations":[{"from":"human","value":"u"}],"chosen":{"from":"gpt","value":"c"},"rejected":{"from":"gpt","value":"r"}}`, "u:u|a:[c|]", "u:u|a:[r|]"},
	{"messages before answers", `{"messages":[{"role":"user","content":"u"}],"chosen":{"role":"assistant","content":"c"},"rejected":{"role":"assistant","content":"r"}}`, "u:u|a:[c|]", "u:u|a:[r|]"},
	{"a mark in the prompt", `{"prompt":[{"role":"user","content":"u"},{"role":"assistant","content":"a","weight":0},{"role":"user","content":"v"}],"chosen":"c","rejected":"r"}`, "u:u|a:a|u:v|a:[c|]", "u:u|a:a|u:v|a:[r|]"},
	{"a question", `{"system":"s","question":"q","chosen":"c","rejected":"r"}`, "s:s|u:q|a:[c|]", "s:s|u:q|a:[r|]"},
	{"tools", `{"tools":[{"name":"f"}],"prompt":[{"role":"user","content":"u"}],"chosen":[{"role":"assistant","content":"c"}],"rejected":[{"role":"assistant","content":"r"}]}`,
		"u:u|[a:c|T1f]", "u:u|[a:r|T1f]"},
}

func TestPairs(t *testing.T) {
	for _, tt := range pairRows {
		t.Run(tt.name, func(t *testing.T) {
			d := mustOpen(t, pairSpec(t, small, write(t, t.TempDir(), "d.jsonl", tt.row)))
			r := d.Row(0)
			if got, want := documents(r), []string{tt.chosen, tt.rejected}; !slices.Equal(got, want) {
				t.Errorf("documents %q, want %q", got, want)
			}
			if want := []Pair{{ID: 0, Chosen: 0, Rejected: 1}}; !slices.Equal(r.Pairs, want) || d.Pairs() != 1 || !d.IsPairs() {
				t.Errorf("pairs %v, want %v; %d pairs", r.Pairs, want, d.Pairs())
			}
		})
	}
}

// pairLines returns n rows of pairs in JSONL. Prompt and answers contain the row's number.
func pairLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"prompt":"%d?","chosen":"%d","rejected":"no %d"}`+"\n", i, i, i)
	}
	return b.String()
}

// TestPairBatches: each pair's documents are where the batch's Pairs say, in micro-batches of any
// size, with packing and without, for one rank and for several.
func TestPairBatches(t *testing.T) {
	const n = 23
	for _, packing := range []bool{false, true} {
		s := pairSpec(t, small, write(t, t.TempDir(), "d.jsonl", pairLines(n)))
		s.MaxSeqLen, s.Packing, s.Shuffle = 16, set(packing), true
		d := mustOpen(t, s)
		for _, ranks := range []int{1, 7} {
			for _, most := range []int{1, 40, 1000} {
				seen := map[int64]int{}
				for step := range d.Sampler(5).StepsPerEpoch() {
					all := int64(0)
					for rank := range ranks {
						b := testkit.Must(d.Sampler(5).RankBatch(step+1, most, rank, ranks))(t)
						own := int64(0)
						for _, mb := range b.MicroBatches {
							own += int64(len(mb.Pairs))
							checkPairs(t, &mb, seen)
						}
						if all += own; own != b.Pairs {
							t.Errorf("batch says %d pairs, micro-batches have %d", b.Pairs, own)
						}
						if rank == ranks-1 && all != b.AllPairs() {
							t.Errorf("all ranks have %d pairs, AllPairs is %d", all, b.AllPairs())
						}
					}
				}
				for id := range int64(n) {
					if seen[id] != 1 {
						t.Errorf("packing %v, %d ranks, %d tokens: pair %d came %d times", packing, ranks, most, id, seen[id])
					}
				}
			}
		}
	}
}

// checkPairs checks that each pair of a micro-batch has the texts of its ID, and counts the pair in
// seen.
func checkPairs(t *testing.T, mb *MicroBatch, seen map[int64]int) {
	t.Helper()
	for i, p := range mb.Pairs {
		seen[p.ID]++
		if p.Chosen != int32(2*i) || p.Rejected != int32(2*i+1) {
			t.Errorf("pair %d of a micro-batch is at documents %d and %d", i, p.Chosen, p.Rejected)
			continue
		}
		for doc, want := range map[int32]string{p.Chosen: fmt.Sprintf("%d?%d$", p.ID, p.ID), p.Rejected: fmt.Sprintf("%d?no %d$", p.ID, p.ID)} {
			from, to := mb.CuSeqlens[doc], mb.CuSeqlens[doc+1]
			if got := rowText(Row{IDs: mb.IDs[from:to]}); got != want || mb.Positions[from] != 0 {
				t.Errorf("document %d of pair %d is %q at position %d, want %q", doc, p.ID, got, mb.Positions[from], want)
			}
		}
	}
}

// TestPairsTooLong: each document of a pair is cut at MaxSeqLen. If the prompt alone has that
// length, the pair is left out and counted.
func TestPairsTooLong(t *testing.T) {
	rows := `{"prompt":"abc","chosen":"defgh","rejected":"i"}
{"prompt":"abcdef","chosen":"g","rejected":"h"}
{"prompt":"abcde","chosen":"fgh","rejected":"ijklm"}
{"prompt":"ab","chosen":"c","rejected":"d"}
`
	for _, packing := range []bool{false, true} {
		s := pairSpec(t, small, write(t, t.TempDir(), "d.jsonl", rows))
		s.MaxSeqLen, s.Packing = 6, set(packing)
		d := mustOpen(t, s)
		var got []string
		var ids []int64
		for i := range d.Rows() {
			r := d.Row(i)
			got = append(got, documents(r)...)
			for _, p := range r.Pairs {
				ids = append(ids, p.ID)
			}
			if n := len(r.IDs); n > RowTokens(6, true) {
				t.Errorf("row %d has %d tokens", i, n)
			}
		}
		if want := []string{"abc[def]", "abc[i$]", "abcde[f]", "abcde[i]", "ab[c$]", "ab[d$]"}; !slices.Equal(got, want) || !slices.Equal(ids, []int64{0, 2, 3}) {
			t.Errorf("packing %v: documents %q of pairs %v, want %q", packing, got, ids, want)
		}
		st := d.Stats()
		if st.Truncated != 2 || st.Dropped != 1 || st.CutTokens != 3+3+5+16 || st.Documents != 4 {
			t.Errorf("cut %d, dropped %d, %d tokens of %d pairs", st.Truncated, st.Dropped, st.CutTokens, st.Documents)
		}
		if want := []string{"cut an answer in 2 of 4 pairs, so that it and the prompt have 6 tokens (max_seq_len)",
			"left out 1 of 4 pairs: their prompt alone has 6 tokens (max_seq_len) or more"}; !reflect.DeepEqual(d.Warnings(), want) {
			t.Errorf("warnings %q, want %q", d.Warnings(), want)
		}
		if got := d.All().Longest(); got != 12 && !packing || packing && got > 12 {
			t.Errorf("the longest row has %d tokens", got)
		}
	}
}

// TestPairColumns: pairs are read from every kind of file, with their usual and with configured
// column names.
func TestPairColumns(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "own.csv", "q,sys,good,bad\ni,s,[1],r\n")
	write(t, dir, "lists.csv", `chosen,rejected
"[{""role"":""user"",""content"":""u""},{""role"":""assistant"",""content"":""c""}]","[{""role"":""user"",""content"":""u""},{""role"":""assistant"",""content"":""r""}]"
`)
	write(t, dir, "talk.jsonl", `{"talk":[{"who":"me","says":"u"}],"good":[{"who":"bot","says":"c"}],"bad":{"who":"bot","says":"r"}}`)
	type turn struct{ Role, Content string }
	type pairRow struct {
		Prompt           string
		Chosen, Rejected []turn
	}
	write(t, dir, "nested.parquet", parquetOf(t, pairRow{"u", []turn{{"user", "u"}, {"assistant", "c"}}, []turn{{"user", "u"}, {"assistant", "r"}}}))
	for _, tt := range []struct {
		name string
		set  Set
		want []string
	}{
		{"texts", Set{Path: "own.csv", Fields: map[string]string{"prompt": "q", "chosen": "good", "rejected": "bad"}}, []string{"i[[1]$]", "i[r$]"}},
		{"a user's turn", Set{Path: "own.csv", Fields: map[string]string{"instruction": "q", "system": "sys", "chosen": "good", "rejected": "bad"}}, []string{"s:s|u:i|a:[[1]|]", "s:s|u:i|a:[r|]"}},
		{"lists in a table", Set{Path: "lists.csv", Format: "pairs"}, []string{"u:u|a:[c|]", "u:u|a:[r|]"}},
		{"messages", Set{Path: "talk.jsonl", Fields: map[string]string{"messages": "talk", "chosen": "good", "rejected": "bad", "role": "who", "content": "says"}, Roles: map[string]string{"me": "user", "bot": "assistant"}},
			[]string{"u:u|a:[c|]", "u:u|a:[r|]"}},
		{"columns", Set{Path: "nested.parquet", Fields: map[string]string{"prompt": "Prompt", "chosen": "Chosen", "rejected": "Rejected", "role": "Role", "content": "Content"}}, []string{"u:u|a:[c|]", "u:u|a:[r|]"}},
	} {
		s := pairSpec(t, small)
		s.Sets, s.Dir = []Set{tt.set}, dir
		d, err := Open(s)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := documents(d.Row(0)); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	s := pairSpec(t, small, filepath.Join(dir, "own.jsonl"))
	write(t, dir, "own.jsonl", `{"q":"i","prompt":"no","chosen":"c","rejected":"r"}`)
	s.Columns = Columns{Prompt: "q"}
	if got := documents(mustOpen(t, s).Row(0)); !slices.Equal(got, []string{"i[c$]", "i[r$]"}) {
		t.Errorf("prompt_column: %q", got)
	}
}

// pairsIn returns the IDs of the pairs of all rows, in order.
func pairsIn(d *Dataset) (ids []int64) {
	for i := range d.Rows() {
		for _, p := range d.Row(i).Pairs {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// TestPairCache: pairs come from the token cache as they were written. If the same file is not read
// as pairs, it has another cache.
func TestPairCache(t *testing.T) {
	name := write(t, t.TempDir(), "d.jsonl", `{"prompt":"p","completion":"x","chosen":"c","rejected":"r"}`+"\n"+`{"prompt":"q","completion":"y","chosen":"d","rejected":"s"}`)
	age(t, name)
	s := pairSpec(t, small, name)
	d, cached := reopen(t, s)
	again, cachedAgain := reopen(t, s)
	if cached || !cachedAgain {
		t.Errorf("cached %v, then %v", cached, cachedAgain)
	}
	for i := range 2 {
		if !reflect.DeepEqual(d.Row(i), again.Row(i)) || d.Rows() != 2 || d.ID() != again.ID() {
			t.Errorf("row %d is %+v, from the cache %+v", i, d.Row(i), again.Row(i))
		}
	}
	s.Pairs, s.Packing = false, set(false)
	if other, cached := reopen(t, s); cached || masked(other.Row(0)) != "u:p|a:[x|]" || other.IsPairs() || other.Pairs() != 0 || other.Row(0).Pairs != nil {
		t.Errorf("without Pairs: cached %v, %+v", cached, other.Row(0))
	}
	if d.ID() == mustOpen(t, s).ID() {
		t.Error("chats have the ID of pairs")
	}
}

// TestPairsResume: if tokenizing pairs is stopped, the next run continues and gives the same rows
// as an uninterrupted run.
func TestPairsResume(t *testing.T) {
	name := write(t, t.TempDir(), "d.jsonl", pairLines(2000))
	age(t, name)
	s := pairSpec(t, small, name)
	want := mustOpen(t, s)
	s.CacheDir, s.part = t.TempDir(), 2000
	stop := make(chan struct{})
	s.Tokenizer, s.Stop = countTo(4000, func() { close(stop) }), stop
	if _, err := Open(s); !errors.Is(err, ErrStopped) {
		t.Fatalf("the stopped reading gives %v", err)
	}
	s.Tokenizer, s.Stop = tokenizer.Bytes(), nil
	got := mustOpen(t, s)
	if len(got.Warnings()) != 1 || !strings.Contains(got.Warnings()[0], "went on with an interrupted tokenisation") {
		t.Errorf("warnings %q", got.Warnings())
	}
	if got.ID() != want.ID() || !reflect.DeepEqual(pairsIn(got), pairsIn(want)) || !reflect.DeepEqual(documents(got.Row(1999)), []string{"1999?[1999$]", "1999?[no 1999$]"}) {
		t.Errorf("%d rows, the last %q", got.Rows(), documents(got.Row(1999)))
	}
}

// TestPairsKeepTheirIDs: a pair has the same ID however data sets are mixed and rows are chosen and
// packed.
func TestPairsKeepTheirIDs(t *testing.T) {
	dir := t.TempDir()
	a, b := write(t, dir, "a.jsonl", pairLines(3)), write(t, dir, "b.jsonl", pairLines(5))
	for _, tt := range []struct {
		name   string
		change func(*Spec)
		want   []int64
	}{
		{"one after the other", func(*Spec) {}, []int64{0, 1, 2, 3, 4, 5, 6, 7}},
		{"in turn", func(s *Spec) { s.MixStrategy = "interleave_over" }, []int64{0, 3, 1, 4, 2, 5, 0, 6, 1, 7}},
		{"some", func(s *Spec) { s.MaxSamples = 2 }, []int64{0, 1, 3, 4}},
		{"a part", func(s *Spec) { s.Sets, s.Paths = []Set{{Path: a}, {Path: b, Split: "train[3:]"}}, nil }, []int64{0, 1, 2, 6, 7}},
	} {
		for _, packing := range []bool{false, true} {
			s := pairSpec(t, small, a, b)
			s.Packing, s.MaxSeqLen = set(packing), 12
			tt.change(&s)
			d := mustOpen(t, s)
			got := pairsIn(d)
			if !packing && !slices.Equal(got, tt.want) {
				t.Errorf("%s: pairs %v, want %v", tt.name, got, tt.want)
			}
			slices.Sort(got)
			slices.Sort(tt.want)
			if !slices.Equal(got, tt.want) || d.Pairs() != 8 {
				t.Errorf("%s, packing %v: pairs %v of %d, want %v", tt.name, packing, got, d.Pairs(), tt.want)
			}
			if packing && d.Rows() >= len(got) {
				t.Errorf("%s: %d pairs make %d rows", tt.name, len(got), d.Rows())
			}
		}
	}
	s := pairSpec(t, small, b)
	s.ValSize, s.Shuffle = 2, true
	d := mustOpen(t, s)
	var all []int64
	for _, v := range []View{d.Train(), d.Eval()} {
		for i := range v.Rows() {
			all = append(all, v.Row(i).Pairs[0].ID)
		}
	}
	if slices.Sort(all); d.Eval().Rows() != 2 || !slices.Equal(all, []int64{0, 1, 2, 3, 4}) {
		t.Errorf("train and eval have the pairs %v", all)
	}
}

// TestPairErrors: a row that is no valid pair is an error that names the fault, and so is a row of
// another kind among pairs.
func TestPairErrors(t *testing.T) {
	pair := `{"prompt":"p","chosen":"c","rejected":"r"}`
	for _, tt := range []struct {
		name, row string
		says      []string
	}{
		{"an image", `{"prompt":"p","chosen":"c","rejected":"r","images":["a.png"]}`, []string{`images is ["a.png"]`, "text alone"}},
		{"one answer", `{"prompt":"p","chosen":"c"}`, []string{"d.jsonl:1", `"rejected" is missing`}},
		{"no answer", `{"prompt":"p","chosen":"c","rejected":null}`, []string{"rejected is null"}},
		{"another kind of row", `{"prompt":"p","completion":"c"}`, []string{"d.jsonl:1: dpo trains on pairs, and data set", `d.jsonl" holds other rows`, "field_chosen"}},
		{"no beginning in common", `{"chosen":"a","rejected":"b"}`, []string{"no beginning in common"}},
		{"no messages in common", `{"chosen":[{"role":"user","content":"a"}],"rejected":[{"role":"user","content":"b"}]}`, []string{"no beginning in common"}},
		{"a number", `{"prompt":"p","chosen":"c","rejected":7}`, []string{"rejected is 7; it must be a string"}},
		{"a number beside messages", `{"prompt":[{"role":"user","content":"u"}],"chosen":"c","rejected":7}`, []string{"rejected is 7; it must be a text, a message or a list of messages"}},
		{"an unknown role", `{"prompt":[{"role":"user","content":"u"}],"chosen":[{"role":"assistent","content":"u"}],"rejected":"r"}`, []string{"chosen[0].role", "assistent"}},
		{"a system beside a text", `{"system":"s","prompt":"p","chosen":"c","rejected":"r"}`, []string{"system is s", "field_instruction"}},
		{"an answer not to be learned", `{"prompt":[{"role":"user","content":"u"},{"role":"assistant","content":"a","weight":0},{"role":"user","content":"v"}],"chosen":[{"role":"assistant","content":"c"}],"rejected":[{"role":"assistant","content":"r","loss":false}]}`,
			[]string{"d.jsonl:1", "rejected[0] has a mark that it is not to be trained on"}},
		{"an answer not to be learned behind a common prompt", `{"chosen":[{"role":"user","content":"u"},{"role":"assistant","content":"c","train":"false"}],"rejected":[{"role":"user","content":"u"},{"role":"assistant","content":"r"}]}`,
			[]string{"chosen[1] has a mark"}},
		{"an empty instruction", `{"instruction":"","chosen":"c","rejected":"r"}`, []string{"instruction is empty"}},
	} {
		_, err := Open(pairSpec(t, small, write(t, t.TempDir(), "d.jsonl", tt.row)))
		wantError(t, err, tt.says...)
		if t.Failed() {
			t.Fatal(tt.name)
		}
	}
	dir := t.TempDir()
	pairs := write(t, dir, "pairs.jsonl", pair)
	chats := write(t, dir, "chats.jsonl", `{"prompt":"p","completion":"c"}`)
	text := write(t, dir, "notes.txt", "some text")
	s := pairSpec(t, small, pairs, text)
	_, err := Open(s)
	wantError(t, err, "dpo trains on pairs", `notes.txt" holds text`)
	s = pairSpec(t, small, pairs, chats)
	s.SkipBadRows = true // has no effect: every row is valid, but of the wrong kind
	_, err = Open(s)
	wantError(t, err, "chats.jsonl:1: dpo trains on pairs", `chats.jsonl" holds other rows`)
	s = chatSpec(t, small, chats, pairs)
	_, err = Open(s)
	wantError(t, err, "pairs.jsonl:1: this is pairs, and what came before is chat", `data set "`+pairs)
	s = pairSpec(t, small)
	s.Sets = []Set{{Path: pairs}, {Path: chats, Format: "prompt_completion"}}
	_, err = Open(s)
	wantError(t, err, "dpo trains on pairs", `chats.jsonl" holds chat`)
	s = pairSpec(t, small, pairs)
	s.TrainOnPrompt = true
	_, err = Open(s)
	wantError(t, err, "pairs.jsonl:1: train_on_prompt")
	s = pairSpec(t, small, pairs)
	s.Columns = Columns{Response: "x"}
	_, err = Open(s)
	wantError(t, err, "response_column has no place in dataset_format pairs")
	s = pairSpec(t, small)
	s.Sets = []Set{{Path: pairs, Fields: map[string]string{"prompt": "a", "instruction": "b"}}}
	_, err = Open(s)
	wantError(t, err, "datasets[0]: the fields prompt and instruction both name the prompt")
}

// TestPairsWithoutTemplate: without a chat template, pairs of instructions are written in the
// default layout, pairs of texts are used unchanged, and pairs of messages are an error.
func TestPairsWithoutTemplate(t *testing.T) {
	dir := t.TempDir()
	row := func(content string) Spec {
		s := textSpec(t, 256, write(t, dir, "d.jsonl", content))
		s.Pairs = true
		return s
	}
	d := mustOpen(t, row(`{"instruction":"i","chosen":"c","rejected":"r"}`))
	if got, want := documents(d.Row(0)), []string{"Human: i$\nAssistant:[c$\n]", "Human: i$\nAssistant:[r$\n]"}; !slices.Equal(got, want) || !d.IsChat() {
		t.Errorf("%q, want %q", got, want)
	}
	if d := mustOpen(t, row(`{"prompt":"i","chosen":"c","rejected":"r"}`)); d.IsChat() {
		t.Error("texts are chats")
	}
	_, err := Open(row(`{"prompt":[{"role":"user","content":"u"}],"chosen":"c","rejected":"r"}`))
	wantError(t, err, "no chat template")
	s := row(`{"prompt":[{"role":"user","content":"u"},{"role":"assistant","content":"a"},{"role":"user","content":"v"}],"chosen":"c","rejected":"r"}`)
	s.Tokenizer, s.Template = withChatML(t), "qwen3"
	got := documents(mustOpen(t, s).Row(0))
	for i, end := range []string{"c", "r"} {
		got[i] = got[i][strings.Index(got[i], "["):]
		if !strings.Contains(got[i], end) || strings.Contains(got[i], "user") {
			t.Errorf("answer %d is %q", i, got[i])
		}
	}
}

// TestPairsPromptCut: a prompt may end with other tokens when an answer follows than when it stands
// alone. The differing tokens then belong to the answer, and the pair is counted in PromptCut.
func TestPairsPromptCut(t *testing.T) {
	s := pairSpec(t, small+`{% if add_generation_prompt %}<think>{% endif %}`, write(t, t.TempDir(), "d.jsonl",
		`{"prompt":[{"role":"user","content":"u"}],"chosen":"c","rejected":"<think>r"}`+"\n"+`{"prompt":[{"role":"user","content":"u"}],"chosen":"<think>c","rejected":"<think>r"}`))
	d := mustOpen(t, s)
	if got, want := documents(d.Row(0)), []string{"u:u|a:[c|]", "u:u|a:[<think>r|]"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := documents(d.Row(1)), []string{"u:u|a:<think>[c|]", "u:u|a:<think>[r|]"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if st, r := d.Stats(), d.Report(); st.PromptCut != 1 || len(r.PromptCut) != 1 || !strings.HasSuffix(r.PromptCut[0], "d.jsonl:1") {
		t.Errorf("%d prompts are cut, the first %q", st.PromptCut, r.PromptCut)
	}
	p := d.Pieces(1)
	if len(p) != 2 {
		t.Fatalf("pieces %+v, want 2", p)
	}
	testkit.Check(t, "pieces",
		testkit.Is("first side", p[0].Side, "chosen"),
		testkit.Is("first total", p[0].Total, 15),
		testkit.Is("second side", p[1].Side, "rejected"),
		testkit.Is("second document", p[1].Document, 1),
		testkit.Is("second from", p[1].From, 0),
		testkit.Is("second tokens", p[1].Tokens, 15),
		testkit.Is("second total", p[1].Total, 15),
	)
}

// TestPairsOfTRL: tokens and masks of pairs equal those of TRL's DPOTrainer, which
// testdata/pairs.py recorded.
func TestPairsOfTRL(t *testing.T) {
	content, err := os.ReadFile("testdata/pairs.json")
	testkit.NoError(t, err)
	type side struct{ IDs, Mask []int32 }
	var recorded struct {
		Tokenizers map[string]map[string]string
		Cases      []struct {
			Name, Tokenizer string
			MaxLength       int `json:"max_length"`
			Rows            []json.RawMessage
			Want            []struct{ Chosen, Rejected side }
		}
	}
	if err := json.Unmarshal(content, &recorded); err != nil || len(recorded.Cases) < 17 {
		t.Fatalf("%d cases, %v", len(recorded.Cases), err)
	}
	dir := t.TempDir()
	for name, files := range recorded.Tokenizers {
		for file, text := range files {
			write(t, filepath.Join(dir, name), file, text)
		}
	}
	for i, c := range recorded.Cases {
		lines := ""
		for _, row := range c.Rows {
			lines += string(row) + "\n"
		}
		s := pairSpec(t, small, write(t, dir, "rows.jsonl", lines))
		s.Template, s.ModelDir = "", filepath.Join(dir, c.Tokenizer)
		if s.MaxSeqLen = c.MaxLength; s.MaxSeqLen == 0 {
			s.MaxSeqLen = 4096
		}
		if s.Tokenizer, err = tokenizer.Load(s.ModelDir, 1<<20); err != nil {
			t.Fatal(err)
		}
		d := mustOpen(t, s)
		if d.Rows() != len(c.Want) || int(d.Stats().Dropped) != len(c.Rows)-len(c.Want) {
			t.Errorf("case %d, %s: %d rows, want %d; %d dropped", i, c.Name, d.Rows(), len(c.Want), d.Stats().Dropped)
			continue
		}
		for k, want := range c.Want {
			r := d.Row(k)
			first := 0
			for j, w := range []side{want.Chosen, want.Rejected} {
				n := int(r.Docs[j])
				got := side{r.IDs[first : first+n], make([]int32, n)}
				for x, l := range r.Labels[first : first+n] {
					if l == r.IDs[first+x] {
						got.Mask[x] = 1
					}
				}
				if !reflect.DeepEqual(got, w) {
					t.Errorf("case %d, %s, row %d, document %d:\n%q\n%v, want\n%q\n%v", i, c.Name, k, j, s.Tokenizer.DecodeSpecial(got.IDs), got, s.Tokenizer.DecodeSpecial(w.IDs), w)
				}
				first += n
			}
		}
	}
}
