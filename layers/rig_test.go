package layers

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"mt/base/accounts"
	"mt/base/bf16"
	"mt/device"
	"mt/device/op"
	"mt/internal/testkit"
	"mt/internal/testkit/reference"
	"mt/layers/schedule"
	"mt/model"
)

// rig is a small model on a device under test. Its weights are in device memory, and guard bytes
// around every allocation detect writes outside it.
type rig struct {
	t          *testing.T
	dev        device.Device
	s          device.Stream
	spec       Spec
	tpl        *Templates
	layouts    []model.Layout
	weights    []Weights         // per layer, on the device
	ref        reference.Weights // the same values
	filled     int64             // bytes that write has copied
	guards     []device.Mem
	hostGuards [][]byte
	slots      map[int]device.Tensor // weights of the head's parts, once they are used
	at         int                   // the number of the step, for noise; 0: there is none
}

const guardBytes = 2 * device.Align

// guardFill is the value of the guard bytes before and after everything that the rig allocates.
const guardFill = 0xA5

// alloc allocates n bytes of device memory between guard bytes, and fills them with NaN.
func (r *rig) alloc(n int64) device.Mem {
	r.t.Helper()
	m, err := r.dev.Alloc(accounts.Workspace, n+2*guardBytes)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { r.dev.Free(m) })
	fill := bytes.Repeat([]byte{0xFF}, int(m.Bytes))
	for i := range guardBytes {
		fill[i], fill[len(fill)-1-i] = guardFill, guardFill
	}
	r.write(m, fill)
	r.guards = append(r.guards, m.Slice(0, guardBytes), m.Slice(n+guardBytes, guardBytes))
	return m.Slice(guardBytes, n)
}

func (r *rig) tensor(dt device.DType, n int) device.Tensor {
	return r.alloc(int64(n)*dt.Size()).Tensor(dt, 0, int64(n))
}

// hidden allocates a hidden state of n elements, on the device or on the host as the Spec says, and
// fills it with NaN.
func (r *rig) hidden(n int) Hidden {
	if !r.spec.OnHost {
		return OnDevice(r.tensor(r.spec.Act, n))
	}
	return Hidden{Host: r.allocHost(int64(n) * r.spec.Act.Size())}
}

// allocHost allocates n bytes of host memory between guard bytes, and fills them with NaN.
func (r *rig) allocHost(n int64) []byte {
	r.t.Helper()
	b, err := r.dev.AllocHost(n + 2*guardBytes)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { r.dev.FreeHost(b) })
	for i := range b {
		b[i] = 0xFF
	}
	for _, g := range [][]byte{b[:guardBytes], b[len(b)-guardBytes:]} {
		for i := range g {
			g[i] = guardFill
		}
		r.hostGuards = append(r.hostGuards, g)
	}
	return b[guardBytes : guardBytes+n : guardBytes+n]
}

func (r *rig) write(m device.Mem, b []byte) {
	r.t.Helper()
	r.filled += int64(len(b))
	r.s.CopyH2D(m, b)
	if err := r.s.Sync(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) read(m device.Mem) []byte {
	r.t.Helper()
	b := make([]byte, m.Bytes)
	r.s.CopyD2H(b, m)
	if err := r.s.Sync(); err != nil {
		r.t.Fatal(err)
	}
	return b
}

// checkGuards fails the test if any guard byte was overwritten.
func (r *rig) checkGuards() {
	r.t.Helper()
	all := slices.Clone(r.hostGuards)
	for _, g := range r.guards {
		all = append(all, r.read(g))
	}
	for i, g := range all {
		for _, b := range g {
			if b != guardFill {
				r.t.Fatalf("guard %d of %d is overwritten", i, len(all))
			}
		}
	}
}

// put copies v, rounded to t's type, to tensor t on the device. It returns the rounded values.
func (r *rig) put(t device.Tensor, v []float64) []float64 {
	b, kept := make([]byte, t.Mem().Bytes), make([]float64, len(v))
	for i, x := range v {
		v := float32(x)
		switch t.DType {
		case device.BF16:
			binary.LittleEndian.PutUint16(b[2*i:], bf16.Round(v))
			v = bf16.Widen(bf16.Round(v))
		case device.F32:
			binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
		}
		kept[i] = float64(v)
	}
	r.write(t.Mem(), b)
	return kept
}

func (r *rig) get(t device.Tensor) []float64 {
	b, out := r.read(t.Mem()), make([]float64, t.Len)
	for i := range out {
		if t.DType == device.BF16 {
			out[i] = float64(bf16.Widen(binary.LittleEndian.Uint16(b[2*i:])))
		} else {
			out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
		}
	}
	return out
}

// ints uploads v as an int32 tensor.
func (r *rig) ints(v ...int32) device.Tensor {
	t := r.tensor(device.I32, len(v))
	b := make([]byte, 4*len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(b[4*i:], uint32(x))
	}
	r.write(t.Mem(), b)
	return t
}

// newRig puts a model with the given weights on dev; nil: with random weights.
func newRig(t *testing.T, dev device.Device, spec Spec, weights reference.Weights) *rig {
	t.Helper()
	s := testkit.Must(dev.NewStream("compute"))(t)
	testkit.Close(t, s)
	r := &rig{t: t, dev: dev, s: s, spec: spec, ref: reference.Weights{}, slots: map[int]device.Tensor{}}
	cos, sin := spec.Config.RopeTables(spec.Positions)
	r.spec.Cos, r.spec.Sin = r.tensor(device.F32, len(cos)), r.tensor(device.F32, len(sin))
	r.put(r.spec.Cos, widen(cos))
	r.put(r.spec.Sin, widen(sin))
	if spec.OnHost {
		r.spec.Scratch = r.allocHost(spec.ScratchBytes(true))
	}
	r.tpl = New(r.spec, dev)
	r.layouts = spec.Config.Layouts(spec.Act == device.BF16)
	rng := rand.New(rand.NewPCG(7, 11))
	for _, l := range r.layouts {
		w := BindWeights(l, r.alloc(l.SlotBytes))
		for _, p := range l.Tensors {
			kept := r.put(w[p.Role], r.values(p, weights, rng))
			for _, part := range p.Stored {
				r.ref[part.Name] = kept[part.Row*p.Cols : (part.Row+part.Rows)*p.Cols]
			}
		}
		r.weights = append(r.weights, w)
	}
	return r
}

func widen(v []float32) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}

// values returns a parameter's values: the given ones, or random ones large enough that every part
// of the model matters. A tensor that embedding and head share (tied) keeps the values that it got
// first.
func (r *rig) values(p model.TensorLayout, given reference.Weights, rng *rand.Rand) []float64 {
	var v []float64
	for _, part := range p.Stored {
		if known := given[part.Name]; known != nil {
			v = append(v, known...)
		} else if p.Ref {
			v = append(v, r.ref[part.Name]...)
		}
	}
	if v != nil {
		return v
	}
	v = make([]float64, p.Elems())
	for i := range v {
		switch x := rng.NormFloat64(); {
		case p.Dims == 2:
			v[i] = 0.35 * x
		case p.Role == model.RoleSinks:
			v[i] = x
		case strings.HasSuffix(string(p.Role), "_bias"):
			v[i] = 0.2 * x
		default:
			v[i] = 1 - float64(r.spec.Config.NormOffset) + 0.3*x
		}
	}
	return v
}

// batch is a batch on the device: micro-batches, the unique ids of their tokens, and the embedding
// rows of these ids.
type batch struct {
	mbs        []MicroBatch
	ids        []int32
	table      device.Tensor // (U, h) act
	supervised int
	pairs      int // with a preference loss: the number of pairs, by which the batch's gradient is divided
}

// scale returns the factor of every token's gradient, which makes the gradients those of the mean
// loss.
func (b batch) scale() float32 {
	if b.pairs > 0 {
		return 1 / float32(b.pairs)
	}
	return 1 / float32(b.supervised)
}

func (r *rig) batch(mbs ...[]reference.Sequence) batch {
	var b batch
	for _, seqs := range mbs {
		for _, s := range seqs {
			b.ids = append(b.ids, s.IDs...)
			for _, target := range s.Targets {
				if target >= 0 {
					b.supervised++
				}
			}
		}
	}
	slices.Sort(b.ids)
	b.ids = slices.Compact(b.ids)
	h, embed := r.spec.Config.HiddenSize, r.ref[r.table()]
	var rows []float64
	for _, id := range b.ids {
		rows = append(rows, embed[int(id)*h:][:h]...)
	}
	b.table = r.tensor(r.spec.Act, len(rows))
	r.put(b.table, rows)
	first := 0
	for _, seqs := range mbs {
		mb := r.microBatch(seqs, b.ids)
		mb.First = first
		first += mb.Tokens
		b.mbs = append(b.mbs, mb)
	}
	return b
}

// table returns the checkpoint's name of the embedding's tensor.
func (r *rig) table() string { return r.layouts[0].Tensors[0].Stored[0].Name }

func (r *rig) microBatch(seqs []reference.Sequence, unique []int32) MicroBatch {
	mb := MicroBatch{Seqs: len(seqs), UniqueRows: len(unique)}
	var index, targets, pos, rowPos []int32
	cu, rowStart := []int32{0}, []int32{0}
	for _, s := range seqs {
		for i, id := range s.IDs {
			u, _ := slices.BinarySearch(unique, id)
			index, pos = append(index, int32(u)), append(pos, int32(i))
		}
		targets = append(targets, s.Targets...)
		cu = append(cu, int32(len(index)))
		mb.MaxSeqlen = max(mb.MaxSeqlen, len(s.IDs))
	}
	for u := range unique {
		for t, v := range index {
			if int(v) == u {
				rowPos = append(rowPos, int32(t))
			}
		}
		rowStart = append(rowStart, int32(len(rowPos)))
	}
	mb.Tokens = len(index)
	r.spec.RopePositions(pos, pos, cu)
	mb.Index, mb.Targets, mb.Pos, mb.Cu = r.ints(index...), r.ints(targets...), r.ints(pos...), r.ints(cu...)
	mb.RowStart, mb.RowPos = r.ints(rowStart...), r.ints(rowPos...)
	mb.ChunkBounds = r.ints(r.spec.ChunkBounds(cu)...)
	for i, u := range index {
		index[i] = unique[u]
	}
	mb.IDs, mb.UniqueIDs = r.ints(index...), r.ints(unique...)
	return mb
}

// result is the result of a training step: token losses, and gradients by checkpoint tensor names.
type result struct {
	losses []float64
	grads  map[string][]float64
}

// step runs forward and backward of all micro-batches through all layers.
func (r *rig) step(b batch) result {
	r.t.Helper()
	tokens := 0
	grads, embed := r.gradients(len(b.ids))
	res := result{grads: map[string][]float64{}}
	ws := r.alloc(r.spec.WorkspaceBytes())
	for i, mb := range b.mbs {
		losses := r.tensor(device.F32, mb.Tokens)
		r.stepOne(b, mb, grads, embed, losses, ws, i == 0)
		res.losses = append(res.losses, r.get(losses)...)
		tokens += mb.Tokens
	}
	r.checkGuards()
	for i, l := range r.layouts[1:] {
		for _, p := range l.Tensors {
			if p.Frozen {
				continue
			}
			g := r.get(grads[i+1][p.Role])
			for _, part := range p.Stored {
				res.grads[part.Name] = g[part.Row*p.Cols : (part.Row+part.Rows)*p.Cols]
			}
		}
	}
	r.addEmbedding(res.grads, b.ids, r.get(embed))
	return res
}

// gradients allocates gradient memory, full of NaN: for every layer, and for the embedding rows of
// `unique` ids.
func (r *rig) gradients(unique int) ([]Grads, device.Tensor) {
	grads := []Grads{nil}
	for _, l := range r.layouts[1:] {
		grads = append(grads, BindGrads(l, r.alloc(4*l.GradElems)))
	}
	return grads, r.tensor(device.F32, unique*r.spec.Config.HiddenSize)
}

// addEmbedding adds the gradient of some embedding rows to the gradient of the whole table. With
// tied embeddings the table already has the head's part.
func (r *rig) addEmbedding(grads map[string][]float64, ids []int32, rows []float64) {
	name := r.table()
	h := r.spec.Config.HiddenSize
	if grads[name] == nil {
		grads[name] = make([]float64, len(r.ref[name]))
	}
	for i, v := range rows {
		grads[name][int(ids[i/h])*h+i%h] += v
	}
}

func (r *rig) stepOne(b batch, mb MicroBatch, grads []Grads, embed, losses device.Tensor, ws device.Mem, first bool) {
	n := mb.Tokens * r.spec.HiddenWidth()
	xs := []Hidden{r.hidden(n)}
	saved := []device.Mem{{}}
	r.tpl.EmbedForward(r.s, xs[0], b.table, mb, r.at, ws)
	last := len(r.layouts) - 1
	for i := 1; i < last; i++ {
		xs = append(xs, r.hidden(n))
		var keep device.Mem
		if k := KindOf(r.layouts[i].Kind).SavedBytes(r.spec, r.layouts[i].Block, r.spec.Keep.Of(r.layouts[i].Block), mb.Tokens); k > 0 {
			keep = r.alloc(k)
		}
		saved = append(saved, keep)
		r.launch(i, schedule.Forward, Launch{In: xs[i-1], Out: xs[i], MicroBatch: mb, Saved: keep, Workspace: ws})
	}
	dx := r.hidden(n)
	if r.spec.Shards() > 1 {
		r.headShards(b, mb, grads[last], dx, xs[last-1], losses, ws, first)
	} else {
		r.tpl.HeadForwardBackward(r.s, r.weights[last], grads[last], dx, xs[last-1], losses, mb, ws, b.scale(), first)
	}
	for i := last - 1; i > 0; i-- {
		r.launch(i, schedule.Backward, Launch{In: xs[i-1], Grad: dx, Grads: grads[i], MicroBatch: mb, Saved: saved[i], Workspace: ws, First: first})
	}
	r.tpl.EmbedBackward(r.s, embed, b.table, dx, mb, ws, first)
}

// launch enqueues a phase of layer i, between embedding and head, as the engine does.
func (r *rig) launch(i int, phase schedule.Phase, x Launch) {
	l := r.layouts[i]
	x.Stream, x.Block, x.Weights, x.Visit = r.s, l.Block, r.weights[i], schedule.Visit{Stage: schedule.Block, Phase: phase}
	KindOf(l.Kind).Launch(r.tpl, &x)
}

// shard returns part k of the head, with its weights copied to a slot of their own.
func (r *rig) shard(k int) (Shard, Weights) {
	head := r.layouts[len(r.layouts)-1]
	p, l := r.spec.Shard(k), r.spec.ShardLayout(head, k)
	if r.slots[k].None() {
		m := r.alloc(l.SlotBytes)
		from := shardOf(r.weights[len(r.weights)-1], p, r.spec.Config.HiddenSize)
		for role, to := range BindWeights(l, m) {
			r.s.CopyD2D(to.Mem(), from[role].Mem())
		}
		r.slots[k] = m.Tensor(device.F32, 0, m.Bytes/4)
	}
	return p, BindWeights(l, r.slots[k].Mem())
}

// shardOf views a part's weights or gradients in those of the whole head: the part's rows of lm_head.
func shardOf[M ~map[model.Role]device.Tensor](whole M, p Shard, width int) M {
	m := M{}
	for role, t := range whole {
		switch role {
		case model.RoleLMHead:
			t = t.Slice(int64(p.From)*int64(width), int64(p.Rows)*int64(width))
		case model.RoleLMHeadBias:
			t = t.Slice(int64(p.From), int64(p.Rows))
		}
		m[role] = t
	}
	return m
}

// headForward runs a head in parts forward for one micro-batch: the sweep over all parts that
// computes the losses.
func (r *rig) headForward(mb MicroBatch, x Hidden, losses, lse device.Tensor, ws device.Mem, terms op.LossTerms) {
	for k := range r.spec.Shards() {
		p, w := r.shard(k)
		r.tpl.HeadShardForward(r.s, w, x, losses, lse, mb, ws, p, terms, k == 0, k == r.spec.Shards()-1)
	}
}

// headShards runs a head in parts for one micro-batch: a sweep over the parts for the losses, and
// one in reverse for the gradients.
func (r *rig) headShards(b batch, mb MicroBatch, g Grads, dx, x Hidden, losses device.Tensor, ws device.Mem, first bool) {
	lse := r.tensor(device.F32, mb.Tokens)
	r.headForward(mb, x, losses, lse, ws, r.spec.Terms)
	n := r.spec.Shards()
	for k := n - 1; k >= 0; k-- {
		p, w := r.shard(k)
		r.tpl.HeadShardBackward(r.s, w, shardOf(g, p, r.spec.Config.HiddenSize), dx, x, losses, lse, mb, ws, b.scale(), p,
			first, k == n-1, k == 0)
	}
}

// evaluate returns the losses of all tokens from a forward that keeps nothing for a backward.
func (r *rig) evaluate(b batch) []float64 {
	r.t.Helper()
	ws := r.alloc(r.spec.ForwardWorkspaceBytes())
	var out []float64
	for _, mb := range b.mbs {
		n := mb.Tokens * r.spec.HiddenWidth()
		x, y, losses := r.hidden(n), r.hidden(n), r.tensor(device.F32, mb.Tokens)
		r.tpl.EmbedForward(r.s, x, b.table, mb, 0, ws)
		last := len(r.layouts) - 1
		for i := 1; i < last; i++ {
			r.launch(i, schedule.Evaluate, Launch{In: x, Out: y, MicroBatch: mb, Workspace: ws})
			x, y = y, x
		}
		if r.spec.Shards() > 1 {
			r.headForward(mb, x, losses, r.tensor(device.F32, mb.Tokens), ws, op.LossTerms{})
		} else {
			r.tpl.HeadForward(r.s, r.weights[last], x, losses, mb, ws)
		}
		out = append(out, r.get(losses)...)
	}
	r.checkGuards()
	return out
}

// TestMain makes the garbage collector run less often, because little of the tests' memory stays
// alive.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
