package data

import "fmt"

// Sampler says which rows make up a step. It keeps no position: all methods are
// functions of the step's number, so training may resume anywhere.
type Sampler struct {
	view    View
	perStep int
	seed    int64
	shuffle bool
}

// NewSampler takes rowsPerStep (at least 1) rows of view a step: in file order,
// or with shuffle in an order that seed and the epoch's number give.
func NewSampler(view View, rowsPerStep int, seed int64, shuffle bool) *Sampler {
	if rowsPerStep < 1 {
		panic(fmt.Sprintf("data: %d rows a step", rowsPerStep))
	}
	return &Sampler{view: view, perStep: rowsPerStep, seed: seed, shuffle: shuffle}
}

// StepsPerEpoch is how many steps see every row once; the last may be smaller.
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

// Pos is the data position after step n: rows consumed by steps 1 to n, over
// all epochs; 0 for n = 0.
func (s *Sampler) Pos(n int) int64 {
	if n == 0 {
		return 0
	}
	epoch, _, end := s.span(n)
	return int64(epoch)*int64(s.view.Rows()) + int64(end)
}

// Batch is step n, with its position, in micro-batches as NewBatch makes them.
func (s *Sampler) Batch(n, maxTokens int) *Batch {
	b := NewBatch(n, s.Step(n), maxTokens)
	b.Pos = s.Pos(n)
	return b
}

// span is the epoch (from 0) that step n is in, and which of the epoch's rows,
// in the epoch's order, it takes.
func (s *Sampler) span(n int) (epoch, first, end int) {
	steps := s.StepsPerEpoch()
	if n < 1 || steps == 0 {
		panic(fmt.Sprintf("data: step %d of %d an epoch", n, steps))
	}
	epoch = (n - 1) / steps
	first = (n - 1) % steps * s.perStep
	return epoch, first, min(first+s.perStep, s.view.Rows())
}
