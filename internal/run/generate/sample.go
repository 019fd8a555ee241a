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
	o    Options
	rnd  *rand.Rand
	cuts []cut
}

func newSampler(o Options) *sampler {
	s := &sampler{o: o, rnd: rand.New(rand.NewPCG(uint64(o.Seed), 0x9e3779b97f4a7c15))}
	if o.TopP > 0 && o.TopP < 1 {
		s.cuts = append(s.cuts, topP(o.TopP))
	}
	if o.MinP > 0 {
		s.cuts = append(s.cuts, minP(o.MinP))
	}
	return s
}

// cut shortens the list of candidates to sample from. all is sorted by descending p, and the result is a beginning of
// it with at least one candidate.
type cut func(all []candidate) []candidate

// topP returns a cut that keeps the fewest candidates whose joint probability is at least share, the most likely ones
// first.
func topP(share float64) cut {
	return func(all []candidate) []candidate {
		total, kept := sum(all), 0.0
		for i := range all {
			if kept += all[i].p; kept >= share*total {
				return all[:i+1]
			}
		}
		return all
	}
}

// minP returns a cut that keeps candidates at least share times as likely as the most likely one. Source:
// transformers.MinPLogitsWarper, arXiv:2407.01082.
func minP(share float64) cut {
	return func(all []candidate) []candidate {
		for i := range all {
			if all[i].p < share {
				return all[:i]
			}
		}
		return all
	}
}

// sum returns the sum of p over all candidates, by which a p is divided to get a probability.
func sum(all []candidate) float64 {
	total := 0.0
	for i := range all {
		total += all[i].p
	}
	return total
}

// candidate is a token that may be chosen. p is at first the token's logit. Later p is its probability relative to the
// most likely token, which then has p = 1.
type candidate struct {
	id int32
	p  float64
}

// sample chooses one id: the largest logit at temperature 0, otherwise a draw from softmax(logits/temperature) after
// top-k, top-p and min-p.
func (s *sampler) sample(logits []float32) (int32, error) {
	all := make([]candidate, len(logits))
	for i, l := range logits {
		if l != l || l > math.MaxFloat32 {
			return 0, errors.New("the logits are not finite: the model's weights are damaged, or compute_dtype does not hold them")
		}
		all[i] = candidate{int32(i), float64(l)}
	}
	best := slices.MaxFunc(all, func(a, b candidate) int { return cmp.Or(cmp.Compare(a.p, b.p), cmp.Compare(b.id, a.id)) })
	if math.IsInf(best.p, -1) {
		return 0, errors.New("every logit is −Inf: suppress_tokens and min_new_tokens leave no token of the vocabulary; take one out of suppress_tokens in generation_config.json")
	}
	if s.o.Temperature == 0 {
		return best.id, nil
	}
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Or(cmp.Compare(b.p, a.p), cmp.Compare(a.id, b.id)) })
	if s.o.TopK > 0 && s.o.TopK < len(all) {
		all = all[:s.o.TopK]
	}
	for i := range all {
		all[i].p = math.Exp((all[i].p - best.p) / s.o.Temperature)
	}
	for _, shorten := range s.cuts {
		all = shorten(all)
	}
	at := s.rnd.Float64() * sum(all)
	for _, c := range all {
		if at -= c.p; at < 0 {
			return c.id, nil
		}
	}
	return all[len(all)-1].id, nil
}
