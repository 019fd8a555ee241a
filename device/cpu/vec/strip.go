package vec

// Strip is a strip of scores: Rows rows, Stride elements apart. Row r sees the
// first N+r columns, but at least none and at most Most ≤ Width. Scores among the
// first Width columns that a row does not see count as −Inf. Up to 15 elements
// after those columns may be overwritten.
type Strip struct {
	Stride, Rows, N, Most, Width int
	Scale                        float32
}

// check panics unless x holds the strip and what may be overwritten beside it, and
// each of perRow holds an element for every row.
func (s Strip) check(x []float32, perRow ...[]float32) {
	const lanes = 16
	_ = x[(s.Rows-1)*s.Stride+(s.Width+lanes-1)&^(lanes-1)-1]
	for _, p := range perRow {
		_ = p[s.Rows-1]
	}
	if s.Most > s.Width {
		panic("vec: a strip sees more columns than it has")
	}
}

// SoftmaxStrip raises each row's element of top to the row's greatest score times
// Scale. It turns the scores into exp(Scale·score − top), 0 for those that are not
// seen, and sets sum to the row's sum of these. top may be −Inf where a row sees
// nothing.
func SoftmaxStrip(x []float32, s Strip, top, sum []float32) {
	if s.Rows == 0 {
		return
	}
	s.check(x, top, sum)
	chosen.softmaxStrip(first(x), 4*s.Stride, s.Rows, s.N, s.Most, s.Width, s.Scale, first(top), first(sum))
}

// GradStrip turns the scores x into probabilities p = exp(Scale·x − lse), and the
// gradients dx of the probabilities into those of the scores, Scale·p·(dx − delta).
// Both are 0 for scores that are not seen.
func GradStrip(x, dx []float32, s Strip, lse, delta []float32) {
	if s.Rows == 0 {
		return
	}
	s.check(x, lse, delta)
	s.check(dx)
	chosen.gradStrip(first(x), first(dx), 4*s.Stride, s.Rows, s.N, s.Most, s.Width, s.Scale, first(lse), first(delta))
}
