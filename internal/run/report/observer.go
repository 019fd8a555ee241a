package report

import (
	"fmt"
	"net"

	"mt/actors"
	"mt/internal/watch"
)

// Observer receives the events of a run, on one goroutine. Its methods return no errors: a failing observer adds a
// note, and the run continues.
type Observer interface {
	Step(Step)
	Eval(Eval)
	Note(text string)
	End(err error) // the run has ended; nil: without an error
}

// Step is a completed step.
type Step struct {
	Report  actors.StepReport
	Metrics StepMetrics
	Logged  bool // metrics.jsonl has the step
}

// Eval is the result of an evaluation between steps: the held-out loss, or samples.
type Eval struct {
	Report  actors.EvalReport
	Metrics *EvalMetrics // nil: the result is samples
	Samples []SampleLine
}

// Observers passes each event to all observers, one after the other.
type Observers []Observer

// Step implements Observer.
func (all Observers) Step(s Step) {
	for _, o := range all {
		o.Step(s)
	}
}

// Eval implements Observer.
func (all Observers) Eval(e Eval) {
	for _, o := range all {
		o.Eval(e)
	}
}

// Note implements Observer.
func (all Observers) Note(text string) {
	for _, o := range all {
		o.Note(text)
	}
}

// End implements Observer.
func (all Observers) End(err error) {
	for _, o := range all {
		o.End(err)
	}
}

// noopObserver ignores every event. Observers embed it and override the methods they need.
type noopObserver struct{}

// Step implements Observer.
func (noopObserver) Step(Step) {}

// Eval implements Observer.
func (noopObserver) Eval(Eval) {}

// Note implements Observer.
func (noopObserver) Note(string) {}

// End implements Observer.
func (noopObserver) End(error) {}

// Dashboard is the observer that serves a web page about the run until its end.
type Dashboard struct {
	noopObserver
	Server *watch.Server
}

// Serve serves a web page about the run in the directory dir until the run ends. page is the listener, and at is the
// address that users open. note gets a message if the server fails.
func Serve(dir string, page net.Listener, at watch.Address, note func(string)) *Dashboard {
	return &Dashboard{Server: watch.Serve(page, watch.Options{Dirs: []string{dir}, Within: true, Address: at,
		Warn: func(err error) { note(fmt.Sprintf("the dashboard is gone, and the run goes on: %v", err)) }})}
}

// End implements Observer.
func (d *Dashboard) End(error) { d.Server.Close() }
