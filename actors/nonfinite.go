package actors

import (
	"mt/device"
	"mt/layers/schedule"
)

// NonFiniteError is the error of a run that ends because its loss or gradients were not finite.
type NonFiniteError struct {
	Step   int // the step at which the run failed
	Finite int // the last earlier step with finite loss and gradients
	err    error
}

func (e *NonFiniteError) Error() string { return e.err.Error() }

// Unwrap returns the wrapped error.
func (e *NonFiniteError) Unwrap() error { return e.err }

// outputChecks is Compute's hook in a diagnosis, the repeated forward that searches for the first
// non-finite output. After each launch it requests a check of the launch's output.
type outputChecks struct{}

// checkOutput is the task of checking the output of one launch for non-finite values.
type checkOutput struct{ enqueue }

func (outputChecks) enqueued(v schedule.Visit, e enqueue) []effect {
	if e.Out < 0 || v.Stage == schedule.HeadPart { // the head's losses are checked instead
		return nil
	}
	checked := ActivationChecked{Prog: e.p.Seq, Layer: v.Layer, MicroBatch: e.p.Launches[e.Index].MicroBatch}
	return []effect{work{do: checkOutput{e}, done: []send{{conductorID, checked}}}}
}

// start waits for the launch, reads its output and completes w with the result: whether the output is finite. It blocks
// Compute, which is harmless in a diagnosis.
func (c checkOutput) start(r *lane, w work) error {
	e := c.enqueue
	l := e.p.Launches[e.Index]
	v := e.p.Visits[l.Visit]
	tokens := e.p.Batch.MicroBatches[l.MicroBatch].Tokens
	n := r.hidden(e.Out, tokens)
	buf := n.Host
	if buf == nil {
		mem := n.Dev.Slice(0, int64(tokens*r.plan.Spec.StateWidth())).Mem()
		var err error
		if buf, err = r.dev.AllocHost(mem.Bytes); err != nil {
			return r.launchError(e, v, err)
		}
		defer r.dev.FreeHost(buf)
		r.compute.CopyD2H(buf, mem)
	}
	if err := r.compute.Sync(); err != nil {
		return r.launchError(e, v, err)
	}
	r.hub.done(w, allFinite(buf, r.plan.Spec.Act))
	return nil
}

// allFinite reports whether all elements of b, little-endian values of type dt (fp32 or bf16), are finite. All exponent
// bits of a non-finite value are 1.
func allFinite(b []byte, dt device.DType) bool {
	step := int(dt.Size())
	for i := step; i <= len(b); i += step {
		if top := uint16(b[i-1])<<8 | uint16(b[i-2]); top&0x7f80 == 0x7f80 {
			return false
		}
	}
	return true
}
