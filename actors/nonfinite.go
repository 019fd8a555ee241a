package actors

import (
	"mt/device"
	"mt/layers/schedule"
)

// NonFiniteError ends a run whose loss or gradients were not finite.
type NonFiniteError struct {
	Step   int // the step at which the run gave up
	Finite int // the last step before it whose loss and gradients were finite
	err    error
}

func (e *NonFiniteError) Error() string { return e.err.Error() }

// Unwrap returns the error whose text Error returns.
func (e *NonFiniteError) Unwrap() error { return e.err }

// outputChecks has the output of every launch of a diagnosis looked at.
type outputChecks struct{}

// checkOutput is the work of looking at what a launch has made.
type checkOutput struct{ enqueue }

func (outputChecks) enqueued(v schedule.Visit, e enqueue) []effect {
	if e.Out < 0 { // the head has no output: its losses tell
		return nil
	}
	checked := ActivationChecked{Prog: e.p.Seq, Layer: v.Layer, MicroBatch: e.p.Launches[e.Index].MicroBatch}
	return []effect{work{do: checkOutput{e}, done: []send{{conductorID, checked}}}}
}

// start waits until a launch of a diagnosis is done, and completes w with whether its
// output is finite. It holds up Compute, which in a diagnosis does no harm.
func (c checkOutput) start(r *lane, w work) error {
	e := c.enqueue
	l := e.p.Launches[e.Index]
	v := e.p.Visits[l.Visit]
	n := r.hidden(e.Out, e.p.Batch.MicroBatches[l.MicroBatch].Tokens)
	buf := n.Host
	if buf == nil {
		var err error
		if buf, err = r.dev.AllocHost(n.Dev.Mem().Bytes); err != nil {
			return r.launchError(e, v, err)
		}
		defer r.dev.FreeHost(buf)
		r.compute.CopyD2H(buf, n.Dev.Mem())
	}
	if err := r.compute.Sync(); err != nil {
		return r.launchError(e, v, err)
	}
	r.hub.done(w, allFinite(buf, r.plan.Spec.Act))
	return nil
}

// allFinite says whether all elements of b are finite; dt is fp32 or bf16. One that is not
// has an exponent of ones alone.
func allFinite(b []byte, dt device.DType) bool {
	step := int(dt.Size())
	for i := step; i <= len(b); i += step {
		if top := uint16(b[i-1])<<8 | uint16(b[i-2]); top&0x7f80 == 0x7f80 {
			return false
		}
	}
	return true
}
