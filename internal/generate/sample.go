package generate

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
)

// sampler chooses tokens from logits.
type sampler struct {
	o   Options
	rnd *rand.Rand
}

func newSampler(o Options) *sampler {
	return &sampler{o: o, rnd: rand.New(rand.NewPCG(uint64(o.Seed), 0x9e3779b97f4a7c15))}
}

// candidate is a token that may be chosen. p is its logit, and later its share: its
// probability times a constant.
type candidate struct {
	id int32
	p  float64
}

// sample chooses one id: the largest logit, or at random from the softmax of
// logits over temperature, cut by top-k and then top-p.
func (s *sampler) sample(logits []float32) (int32, error) {
	all := make([]candidate, len(logits))
	for i, l := range logits {
		if l != l || l > math.MaxFloat32 {
			return 0, errors.New("the logits are not finite: the model's weights are damaged, or compute_dtype does not hold them")
		}
		all[i] = candidate{int32(i), float64(l)}
	}
	best := slices.MaxFunc(all, func(a, b candidate) int { return cmp.Or(cmp.Compare(a.p, b.p), cmp.Compare(b.id, a.id)) })
	if s.o.Temperature == 0 {
		return best.id, nil
	}
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Or(cmp.Compare(b.p, a.p), cmp.Compare(a.id, b.id)) })
	if s.o.TopK > 0 && s.o.TopK < len(all) {
		all = all[:s.o.TopK]
	}
	total := 0.0
	for i := range all {
		all[i].p = math.Exp((all[i].p - best.p) / s.o.Temperature)
		total += all[i].p
	}
	if s.o.TopP > 0 && s.o.TopP < 1 {
		kept := 0.0
		for i := range all {
			if kept += all[i].p; kept >= s.o.TopP*total {
				all, total = all[:i+1], kept
				break
			}
		}
	}
	at := s.rnd.Float64() * total
	for _, c := range all {
		if at -= c.p; at < 0 {
			return c.id, nil
		}
	}
	return all[len(all)-1].id, nil
}
