package plan

import (
	"slices"

	"mt/device"
	"mt/host/optim"
	"mt/layers"
	"mt/layers/schedule"
	"mt/model"
)

// Limits bound every batch of a run; buffers are sized by them.
type Limits struct {
	Tokens           int // of a batch
	MicroBatches     int
	MicroBatchTokens int // of the largest micro-batch
	Sequences        int // of a batch
	UniqueIDs        int
}

// NewLimits bounds batches of so many rows of at most rowTokens, cut into
// micro-batches of at most microBatchTokens (at least one row each). Any two
// neighbouring micro-batches hold more than microBatchTokens together, and each
// but the last leaves less free than the longest row takes, and has at least as many
// rows as there are longest rows in a micro-batch.
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

// Run is a run with nothing left to resolve: sizes and choices, all of them fixed.
type Run struct {
	Layouts  []model.Layout
	Spec     layers.Spec
	Order    schedule.Order // in which layers take the micro-batches
	GradBF16 bool
	Clip     bool // gradients of all layers wait for the norm
	Unified  bool // the device computes on host memory; tiles are bound in place
	// OneMemory says that host and device share one memory, so that one budget covers both. It holds wherever Unified does.
	OneMemory bool
	EvalOnly  bool  // no gradients, nothing beside the weights
	Context   int64 // bytes of the device that are taken before anything is allocated
	Depths    Depths
	Limits    Limits
	Planes    optim.Planes // what is kept beside the weights
	Optim     string       // the optimizer, as a machine's rates name it
	kept      *kept        // of Layouts; nil: not found yet
	// NSSteps is how many Newton-Schulz iterations a device makes of a matrix that is updated whole
	// (optim.Muon); 0: there are none.
	NSSteps int
	// RowTokens is the length of the longest row, in tokens.
	RowTokens int
	// Experts is how many experts a layer with experts has; 0: no layer has any.
	// OnDemand: an expert's tile is fetched only when it is known that tokens go to it.
	Experts  int
	OnDemand bool
	// Lane is, by layer, the lane that it is on; nil: there is one lane.
	Lane []int
	// Away says, by layer, that its state (lower halves and planes) is on a disk; nil: none is.
	Away []bool
	// GradAway says, by layer, that its gradient waits for the norm on a disk too, as its state is there; nil: none does.
	GradAway []bool
	// ParamAway says, by layer, that its tile is on a disk too, as its state is; nil: none is.
	ParamAway []bool
	// ParamChunk is what those are read in multiples of, a multiple of 4 KiB; 0: 1 MiB.
	ParamChunk int64
	// Compress says that what is on disks is written in fewer bytes.
	Compress bool
	// Ranks is how many processes divide the rows of a step among them, each normally on a host of
	// its own, and Rank which of them this one is; Ranks 0 and 1: alone. Shares are, by layer and
	// rank, what each keeps of a layer beside its tile; nil: all. AllIDs bounds the unique ids of
	// the batches of all ranks together, as Limits.UniqueIDs those of this one's.
	Ranks, Rank int
	Shares      [][]optim.Share
	AllIDs      int

	paces     []Pace // by lane; nil: alike
	tiered    bool   // it is decided what is away
	gradsStay bool   // gradients are not to wait on a disk, whatever that needs
	view      int    // 0: all lanes; else those sizes that differ are of lane view−1
}

// GradBytes is the size of one element of a landed gradient.
func (r *Run) GradBytes() int64 {
	if r.GradBF16 {
		return 2
	}
	return 4
}

// TurnsAround says whether every layer takes the micro-batches in the reverse order of the one
// before.
func (r *Run) TurnsAround() bool { return r.Order == schedule.Zigzag }

// Kind is the kind of layer l.
func (r *Run) Kind(l int) layers.Kind { return layers.KindOf(r.Layouts[l].Kind) }

// GradElems is the size of layer l's gradient in elements. The embedding's is
// (unique ids, hidden).
func (r *Run) GradElems(l int) int64 {
	if row := r.Kind(l).RowElems(r.Layouts[l]); row > 0 {
		return int64(r.Limits.UniqueIDs) * row
	}
	return r.Layouts[l].GradElems
}

// BufferElems is the size of a gradient buffer in elements: the largest gradient of a
// tile, which is a whole layer, or a part of the head or of a layer with experts. It is 0 where all gradients
// are summed in slabs.
func (r *Run) BufferElems() int64 {
	return r.largestOf(func(l int) bool { return r.has(l) && r.GradBinding(l) == Copied },
		func(t layers.Tile) int64 { return t.GradElems(r.Limits.UniqueIDs) }, schedule.Streamed, schedule.Whole, schedule.NoSlot)
}

// BufferBytes is the size of a gradient buffer on the device.
func (r *Run) BufferBytes() int64 { return 4 * r.BufferElems() }

// SlabElems is the size of the largest layer's gradient in elements.
func (r *Run) SlabElems() int64 {
	var n int64
	for l := range r.Layouts {
		n = max(n, r.GradElems(l))
	}
	return n
}

// SlabsAreCredits says whether all layers take turns in the slabs. Else every layer has its own, in which
// its gradient waits for the norm, unless that waits on a disk; of several ranks, each has that of its share elsewhere.
func (r *Run) SlabsAreCredits() bool { return !r.Clip || r.Ranks > 1 }

// GradsInPlace says whether gradients are summed where they would land otherwise: in the
// layer's slab, which a unified device can bind. Then no gradient is copied, and gradient
// buffers have no memory. Those that wait on a disk have no slab of their own, and are excepted.
func (r *Run) GradsInPlace() bool { return r.Unified && !r.SlabsAreCredits() && !r.GradBF16 }

// Binding says where the device reads what lies on the host, and where it writes what is
// to lie there.
type Binding uint8

// The bindings.
const (
	Copied  Binding = iota // in memory of its own: it is copied there, or from there
	InPlace                // where it lies on the host
)

// Binding is that of tiles of weights, of every class of slots, and of the batch.
func (r *Run) Binding() Binding {
	if r.Unified {
		return InPlace
	}
	return Copied
}

// GradBinding says where the gradient of layer l is summed.
func (r *Run) GradBinding(l int) Binding {
	if r.GradsInPlace() && !r.gradAway(l) {
		return InPlace
	}
	return Copied
}

// Head is the index of the head.
func (r *Run) Head() int { return len(r.Layouts) - 1 }

// Slots is how many weight slots there are of a class, and how large one is on the
// device: as the largest of the tiles that take turns in it, or nothing where tiles are
// bound in place and slots are credits alone.
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

// slotSize and gradSize are sizes of a tile: of its weights in bytes, of the gradient
// of them all in elements.
func slotSize(t layers.Tile) int64 { return t.Layout.SlotBytes }
func gradSize(t layers.Tile) int64 { return t.Layout.GradElems }

// slotBytes is what the weight slots of all classes take: nothing where weights are
// bound in place.
func (r *Run) slotBytes() (n int64) {
	for class := range schedule.NumClasses {
		if count, bytes := r.Slots(class); bytes > 0 {
			n += int64(count) * held(bytes)
		}
	}
	return n
}

// Schedule is what the program of a training step follows from.
func (r *Run) Schedule() schedule.Spec {
	s := schedule.Spec{Order: r.Order, Lane: r.Lane, OnDemand: r.OnDemand, WeightSlots: r.Depths.WeightSlots, ActivationSlots: r.Depths.ActivationSlots}
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
	return s
}

// largest is the largest size of a tile of the classes.
func (r *Run) largest(size func(layers.Tile) int64, classes ...schedule.Class) int64 {
	return r.largestOf(r.has, size, classes...)
}

// largestOf is the largest size of a tile of the classes and of those layers.
func (r *Run) largestOf(counts func(layer int) bool, size func(layers.Tile) int64, classes ...schedule.Class) (n int64) {
	for i, l := range r.Layouts {
		kind := r.Kind(i)
		if !counts(i) || !slices.Contains(classes, kind.Class(r.Spec)) {
			continue
		}
		for _, k := range kind.Largest(r.Spec, l) {
			n = max(n, size(kind.Part(r.Spec, l, k)))
		}
	}
	return n
}

// SlabBytes are the sizes of the slabs: first those that layers have of their own, by layer, and then, for every
// lane, GradSlabs that layers take turns in.
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

// ActivationBytes is the size of a hidden state of so many tokens.
func (r *Run) ActivationBytes(tokens int) int64 {
	return int64(tokens) * int64(r.Spec.Config.HiddenSize) * r.Spec.Act.Size()
}

// WorkspaceBytes is the workspace of one launch, the largest of all layers'.
func (r *Run) WorkspaceBytes() int64 {
	if r.EvalOnly {
		return r.Spec.ForwardWorkspaceBytes()
	}
	return r.Spec.WorkspaceBytes()
}

// BatchIntBytes is the size of a batch's ids and places: index, targets,
// positions and row places of every token, cumulative lengths, and the row
// starts of every micro-batch; bounds of stretches, which a document has at most
// one more of than fit into it; of pairs also what a reference thinks of every document.
// Aligning a tensor may cost up to device.Align bytes.
func (r *Run) BatchIntBytes() int64 {
	l := r.Limits
	n := 4*int64(l.Tokens) + int64(l.Sequences+l.MicroBatches) + int64(l.MicroBatches)*int64(l.UniqueIDs+1)
	tensors := int64(6)
	if size := r.Spec.Config.ChunkSize; size > 0 {
		n += int64(l.Tokens/size + l.Sequences + l.MicroBatches)
		tensors++
	}
	if !r.Spec.Preference.None() {
		n += int64(l.Sequences)
		tensors++
	}
	return alignUp(4*n + tensors*int64(l.MicroBatches)*device.Align)
}

// BatchBytes is the size of a batch on the device without its losses. The embedding's rows are
// for the lane of the embedding alone.
func (r *Run) BatchBytes() int64 {
	if !r.has(0) {
		return r.BatchIntBytes()
	}
	return r.BatchIntBytes() + r.ActivationBytes(r.Limits.UniqueIDs)
}

// LossBytes is the size of a batch's losses.
func (r *Run) LossBytes() int64 { return 4 * int64(r.Limits.Tokens) }

// LSEBytes is the size of the log-sum-exps that a batch keeps from one sweep
// over the parts of the head to the next.
func (r *Run) LSEBytes() int64 { return r.Spec.LSEBytes(r.Limits.Tokens) }

// held is what an allocation of n bytes takes, on a device or of its host memory:
// none is smaller than an alignment.
func held(n int64) int64 { return alignUp(max(n, 1)) }

func alignUp(n int64) int64 { return (n + device.Align - 1) / device.Align * device.Align }
