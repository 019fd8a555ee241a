package doctor

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"mt/plan/rates"
)

// Check is a required property of the device, with the result of its test.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	// Errors holds the first few violations.
	Errors []string `json:"errors,omitempty"`
}

// Rate is one measured rate.
type Rate struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Detail string  `json:"detail,omitempty"`
	// Beside compares Value with the prediction.
	rates.Beside
}

// predict adds a predicted rate, amount / seconds, beside the measured one. amount is in the rate's unit times
// seconds, such as FLOPs, and seconds is the predicted time. If seconds is 0, there is no prediction.
func (r *Rate) predict(amount, seconds float64) {
	if seconds > 0 {
		r.Beside = rates.Against(amount/seconds, r.Value)
	}
}

// The ways in which a test case makes its process unusable.
const (
	faulted = "faulted" // the device is unusable
	hung    = "hung"    // the process was silent for too long and was killed
	died    = "died"    // the process exited by itself
)

// Loss records a case, or another step of the test, during which the process was lost.
type Loss struct {
	Case    string  `json:"case"`
	How     string  `json:"how"`     // faulted, hung or died
	Seconds float64 `json:"seconds"` // since the start of the case
	Error   string  `json:"error"`
}

// String describes the loss on one line.
func (l Loss) String() string {
	return fmt.Sprintf("%s %s after %.1f s: %s", l.Case, l.How, l.Seconds, l.Error)
}

// SelfTestReport is the result of a self test.
type SelfTestReport struct {
	Device  string   `json:"device"`
	Kind    string   `json:"kind"`
	Notes   []string `json:"notes,omitempty"`
	Checks  []Check  `json:"checks"`
	Rates   []Rate   `json:"rates"`
	Seconds float64  `json:"seconds"`
	// Running names the case that was running when the report was saved; "": none.
	Running string `json:"running,omitempty"`
	// Lost names the first case during which the device or its process was lost; "": none. Losses
	// lists all such cases.
	Lost   string `json:"lost,omitempty"`
	Losses []Loss `json:"losses,omitempty"`
	// Error is the reason why the test ended early; "": it did not.
	Error string `json:"error,omitempty"`
	OK    bool   `json:"ok"`
	// PredictedFor names the machine of the predictions; "": none.
	PredictedFor string `json:"predicted_for,omitempty"`

	machine *rates.Machine    // nil: no predictions
	hear    func(what string) // called with the name of each case at its start; may be nil
	since   time.Time         // start of the running case
}

// starts records that a case, or another step of a unit, starts.
func (r *SelfTestReport) starts(what string) {
	if what != r.Running {
		r.Running, r.since = what, time.Now()
	}
	if r.hear != nil {
		r.hear(what)
	}
}

// lose records that the running case lost its process. `how` is "faulted", "hung" or "died", and
// `why` is the error for the report.
func (r *SelfTestReport) lose(how, why string) {
	if r.OK = false; r.Lost == "" {
		r.Lost = r.Running
	}
	r.Losses = append(r.Losses, Loss{r.Running, how, time.Since(r.since).Seconds(), why})
}

// fail adds a failed check.
func (r *SelfTestReport) fail(name, why string) { r.add(Check{Name: name, Errors: []string{why}}) }

// merge adds the report of one unit (of) to the report of the whole test.
func (r *SelfTestReport) merge(of *SelfTestReport) {
	for _, c := range of.Checks {
		r.add(c)
	}
	r.Rates, r.Losses = append(r.Rates, of.Rates...), append(r.Losses, of.Losses...)
	r.OK = r.OK && of.OK
	r.PredictedFor = cmp.Or(r.PredictedFor, of.PredictedFor)
	if r.Lost == "" {
		r.Lost = of.Lost
	}
}

// maxErrors is the number of errors kept per check.
const maxErrors = 8

func (c *Check) errorf(format string, args ...any) {
	c.OK = false
	if len(c.Errors) < maxErrors {
		c.Errors = append(c.Errors, fmt.Sprintf(format, args...))
	}
}

// add appends a check.
func (r *SelfTestReport) add(c Check) {
	r.Checks = append(r.Checks, c)
	r.OK = r.OK && c.OK
}

// Failed counts the failed checks.
func (r *SelfTestReport) Failed() int {
	n := 0
	for _, c := range r.Checks {
		if !c.OK {
			n++
		}
	}
	return n
}

// WriteTable prints r as a table.
func (r *SelfTestReport) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "device\t%s\t\n", r.Device)
	for _, n := range r.Notes {
		fmt.Fprintf(t, "note\t\t%s\n", n)
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
	for _, l := range r.Losses {
		fmt.Fprintf(t, "lost\t\t%s\n", l)
	}
	if r.Error != "" {
		fmt.Fprintf(t, "error\t\t%s\n", r.Error)
	}
	verdict := "passed"
	switch failed := r.Failed(); {
	case r.Error != "" && failed == 0:
		verdict = "not finished"
	case !r.OK:
		verdict = fmt.Sprintf("%d of %d checks failed", failed, len(r.Checks))
	}
	fmt.Fprintf(t, "self test\t%s\tin %.1f s\n", verdict, r.Seconds)
	return t.Flush()
}
