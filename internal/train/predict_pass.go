package train

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"

	"mt/plan"
	"mt/plan/rates"
)

// memoryTable is the table of the run and, where the pass is of another model or needs more, of the pass.
func memoryTable(j *Resolved) plan.Table {
	t := j.plan.Table()
	if j.ref.pass == nil {
		return t
	}
	p, detail := j.ref.pass.Table(), "given back before training: all pairs go forward through "
	if j.other == nil {
		detail += "the model"
	} else {
		detail += "dpo.reference_model"
	}
	for _, side := range []struct {
		where      string
		pass, runs int64
	}{{"host", p.Host, t.Host}, {"device", p.Device, t.Device}} {
		if j.other != nil || side.pass > side.runs {
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
func timePass(j *Resolved, at plan.Rates) (*passTime, error) {
	if j.ref.pass == nil {
		return nil, nil
	}
	b, err := plan.Time(j.ref.pass, at)
	if err != nil {
		return nil, err
	}
	t := &passTime{Step: b.Step, Steps: passSteps(j)}
	if t.Steps > 0 {
		all := b.Step * float64(t.Steps)
		t.All = &all
	}
	return t, nil
}

// passSteps is how many batches the pass has; 0: only the data tells.
func passSteps(j *Resolved) (n int) {
	for _, of := range pairSets(j.Inputs, &j.ref) {
		if *of.refs == nil {
			n += j.passSampler(of.set).StepsPerEpoch()
		}
	}
	return n
}

// passRates are what the devices of m reach together in the pass, by device.
func passRates(j *Resolved, m *rates.Machine) plan.Rates {
	at, n := plan.Rates{Host: m.Host.Bandwidth * 1e9}, float64(j.plan.Lanes())
	for lane := range j.plan.Lanes() {
		flops, link := m.On(lane).Pace(j.c.ComputeDType)
		at.MatMul, at.Link = at.MatMul+flops/n, at.Link+link/n
	}
	return at
}

// passWords says what the pass takes beside what table has of it; empty: nothing is to be said.
func passWords(j *Resolved, t *passTime, table plan.Table) string {
	var takes []string
	if n := passSteps(j); n > 0 {
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
