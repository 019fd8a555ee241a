package data

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestRowsOfIDsSayWhatIsLearned: lists beside input_ids decide which tokens are supervised, padding
// or a new document. An expected result shows the remaining ids, with brackets around supervised
// ones and a bar between documents.
func TestRowsOfIDsSayWhatIsLearned(t *testing.T) {
	cases := []struct{ row, want string }{
		{`"assistant_masks":[0,0,1,1,0]`, "ab[cd]e"},
		{`"completion_mask":[false,false,false,true,true]`, "abc[de]"},
		{`"loss_mask":[0.0,0.0,1.0,0.0,1.0]`, "ab[c]d[e]"},
		{`"assistant_masks":[0,1,1,1,0],"completion_mask":[0,0,1,1,1]`, "ab[cd]e"},
		{`"labels":[-100,-100,99,100,101],"loss_weights":[1,1,1,0,1]`, "ab[c]d[e]"},
		{`"attention_mask":[1,1,1,0,0]`, "a[bc]"},
		{`"attention_mask":[0,0,true,true,true]`, "c[de]"},
		{`"attention_mask":[0,1,1,1,0],"labels":[-100,-100,99,100,-100]`, "b[cd]"},
		{`"attention_mask":[1,1,2,2,0]`, "a[b]|c[d]"},
		{`"position_ids":[0,1,2,0,1]`, "a[bc]|d[e]"},
		{`"position_ids":[1,1,0,1,2],"attention_mask":[0,0,1,1,1]`, "c[de]"},
		{`"position_ids":[0,1,0,1,1],"attention_mask":[1,1,1,1,0]`, "a[b]|c[d]"},
		{`"position_ids":[0,1,2,0,0]`, "a[bc]"},
		{`"position_ids":[0,1,0,1,2],"labels":[97,98,-100,-100,101]`, "a[b]|cd[e]"},
		{`"position_ids":[0,1,0,1,2],"labels":[97,-100,-100,-100,101]`, "cd[e]"},
		{`"seq_lengths":[2,3]`, "a[b]|c[de]"},
		{`"token_type_ids":[0,0,0,0,0],"length":5,"special_tokens_mask":[1,0,0,0,0]`, "a[bcde]"},
	}
	var rows strings.Builder
	for _, tt := range cases {
		rows.WriteString(`{"input_ids":[97,98,99,100,101],` + tt.row + "}\n")
	}
	d := mustOpen(t, idsSpec(t, 64, 256, write(t, t.TempDir(), "a.jsonl", rows.String())))
	if d.Rows() != len(cases) {
		t.Fatalf("%d rows of %d", d.Rows(), len(cases))
	}
	for i, tt := range cases {
		if got := byDocument(d.Row(i)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.row, got, tt.want)
		}
	}
}

// byDocument returns the row's text, each document written as masked writes it, with a bar between
// documents.
func byDocument(r Row) (out string) {
	docs, from := r.Docs, int32(0)
	if docs == nil {
		docs = []int32{int32(len(r.IDs))}
	}
	for i, n := range docs {
		if i > 0 {
			out += "|"
		}
		one := Row{IDs: r.IDs[from : from+n], Labels: slices.Clone(r.IDs[from : from+n])}
		if r.Labels != nil {
			copy(one.Labels, r.Labels[from:])
		}
		one.Labels[0] = IgnoreIndex // no token of the document predicts it
		out, from = out+masked(one), from+n
	}
	return out
}

// TestRowsOfIDsErrors: lists beside input_ids that contradict the ids or have unknown values are
// errors that name the list.
func TestRowsOfIDsErrors(t *testing.T) {
	for row, want := range map[string]string{
		`"assistant_masks":[0,0,0,0,0]`:                          "no token is supervised: assistant_masks leaves none",
		`"assistant_masks":[0,1]`:                                "assistant_masks has 2 values and input_ids 5",
		`"completion_mask":[0,0,0,2,1]`:                          "completion_mask[3] is 2; a token is learned (1) or not (0)",
		`"loss_weights":[1,1,1,0.5,1]`:                           "loss_weights[3] is 0.5; it must be a whole number",
		`"attention_mask":[1,1,0,1,1]`:                           "attention_mask[2] is 0 between tokens that are attended to",
		`"attention_mask":[1,-1,1,1,1]`:                          "attention_mask[1] is -1",
		`"attention_mask":[0,0,0,0,1]`:                           "input_ids has 1 token(s) without the padding that attention_mask marks",
		`"attention_mask":[0,0,0,0,0]`:                           "input_ids has 0 token(s) without the padding",
		`"position_ids":[0,1,5,6,7]`:                             "position_ids[2] is 5; mt counts the tokens of a document from 0",
		`"position_ids":[3,4,5,6,7]`:                             "position_ids[0] is 3",
		`"position_ids":[[0,1,2,3,4]]`:                           "position_ids[0] is [0; it must be a whole number",
		`"seq_lengths":[2,2]`:                                    "seq_lengths add up to 4, and the row has 5 tokens",
		`"seq_lengths":[9]`:                                      "seq_lengths is [9], which does not divide 5 tokens",
		`"token_type_ids":[0,0,1,1,1]`:                           "token_type_ids[2] is 1, and mt trains models that see no types of tokens",
		`"mask":[0,0,1,1,1]`:                                     "mask stands beside input_ids, and programs differ",
		`"position_ids":[0,0,0,0,0],"labels":[97,98,99,100,101]`: "no token is supervised",
	} {
		fields := testkit.Must(fieldsOf([]byte(`{"input_ids":[97,98,99,100,101],` + row + "}")))(t)
		wantError(t, (&jsonRow{}).fill(form{format: fmtIDs}, fields, 256), want)
	}
}

// TestDocumentsOfOneRow: documents that came in one row of input_ids stay together in one training
// row, whatever else is mixed. A row that is too long is split between its documents.
func TestDocumentsOfOneRow(t *testing.T) {
	name := write(t, t.TempDir(), "a.jsonl", `{"input_ids":[97,98]}
{"input_ids":[97,98,99,100,101,102],"position_ids":[0,1,0,1,0,1]}
{"input_ids":[103,104,105],"position_ids":[0,1,2]}
`)
	for most, want := range map[int][]string{64: {"a[b]", "a[b]|c[d]|e[f]", "g[hi]"}, 5: {"a[b]", "a[b]|c[d]", "e[f]", "g[hi]"}, 2: {"a[b]", "a[b]", "c[d]", "e[f]", "g[h]"}} {
		s := idsSpec(t, most, 256, name)
		for range 2 { // the second time from the cache
			d := mustOpen(t, s)
			var got []string
			for i := range d.Rows() {
				got = append(got, byDocument(d.Row(i)))
			}
			if !slices.Equal(got, want) {
				t.Errorf("max_seq_len %d: %q, want %q", most, got, want)
			}
		}
		s.Packing = set(true)
		if d := mustOpen(t, s); most == 64 && byDocument(d.Row(0)) != "a[b]|a[b]|c[d]|e[f]|g[hi]" {
			t.Errorf("packed %q", byDocument(d.Row(0)))
		}
	}
	b := NewBatch(1, []Row{mustOpen(t, idsSpec(t, 64, 256, name)).Row(1)}, 64)
	if got := fmt.Sprint(b.MicroBatches[0].CuSeqlens, b.MicroBatches[0].Positions); got != "[0 2 4 6] [0 1 0 1 0 1]" {
		t.Errorf("the row goes through the model as %s", got)
	}
}
