package data

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// pairSpec reads paths as pairs through a template, by the byte vocabulary.
func pairSpec(t *testing.T, template string, paths ...string) Spec {
	s := chatSpec(t, template, paths...)
	s.Pairs, s.Packing = true, nil
	return s
}

// documents are the documents of a row, with brackets around what is supervised.
func documents(r Row) []string {
	var out []string
	first := 0
	for n := range r.docs() {
		out = append(out, masked(Row{IDs: r.IDs[first : first+n], Labels: r.labels()[first : first+n]}))
		first += n
	}
	return out
}

// pairRows are rows of the same meaning in each of the forms of a pair.
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

// pairLines are n rows of pairs with the texts of their numbers.
func pairLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"prompt":"%d?","chosen":"%d","rejected":"no %d"}`+"\n", i, i, i)
	}
	return b.String()
}

// TestPairBatches finds each pair's documents where a batch says that they are, in micro-batches
// of any size, of one rank and of several.
func TestPairBatches(t *testing.T) {
	const n = 23
	for _, packing := range []bool{false, true} {
		s := pairSpec(t, small, write(t, t.TempDir(), "d.jsonl", pairLines(n)))
		s.MaxSeqLen, s.Packing, s.Shuffle = 16, set(packing), true
		d := mustOpen(t, s)
		for _, ranks := range []int{1, 3} {
			for _, most := range []int{1, 40, 1000} {
				seen := map[int64]int{}
				for step := range d.Sampler(5).StepsPerEpoch() {
					all := int64(0)
					for rank := range ranks {
						b, err := d.Sampler(5).RankBatch(step+1, most, rank, ranks)
						if err != nil {
							t.Fatal(err)
						}
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

// checkPairs compares the documents of each pair of a micro-batch with the pair's number, and counts it.
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

// TestPairsTooLong cuts both documents of a pair to the same length, and leaves out pairs whose
// prompt alone has it.
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

// TestPairColumns reads pairs whose columns have other names, from every kind of file.
func TestPairColumns(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "own.csv", "q,sys,good,bad\ni,s,[c],r\n")
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
		{"texts", Set{Path: "own.csv", Fields: map[string]string{"prompt": "q", "chosen": "good", "rejected": "bad"}}, []string{"i[[c]$]", "i[r$]"}},
		{"a user's turn", Set{Path: "own.csv", Fields: map[string]string{"instruction": "q", "system": "sys", "chosen": "good", "rejected": "bad"}}, []string{"s:s|u:i|a:[[c]|]", "s:s|u:i|a:[r|]"}},
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
