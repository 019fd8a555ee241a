package generate

import "math"

// LeastPenalty and MostPenalty bound Options.RepetitionPenalty. Within the bounds no finite logit below 1e36
// overflows.
const (
	LeastPenalty = 0.01
	MostPenalty  = 100
)

// processor changes the logits of the next token in place, one for each token of the vocabulary. ids holds the prompt
// and the answer so far.
type processor func(ids []int32, logits []float32)

// processors returns the processors that o asks for, in the order of Transformers; nil if o asks for none. prompt is
// the prompt's length in tokens. Source: transformers.GenerationMixin._get_logits_processor.
func processors(o Options, prompt int) []processor {
	var all []processor
	if p := o.RepetitionPenalty; p != 0 && p != 1 {
		all = append(all, penalize(float32(p)))
	}
	if o.MinNewTokens > 0 {
		all = append(all, forbidUntil(prompt+o.MinNewTokens, o.Stop))
	}
	if len(o.SuppressTokens) > 0 {
		all = append(all, forbid(o.SuppressTokens))
	}
	return all
}

// penalize returns a processor that divides positive logits of all ids so far by penalty and multiplies negative ones
// by it. An id that occurs several times counts once. Source: transformers.RepetitionPenaltyLogitsProcessor,
// arXiv:1909.05858.
func penalize(penalty float32) processor {
	return func(ids []int32, logits []float32) {
		was := make([]float32, len(ids)) // a repeated id is computed again from the same logit
		for i, id := range ids {
			was[i] = logits[id]
		}
		for i, id := range ids {
			if was[i] < 0 {
				logits[id] = was[i] * penalty
			} else {
				logits[id] = was[i] / penalty
			}
		}
	}
}

// forbidUntil returns a processor that forbids tokens as long as prompt and answer together have fewer than length
// tokens. Source: transformers.MinNewTokensLengthLogitsProcessor.
func forbidUntil(length int, tokens []int32) processor {
	no := forbid(tokens)
	return func(ids []int32, logits []float32) {
		if len(ids) < length {
			no(ids, logits)
		}
	}
}

// forbid returns a processor that sets the logits of tokens to −Inf. It ignores ids outside the vocabulary, as
// Transformers does, because some models' suppress_tokens is [-1]. Source: transformers.SuppressTokensLogitsProcessor.
func forbid(tokens []int32) processor {
	return func(_ []int32, logits []float32) {
		for _, id := range tokens {
			if id >= 0 && int(id) < len(logits) {
				logits[id] = float32(math.Inf(-1))
			}
		}
	}
}
