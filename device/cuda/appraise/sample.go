package appraise

import (
	"fmt"
	"math"
	"slices"

	"mt/cudart/emu/ptx"
)

// sample is what is known of a launch from some of its blocks.
type sample struct {
	rig    *rig
	launch *launch
	// heads is how many neighbouring blocks do the same work on other heads; 1: none do. Blocks are then
	// taken by groups of so many, and of each group one is run, another one each time.
	heads int
	// repeats is how many times all groups come again, as sequences of one length do; 1: they do not.
	repeats int

	// once: blocks may not run twice, so all run, in order, and each is traced as it does.
	once bool

	known   map[int]*ptx.Counts // by group
	ran     map[int]uint32      // the block that was run for the group
	reach   map[*ptx.Buffer]ptx.Access
	lines   []line  // groups between which counts lie on a line
	worst   float64 // the largest deviation from such a line that was accepted
	groups  int
	traces  map[uint32]*ptx.Trace // of the blocks, where they run once
	average float64               // instructions of a group's block, on average
}

// line is a run of groups with known counts at its ends.
type line struct{ from, to int }

// Blocks differ from group to group, by their edges and by the mask of attention. deviation is how far from the
// line between two groups a group between them may be, to be taken as lying on it.
const deviation = 0.01

// take runs blocks until the rest is known: all of them where few are enough, else some. Groups between
// two that ran count as lying on a line between these if two more, which run as well, do; what
// comes again is run once, and elsewhere again to see that it does.
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
	const few = 9 // groups that are not worth a search
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

// again runs two groups where they come again. Where they then do other work, nothing is known of what comes again
// and the search begins anew without it.
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

// divide runs two groups inside each line, keeps the lines on which they lie, and returns the
// halves of the others.
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

// off is how far from the line a group between its ends is, relative to what it counts.
func (s *sample) off(l line, at int) float64 {
	return apart(s.known[at], s.known[l.from], s.known[l.to], float64(at-l.from)/float64(l.to-l.from))
}

// apart is how far c is from what lies between a and b, relative to c.
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

// run runs a block of each group that has not been run.
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

// counts are those of the whole launch.
func (s *sample) counts() ptx.Counts {
	var twice ptx.Counts
	heads := int64(s.heads) * int64(s.repeats)
	if s.groups == 1 {
		twice.Add(s.known[0], 2*heads)
	}
	for i, l := range s.lines { // the ends, and the mean of both for what lies between them
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

// weights are the instructions of every block, in order, relative to those of the traced group.
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

// mean computes how many instructions a block has on average.
func (s *sample) mean() {
	c := s.counts()
	s.average = float64(c.Issued()) / float64(c.Blocks)
}

// typical is the group, of those that ran, whose block is nearest to the average.
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

// memory is how many bytes must come from device memory and go there: what lies between the first byte
// of a tensor that is touched and the last, or less where less is asked for.
func (s *sample) memory(c *ptx.Counts) int64 {
	var n int64
	for _, a := range s.reach {
		n += max(0, a.ReadTo-a.ReadFrom) + max(0, a.WriteTo-a.WriteFrom)
	}
	return min(n, moved(c))
}

// moved is how many bytes blocks exchange with the L2 cache, if a block reads nothing twice.
func moved(c *ptx.Counts) int64 { return 32 * c.Moved() }

// trace is what the warps of a group's block did. It runs the block once more, unless all were traced.
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
