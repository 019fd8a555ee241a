package data

import "fmt"

// Sampler says which rows make up a step. It keeps no position: all methods depend on the
// step's number alone, so training can resume at any step.
type Sampler struct {
	view    View
	perStep int
	seed    int64
	shuffle bool
	// The first done steps have taken the rows before data position at.
	done int
	at   int64
}

// NewSampler makes a Sampler that gives rowsPerStep rows (at least 1) of view to a step: in
// file order, or with shuffle in an order that follows from seed and the epoch's number.
func NewSampler(view View, rowsPerStep int, seed int64, shuffle bool) *Sampler {
	if rowsPerStep < 1 {
		panic(fmt.Sprintf("data: %d rows a step", rowsPerStep))
	}
	return &Sampler{view: view, perStep: rowsPerStep, seed: seed, shuffle: shuffle}
}

// From is a sampler like s whose first step after step begins at the data position pos,
// whichever rows the steps before took. Where pos is s's own position after step, it gives
// what s gives. Its methods may be called for steps after step, and Pos for step too.
func (s *Sampler) From(step int, pos int64) *Sampler {
	out := *s
	out.done, out.at = step, pos
	return &out
}

// StepAt is the first step after which the position is at least pos.
func (s *Sampler) StepAt(pos int64) int {
	rows, epoch := int64(s.view.Rows()), s.at/int64(s.view.Rows())
	if pos <= s.at {
		return s.done
	}
	last := (pos - 1) / rows // the epoch that pos lies in, or that ends at pos
	steps := func(from, to int64) int { return int((to - from + int64(s.perStep) - 1) / int64(s.perStep)) }
	if last == epoch {
		return s.done + steps(s.at, pos)
	}
	return s.done + steps(s.at, (epoch+1)*rows) + int(last-epoch-1)*s.StepsPerEpoch() + steps(last*rows, pos)
}

// StepsPerEpoch is how many steps take every row once. The last of them may have fewer rows.
func (s *Sampler) StepsPerEpoch() int { return (s.view.Rows() + s.perStep - 1) / s.perStep }

// Step is the rows of step n >= 1. The view must not be empty.
func (s *Sampler) Step(n int) []Row {
	epoch, first, end := s.span(n)
	order := newPermutation(int64(s.view.Rows()), s.seed, uint64(epoch))
	rows := make([]Row, end-first)
	for i := range rows {
		at := first + i
		if s.shuffle {
			at = int(order.at(int64(at)))
		}
		rows[i] = s.view.Row(at)
	}
	return rows
}

// Pos is the data position after step n: how many rows steps 1 to n have taken, over all
// epochs; 0 for n = 0.
func (s *Sampler) Pos(n int) int64 {
	if n == s.done {
		return s.at
	}
	epoch, _, end := s.span(n)
	return int64(epoch)*int64(s.view.Rows()) + int64(end)
}

// Batch is step n in micro-batches, as NewBatch makes them, with its data position. The
// error is that of Dataset.Read.
func (s *Sampler) Batch(n, maxTokens int) (*Batch, error) { return s.RankBatch(n, maxTokens, 0, 1) }

// RankBatch is the part of step n that one of several ranks takes, as NewRankBatch makes it.
// Its data position is that after the whole step. The error is that of Dataset.Read.
func (s *Sampler) RankBatch(n, maxTokens, rank, ranks int) (*Batch, error) {
	var rows []Row
	if err := s.view.d.Read(func() { rows = s.Step(n) }); err != nil {
		return nil, err
	}
	b := NewRankBatch(n, rows, maxTokens, rank, ranks)
	b.Pos = s.Pos(n)
	return b, nil
}

// span is the epoch (from 0) that step n is in, and the range of the rows that it takes, in
// that epoch's order. The last step of an epoch takes what is left of it, which may be fewer
// rows, so that no step has rows of two epochs.
func (s *Sampler) span(n int) (epoch, first, end int) {
	rows, steps := s.view.Rows(), s.StepsPerEpoch()
	if n <= s.done || steps == 0 {
		panic(fmt.Sprintf("data: step %d of %d an epoch, after step %d", n, steps, s.done))
	}
	epoch, first = int(s.at/int64(rows)), int(s.at%int64(rows))
	n -= s.done + 1
	if left := (rows - first + s.perStep - 1) / s.perStep; n < left {
		first += n * s.perStep
	} else {
		n -= left
		epoch, first = epoch+1+n/steps, n%steps*s.perStep
	}
	return epoch, first, min(first+s.perStep, rows)
}
