package report

import (
	"fmt"
	"net"

	"mt/actors"
	"mt/internal/watch"
)

// Observer is told what happens in a run, on one goroutine. No method returns an error: an observer
// that fails has a note, and the run goes on.
type Observer interface {
	Step(Step)
	Eval(Eval)
	Note(text string)
	End(err error) // how the run has ended; nil: well
}

// Step is a step that was made.
type Step struct {
	Report  actors.StepReport
	Metrics StepMetrics
	Logged  bool // metrics.jsonl has it
}

// Eval is what came of a model that was looked at between steps: its held-out loss, or samples of what it writes.
type Eval struct {
	Report  actors.EvalReport
	Metrics *EvalMetrics // nil: these are samples
	Samples []SampleLine
}

// Observers are told one after the other.
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

// noopObserver hears nothing. Observers that want to be told of some things alone embed it.
type noopObserver struct{}

// Step implements Observer.
func (noopObserver) Step(Step) {}

// Eval implements Observer.
func (noopObserver) Eval(Eval) {}

// Note implements Observer.
func (noopObserver) Note(string) {}

// End implements Observer.
func (noopObserver) End(error) {}

// Dashboard is a server over the files of a run, which End closes.
type Dashboard struct {
	noopObserver
	Server *watch.Server
}

// Serve shows the run in dir to whoever has its URL, until the run's end. page is the port, and at its address.
func Serve(dir string, page net.Listener, at watch.Address, note func(string)) *Dashboard {
	return &Dashboard{Server: watch.Serve(page, watch.Options{Dirs: []string{dir}, Within: true, Address: at,
		Warn: func(err error) { note(fmt.Sprintf("the dashboard is gone, and the run goes on: %v", err)) }})}
}

// End implements Observer.
func (d *Dashboard) End(error) { d.Server.Close() }
