package tune

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"mt/internal/run/trials"
)

// alike is the relative difference in step time below which two predictions count as equal, since a short run cannot
// measure less.
const alike = 0.002

// search holds the state of a search for fast plans in virtual time.
type search struct {
	space
	ctx      context.Context
	most     int       // largest number of predictions
	until    time.Time // no descent starts after this time; zero: no limit
	progress func(done, of int)
	seen     map[trials.Knobs]*Point
}

// better reports whether p beats q: it is faster, or about as fast with less memory.
func better(p, q *Point) bool {
	if q == nil || p == nil {
		return p != nil
	}
	if p.Step < q.Step*(1-alike) || p.Step > q.Step*(1+alike) {
		return p.Step < q.Step
	}
	return p.Memory < q.Memory || p.Memory == q.Memory && p.Step < q.Step
}

// at returns the plan for the knobs k with its prediction. It returns nil if k has no plan or the limit on predictions
// or time is reached.
func (s *search) at(k trials.Knobs) (*Point, error) {
	if err := s.ctx.Err(); err != nil {
		return nil, context.Cause(s.ctx)
	}
	if s.spent() {
		return nil, nil
	}
	p, err := s.predict(k)
	if err != nil || p == nil {
		return nil, err
	}
	if s.seen[p.Knobs] == nil {
		s.seen[p.Knobs] = p
		if s.progress != nil {
			s.progress(len(s.seen), s.most)
		}
	}
	return p, nil
}

// spent reports whether the limit on predictions or time is reached.
func (s *search) spent() bool {
	return len(s.seen) >= s.most || !s.until.IsZero() && time.Now().After(s.until)
}

// descend improves p until no change of one knob helps, and no change of two knobs in opposite directions (exchange).
// Such changes matter, because memory freed by one knob can serve another.
func (s *search) descend(p *Point) (*Point, error) {
	for {
		next := p
		for _, d := range s.dims {
			for _, v := range d.values {
				k := next.Knobs
				*d.at(&k) = v
				q, err := s.at(k)
				if err != nil {
					return nil, err
				}
				if better(q, next) {
					next = q
				}
			}
		}
		if next == p {
			var err error
			if next, err = s.exchange(p); err != nil {
				return nil, err
			}
		}
		if next == p || s.spent() {
			return next, nil
		}
		p = next
	}
}

// exchange tries plans in which one knob of p is one value lower and another knob is higher, by one value or by as
// much as fits. It returns the best such plan, or p if none is better.
func (s *search) exchange(p *Point) (*Point, error) {
	best := p
	for _, up := range s.dims {
		for _, down := range s.dims {
			k := p.Knobs
			more, less := beside(up.values, *up.at(&k), 1), beside(down.values, *down.at(&k), -1)
			if up.key == down.key || more == 0 || less == 0 {
				continue
			}
			*down.at(&k) = less
			for _, v := range append([]int{more}, s.highest(k, up)...) {
				*up.at(&k) = v
				q, err := s.at(k)
				if err != nil {
					return nil, err
				}
				if better(q, best) {
					best = q
				}
			}
		}
	}
	return best, nil
}

// highest returns, as the only item, the highest value of the knob d with which k has a plan. It returns no item if no
// value has one.
func (s *search) highest(k trials.Knobs, d dimension) []int {
	for _, v := range slices.Backward(d.values) {
		*d.at(&k) = v
		if s.fits(k) {
			return []int{v}
		}
	}
	return nil
}

// beside returns the neighbour of v in the ascending values: the next above v if way > 0, otherwise the next below. It
// returns 0 if there is none.
func beside(values []int, v, way int) int {
	if way > 0 {
		if i := slices.IndexFunc(values, func(x int) bool { return x > v }); i >= 0 {
			return values[i]
		}
		return 0
	}
	for _, x := range slices.Backward(values) {
		if x < v {
			return x
		}
	}
	return 0
}

// run descends from several points: the start, the plan's own choice, the least and the most of every knob, and then
// random points until spent. It returns all predicted points, best first.
func (s *search) run(start *Point, seed uint64) ([]*Point, error) {
	s.seen = map[trials.Knobs]*Point{start.Knobs: start}
	auto, least, most := start.Knobs, start.Knobs, start.Knobs
	for _, d := range s.dims {
		*d.at(&auto), *d.at(&least), *d.at(&most) = 0, d.values[0], d.values[len(d.values)-1]
	}
	from := []trials.Knobs{start.Knobs, auto, least, most}
	random := rand.New(rand.NewPCG(seed, 7))
	const draws = 64 // most draws have no plan if memory is short
	for range draws {
		k := start.Knobs
		for _, d := range s.dims {
			*d.at(&k) = d.values[random.IntN(len(d.values))]
		}
		from = append(from, k)
	}
	for _, k := range from {
		p, err := s.at(k)
		if err == nil && p != nil {
			_, err = s.descend(p)
		}
		if err != nil {
			return nil, err
		}
	}
	all := make([]*Point, 0, len(s.seen))
	for _, p := range s.seen {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *Point) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Memory, b.Memory), slices.Compare(a.Knobs.List(), b.Knobs.List()))
	})
	return all, nil
}

// propose picks at most n of the plans in all, which is sorted by speed, and leaves start out. Among equally fast
// plans it takes the one with the least memory. Among the fastest it also takes the one with the most memory, since
// deep buffers hide delays that a prediction does not know.
func propose(all []*Point, start *Point, n int) []*Point {
	var out []*Point
	add := func(p *Point) {
		if p.Knobs != start.Knobs && len(out) < n && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	for i := 0; i < len(all) && len(out) < n; {
		end := i
		for end < len(all) && all[end].Step <= all[i].Step*(1+alike) {
			end++
		}
		group := slices.SortedStableFunc(slices.Values(all[i:end]), func(a, b *Point) int { return cmp.Compare(a.Memory, b.Memory) })
		add(group[0])
		if i == 0 {
			add(group[len(group)-1])
			add(group[len(group)/2])
		}
		i = end
	}
	return out
}
