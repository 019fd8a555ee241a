package actors

import (
	"encoding/binary"
	"fmt"
	"math"

	"mt/host"
)

// This file executes the effects of the Prefetcher and the Offloader: what
// crosses the link between host and device.

func (r *run) execPrefetcher(w work) error {
	switch e := w.do.(type) {
	case gatherRows:
		r.hub.async(prefetcherID, func() (any, error) {
			r.res.gather(e.p)
			return w.done, nil
		})
		return nil
	case fetchBatch:
		r.res.upload(e.p)
		r.res.h2d.Record(r.res.batchReady)
		return r.h2dErr("prefetch the batch of step %d", e.p.Step)
	case fetchWeights:
		r.res.fetchWeights(e)
		return r.h2dErr("prefetch %s", r.res.names[e.Layer])
	case fetchActivation:
		host := r.res.spilled(e.Host, e.Tokens)
		slot := r.res.acts[e.Slot]
		r.res.h2d.Wait(slot.idle)
		r.res.h2d.CopyH2D(slot.mem.Slice(0, int64(len(host))), host)
		r.res.h2d.Record(slot.ready)
		return r.h2dErr("prefetch an activation into slot %d", e.Slot)
	}
	panic(fmt.Sprintf("prefetcher: work %T", w.do))
}

// h2dErr is the error of the h2d stream so far, in the words of what it did.
func (r *run) h2dErr(what string, args ...any) error {
	if err := r.res.h2d.Err(); err != nil {
		return fmt.Errorf(what+": %w", append(args, err)...)
	}
	return nil
}

// fetchWeights brings a tile into its slot and counts those of experts.
func (r *resources) fetchWeights(e fetchWeights) {
	s := r.weights[e.Slot]
	moved := r.place.fetch(r.tiles[e.Tile], s)
	if e.Expert && moved > 0 {
		r.travelled.add(e.Prog, moved)
	}
	r.h2d.Record(s.ready)
}

func (r *run) execOffloader(w work) error {
	s := r.res.d2h
	switch e := w.do.(type) {
	case spill:
		host, slot := r.res.spilled(e.Host, e.Tokens), r.res.acts[e.Slot]
		s.Wait(slot.ready)
		s.CopyD2H(host, slot.mem.Slice(0, int64(len(host))))
		s.Wait(slot.idle) // its last reader may still be at work
		s.Record(slot.idle)
		s.Notify(r.landed(fmt.Sprintf("spill an activation from slot %d", e.Slot), func() { r.hub.done(offloaderID, w.done) }))
	case offloadGrad:
		r.res.offloadGrad(e)
		s.Notify(r.landed("offload the gradient of "+r.res.names[e.Layer], func() { r.hub.done(offloaderID, w.done) }))
	case offloadRouting:
		r.offloadRouting(e)
	case offloadLoss:
		b := r.res.batch
		n := 4 * int64(e.p.Batch.Tokens)
		s.Wait(r.res.lossReady)
		s.CopyD2H(r.res.lossHost[:n], b.losses.Mem().Slice(0, n))
		r.res.offloadLoad(e.p)
		s.Notify(r.landed(fmt.Sprintf("offload the losses of step %d", e.p.Step), func() {
			r.hub.tell(conductorID, LossLanded{Prog: e.p.Seq, Step: e.p.Step, Eval: e.p.Eval, Sum: sumF32(r.res.lossHost[:n]), Aux: r.res.auxLoss(e.p)})
		}))
	default:
		panic(fmt.Sprintf("offloader: work %T", w.do))
	}
	return nil // an error of the stream comes with the notification
}

// landed wraps what follows a copy: it goes on only if no stream has failed, as
// what a failed stream left behind must not reach the optimizer. A failure of
// the compute stream is for its own notification to tell.
func (r *run) landed(what string, then func()) func(error) {
	return func(err error) {
		if r.hub.stopped.Load() {
			return
		}
		if err == nil {
			err = r.res.h2d.Err()
		}
		switch {
		case err != nil:
			r.hub.fail(offloaderID, fmt.Errorf("%s: %w", what, err))
		case r.res.compute.Err() == nil:
			then()
		}
	}
}

func (r *resources) offloadGrad(e offloadGrad) {
	r.d2h.Wait(r.gradBufs[e.Buf].ready)
	r.grads.offload(r.tiles[e.Tile], e.Buf, e.Slab, len(e.IDs))
	r.d2h.Record(r.gradBufs[e.Buf].idle)
}

// spilled is where so many tokens of a spilled activation lie on the host.
func (r *resources) spilled(at, tokens int) []byte {
	from := r.plan.ActivationBytes(at)
	return r.spills[from : from+r.plan.ActivationBytes(tokens)]
}

// sumF32 adds little-endian floats in order, in float64.
func sumF32(b []byte) float64 {
	var sum float64
	for i := 0; i+4 <= len(b); i += 4 {
		sum += float64(math.Float32frombits(binary.LittleEndian.Uint32(b[i:])))
	}
	return sum
}

// slab views a landed gradient: n elements from element off on.
func (r *resources) slab(i int, off, n int64) host.Grad {
	w := r.plan.GradBytes()
	return host.Grad{Data: r.slabs[i].Bytes()[off*w : (off+n)*w], BF16: r.plan.GradBF16, Elems: n}
}
