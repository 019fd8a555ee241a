package train

import (
	"errors"
	"fmt"
	"strings"

	"mt/data"
	"mt/model"
	"mt/plan"
)

// This file plans the reference's pass: the forward over all pairs that comes before training on pairs.

// planPass plans the pass, unless what it finds is known or not needed. Its memory is given back before that of the run is taken, so that both have
// the whole budgets. Of several ranks only the first makes it, with all memory of its host.
func (j *resolving) planPass() (err error) {
	if j.plan.Spec.Preference.None() || !j.team.first() || j.ref.unneeded || j.knowsReferences() {
		return nil
	}
	r := j.reference()
	if m := j.other; m != nil {
		if err := j.checkPositions(m.Config, "dpo.reference_model"); err != nil {
			return err
		}
	}
	// Micro-batches and parts of the head are those of the run, so that one model has the same bits in both. Depths change none, and
	// those that were found for the run may be too much for another model.
	q, asked := r.request(true), j.asked.Depths
	q.Depths = plan.Depths{WeightSlots: asked.WeightSlots, ActivationSlots: asked.ActivationSlots, BatchesAhead: asked.BatchesAhead}
	j.ref.asked = &q
	j.ref.pass, err = plan.Resolve(q)
	if lack := (*plan.NotFitting)(nil); errors.As(err, &lack) {
		lack.What, lack.Keys = j.passName(), lack.Keys+", or give a cache_dir in which a larger machine has left the numbers of these pairs"
		if j.other != nil {
			lack.Keys = strings.Replace(lack.Keys, "a smaller model", "a smaller dpo.reference_model", 1)
		}
		return r.planError(err)
	} else if err != nil {
		return r.planError(fmt.Errorf("%s: %w", j.passName(), err))
	}
	return nil
}

// knowsReferences tells whether no pass is left to make.
func (j *Resolved) knowsReferences() bool {
	sets := pairSets(j.Inputs, &j.ref)
	for _, of := range sets {
		if *of.refs == nil {
			return false
		}
	}
	return len(sets) > 0
}

// passName is how errors and plans call the pass.
func (j *Resolved) passName() string {
	of := "of the model, as the reference,"
	if m := j.other; m != nil {
		of = "of dpo.reference_model " + m.Dir
	}
	return "the forward pass " + of + " over all pairs before training"
}

// passSampler gives the rows of set in the order of the pass.
func (j *Resolved) passSampler(set *data.Dataset) *data.Sampler {
	return data.NewSampler(set.All(), j.c.RowsPerStep(), 0, false)
}

// checkPositions refuses rows that are longer than the positions that a model has learned, and notes where they are longer than
// it was made for.
func (j *resolving) checkPositions(m *model.Config, called string) error {
	n := min(j.rowTokens(), j.c.MaxSeqLen)
	if n > m.MaxPositions && m.LearnedPositions {
		return j.c.Errorf("max_seq_len", "rows have %d tokens, and %s has learned %d positions: it is at most that", n, called, m.MaxPositions)
	}
	if n > m.MaxPositions && m.MaxPositions > 0 {
		j.note("rows of %d tokens are longer than %s's max_position_embeddings of %d", n, called, m.MaxPositions)
	}
	return nil
}
