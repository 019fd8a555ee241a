package actors

import (
	"encoding/binary"
	"math"

	"mt/base/accounts"
	"mt/data"
	"mt/device"
	"mt/host"
	"mt/layers"
)

// batchSlot is the memory of one batch, on the host and on the device. It has the batch's embedding rows, the ids and
// positions of every micro-batch, and the losses.
type batchSlot struct {
	staging []byte // on the host: ints, then rows
	place   placement
	mem     device.Mem          // the staging buffer as the device sees it
	losses  device.Tensor       // (rows of the head) f32
	lse     device.Tensor       // (rows of the head) f32, if the head is in parts
	rows    device.Tensor       // (unique ids, hidden) act
	micro   []layers.MicroBatch // element 0 stands for all micro-batches together; micro-batch i is element i+1
	offset  []int               // by index of micro: the place of its first token in losses
	scale   float32             // factor of every token's gradient, see lossScale
	ints    int64               // bytes of staging before the rows
	staged  []list              // the lists of int32 to write into staging

	ready    device.Event // recorded when the batch is on the device
	computed device.Event // recorded when the batch's losses are computed
}

// list is an int32 array, such as the token ids of a micro-batch, and its byte offset (at) in the
// batch's staging buffer.
type list struct {
	at     int64
	values []int32
}

// allocBatches allocates the batch slots and the host memory that receives losses. One host buffer serves all slots,
// because the losses of only one batch are copied at a time.
func (r *lane) allocBatches() (err error) {
	r.batches = make([]batchSlot, r.o.batchSlots())
	for i := range r.batches {
		if err := r.allocBatch(&r.batches[i]); err != nil {
			return err
		}
	}
	r.lossHost, err = r.allocHost(r.plan.LossBytes())
	return err
}

func (r *lane) allocBatch(b *batchSlot) (err error) {
	b.ints = r.plan.BatchIntBytes()
	total := r.plan.BatchBytes()
	if b.staging, err = r.allocHost(total); err != nil {
		return err
	}
	b.place = r.placement()
	if b.mem, err = b.place.bind(b.staging); err != nil {
		return err
	}
	losses, err := r.alloc(accounts.Batch, r.plan.LossBytes())
	if err != nil {
		return err
	}
	b.losses = losses.Tensor(device.F32, 0, r.plan.LossBytes()/4)
	if bytes := r.plan.LSEBytes(); bytes > 0 {
		lse, err := r.alloc(accounts.Batch, bytes)
		if err != nil {
			return err
		}
		b.lse = lse.Tensor(device.F32, 0, bytes/4)
	}
	if b.ready, err = r.event(); err != nil {
		return err
	}
	b.computed, err = r.event()
	return err
}

// layOut plans where each part of a batch goes in a slot's staging buffer: the lists of int32, then the embedding rows
// of the batch's unique token ids. It writes nothing there; gather does.
func (r *lane) layOut(e gatherRows) {
	b, batch := &r.batches[e.Slot], e.p.Batch
	b.scale = r.lossScale(batch)
	b.micro, b.offset, b.staged = append(b.micro[:0], layers.MicroBatch{}), append(b.offset[:0], 0), b.staged[:0]
	var off int64
	place := func(v []int32) device.Tensor {
		if len(v) == 0 {
			return device.Tensor{}
		}
		at := off
		b.staged = append(b.staged, list{at, v})
		off = (at + 4*int64(len(v)) + device.Align - 1) / device.Align * device.Align
		return b.mem.Tensor(device.I32, at, int64(len(v)))
	}
	tokens := 0
	for i := range batch.MicroBatches {
		m := &batch.MicroBatches[i]
		b.offset = append(b.offset, tokens)
		rows := make([]int32, m.Tokens)
		r.plan.Spec.RopePositions(rows, m.Positions, m.CuSeqlens)
		b.micro = append(b.micro, layers.MicroBatch{Tokens: m.Tokens, Seqs: len(m.CuSeqlens) - 1, MaxSeqlen: m.MaxSeqlen,
			Index: place(m.Index), Targets: place(m.Targets), Pos: place(rows), Cu: place(m.CuSeqlens),
			RowStart: place(m.RowStart), RowPos: place(m.RowPos), ChunkBounds: place(r.plan.Spec.ChunkBounds(m.CuSeqlens)),
			UniqueRows: len(batch.UniqueIDs), First: batch.FirstToken() + tokens})
		if r.plan.Spec.Config.PerLayerSize > 0 {
			last := &b.micro[len(b.micro)-1]
			last.IDs, last.UniqueIDs = place(batch.IDs(i)), place(batch.UniqueIDs)
		}
		r.fillReferences(e.p, m, &b.micro[1+i], place)
		r.fillAhead(batch, m, &b.micro[1+i], place)
		tokens += m.Tokens
	}
	if r.schedule.On(0) != int(r.index) {
		return
	}
	b.rows = b.mem.Tensor(r.plan.Spec.Act, b.ints, int64(len(batch.UniqueIDs))*int64(r.plan.Spec.Config.HiddenSize))
}

// gather writes the batch into the slot's staging buffer, at the places that layOut has chosen.
func (r *lane) gather(e gatherRows) {
	b := &r.batches[e.Slot]
	for _, l := range b.staged {
		putInts(b.staging[l.at:], l.values)
	}
	if b.rows.None() { // another lane has the embedding
		return
	}
	host.GatherRows(b.staging[b.ints:b.ints+b.rows.Mem().Bytes], r.plan.Layouts[0], r.o.Home.Tile(0), 0, e.p.Batch.UniqueIDs, r.o.Pool)
}

// upload enqueues the copies of a batch's staging buffer to the device: the lists of int32, then the embedding rows.
func (r *lane) upload(b *batchSlot) {
	used := b.rows.Len * r.plan.Spec.Act.Size()
	b.place.upload(b.mem.Slice(0, b.ints), b.staging[:b.ints])
	if used > 0 {
		b.place.upload(b.mem.Slice(b.ints, used), b.staging[b.ints:b.ints+used])
	}
	r.h2d.Record(b.ready)
}

// putInts writes v to dst as little-endian int32.
func putInts(dst []byte, v []int32) {
	for i, x := range v {
		binary.LittleEndian.PutUint32(dst[4*i:], uint32(x))
	}
}

// putFloats writes v to dst as little-endian float32.
func putFloats(dst []byte, v []float32) {
	for i, x := range v {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
	}
}

// lossScale returns 1 / supervised tokens of the batch over all ranks. Each token's loss gradient
// is multiplied by this factor, so the gradients belong to the mean loss. If the run trains on
// preference pairs, the factor is 1 / pairs.
func (r *run) lossScale(b *data.Batch) float32 {
	n := b.AllSupervised()
	if r.onPairs() {
		n = b.AllPairs()
	}
	return float32(1 / float64(max(n, 1)))
}
