package appraise

import (
	"fmt"
	"math"
	"slices"

	"mt/cudart/emu/ptx"
)

// sample estimates the work of a launch from some of its thread blocks, which the emulator runs and counts.
type sample struct {
	rig    *rig
	launch *launch
	// heads is the number of neighbouring blocks that do the same work for different heads; 1: none do. Such blocks
	// form a group. One block of each group runs, a different one in each group.
	heads int
	// repeats is how many times all groups repeat, as for sequences of equal length; 1: they do not.
	repeats int

	// once says that no block may run twice. Then all blocks run in order, and each is traced in its only run.
	once bool

	known   map[int]*ptx.Counts // counts of the block that ran, by group
	ran     map[int]uint32      // the block that ran for the group
	reach   map[*ptx.Buffer]ptx.Access
	lines   []line  // ranges of groups whose counts are interpolated
	worst   float64 // largest accepted deviation from an interpolation
	groups  int
	traces  map[uint32]*ptx.Trace // by block, if blocks run once
	average float64               // mean number of instructions of a group's block
}

// line is a range of neighbouring groups of blocks. The groups at both ends have run. The work of
// the groups between is assumed to lie on the straight line between the work of these two.
type line struct{ from, to int }

// deviation is the largest accepted difference between the work of a group that ran and its
// interpolation, relative to the work. Work differs from group to group because of the edges of
// tensors and the attention mask.
const deviation = 0.01

// take runs blocks until the work of all groups is known. If there are few groups, it runs all.
// Otherwise it runs two groups, and two more between them. If these agree with the interpolation of
// the first two, all groups between are interpolated; if not, the range is divided. If all groups
// repeat for every sequence, two repetitions run to verify that.
func (s *sample) take() error {
	s.known, s.ran, s.reach = map[int]*ptx.Counts{}, map[int]uint32{}, map[*ptx.Buffer]ptx.Access{}
	blocks := s.launch.blocks()
	if s.heads < 1 || blocks%s.heads != 0 {
		s.heads = 1
	}
	if s.repeats < 1 || blocks/s.heads%s.repeats != 0 {
		s.repeats = 1
	}
	s.groups = blocks / s.heads / s.repeats
	knots := []int{0, 1, s.groups / 2, s.groups - 2, s.groups - 1}
	const few = 9 // up to this many groups, all run
	if s.once || s.groups <= few {
		knots = knots[:0]
		for i := range s.groups {
			knots = append(knots, i)
		}
	}
	if err := s.run(knots); err != nil {
		return err
	}
	var open []line
	for i := range len(knots) - 1 {
		open = append(open, line{knots[i], knots[i+1]})
	}
	for len(open) > 0 {
		var err error
		if open, err = s.divide(open); err != nil {
			return err
		}
	}
	slices.SortFunc(s.lines, func(a, b line) int { return a.from - b.from })
	s.mean()
	return s.again()
}

// again verifies the hint that all groups repeat: it runs two groups and one repetition of each. If
// the counts differ, the estimate starts again without the hint.
func (s *sample) again() error {
	if s.repeats == 1 {
		return nil
	}
	first := []int{s.groups / 2, s.groups / 3}
	later := []int{(s.repeats-1)*s.groups + first[0], s.groups + first[1]}
	if err := s.run(append(first, later...)); err != nil {
		return err
	}
	for i, at := range later {
		off := apart(s.known[at], s.known[first[i]], s.known[first[i]], 0)
		delete(s.known, at)
		if off > deviation {
			s.repeats, s.lines = 1, nil
			return s.take()
		}
		s.worst = max(s.worst, off)
	}
	return nil
}

// divide runs two groups inside each line of open. If both agree with the interpolation, the line
// is done. It returns the other lines, cut in two, which are to be divided next.
func (s *sample) divide(open []line) ([]line, error) {
	probes := func(l line) [2]int { return [2]int{(l.from + l.to) / 2, l.from + (l.to-l.from)*3/11} }
	var inner []int
	for _, l := range open {
		if l.to-l.from > 1 {
			two := probes(l)
			inner = append(inner, two[:]...)
		}
	}
	if err := s.run(inner); err != nil {
		return nil, err
	}
	var left []line
	for _, l := range open {
		if l.to-l.from <= 1 {
			s.lines = append(s.lines, l)
			continue
		}
		off := 0.0
		for _, p := range probes(l) {
			off = max(off, s.off(l, p))
		}
		if off <= deviation {
			s.worst = max(s.worst, off)
			s.lines = append(s.lines, l)
			continue
		}
		middle := (l.from + l.to) / 2
		left = append(left, line{l.from, middle}, line{middle, l.to})
	}
	return left, nil
}

// off returns how far the work of the group at is from the straight line between the ends of l,
// relative to that work.
func (s *sample) off(l line, at int) float64 {
	return apart(s.known[at], s.known[l.from], s.known[l.to], float64(at-l.from)/float64(l.to-l.from))
}

// apart returns how far the counts c are from the interpolation between a and b, relative to c. It
// is the largest deviation of four counts: instructions, sectors, wavefronts and products. part is
// the position between a (0) and b (1).
func apart(c, a, b *ptx.Counts, part float64) float64 {
	worst := 0.0
	for _, of := range []func(*ptx.Counts) int64{
		func(c *ptx.Counts) int64 { return c.Issued() }, func(c *ptx.Counts) int64 { return c.Global().Sectors },
		func(c *ptx.Counts) int64 { return c.Shared().Wavefronts }, func(c *ptx.Counts) int64 { return c.Products },
	} {
		want := float64(of(a)) + part*float64(of(b)-of(a))
		worst = max(worst, math.Abs(float64(of(c))-want)/max(float64(of(c)), 1))
	}
	return worst
}

// run runs one block of each of the given groups, unless one has already run.
func (s *sample) run(groups []int) error {
	var only []uint32
	for _, g := range groups {
		if _, ok := s.ran[g]; !ok {
			s.ran[g] = uint32(g*s.heads + g%s.heads)
			only = append(only, s.ran[g])
		}
	}
	if len(only) == 0 {
		return nil
	}
	c := &ptx.Count{}
	if s.once {
		c.Traced = only
	}
	touched, err := s.launch.run(s.rig, only, c)
	if err != nil {
		return fmt.Errorf("appraise: %w", err)
	}
	for _, g := range groups {
		if n, ok := c.Blocks[s.ran[g]]; ok {
			s.known[g] = n
		}
	}
	s.traces = c.Traces
	for _, a := range touched {
		if old, ok := s.reach[a.Buffer]; ok {
			a.Join(old)
		}
		s.reach[a.Buffer] = a
	}
	return nil
}

// counts returns the work of the whole launch: the counted and the interpolated blocks together.
func (s *sample) counts() ptx.Counts {
	var twice ptx.Counts
	heads := int64(s.heads) * int64(s.repeats)
	if s.groups == 1 {
		twice.Add(s.known[0], 2*heads)
	}
	for i, l := range s.lines { // the ends, and the mean of both for each group between them
		between := heads * int64(l.to-l.from-1)
		twice.Add(s.known[l.from], between+2*heads)
		twice.Add(s.known[l.to], between)
		if i == len(s.lines)-1 {
			twice.Add(s.known[l.to], 2*heads)
		}
	}
	twice.Halve()
	return twice
}

// weights returns the work of every block of the launch, in order, counted in instructions. The
// unit is the work of the block of the group traced, whose trace is replayed.
func (s *sample) weights(traced int) []float64 {
	out := make([]float64, 0, s.groups*s.heads*s.repeats)
	of := float64(s.known[traced].Issued())
	put := func(issued float64) {
		for range s.heads {
			out = append(out, issued/of)
		}
	}
	for _, l := range s.lines {
		a, b := float64(s.known[l.from].Issued()), float64(s.known[l.to].Issued())
		for g := l.from; g < l.to; g++ {
			put(a + (b-a)*float64(g-l.from)/float64(l.to-l.from))
		}
	}
	put(float64(s.known[s.groups-1].Issued()))
	return slices.Repeat(out, s.repeats)
}

// mean computes the mean number of instructions of a block.
func (s *sample) mean() {
	c := s.counts()
	s.average = float64(c.Issued()) / float64(c.Blocks)
}

// typical returns the group that represents the launch. It is the group whose work is closest to the mean, among the
// groups with a block that has run. Its block is traced.
func (s *sample) typical() int {
	best := 0
	for g, n := range s.known {
		d, least := math.Abs(float64(n.Issued())-s.average), math.Abs(float64(s.known[best].Issued())-s.average)
		if d < least || d == least && g < best {
			best = g
		}
	}
	return best
}

// memory returns how many bytes the launch must read from and write to device memory. It sums the
// ranges of accessed bytes over all tensors. If the blocks requested fewer bytes altogether, it
// returns these.
func (s *sample) memory(c *ptx.Counts) int64 {
	var n int64
	for _, a := range s.reach {
		n += max(0, a.ReadTo-a.ReadFrom) + max(0, a.WriteTo-a.WriteFrom)
	}
	return min(n, moved(c))
}

// moved returns how many bytes the blocks exchange with the L2 cache. Bytes that a block reads
// repeatedly count once.
func moved(c *ptx.Counts) int64 { return 32 * c.Moved() }

// trace returns the instruction trace of one thread block of a group. It runs the block a second time, unless the first
// run already traced all blocks.
func (s *sample) trace(group int) (*ptx.Trace, error) {
	block := s.ran[group]
	if s.once {
		return s.traces[block], nil
	}
	c := &ptx.Count{Traced: []uint32{block}}
	if _, err := s.launch.run(s.rig, []uint32{block}, c); err != nil {
		return nil, fmt.Errorf("appraise: %w", err)
	}
	return c.Traces[block], nil
}
