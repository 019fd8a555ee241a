package actors

import (
	"encoding/binary"
	"fmt"
	"math"

	"mt/device"
	"mt/host"
	"mt/model"
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
		r.res.h2d.Wait(r.res.actIdle[e.Slot])
		r.res.h2d.CopyH2D(r.res.actSlots[e.Slot].Slice(0, int64(len(host))), host)
		r.res.h2d.Record(r.res.actReady[e.Slot])
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

// fetchWeights copies a tile into its slot; on a unified device the tile is
// bound in place when it is used, and nothing is copied.
func (r *resources) fetchWeights(e fetchWeights) {
	slot, idle, ready := r.headSlot, r.headIdle, r.headReady
	if !e.Head {
		idle, ready = r.slotIdle[e.Slot], r.weightsReady[e.Slot]
	}
	if !r.dev.Unified() {
		if !e.Head {
			slot = r.weightSlots[e.Slot]
		}
		r.h2d.Wait(idle)
		switch {
		case r.plan.Layouts[e.Layer].Kind == model.MoE:
			r.uploadPart(e.Prog, slot, e.Layer, e.Part)
		case e.Layer == r.plan.Head() && !e.Head:
			r.uploadShard(slot, e.Part)
		default:
			r.uploadTile(slot, e.Layer)
		}
	}
	r.h2d.Record(ready)
}

// uploadTile enqueues the copies of a whole layer's tensors.
func (r *resources) uploadTile(slot device.Mem, layer int) {
	layout := r.plan.Layouts[layer]
	if n := layout.TileBytes; n > 0 {
		r.h2d.CopyH2D(slot.Slice(0, n), r.o.Store.Layers[layer].Tile[:n])
	}
	for _, t := range layout.Tensors {
		if t.Ref {
			r.h2d.CopyH2D(slot.Slice(t.TileOff, t.TileBytes()), r.o.Store.Layers[0].Tile[:t.TileBytes()])
		}
	}
}

// uploadPart enqueues the copy of a part of a layer with experts for a program,
// and counts those of the experts.
func (r *resources) uploadPart(prog int, slot device.Mem, layer, k int) {
	at := r.plan.Layouts[layer].PartRange(k)
	r.h2d.CopyH2D(slot.Slice(0, at.TileBytes), r.o.Store.Layers[layer].Tile[at.TileOff:at.TileOff+at.TileBytes])
	if k > 0 {
		r.travelled.add(prog, at.TileBytes)
	}
}

// uploadShard enqueues the copies of the tensors of part k of the head: its
// rows of lm_head, which may be the embedding's, and the norm.
func (r *resources) uploadShard(slot device.Mem, k int) {
	head := r.plan.Layouts[r.plan.Head()]
	for _, to := range r.plan.ShardLayout(k).Tensors {
		from, _ := head.Tensor(to.Role)
		tile, off := r.o.Store.Layers[r.plan.Head()].Tile, from.TileOff
		if from.Ref {
			tile, off = r.o.Store.Layers[0].Tile, 0
		}
		if to.Role == model.RoleLMHead {
			off += int64(r.plan.Spec.Shard(k).From) * (from.TileBytes() / int64(from.Rows))
		}
		r.h2d.CopyH2D(slot.Slice(to.TileOff, to.TileBytes()), tile[off:off+to.TileBytes()])
	}
}

func (r *run) execOffloader(w work) error {
	s := r.res.d2h
	switch e := w.do.(type) {
	case spill:
		host := r.res.spilled(e.Host, e.Tokens)
		s.Wait(r.res.actReady[e.Slot])
		s.CopyD2H(host, r.res.actSlots[e.Slot].Slice(0, int64(len(host))))
		s.Wait(r.res.actIdle[e.Slot]) // its last reader may still be at work
		s.Record(r.res.actIdle[e.Slot])
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
	r.d2h.Wait(r.gradReady[e.Buf])
	for _, p := range r.gradPieces(e) {
		src := r.gradBufs[e.Buf].Tensor(device.F32, 4*p.from, p.elems)
		if r.plan.GradBF16 {
			dst := r.narrow.Tensor(device.BF16, 2*p.from, p.elems)
			r.dev.Ops().Convert(r.d2h.Stream, dst, src, p.elems)
			src = dst
		}
		r.d2h.CopyD2H(r.slab(e.Slab, p.to, p.elems).Data, src.Mem())
	}
	r.d2h.Record(r.gradIdle[e.Buf])
}

// piece is a range of a gradient, in elements: where it lies in the buffer and
// where it goes in the slab.
type piece struct{ from, to, elems int64 }

// gradPieces lists what e copies: a layer's gradient at once, that of a part of a
// layer with experts, of a part of the head its rows and, with the last one, the
// norm's. In place there is nothing.
func (r *resources) gradPieces(e offloadGrad) []piece {
	layout, spec := r.plan.Layouts[e.Layer], r.plan.Spec
	cols := int64(spec.Config.HiddenSize)
	switch {
	case r.plan.GradsInPlace():
		return nil
	case e.Layer == 0:
		return []piece{{elems: int64(e.Rows) * cols}}
	case layout.Kind == model.MoE:
		at := layout.PartRange(e.Part)
		return []piece{{to: at.Elem, elems: at.Elems}}
	case e.Layer != r.plan.Head() || spec.Shards() == 1:
		return []piece{{elems: layout.GradElems}}
	}
	var out []piece
	for _, t := range r.plan.ShardLayout(e.Part).Tensors {
		to, _ := layout.Tensor(t.Role)
		switch {
		case t.Role == model.RoleLMHead:
			out = append(out, piece{t.Elem, to.Elem + int64(spec.Shard(e.Part).From)*cols, t.Elems()})
		case e.Part == 0:
			out = append(out, piece{t.Elem, to.Elem, t.Elems()})
		}
	}
	return out
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
