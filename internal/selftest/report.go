package selftest

import (
	"fmt"
	"io"
	"text/tabwriter"

	"mt/plan/rates"
)

// Check is one property that must hold.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	// Errors has the first few findings that show that it does not hold.
	Errors []string `json:"errors,omitempty"`
}

// Rate is one rate that was measured.
type Rate struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Detail string  `json:"detail,omitempty"`
	// Beside has Value beside what is predicted.
	rates.Beside
}

// predict puts what is predicted beside the rate: an amount, in the rate's unit and a second, that takes so many seconds; 0: nobody knows.
func (r *Rate) predict(amount, seconds float64) {
	if seconds > 0 {
		r.Beside = rates.Against(amount/seconds, r.Value)
	}
}

// Report is what a self test found.
type Report struct {
	Device  string   `json:"device"`
	Kind    string   `json:"kind"`
	Notes   []string `json:"notes,omitempty"`
	Checks  []Check  `json:"checks"`
	Rates   []Rate   `json:"rates"`
	Seconds float64  `json:"seconds"`
	// Lost names the case after which the device could not be used; empty: none.
	Lost string `json:"lost,omitempty"`
	// Error is what ended the test before its end; empty: nothing.
	Error string `json:"error,omitempty"`
	OK    bool   `json:"ok"`
	// PredictedFor names the machine that rates are predicted for; empty: none.
	PredictedFor string `json:"predicted_for,omitempty"`

	machine *rates.Machine // nil: nothing is predicted
}

// maxErrors is how many errors of a check are kept.
const maxErrors = 8

func (c *Check) errorf(format string, args ...any) {
	c.OK = false
	if len(c.Errors) < maxErrors {
		c.Errors = append(c.Errors, fmt.Sprintf(format, args...))
	}
}

// add appends a check.
func (r *Report) add(c Check) {
	r.Checks = append(r.Checks, c)
	r.OK = r.OK && c.OK
}

// Failed counts the checks that do not hold.
func (r *Report) Failed() int {
	n := 0
	for _, c := range r.Checks {
		if !c.OK {
			n++
		}
	}
	return n
}

// WriteTable prints r for people.
func (r *Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "device\t%s\t\n", r.Device)
	for _, n := range r.Notes {
		fmt.Fprintf(t, "note\t%s\t\n", n)
	}
	for _, c := range r.Checks {
		word := "ok"
		if !c.OK {
			word = "FAILED"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", c.Name, word, c.Detail)
		for _, e := range c.Errors {
			fmt.Fprintf(t, "\t\t%s\n", e)
		}
	}
	for _, m := range r.Rates {
		said := m.Detail
		if predicted, ratio := m.Words(); ratio != "" {
			said = fmt.Sprintf("%s; predicted %s, ratio %s", m.Detail, predicted, ratio)
		}
		fmt.Fprintf(t, "%s\t%.4g %s\t%s\n", m.Name, m.Value, m.Unit, said)
	}
	if r.Lost != "" {
		fmt.Fprintf(t, "lost\tthe device cannot be used after %s\t\n", r.Lost)
	}
	if r.Error != "" {
		fmt.Fprintf(t, "error\t%s\t\n", r.Error)
	}
	verdict := "passed"
	if !r.OK {
		verdict = fmt.Sprintf("%d of %d checks failed", r.Failed(), len(r.Checks))
	}
	fmt.Fprintf(t, "self test\t%s\tin %.1f s\n", verdict, r.Seconds)
	return t.Flush()
}
