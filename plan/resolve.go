package plan

import (
	"fmt"

	"github.com/dustin/go-humanize"

	"mt/device"
	"mt/layers"
	"mt/model"
)

// Request is a run with values left to resolve: zero is "auto" unless the field
// says otherwise.
type Request struct {
	Config *model.Config
	// Act is the compute dtype, resolved already.
	Act device.DType
	// GradDType is "auto", "fp32" or "bf16".
	GradDType string
	// Recompute is "auto", "full" or "none".
	Recompute        string
	MicroBatchTokens int
	ChunkTokens      int
	Depths           Depths
	Rows, RowTokens  int // rows of a step, tokens of the longest row
	Clip             bool
	Unified          bool
	EvalOnly         bool
	DeviceMemory     int64 // budget in bytes
	HostMemory       int64 // budget in bytes; with Unified it covers both sides
}

// maxMicroBatchTokens is the largest automatic micro-batch.
const maxMicroBatchTokens = 16384

// Automatic depths. Two buffers let a copy run beside the work; more buys
// nothing unless transfers are uneven.
const (
	autoWeightSlots  = 3
	autoGradBuffers  = 2
	autoGradSlabs    = 3
	autoBatchesAhead = 2
	minActSlots      = 3
)

// NotFitting says that no choice left to mt makes the run fit.
type NotFitting struct {
	Where        string // "device" or "host"
	Need, Budget int64  // bytes
	Keys         string // what would make it fit
}

func (e *NotFitting) Error() string {
	return fmt.Sprintf("the run needs %s of %s memory and %s are available: %s",
		humanize.IBytes(uint64(e.Need)), e.Where, humanize.IBytes(uint64(max(0, e.Budget))), e.Keys)
}

// Resolve chooses what the request leaves open: what changes the order of sums
// (micro-batch, gradient dtype) first and for depths of 1, so that it does not
// depend on them; then how much the forward keeps, then the depths.
func Resolve(q Request) (*Run, error) {
	if n := q.Depths.GradSlabs; n == 1 && q.Config.TieEmbeddings && !q.Clip {
		return nil, fmt.Errorf("pipeline.grad_slabs: 1 is too few with tied embeddings: the head's gradient waits in its slab for the embedding's, so it is at least 2")
	}
	r := &Run{Clip: q.Clip, Unified: q.Unified, EvalOnly: q.EvalOnly, Depths: minDepths(q)}
	for _, l := range q.Config.Layers() {
		r.Layouts = append(r.Layouts, model.NewLayout(l, q.Act == device.BF16, embedParam(q.Config)))
	}
	r.Spec = layers.Spec{Config: q.Config, Act: q.Act}
	r.Spec.Cos.Len = int64(max(q.RowTokens, 1)) * int64(q.Config.HeadDim/2)
	r.Spec.Sin.Len = r.Spec.Cos.Len
	if err := r.resolveMicroBatch(q); err != nil {
		return nil, err
	}
	if err := r.resolveGradDType(q); err != nil {
		return nil, err
	}
	r.resolveKeep(q)
	r.resolveDepths(q)
	return r, r.fits(q)
}

func embedParam(c *model.Config) model.Param { return c.Layers()[0].Params[0] }

func minDepths(q Request) Depths {
	d := q.Depths
	set := func(v *int, least int) {
		if *v == 0 {
			*v = least
		}
	}
	set(&d.WeightSlots, 1)
	set(&d.GradBuffers, 1)
	set(&d.GradSlabs, 1)
	if q.Config.TieEmbeddings {
		d.GradSlabs = max(d.GradSlabs, 2)
	}
	set(&d.ActivationSlots, minActSlots)
	set(&d.BatchesAhead, 1)
	return d
}

// setMicroBatch fixes the micro-batch and everything sized by it.
func (r *Run) setMicroBatch(q Request, tokens int) {
	r.Limits = NewLimits(q.Rows, q.RowTokens, tokens, q.Config.VocabSize)
	r.Spec.MaxTokens = r.Limits.MicroBatchTokens
	r.Spec.ChunkTokens = q.ChunkTokens
	if r.Spec.ChunkTokens == 0 {
		r.Spec.ChunkTokens = min(tokens, autoChunkTokens)
	}
	r.Spec.HeadChunk = headChunk(q.Config.VocabSize)
}

// autoChunkTokens is how many tokens go at once through everything but
// attention: enough for matrix products to reach their rate.
const autoChunkTokens = 4096

// headChunk is how many tokens' logits exist at once: 128 MiB of fp32 at most,
// between 64 and 2048 tokens.
func headChunk(vocab int) int {
	n := (128 << 20) / (4 * vocab)
	return min(2048, max(64, n/64*64))
}

// resolveMicroBatch takes the largest micro-batch that fits, halving.
func (r *Run) resolveMicroBatch(q Request) error {
	if q.MicroBatchTokens > 0 {
		r.setMicroBatch(q, q.MicroBatchTokens)
		return nil
	}
	least := min(q.RowTokens, maxMicroBatchTokens)
	for tokens := min(maxMicroBatchTokens, max(1, q.Rows*q.RowTokens)); ; tokens /= 2 {
		r.setMicroBatch(q, max(tokens, least))
		if tokens <= least || r.fits(q) == nil {
			return nil
		}
	}
}

func (r *Run) resolveGradDType(q Request) error {
	r.GradBF16 = q.GradDType == "bf16"
	if q.GradDType == "auto" && q.Act == device.BF16 && r.fits(q) != nil {
		r.GradBF16 = true
	}
	return nil
}

// resolveKeep keeps as much as fits beside activations that never move.
func (r *Run) resolveKeep(q Request) {
	switch q.Recompute {
	case "full":
		r.Spec.Keep = layers.KeepNothing
		return
	case "none":
		r.Spec.Keep = layers.KeepAll
		return
	}
	slots := r.Depths.ActivationSlots
	defer func() { r.Depths.ActivationSlots = slots }()
	if q.Depths.ActivationSlots == 0 {
		r.Depths.ActivationSlots = r.allActivations()
	}
	for r.Spec.Keep = layers.KeepAll; r.Spec.Keep > layers.KeepNothing; r.Spec.Keep-- {
		if r.fits(q) == nil {
			return
		}
	}
}

// allActivations is with how many slots nothing ever moves.
func (r *Run) allActivations() int {
	if r.EvalOnly {
		return max(minActSlots, 2*r.Limits.MicroBatches)
	}
	return max(minActSlots, (len(r.Layouts)-1)*r.Limits.MicroBatches)
}

// resolveDepths raises the automatic depths as far as memory allows, the
// cheapest first.
func (r *Run) resolveDepths(q Request) {
	r.Depths.BatchesAhead = pick(q.Depths.BatchesAhead, autoBatchesAhead)
	r.raise(q, &r.Depths.GradBuffers, pick(q.Depths.GradBuffers, autoGradBuffers))
	r.raise(q, &r.Depths.WeightSlots, pick(q.Depths.WeightSlots, autoWeightSlots))
	if !r.Clip {
		r.raise(q, &r.Depths.GradSlabs, pick(q.Depths.GradSlabs, autoGradSlabs))
	}
	r.raise(q, &r.Depths.ActivationSlots, pick(q.Depths.ActivationSlots, r.allActivations()))
}

func pick(asked, auto int) int {
	if asked > 0 {
		return asked
	}
	return auto
}

// raise lifts depth to the largest value up to want that fits.
func (r *Run) raise(q Request, depth *int, want int) {
	low, high := *depth, max(want, *depth)
	for low < high {
		mid := (low + high + 1) / 2
		*depth = mid
		if r.fits(q) == nil {
			low = mid
		} else {
			high = mid - 1
		}
	}
	*depth = low
}

// fits checks the run against the budgets of q.
func (r *Run) fits(q Request) error {
	t := r.Table()
	if q.DeviceMemory > 0 && t.Device > q.DeviceMemory {
		return &NotFitting{"device", t.Device, q.DeviceMemory,
			"lower pipeline.micro_batch_tokens or max_seq_len, set recompute: full, pipeline.weight_slots: 1, " +
				"pipeline.grad_buffers: 1, pipeline.activation_slots: 3, or raise device_memory"}
	}
	need := t.Host
	if q.Unified {
		need += t.Device
	}
	if q.HostMemory > 0 && need > q.HostMemory {
		return &NotFitting{"host", need, q.HostMemory,
			"set max_grad_norm: 0 with a small pipeline.grad_slabs (gradients then do not wait for the norm) or grad_dtype: bf16, " +
				"recompute: full, fewer rows a step, a smaller model, or raise host_memory"}
	}
	return nil
}
