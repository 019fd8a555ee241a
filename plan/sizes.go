package plan

import (
	"reflect"
	"slices"

	"mt/device"
	"mt/host/optim"
	"mt/layers"
	"mt/layers/schedule"
	"mt/model"
)

// Limits are upper bounds for every batch of a run. The sizes of buffers follow from them.
type Limits struct {
	Tokens           int // in a batch
	MicroBatches     int
	MicroBatchTokens int // in the largest micro-batch
	Sequences        int // in a batch
	UniqueIDs        int
}

// NewLimits returns the limits of batches with the given number of rows of at most rowTokens. A
// batch is cut into micro-batches of at most microBatchTokens, with at least one row each. The
// number of micro-batches is bounded in two ways. Two neighbouring micro-batches together have more
// than microBatchTokens, or they would be one. Each micro-batch but the last has no room for
// another row of rowTokens, so it has as many rows as such long rows would fit.
func NewLimits(rows, rowTokens, microBatchTokens, vocab int) Limits {
	tokens := rows * rowTokens
	n := min(rows, 2*(tokens/(microBatchTokens+1))+1)
	if microBatchTokens >= rowTokens {
		full := microBatchTokens / rowTokens
		n = min(n, (tokens-1)/(microBatchTokens-rowTokens+1)+1, (rows+full-1)/full)
	}
	return Limits{Tokens: tokens, MicroBatchTokens: min(tokens, max(microBatchTokens, rowTokens)),
		MicroBatches: n, Sequences: tokens, UniqueIDs: min(vocab, tokens)}
}

// Run is a resolved run: all sizes and choices are fixed.
type Run struct {
	Layouts  []model.Layout
	Spec     layers.Spec
	Order    schedule.Order // order of micro-batches in the layers
	GradBF16 bool
	Clip     bool // gradients of all layers wait for the norm
	Unified  bool // the device computes on host memory; tiles are used in place
	// OneMemory: host and device share one memory and one budget. Unified implies OneMemory.
	OneMemory bool
	EvalOnly  bool  // no gradients, no planes beside the weights
	Context   int64 // device bytes used before any allocation
	Depths    Depths
	Limits    Limits
	Planes    optim.Planes // planes beside the weights
	Optim     string       // the optimizer's name in a machine's rates
	kept      *kept        // cache for Layouts; nil: not computed
	// NSSteps is the number of Newton-Schulz iterations for a matrix that is updated whole (optim.Muon); 0: no such
	// matrices.
	NSSteps int
	// RowTokens is the length of the longest row, in tokens.
	RowTokens int
	// Experts is the number of experts in a layer with experts; 0: no layer has any. OnDemand says
	// that an expert's tile is fetched only when the routing is known to use it.
	Experts  int
	OnDemand bool
	// KeptSlots is the number of slots on each device through which what blocks keep travels to the host and back
	// (Spec.KeptOnHost).
	KeptSlots int
	// Rounds is the most rounds of a step: each takes some of the micro-batches forward and backward; 0: one.
	Rounds int
	// Lane has the lane of each layer, for a head that of part 0 (Spec.HeadLanes has the others'); nil: one lane.
	Lane []int
	// StateOnDisk tells for each layer whether its state (lower halves and planes) is on disk; nil: none is.
	StateOnDisk []bool
	// GradOnDisk tells for each layer whether its gradient waits for the norm on disk. The layer's state is then on
	// disk too. nil: none does.
	GradOnDisk []bool
	// WeightsOnDisk tells for each layer whether its tile is on disk. The layer's state is then on
	// disk too. nil: no tile is.
	WeightsOnDisk []bool
	// ParamChunk is the chunk size for reading tiles from disk, a multiple of 4 KiB; 0: 1 MiB.
	ParamChunk int64
	// Compress: data on disk is compressed.
	Compress bool
	// Ranks is the number of processes that divide the rows of a step, normally each on its own
	// host. Rank is the index of this process. Ranks 0 and 1: a single rank. Shares[layer][rank] is
	// a rank's share of a layer's state; nil: whole layers. AllIDs bounds the unique ids in the
	// batches of all ranks; Limits.UniqueIDs bounds this rank's.
	Ranks, Rank int
	Shares      [][]optim.Share
	AllIDs      int

	paces     []Pace // by lane; nil: equal devices
	tiered    bool   // the choice of data on disk is made
	gradsStay bool   // gradients must not wait on disk
	view      int    // 0: all lanes; else sizes count lane view−1 only
}

// Same reports whether a run of the plan o takes the same time as one of r. Both plans are of one model and optimizer.
func (r *Run) Same(o *Run) bool {
	a, b := *r, *o
	for _, p := range []*Run{&a, &b} {
		p.Planes, p.kept = nil, nil // of the optimizer and the model
		if !p.PoolsSlabs() {
			p.Depths.GradSlabs = 0 // not used
		}
	}
	return a.Depths == b.Depths && a.Limits == b.Limits && reflect.DeepEqual(a, b)
}

// GradBytes returns the size of one element of a landed gradient.
func (r *Run) GradBytes() int64 {
	if r.GradBF16 {
		return 2
	}
	return 4
}

// TurnsAround reports whether every layer processes the micro-batches in the reverse order of the
// layer before it.
func (r *Run) TurnsAround() bool { return r.Order == schedule.Zigzag }

// Kind returns the kind of layer l.
func (r *Run) Kind(l int) layers.Kind { return layers.KindOf(r.Layouts[l].Kind) }

// GradElems returns the number of elements in layer l's gradient. The embedding's gradient has shape (unique ids,
// hidden).
func (r *Run) GradElems(l int) int64 {
	if row := r.Kind(l).RowElems(r.Layouts[l]); row > 0 {
		return int64(r.Limits.UniqueIDs) * row
	}
	return r.Layouts[l].GradElems
}

// BufferElems returns the size of a gradient buffer in elements. It is the largest gradient of a tile: a whole layer, a
// part of the head, or a part of a layer with experts. It is 0 if all gradients accumulate in slabs.
func (r *Run) BufferElems() int64 {
	return r.largestOf(func(l int) bool { return r.has(l) && r.GradBinding(l) == Copied },
		func(t layers.Tile) int64 { return t.GradElems(r.Limits.UniqueIDs) }, schedule.Streamed, schedule.Whole, schedule.NoSlot)
}

// BufferBytes returns the size of a gradient buffer on the device.
func (r *Run) BufferBytes() int64 { return 4 * r.BufferElems() }

// SlabElems returns the number of elements in the largest layer's gradient.
func (r *Run) SlabElems() int64 {
	var n int64
	for l := range r.Layouts {
		n = max(n, r.GradElems(l))
	}
	return n
}

// SlabsAreCredits reports whether layers share a pool of slabs, so that using one takes a credit.
// Otherwise every layer has its own slab, in which its gradient waits for the norm, unless the
// gradient waits on disk. With several ranks, the summed gradients of a rank's shares wait in other
// slabs.
func (r *Run) SlabsAreCredits() bool { return !r.Clip || r.Ranks > 1 }

// GradsInPlace reports whether gradients accumulate directly in the layer's slab, which a unified device can bind. Then
// gradients are not copied and gradient buffers need no memory. Gradients that wait on disk have no slab of their own
// and are excluded.
func (r *Run) GradsInPlace() bool { return r.Unified && !r.SlabsAreCredits() && !r.GradBF16 }

// Binding tells where the device reads and writes host data.
type Binding uint8

// The values of Binding.
const (
	Copied  Binding = iota // in device memory, with copies from or to the host
	InPlace                // in host memory
)

// Binding returns whether weight tiles, of every class of slots, and the batch are copied to the
// device or used in host memory.
func (r *Run) Binding() Binding {
	if r.Unified {
		return InPlace
	}
	return Copied
}

// GradBinding says where layer l's gradient accumulates: in a device buffer that is copied to the host (Copied), or in
// host memory (InPlace).
func (r *Run) GradBinding(l int) Binding {
	if r.GradsInPlace() && !r.gradOnDisk(l) {
		return InPlace
	}
	return Copied
}

// Head returns the index of the head, which is the last layer.
func (r *Run) Head() int { return len(r.Layouts) - 1 }

// Slots returns the number of weight slots of a class, and the device memory of one in bytes. The
// largest tile that uses the slot gives the size. It is 0 if tiles are used in host memory; a slot
// is then only a credit.
func (r *Run) Slots(class schedule.Class) (count int, bytes int64) {
	bytes = r.largest(slotSize, class)
	switch {
	case class == schedule.Streamed:
		count = r.Depths.WeightSlots
	case bytes > 0:
		count = 1
	}
	if r.Binding() == InPlace {
		bytes = 0
	}
	return count, bytes
}

// slotSize and gradSize measure a tile for largest: slotSize returns the bytes of its weights in a
// slot, gradSize the elements of their gradient.
func slotSize(t layers.Tile) int64 { return t.Layout.SlotBytes }
func gradSize(t layers.Tile) int64 { return t.Layout.GradElems }

// slotBytes returns the size of the weight slots of all classes; 0 if weights are bound in place.
func (r *Run) slotBytes() (n int64) {
	for class := range schedule.NumClasses {
		if count, bytes := r.Slots(class); bytes > 0 {
			n += int64(count) * held(bytes)
		}
	}
	return n
}

// Schedule returns the description of a training step from which package schedule makes the
// programs of all lanes.
func (r *Run) Schedule() schedule.Spec {
	s := schedule.Spec{Order: r.Order, Lane: r.Lane, OnDemand: r.OnDemand, WeightSlots: r.Depths.WeightSlots, ActivationSlots: r.Depths.ActivationSlots, KeptSlots: r.KeptSlots, Kept: r.Spec.KeptOf, PerRound: r.roundMicroBatches()}
	var kinds []model.LayerKind
	for _, l := range r.Layouts {
		kinds = append(kinds, l.Kind)
	}
	for i, l := range r.Layouts {
		layer := r.Kind(i).Stages(r.Spec, l)
		layer.Name = model.LayerName(kinds, i)
		s.Layers = append(s.Layers, layer)
	}
	r.dropFrozen(s.Layers)
	Keeping(s.Layers, r.travels)
	return s
}

// Keeping sets schedule.Keeps in the visits of a step to the layers for which travels is true.
func Keeping(all []schedule.Layer, travels func(layer int) bool) {
	for i := range all {
		if !travels(i) {
			continue
		}
		for _, visits := range []*[]schedule.Visit{&all[i].Forward, &all[i].Backward} {
			*visits = slices.Clone(*visits)
			for k := range *visits {
				(*visits)[k].Uses |= schedule.Keeps
			}
		}
	}
}

// largest returns the largest size of a tile, as size measures it, among the layers of the view r whose tiles use slots
// of the given classes.
func (r *Run) largest(size func(layers.Tile) int64, classes ...schedule.Class) int64 {
	return r.largestOf(r.has, size, classes...)
}

// largestOf returns the largest size of a tile, as size measures it. It considers the layers for which counts is true
// and whose tiles use slots of the given classes.
func (r *Run) largestOf(counts func(layer int) bool, size func(layers.Tile) int64, classes ...schedule.Class) (n int64) {
	if r.kept == nil {
		r.keep()
	}
	for i, l := range r.Layouts {
		kind := r.Kind(i)
		if !counts(i) || !slices.Contains(classes, kind.Class(r.Spec)) {
			continue
		}
		if like := r.kept.like[i]; like < i && counts(like) {
			continue // it has counted
		}
		for _, k := range kind.Largest(r.Spec, l) {
			n = max(n, size(kind.Part(r.Spec, l, k)))
		}
	}
	return n
}

// SlabBytes returns the sizes of the slabs: first the layers' own slabs, by layer, then the pool of GradSlabs for every
// lane.
func (r *Run) SlabBytes() []int64 {
	if r.EvalOnly {
		return nil
	}
	var out []int64
	for l := range r.OwnSlabs() {
		out = append(out, r.ownSlabBytes(l))
	}
	if r.PoolsSlabs() {
		out = append(out, slices.Repeat([]int64{r.poolSlabBytes()}, r.Depths.GradSlabs*r.Lanes())...)
	}
	return out
}

// ActivationBytes returns the size of a hidden state of the given number of tokens.
func (r *Run) ActivationBytes(tokens int) int64 {
	return int64(tokens) * int64(r.Spec.HiddenWidth()) * r.Spec.Act.Size()
}

// RowBytes returns the size of the given number of the embedding's rows on the device.
func (r *Run) RowBytes(rows int) int64 {
	return int64(rows) * int64(r.Spec.Config.HiddenSize) * r.Spec.Act.Size()
}

// WorkspaceBytes returns the device memory that every launch may use as scratch: the most that any
// launch needs.
func (r *Run) WorkspaceBytes() int64 {
	if r.EvalOnly {
		return r.Spec.ForwardWorkspaceBytes()
	}
	return r.Spec.WorkspaceBytes()
}

// BatchIntBytes returns the size of a batch's integer data. Every token has its embedding row, a
// target, a position, and an entry in the list of tokens by embedding row. A batch also has
// cumulative lengths, the starts of these lists, and the bounds of attention chunks. With
// preference pairs it has the reference's log-probability of every document. A document has at most
// one more chunk than fit into it. Alignment may cost device.Align bytes for each tensor.
func (r *Run) BatchIntBytes() int64 {
	l := r.Limits
	n := 4*int64(l.Tokens) + int64(l.Sequences+l.MicroBatches) + int64(l.MicroBatches)*int64(l.UniqueIDs+1)
	tensors := int64(6)
	if r.Spec.Config.PerLayerSize > 0 { // token ids, and the distinct ones in each micro-batch
		n += int64(l.Tokens) + int64(l.MicroBatches)*int64(l.UniqueIDs)
		tensors += 2
	}
	if size := r.Spec.Config.ChunkSize; size > 0 {
		n += int64(l.Tokens/size + l.Sequences + l.MicroBatches)
		tensors++
	}
	if !r.Spec.Preference.None() {
		n += int64(l.Sequences)
		tensors++
	}
	if r.Spec.Config.Ahead > 0 { // targets and weights of both streams, the next and the previous token
		n += 6 * int64(l.Tokens)
		tensors += 4
	}
	return alignUp(4*n + tensors*int64(l.MicroBatches)*device.Align)
}

// BatchBytes returns the size of a batch on the device, without losses. The rows of the embedding that the batch uses
// count only on the embedding's lane.
func (r *Run) BatchBytes() int64 {
	if !r.has(0) {
		return r.BatchIntBytes()
	}
	return r.BatchIntBytes() + r.RowBytes(r.Limits.UniqueIDs)
}

// LossBytes returns the size of a batch's losses.
func (r *Run) LossBytes() int64 { return 4 * int64(r.Spec.Config.Streams()*r.Limits.Tokens) }

// LSEBytes returns the size of the log-sum-exps that a batch keeps between two sweeps over the parts of the head.
func (r *Run) LSEBytes() int64 { return r.Spec.LSEBytes(r.Spec.Config.Streams() * r.Limits.Tokens) }

// held returns how many bytes an allocation of n bytes takes on a device or in its host memory: n rounded up to
// device.Align, and at least device.Align.
func held(n int64) int64 { return alignUp(max(n, 1)) }

func alignUp(n int64) int64 { return (n + device.Align - 1) / device.Align * device.Align }
