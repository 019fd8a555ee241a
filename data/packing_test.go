package data

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

func TestBestFit(t *testing.T) {
	tests := []struct {
		lengths []int64
		want    [][]int
	}{
		{nil, nil},
		{[]int64{10}, [][]int{{0}}},
		{[]int64{3, 9, 7, 1}, [][]int{{0, 2}, {1, 3}}},
		{[]int64{5, 5, 5, 5, 5}, [][]int{{0, 1}, {2, 3}, {4}}},
		{[]int64{6, 5, 4, 5}, [][]int{{0, 2}, {1, 3}}},
		{[]int64{2, 8, 2, 6, 2}, [][]int{{0, 1}, {2, 3, 4}}},
	}
	for _, tt := range tests {
		if got := bestFit(tt.lengths, 10); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%v: bins %v, want %v", tt.lengths, got, tt.want)
		}
	}
}

// TestBestFitOfMany: with many random lengths, bestFit puts every item into exactly one bin, no bin
// overflows, and no two bins would fit into one.
func TestBestFitOfMany(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	lengths := make([]int64, 2000)
	for i := range lengths {
		lengths[i] = 2 + r.Int64N(99)
	}
	seen, smallest, second := make([]bool, len(lengths)), int64(200), int64(200)
	for _, bin := range bestFit(lengths, 100) {
		sum := int64(0)
		for _, i := range bin {
			if seen[i] {
				t.Fatalf("%d is packed twice", i)
			}
			seen[i] = true
			sum += lengths[i]
		}
		if sum > 100 || !slices.IsSorted(bin) {
			t.Fatalf("bin %v holds %d", bin, sum)
		}
		if sum < smallest {
			smallest, second = sum, smallest
		} else {
			second = min(second, sum)
		}
	}
	if slices.Contains(seen, false) || smallest+second <= 100 {
		t.Errorf("something is left out, or bins of %d and %d are apart", smallest, second)
	}
}

// chatsOf writes a file of chats with the given numbers of tokens, at least 7 each, counted in the
// template small, which writes u:h|a:…|.
func chatsOf(t *testing.T, tokens ...int) string {
	var b strings.Builder
	for i, n := range tokens {
		b.WriteString(chat("user", string(rune('A'+i%26)), "assistant", strings.Repeat("g", n-7)) + "\n")
	}
	return write(t, t.TempDir(), "chats.jsonl", b.String())
}

// TestPackedChats: chats are packed whole into rows, by best fit; a chat longer than a row is cut.
// Pieces reports the documents of each row with their source lines, and only answers are
// supervised.
func TestPackedChats(t *testing.T) {
	s := chatSpec(t, small, chatsOf(t, 8, 12, 30, 9))
	s.Packing, s.MaxSeqLen = nil, 20
	d := mustOpen(t, s)
	want := []string{"u:A|a:[g|]u:B|a:[ggggg|]", "u:C|a:[gggggggggggggg]", "u:D|a:[gg|]"}
	if got := maskedRows(d.All()); !slices.Equal(got, want) || !d.Packed() {
		t.Fatalf("rows %q, want %q", got, want)
	}
	if r := d.Row(0); !slices.Equal(r.Docs, []int32{8, 12}) || r.Supervised() != 2+6 {
		t.Errorf("documents %v, %d supervised", r.Docs, r.Supervised())
	}
	st := d.Stats()
	if st.Truncated != 1 || st.CutTokens != 10 || st.Dropped != 0 || d.All().Longest() != 20 {
		t.Errorf("stats %+v, longest %d", st, d.All().Longest())
	}
	p := d.Pieces(0)
	if len(p) != 2 {
		t.Fatalf("pieces %+v, want 2", p)
	}
	testkit.Check(t, "the second piece",
		testkit.Is("document", p[1].Document, 1),
		testkit.Is("line", p[1].Line, 2),
		testkit.Is("tokens", p[1].Tokens, 12),
		testkit.Is("total", p[1].Total, 12),
		testkit.Is("format", p[1].Format, "messages"),
		testkit.Is("lacks EOS", p[1].MissingEOS, true),
		testkit.Is("file", filepath.Base(p[1].File), "chats.jsonl"),
	)
	if p := d.Pieces(1)[0]; p.Tokens != 20 || p.Total != 30 {
		t.Errorf("a cut piece %+v", p)
	}
	if r := d.Report(); len(r.Cut) != 1 || !strings.HasSuffix(r.Cut[0], "chats.jsonl:3") || len(r.MissingEOS) != 4 {
		t.Errorf("report %+v", r)
	}
}

// TestPackingDoesNotLeak: in a batch of packed chats every document has its own positions and its
// own range of attention, and its last token has no target.
func TestPackingDoesNotLeak(t *testing.T) {
	s := chatSpec(t, small, chatsOf(t, 8, 12, 9, 10))
	s.Packing, s.MaxSeqLen = nil, 40
	mb := NewBatch(1, []Row{mustOpen(t, s).Row(0)}, 64).MicroBatches[0]
	if !slices.Equal(mb.CuSeqlens, []int32{0, 8, 20, 29, 39}) || mb.MaxSeqlen != 12 {
		t.Fatalf("documents end at %v, the longest has %d", mb.CuSeqlens, mb.MaxSeqlen)
	}
	for k, end := range mb.CuSeqlens[1:] {
		if mb.Positions[mb.CuSeqlens[k]] != 0 || mb.Targets[end-1] != IgnoreIndex {
			t.Errorf("document %d begins at position %d and predicts %d at its end", k, mb.Positions[mb.CuSeqlens[k]], mb.Targets[end-1])
		}
		for at := mb.CuSeqlens[k]; at < end-1; at++ {
			if target := mb.Targets[at]; target != IgnoreIndex && target != mb.IDs[at+1] {
				t.Errorf("place %d predicts %d, and %d follows", at, target, mb.IDs[at+1])
			}
		}
	}
	if want := int64(2 + 6 + 3 + 4); mb.Supervised != want {
		t.Errorf("%d tokens are supervised, want %d", mb.Supervised, want)
	}
}

// TestDroppedChats: a chat without a supervised token before the cut at MaxSeqLen is dropped and
// counted, with packing and without.
func TestDroppedChats(t *testing.T) {
	long := chat("user", strings.Repeat("h", 50), "assistant", "g")
	name := write(t, t.TempDir(), "a.jsonl", long+"\n"+chat("user", "h", "assistant", "g")+"\n"+long)
	for _, packing := range []bool{true, false} {
		s := chatSpec(t, small, name)
		s.Packing, s.MaxSeqLen = &packing, 20
		d := mustOpen(t, s)
		st := d.Stats()
		if got := maskedRows(d.All()); !slices.Equal(got, []string{"u:h|a:[g|]"}) || st.Dropped != 2 || st.CutTokens != 2*57 || st.Truncated != 0 {
			t.Errorf("packing %v: rows %q, stats %+v", packing, got, st)
		}
		if r := d.Report(); len(r.Dropped) != 2 || !strings.HasSuffix(r.Dropped[1], "a.jsonl:3") {
			t.Errorf("packing %v: report %+v", packing, r)
		}
		if p := d.Pieces(0); len(p) != 1 || p[0].Line != 2 {
			t.Errorf("packing %v: pieces %+v", packing, p)
		}
	}
	s := chatSpec(t, small, write(t, t.TempDir(), "a.jsonl", long))
	s.MaxSeqLen = 20
	_, err := Open(s)
	wantError(t, err, "no row has a token to predict")
}

// TestPiecesOfText: Pieces names the source of each part of a row, for texts that are packed and
// for texts that are cut into several rows.
func TestPiecesOfText(t *testing.T) {
	dir := t.TempDir()
	for i, text := range []string{"abc", "defghij", "k"} {
		write(t, dir, fmt.Sprintf("%d.txt", i), text)
	}
	s := textSpec(t, 5, dir)
	for _, packing := range []bool{true, false} {
		s.Packing = &packing
		d := mustOpen(t, s)
		for i := range d.Rows() {
			var text string
			for _, p := range d.Pieces(i) {
				whole := []string{"abc$", "defghij$", "k$"}[p.Document]
				text += whole[p.From : p.From+p.Tokens]
				if p.Total != int64(len(whole)) || !strings.HasSuffix(p.File, fmt.Sprintf("%d.txt", p.Document)) || p.Line != 0 || p.Format != "text" {
					t.Errorf("packing %v: piece %+v", packing, p)
				}
			}
			if got := rowText(d.Row(i)); got != text {
				t.Errorf("packing %v: row %d is %q, its pieces %q", packing, i, got, text)
			}
		}
	}
}

func TestPermutationIsABijection(t *testing.T) {
	sizes := []int64{1000, 1023, 1024, 1025, 4095, 4096, 4097, 10007}
	for n := int64(1); n <= 130; n++ {
		sizes = append(sizes, n)
	}
	for _, n := range sizes {
		for _, seed := range []int64{0, 1, -7} {
			p, seen := newPermutation(n, seed, 3), make([]bool, n)
			for i := range n {
				at := p.at(i)
				if at < 0 || at >= n || seen[at] {
					t.Fatalf("n %d seed %d: %d goes to %d, out of range or taken", n, seed, i, at)
				}
				seen[at] = true
			}
		}
	}
}

func TestPermutationLargeStaysInRange(t *testing.T) {
	n := int64(1)<<40 + 12345
	p := newPermutation(n, 42, 0)
	seen := map[int64]bool{}
	for i := range int64(1000) {
		at := p.at(n - 1 - i)
		if at < 0 || at >= n || seen[at] {
			t.Fatalf("%d goes to %d, out of range or taken", n-1-i, at)
		}
		seen[at] = true
	}
}

func order(n, seed int64, stream uint64) []int64 {
	p, out := newPermutation(n, seed, stream), make([]int64, n)
	for i := range out {
		out[i] = p.at(int64(i))
	}
	return out
}

func TestPermutationDependsOnSeedAndStream(t *testing.T) {
	base := order(100, 42, 0)
	if !slices.Equal(base, order(100, 42, 0)) {
		t.Error("the same seed gives two orders")
	}
	for name, other := range map[string][]int64{
		"stream 1": order(100, 42, 1), "seed 43": order(100, 43, 0),
	} {
		same := 0
		for i := range other {
			if other[i] == base[i] {
				same++
			}
		}
		if same > 20 {
			t.Errorf("%s leaves %d of 100 in place", name, same)
		}
	}
}

// TestPermutationSpreads: over many random streams, an index is mapped to every position about
// equally often. The sizes are small, where the Feistel network has the fewest bits.
func TestPermutationSpreads(t *testing.T) {
	const streams = 4000
	for _, n := range []int64{2, 3, 5, 16} {
		counts := make([]int, n)
		for s := range uint64(streams) {
			counts[newPermutation(n, 1, s).at(0)]++
		}
		want := float64(streams) / float64(n)
		var chi2 float64
		for _, c := range counts {
			chi2 += (float64(c) - want) * (float64(c) - want) / want
		}
		if limit := 30 + 2*float64(n); chi2 > limit { // far above the 99.9 % quantile of its distribution
			t.Errorf("n %d: index 0 lands %v times in each place, chi-squared %.1f", n, counts, chi2)
		}
	}
}
