package data

import (
	"reflect"
	"slices"
	"testing"
)

// TestSamplerFrom: a sampler made with From after any step goes on as the one before would
// have. One with another number of rows a step first takes the rows that the epoch has left,
// each once.
func TestSamplerFrom(t *testing.T) {
	s := idsSpec(t, 8, 1000, numbered(t, 10))
	s.Seed, s.Shuffle = 3, true
	d := mustOpen(t, s)
	whole := d.Sampler(4)
	ids := func(rows []Row) []int32 { return firsts(len(rows), func(i int) Row { return rows[i] }) }
	for done := 0; done <= 7; done++ {
		for per := 1; per <= 12; per++ {
			got := d.Sampler(per).From(done, whole.Pos(done))
			if got.Pos(done) != whole.Pos(done) {
				t.Fatalf("after step %d: position %d, want %d", done, got.Pos(done), whole.Pos(done))
			}
			var taken []int32
			at := whole.Pos(done)
			for n := done + 1; n <= done+15; n++ {
				rows := got.Step(n)
				if per == 4 && !reflect.DeepEqual(rows, whole.Step(n)) {
					t.Fatalf("from step %d on step %d differs", done, n)
				}
				left := 10 - at%10
				if at += min(int64(per), left); got.Pos(n) != at || int64(len(rows)) != min(int64(per), left) {
					t.Fatalf("%d rows a step from step %d on: step %d has %d rows and ends at %d, want %d", per, done, n, len(rows), got.Pos(n), at)
				}
				if first := got.StepAt(at); first != n || len(rows) > 1 && got.StepAt(at-1) != n || got.StepAt(at+1) != n+1 {
					t.Fatalf("%d rows a step from step %d on: the step that reaches %d is %d, want %d", per, done, at, first, n)
				}
				taken = append(taken, ids(rows)...)
			}
			// The order of rows is that of the epoch, whichever sampler takes them.
			one := d.Sampler(1)
			var want []int32
			for k := range taken {
				want = append(want, ids(one.Step(int(whole.Pos(done))+k+1))...)
			}
			if !slices.Equal(taken, want) {
				t.Fatalf("%d rows a step from step %d on: rows %v, want %v", per, done, taken, want)
			}
		}
	}
}
