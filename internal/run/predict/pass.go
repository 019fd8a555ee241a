package predict

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"

	"mt/internal/run/resolve"
	"mt/plan"
	"mt/plan/rates"
)

// memoryTable is the table of the run and, where the pass is of another model or needs more, of the pass.
func memoryTable(r *resolve.Resolved) plan.Table {
	t := r.Plan.Table()
	if r.Ref.Pass == nil {
		return t
	}
	p, detail := r.Ref.Pass.Table(), "given back before training: all pairs go forward through "
	if r.OtherReference == nil {
		detail += "the model"
	} else {
		detail += "dpo.reference_model"
	}
	for _, side := range []struct {
		where      string
		pass, runs int64
	}{{"host", p.Host, t.Host}, {"device", p.Device, t.Device}} {
		if r.OtherReference != nil || side.pass > side.runs {
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
func timePass(r *resolve.Resolved, at plan.Rates) (*passTime, error) {
	if r.Ref.Pass == nil {
		return nil, nil
	}
	b, err := plan.Time(r.Ref.Pass, at)
	if err != nil {
		return nil, err
	}
	t := &passTime{Step: b.Step, Steps: passSteps(r)}
	if t.Steps > 0 {
		all := b.Step * float64(t.Steps)
		t.All = &all
	}
	return t, nil
}

// passSteps is how many batches the pass has; 0: only the data tells.
func passSteps(r *resolve.Resolved) (n int) {
	for _, of := range resolve.PairSets(r.Inputs, &r.Ref) {
		if *of.Refs == nil {
			n += r.PassSampler(of.Set).StepsPerEpoch()
		}
	}
	return n
}

// passRates are what the devices of m reach together in the pass, by device.
func passRates(r *resolve.Resolved, m *rates.Machine) plan.Rates {
	at, n := plan.Rates{Host: m.Host.Bandwidth * 1e9}, float64(r.Plan.Lanes())
	for lane := range r.Plan.Lanes() {
		flops, link := m.On(lane).Pace(r.Config.ComputeDType)
		at.MatMul, at.Link = at.MatMul+flops/n, at.Link+link/n
	}
	return at
}

// passWords says what the pass takes beside what table has of it; empty: nothing is to be said.
func passWords(r *resolve.Resolved, t *passTime, table plan.Table) string {
	var takes []string
	if n := passSteps(r); n > 0 {
		takes = append(takes, fmt.Sprintf("%s batches of %s rows", humanize.Comma(int64(n)), humanize.Comma(int64(r.Config.RowsPerStep()))))
	}
	switch {
	case t != nil && t.All != nil:
		takes = append(takes, fmt.Sprintf("at least %.4g s where all rows are full", *t.All))
	case t != nil:
		takes = append(takes, fmt.Sprintf("at least %.4g s for a batch of full rows, of which a step has %s", t.Step, humanize.Comma(int64(r.Config.RowsPerStep()))))
	}
	if len(table.Before) == 0 {
		takes = append(takes, "no more memory than training")
	}
	if r.Ref.Pass == nil || takes == nil {
		return ""
	}
	return r.PassName() + " takes " + strings.Join(takes, ", ")
}
