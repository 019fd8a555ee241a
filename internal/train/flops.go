package train

import "mt/plan"

// flopsOf tells how many floating point operations p takes for so many tokens and attended
// (query, key) pairs, some of which are attended again: those of the model, and those
// executed, with what is computed a second time. What a token and a pair take is counted once.
func flopsOf(p *plan.Run) func(tokens, pairs, again int64) (model, executed float64) {
	token, pair := p.Spec.Config.FLOPs(1, 0), p.Spec.Config.FLOPs(0, 1)
	return func(tokens, pairs, again int64) (model, executed float64) {
		model = token*float64(tokens) + pair*float64(pairs)
		return model, model + float64(p.Spec.RecomputedFLOPs(tokens, again)+p.Spec.HeadRecomputedFLOPs(tokens))
	}
}
