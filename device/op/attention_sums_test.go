package op

import "testing"

// TestSumsLen: SumsLen fits at least one key/value group, is limited by sumsBytes, and never
// shrinks when queries are added.
func TestSumsLen(t *testing.T) {
	before := 0
	for _, c := range []struct{ tq, heads, kv, dim, want int }{
		{16, 4, 2, 6, 4 * 34 * 64}, {8192, 32, 8, 128, 32 * 9232 * 128}, {16384, 32, 8, 128, 40 << 20}, {65536, 32, 8, 80, 40 << 20}, {65536, 32, 2, 128, 16 * 73744 * 128},
	} {
		a := AttentionShape{TQ: c.tq, Heads: c.heads, KVHeads: c.kv, Dim: c.dim, Seqs: 1}
		if got := a.SumsLen(); got != c.want || got < before {
			t.Errorf("%+v: %d, want %d", c, got, c.want)
		}
		before = a.SumsLen()
	}
	for _, a := range []AttentionShape{{TQ: MostSummed + 1, Dim: 64}, {TQ: 0, Dim: 64}, {TQ: 512, Dim: 129}, {TQ: 512, Dim: 64, Softcap: 1}} {
		a.Heads, a.KVHeads, a.Seqs = 4, 2, 1
		if n := a.SumsLen(); n != 0 || a.Summed() {
			t.Errorf("%+v: %d", a, n)
		}
	}
	for seqs, want := range map[int]bool{1: true, 5: true, 6: false} {
		a := AttentionShape{TQ: 512, Heads: 4, KVHeads: 2, Dim: 64, Seqs: seqs}
		if a.Summed() != want {
			t.Errorf("%d sequences: %v", seqs, a.Summed())
		}
	}
}
