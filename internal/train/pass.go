package train

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"

	"mt/data"
	"mt/model"
	"mt/plan"
	"mt/plan/rates"
)

// This file plans the reference's pass: the forward over all pairs that comes before training on pairs.

// planPass plans the pass, unless what it finds is known or not needed. Its memory is given back before that of the run is taken, so that both have
// the whole budgets. Of several ranks only the first makes it, with all memory of its host.
func (j *job) planPass() (err error) {
	if j.plan.Spec.Preference.None() || !j.team.first() || j.ref.unneeded || j.knowsReferences() {
		return nil
	}
	r := j.referenceJob()
	if m := j.ref.other; m != nil {
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
		if j.ref.other != nil {
			lack.Keys = strings.Replace(lack.Keys, "a smaller model", "a smaller dpo.reference_model", 1)
		}
		return r.planError(err)
	} else if err != nil {
		return r.planError(fmt.Errorf("%s: %w", j.passName(), err))
	}
	return nil
}

// knowsReferences tells whether no pass is left to make.
func (j *job) knowsReferences() bool {
	sets := j.pairSets()
	for _, of := range sets {
		if *of.refs == nil {
			return false
		}
	}
	return len(sets) > 0
}

// passName is how errors and plans call the pass.
func (j *job) passName() string {
	of := "of the model, as the reference,"
	if m := j.ref.other; m != nil {
		of = "of dpo.reference_model " + m.Dir
	}
	return "the forward pass " + of + " over all pairs before training"
}

// passSampler gives the rows of set in the order of the pass.
func (j *job) passSampler(set *data.Dataset) *data.Sampler {
	return data.NewSampler(set.All(), j.c.RowsPerStep(), 0, false)
}

// memoryTable is the table of the run and, where the pass is of another model or needs more, of the pass.
func (j *job) memoryTable() plan.Table {
	t := j.plan.Table()
	if j.ref.pass == nil {
		return t
	}
	p, detail := j.ref.pass.Table(), "given back before training: all pairs go forward through "
	if j.ref.other == nil {
		detail += "the model"
	} else {
		detail += "dpo.reference_model"
	}
	for _, side := range []struct {
		where      string
		pass, runs int64
	}{{"host", p.Host, t.Host}, {"device", p.Device, t.Device}} {
		if j.ref.other != nil || side.pass > side.runs {
			t.Before = append(t.Before, plan.Row{Where: side.where, Purpose: "reference pass", Bytes: side.pass, Detail: detail})
		}
	}
	return t
}

// passTime is how long the pass takes at least, in seconds, where all rows are full.
type passTime struct {
	Step  float64  `json:"step_seconds"`      // of as many rows as a step has
	Steps int      `json:"steps,omitempty"`   // 0: only the data tells
	All   *float64 `json:"seconds,omitempty"` // nil: only the data tells
}

// timePass bounds the time of the pass at rates; nil: there is no pass.
func (j *job) timePass(at plan.Rates) (*passTime, error) {
	if j.ref.pass == nil {
		return nil, nil
	}
	b, err := plan.Time(j.ref.pass, at)
	if err != nil {
		return nil, err
	}
	t := &passTime{Step: b.Step, Steps: j.passSteps()}
	if t.Steps > 0 {
		all := b.Step * float64(t.Steps)
		t.All = &all
	}
	return t, nil
}

// passSteps is how many batches the pass has; 0: only the data tells.
func (j *job) passSteps() (n int) {
	for _, of := range j.pairSets() {
		if *of.refs == nil {
			n += j.passSampler(of.set).StepsPerEpoch()
		}
	}
	return n
}

// passRates are what the devices of m reach together in the pass, by device.
func (j *job) passRates(m *rates.Machine) plan.Rates {
	at, n := plan.Rates{Host: m.Host.Bandwidth * 1e9}, float64(j.plan.Lanes())
	for lane := range j.plan.Lanes() {
		flops, link := m.On(lane).Pace(j.c.ComputeDType)
		at.MatMul, at.Link = at.MatMul+flops/n, at.Link+link/n
	}
	return at
}

// passWords says what the pass takes beside what table has of it; empty: nothing is to be said.
func (j *job) passWords(t *passTime, table plan.Table) string {
	var takes []string
	if n := j.passSteps(); n > 0 {
		takes = append(takes, fmt.Sprintf("%s batches of %s rows", humanize.Comma(int64(n)), humanize.Comma(int64(j.c.RowsPerStep()))))
	}
	switch {
	case t != nil && t.All != nil:
		takes = append(takes, fmt.Sprintf("at least %.4g s where all rows are full", *t.All))
	case t != nil:
		takes = append(takes, fmt.Sprintf("at least %.4g s for a batch of full rows, of which a step has %s", t.Step, humanize.Comma(int64(j.c.RowsPerStep()))))
	}
	if len(table.Before) == 0 {
		takes = append(takes, "no more memory than training")
	}
	if j.ref.pass == nil || takes == nil {
		return ""
	}
	return j.passName() + " takes " + strings.Join(takes, ", ")
}

// checkPositions refuses rows that are longer than the positions that a model has learned, and notes where they are longer than
// it was made for.
func (j *job) checkPositions(m *model.Config, called string) error {
	n := min(j.rowTokens(), j.c.MaxSeqLen)
	if n > m.MaxPositions && m.LearnedPositions {
		return j.c.Errorf("max_seq_len", "rows have %d tokens, and %s has learned %d positions: it is at most that", n, called, m.MaxPositions)
	}
	if n > m.MaxPositions && m.MaxPositions > 0 {
		j.note("rows of %d tokens are longer than %s's max_position_embeddings of %d", n, called, m.MaxPositions)
	}
	return nil
}
