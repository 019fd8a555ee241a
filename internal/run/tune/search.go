package tune

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"mt/internal/run/trials"
)

// alike is the part of a step by which two predictions may differ and count as equal: less than
// a short run can tell apart.
const alike = 0.002

// search is a search under way.
type search struct {
	space
	ctx      context.Context
	most     int       // predictions
	until    time.Time // no new descent begins behind it; zero: whenever
	progress func(done, of int)
	seen     map[trials.Knobs]*Point
}

// better says whether p is to be preferred to q: it is faster or, where both are alike, takes
// less memory.
func better(p, q *Point) bool {
	if q == nil || p == nil {
		return p != nil
	}
	if p.Step < q.Step*(1-alike) || p.Step > q.Step*(1+alike) {
		return p.Step < q.Step
	}
	return p.Memory < q.Memory || p.Memory == q.Memory && p.Step < q.Step
}

// at predicts k; nil where it has no plan, or nothing more is to be predicted.
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

// spent says that as many plans were predicted as are to be.
func (s *search) spent() bool {
	return len(s.seen) >= s.most || !s.until.IsZero() && time.Now().After(s.until)
}

// descend goes from p to a plan that no change of one knob, and no exchange of one for another,
// makes better: memory that one knob takes is memory that another lacks.
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

// exchange is the best plan with one knob a rung lower than in p and another one higher: a rung, or
// as high as then fits. It is p where none is better.
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

// highest is the highest value of d with which k has a plan, if any.
func (s *search) highest(k trials.Knobs, d dimension) []int {
	for _, v := range slices.Backward(d.values) {
		*d.at(&k) = v
		if s.fits(k) {
			return []int{v}
		}
	}
	return nil
}

// beside is the value of a ladder next to v, above or below it; 0 where it ends there.
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

// run searches from start, from what the plan would choose, from the least and the most of
// everything, and then from random places until nothing more is to be predicted. It returns all
// that it saw, the best first.
func (s *search) run(start *Point, seed uint64) ([]*Point, error) {
	s.seen = map[trials.Knobs]*Point{start.Knobs: start}
	auto, least, most := start.Knobs, start.Knobs, start.Knobs
	for _, d := range s.dims {
		*d.at(&auto), *d.at(&least), *d.at(&most) = 0, d.values[0], d.values[len(d.values)-1]
	}
	from := []trials.Knobs{start.Knobs, auto, least, most}
	random := rand.New(rand.NewPCG(seed, 7))
	const draws = 64 // of which most have no plan where memory is short
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

// propose picks at most n of all, which are in order: of those that are alike the one with the
// least memory, and of the best ones also that with the most, since a real run has delays that
// deeper buffers hide and a prediction knows nothing of. start is not among them.
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
