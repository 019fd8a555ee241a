package actors

import (
	"fmt"
	"time"

	"mt/data"
	"mt/host"
	"mt/model"
)

// This file executes what runs on the host: packing batches, the optimizer,
// checkpoints, reports.

func (r *run) execFeeder(w work) error {
	e := w.do.(packBatch)
	r.hub.async(feederID, func() (any, error) {
		b, err := r.o.Batch(e.Step, e.Eval)
		if err == nil {
			err = r.res.checkBatch(b)
		}
		if err != nil {
			what := "step"
			if e.Eval {
				what = "evaluation pass"
			}
			return nil, fmt.Errorf("pack the batch of %s %d: %w", what, e.Step, err)
		}
		return batchPacked{BatchReady{Step: e.Step, Eval: e.Eval, Batch: b}}, nil
	})
	return nil
}

// checkBatch refuses what is larger than buffers were sized for.
func (r *resources) checkBatch(b *data.Batch) error {
	l, largest := r.plan.Limits, 0
	for _, m := range b.MicroBatches {
		largest = max(largest, m.Tokens)
	}
	if b.Tokens > int64(l.Tokens) || largest > l.MicroBatchTokens || len(b.MicroBatches) > l.MicroBatches || len(b.UniqueIDs) > l.UniqueIDs {
		return fmt.Errorf("a batch of %d tokens, %d micro-batches of at most %d and %d unique ids exceeds the limits %+v",
			b.Tokens, len(b.MicroBatches), largest, len(b.UniqueIDs), l)
	}
	return nil
}

func (r *run) execOptimizer(w work) error {
	switch e := w.do.(type) {
	case nonFiniteGradient:
		return &NonFiniteError{Step: e.Step, Finite: e.Finite, err: fmt.Errorf("step %d: the gradient of %s is not finite; without clipping "+
			"(max_grad_norm: 0) other layers are updated already, so the run ends: set a lower learning_rate or max_grad_norm > 0", e.Step, r.res.names[e.Layer])}
	case mergeTied:
		r.hub.async(optimizerID, func() (any, error) {
			r.res.mergeTied(e)
			return w.done, nil
		})
	case measure:
		r.hub.async(optimizerID, func() (any, error) {
			return measured{Layer: e.Layer, Squares: r.res.squares(e)}, nil
		})
	case update:
		r.hub.async(optimizerID, func() (any, error) {
			r.res.update(e)
			return w.done, nil
		})
	default:
		panic(fmt.Sprintf("optimizer: work %T", w.do))
	}
	return nil
}

// mergeTied adds the embedding's rows to the head's gradient of the table.
func (r *resources) mergeTied(e mergeTied) {
	ids, cols := e.IDs, r.plan.Spec.Config.HiddenSize
	t, _ := r.plan.Layouts[r.plan.Head()].Tensor(model.RoleLMHead)
	host.AddRows(r.o.Pool, r.slab(e.Head, t.Elem, t.Elems()), ids, r.slab(e.Rows, 0, int64(len(ids)*cols)), cols)
}

// squares is the sum of squares of a layer's gradient, tensor by tensor.
func (r *resources) squares(e measure) float64 {
	if e.Layer == 0 {
		return host.SumSquares(r.o.Pool, r.slab(e.Slab, 0, int64(len(e.IDs))*int64(r.plan.Spec.Config.HiddenSize)))
	}
	var sum float64
	for _, t := range r.plan.Layouts[e.Layer].Tensors {
		sum += host.SumSquares(r.o.Pool, r.slab(e.Slab, t.Elem, t.Elems()))
	}
	return sum
}

// update moves one layer. A tied table is the embedding's, but its gradient is
// in the head's slab.
func (r *resources) update(e update) {
	a := r.o.Adam
	a.LR, a.Step, a.Clip = e.LR, e.AdamStep, e.Clip
	st := r.o.Store
	if e.Layer != 0 {
		st.Update(e.Layer, r.slab(e.Slab, 0, r.plan.Layouts[e.Layer].Elems), a)
		return
	}
	if head := r.plan.Layouts[r.plan.Head()]; head.Tied {
		t, _ := head.Tensor(model.RoleLMHead)
		st.UpdateTensor(0, 0, r.slab(e.HeadSlab, t.Elem, t.Elems()), a)
		return
	}
	ids := e.IDs
	st.UpdateRows(0, ids, r.slab(e.Slab, 0, int64(len(ids))*int64(r.plan.Spec.Config.HiddenSize)), a)
}

func (r *run) execCheckpointer(w work) error {
	s := r.o.Saver
	switch e := w.do.(type) {
	case openSave:
		r.hub.async(checkpointerID, func() (any, error) {
			r.saving.Store(true)
			if err := s.Open(e.Save.Step); err != nil {
				return nil, fmt.Errorf("save step %d: %w", e.Save.Step, err)
			}
			return w.done, nil
		})
	case saveLayer:
		r.hub.async(checkpointerID, func() (any, error) {
			if err := s.Layer(e.Layer); err != nil {
				return nil, fmt.Errorf("save %s: %w", r.res.names[e.Layer], err)
			}
			return w.done, nil
		})
	case commitSave:
		r.hub.async(checkpointerID, func() (any, error) {
			if !r.told.wait(e.Save.Step) {
				return nil, nil // the run has ended; what is written is removed
			}
			dir, err := s.Commit(State{Step: e.Save.Step, AdamStep: e.AdamStep, NonFinite: e.NonFinite, Tokens: e.Save.Tokens}, e.Save.DataPos)
			if err != nil {
				return nil, fmt.Errorf("save step %d: %w", e.Save.Step, err)
			}
			r.saving.Store(false)
			return saveCommitted{Step: e.Save.Step, Dir: dir}, nil
		})
	default:
		panic(fmt.Sprintf("checkpointer: work %T", w.do))
	}
	return nil
}

// reporterCore turns measurements into work.
type reporterCore struct{}

func (reporterCore) step(msg any) []any {
	if _, ok := msg.(flushReports); ok {
		return []any{send{conductorID, reported{}}}
	}
	return []any{work{do: msg}}
}

func (r *run) execReporter(w work) error {
	switch m := w.do.(type) {
	case StepReport:
		now := time.Now()
		m.Elapsed = now.Sub(r.lastStep)
		r.lastStep = now
		m.Compute, m.Stall = r.res.clock.read(m.Prog)
		h2d, d2h := r.res.h2d.bytes.Load(), r.res.d2h.bytes.Load()
		m.H2D, m.D2H = h2d-r.lastH2D, d2h-r.lastD2H
		r.lastH2D, r.lastD2H = h2d, d2h
		experts := r.res.travelled.read(m.Prog)
		m.Experts, m.ExpertBytes = experts.tiles, experts.bytes
		if r.o.OnStep != nil {
			r.o.OnStep(m)
		}
		r.told.pass(m.Step)
	case EvalReport:
		r.lastStep = time.Now()
		r.lastH2D, r.lastD2H = r.res.h2d.bytes.Load(), r.res.d2h.bytes.Load()
		if r.o.OnEval != nil {
			r.o.OnEval(m)
		}
	default:
		panic(fmt.Sprintf("reporter: message %T", m))
	}
	return nil
}
