package plan

import (
	"cmp"
	"errors"
	"fmt"

	"mt/base/human"
	"mt/device"
	"mt/layers"
	"mt/layers/schedule"
	"mt/model"
)

// maxMicroBatchTokens is the maximum automatic micro-batch size.
const maxMicroBatchTokens = 16384

// Automatic depths. With two buffers of a kind, a copy fills one while the other is used. More
// buffers help only if the times of copies vary. Fewer than minActSlots activation slots are
// refused.
const (
	autoWeightSlots  = 3
	autoGradBuffers  = 2
	autoGradSlabs    = 3
	autoBatchesAhead = 2
	autoExchanges    = 2 // for both exchange_buffers and gathers_ahead
	minActSlots      = 3
)

// NotFitting is the error of a run that does not fit in memory, whatever values are chosen for the open keys.
type NotFitting struct {
	Where        string // "device" or "host"
	Need, Budget int64  // bytes
	By           string // source of the budget; "": the user's key
	Keys         string // keys to change, and how
	What         string // what needs the memory; "": the run
}

// BadDepth is the error for a requested value, such as a depth or a number of head parts, that is
// invalid for the model. Key is the configuration key.
type BadDepth struct{ Key, Why string }

func (e *BadDepth) Error() string { return e.Why }

func (e *NotFitting) Error() string {
	need, budget, short := human.Bytes(e.Need), human.Bytes(e.Budget), ""
	if need == budget { // need and budget look equal after rounding
		short = fmt.Sprintf(", %s less", human.Bytes(e.Need-max(0, e.Budget)))
	}
	have := budget + " are available"
	if e.Budget <= 1 {
		have = "none is available"
	}
	if e.By != "" {
		short += " (" + e.By + ")"
	}
	return fmt.Sprintf("%s needs %s of %s memory and %s%s: %s", cmp.Or(e.What, "the run"), need, e.Where, have, short, e.Keys)
}

// Resolve makes the choices that the request leaves open. Values that change the order of sums come first: parts of the
// head, gradient dtype, micro-batch. They are chosen with minimum depths and for one device, so they do not depend on
// the requested depths and devices. Only the number of the head's parts depends on devices. Then Resolve chooses the
// buffers that let copies run beside the work, the tensors that the forward keeps, and the activation slots. If memory
// does not suffice, the error is a *NotFitting.
func Resolve(q Request) (*Run, error) {
	r, err := place(q)
	var lack *NotFitting
	if errors.As(err, &lack) && (lack.Where == "device" || r.OneMemory) && r.Experts > 0 {
		if rows := rowsThatFit(q); rows > 0 {
			lack.Keys = fmt.Sprintf("set per_device_train_batch_size and gradient_accumulation_steps to at most %d rows per step "+
				"(experts see all its tokens at once: %s of %d rows), or ", rows, human.Bytes(r.ExpertStateBytes()), q.Rows) + lack.Keys
		}
	}
	return r, err
}

// place resolves the request with hidden states where it asks for them. If it leaves that open and the run does not fit
// with them on the device, a step has several rounds, or hidden states go to the host. Rounds are also tried where data
// would go to disk.
func place(q Request) (*Run, error) {
	r, err := choose(q)
	var lack *NotFitting
	if q.Rounds == 0 && !q.EvalOnly && (errors.As(err, &lack) || err == nil && r.StateOnDisk != nil) {
		r, err = fittingRounds(q, r, err)
	}
	if errors.As(err, &lack) && lack.Where == "device" && r.maySendHidden(q) {
		far := q
		far.HiddenStates = "host"
		need, other := lack.Need, (*NotFitting)(nil)
		if on, err := choose(far); err == nil || errors.As(err, &other) && (other.Where == "host" || other.Need < need) {
			return on, err
		}
	}
	return r, err
}

// rowsThatFit returns the largest number of rows in a step, below q.Rows, that fits; 0 if not even one row fits.
func rowsThatFit(q Request) int {
	low, high := 0, q.Rows-1
	for low < high {
		q.Rows = (low + high + 1) / 2
		if _, err := place(q); err == nil {
			low = q.Rows
		} else {
			high = q.Rows - 1
		}
	}
	return low
}

// choose resolves the request like Resolve, with hidden states on the device unless it asks for the host. Its error does
// not say how many rows would fit.
func choose(q Request) (*Run, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	r := &Run{Order: q.Order, Clip: q.Clip, Compress: q.Compress, Unified: q.Unified, OneMemory: q.oneMemory(), EvalOnly: q.EvalOnly, Context: q.Context, RowTokens: q.RowTokens}
	if !q.EvalOnly {
		r.Planes, r.Optim, r.NSSteps = q.Planes, q.Optim, q.NSSteps
	}
	r.layOut(q)
	r.divide(&q)
	r.Spec = layers.Spec{Config: q.Config, Act: q.Act, Terms: q.Terms, AheadWeight: q.AheadWeight, Noise: q.Noise, Preference: q.Preference, Positions: max(q.RowTokens, q.Positions, 1), Document: q.document(), Fused: q.Fused}
	r.Spec.OnHost, r.Spec.NoBackward = q.HiddenStates == "host", r.blocksWithoutBackward()
	if q.Recompute == "none" {
		r.Spec.Keep = layers.KeepIn(q.Config.Blocks(), layers.KeepAll)
	}
	r.Depths = leastDepths(q)
	if q.EvalOnly {
		q.Rounds = 1
	}
	r.setRounds(q.Rounds)
	r.resolveExperts(q)
	r.resolveHead(q)
	r.resolveGradDType(q)
	r.resolveMicroBatch(q)
	if err := r.placeLayers(q); err != nil {
		return nil, err
	}
	r.placeHidden()
	if err := r.checkRounds(q); err != nil {
		return nil, err
	}
	r.askedDepths(q)
	r.raiseBuffers(q)
	_ = r.fits(q) // final choice of data on disk: deeper buffers, which follow, do not justify more reads from disk
	r.tiered = true
	if auto(q.Recompute) && !r.Spec.OnHost && !r.EvalOnly {
		open := *r
		r.chooseKept(q)
		r.chooseRounds(q, open)
	}
	if q.Depths.ActivationSlots == 0 && !r.Spec.OnHost {
		r.raise(q, &r.Depths.ActivationSlots, r.allActivations())
	}
	if r.StateOnDisk != nil { // activations with slots no longer need host memory
		r.tiered = false
		r.raiseBuffers(q)
	}
	if q.Recompute == "none" && !r.EvalOnly { // of what is left, because inputs of products save little for their bytes
		r.upgrade(r.saveOptions(), r.room(q, r.Table()), r.highest(q))
	}
	return r, r.fits(q)
}

func auto(choice string) bool { return choice == "" || choice == "auto" }

// check returns an error for values of the request that are invalid however much memory there is, such as too small a
// depth.
func (q Request) check() error {
	least := leastDepths(q)
	few := func(key string, asked, least int, why string) error {
		if asked == 0 || asked >= least {
			return nil
		}
		return &BadDepth{key, fmt.Sprintf("%s: %d is too few: it is at least %d (%s)", key, asked, least, why)}
	}
	for _, d := range AllDepths {
		if err := few(d.Key(), *d.Of(&q.Depths), max(d.Least, *d.Of(&least)), d.Why); err != nil {
			return err
		}
	}
	if err := few("pipeline.micro_batch_tokens", q.MicroBatchTokens, 1, "a micro-batch has at least one row"); err != nil {
		return err
	}
	if n := q.HeadShards; n < 0 || n > q.Config.VocabSize {
		return &BadDepth{"pipeline.head_shards", fmt.Sprintf("pipeline.head_shards: %d parts of a vocabulary of %d: want at least 1 and no empty part",
			n, q.Config.VocabSize)}
	}
	if err := q.checkLanes(); err != nil {
		return err
	}
	if why := q.keepsHidden(); q.HiddenStates == "host" && why != "" {
		return &BadDepth{"hidden_states", "hidden_states: host is not possible " + why}
	}
	if q.Rows < 1 || q.RowTokens < 1 {
		return fmt.Errorf("a step of %d rows of at most %d tokens: both are at least 1", q.Rows, q.RowTokens)
	}
	return nil
}

// leastDepths returns the smallest depths with which the requested run works. check refuses smaller
// ones.
func leastDepths(q Request) Depths {
	d := Depths{WeightSlots: 1, GradBuffers: 1, GradSlabs: 1, ActivationSlots: minActSlots, BatchesAhead: 1}
	if q.Config.TieEmbeddings && (!q.Clip || q.Ranks > 1) {
		d.GradSlabs = 2
	}
	if q.Ranks > 1 {
		d.ExchangeBuffers, d.GathersAhead = 1, 1
	}
	if q.NSSteps > 0 && !q.EvalOnly {
		d.MatrixBuffers = pick(q.Depths.MatrixBuffers, matrixBuffers)
	}
	return d
}

// askedDepths raises each depth to the requested value. If the run does not fit with the fewest
// activation slots, it tries one slot for every activation. Without spills to the host the run may
// need less memory in total.
func (r *Run) askedDepths(q Request) {
	d := &r.Depths
	for _, v := range []struct {
		to    *int
		asked int
	}{{&d.WeightSlots, q.Depths.WeightSlots}, {&d.GradBuffers, q.Depths.GradBuffers}, {&d.GradSlabs, q.Depths.GradSlabs},
		{&d.ActivationSlots, q.Depths.ActivationSlots}} {
		*v.to = max(*v.to, v.asked)
	}
	d.BatchesAhead = pick(q.Depths.BatchesAhead, autoBatchesAhead)
	if r.Ranks > 1 {
		d.ExchangeBuffers, d.GathersAhead = max(1, q.Depths.ExchangeBuffers), pick(q.Depths.GathersAhead, autoExchanges)
	}
	if q.Depths.ActivationSlots == 0 && !r.Spec.OnHost && r.fits(q) != nil {
		d.ActivationSlots = r.allActivations()
		if r.fits(q) != nil {
			d.ActivationSlots = minActSlots
		}
	}
}

// setMicroBatch sets the micro-batch size in tokens, and what depends on it: the limits, the chunks
// of launches and of the head.
func (r *Run) setMicroBatch(q Request, tokens int) {
	r.Limits = NewLimits(q.Rows, q.RowTokens, tokens, q.Config.VocabSize)
	r.Spec.MaxTokens = r.Limits.MicroBatchTokens
	r.placeHidden()
	r.Spec.ChunkTokens = q.ChunkTokens
	if r.Spec.ChunkTokens == 0 {
		r.Spec.ChunkTokens = min(r.Limits.MicroBatchTokens, autoChunkTokens)
		if q.roomy() {
			r.Spec.ChunkTokens = min(r.Limits.MicroBatchTokens, roomyChunkTokens)
		}
	}
	// The head's chunk is derived only from values that a run records, so it is the same when the
	// run resumes.
	r.Spec.HeadChunk = headChunk(r.Spec, min(roomyHeadChunk, max(maxHeadChunk, r.Spec.ChunkTokens)))
}

// autoChunkTokens is the number of tokens that a launch processes at once outside attention. With this number matrix
// products reach their full rate.
const autoChunkTokens = 4096

// maxHeadChunk is the maximum number of tokens whose logits exist at once, unless a block's chunk is larger.
const maxHeadChunk = 2048

// roomyChunkTokens and roomyHeadChunk replace autoChunkTokens and maxHeadChunk on devices with
// ample memory. Each chunk of the head reads and writes the gradient of all the head's weights, 8
// bytes for each parameter, and computes 2 FLOPs for each token and parameter. At 3.3 TB/s and 700
// TFLOP/s, this traffic takes a fifth of a product's time with 4096 tokens, and a twentieth with
// 16384.
const (
	roomyChunkTokens = 16384
	roomyHeadChunk   = 8192
)

// roomy reports whether the device has ample memory: memory of its own, and at least 40 GiB of it
// or no limit.
func (q Request) roomy() bool {
	return !q.Unified && (q.DeviceMemory == 0 || q.DeviceMemory >= 40<<30)
}

// headChunk returns the number of tokens whose logits exist at once: a multiple of 64, at most the argument `most`. 128
// MiB of logits are always allowed, and more if the head's workspace stays no larger than a block's. Every chunk reads
// and writes the gradient of lm_head, so fewer chunks are better.
func headChunk(s layers.Spec, most int) int {
	s.OnHost = false // does not change the order of sums
	s.HeadChunk = min(most, max(64, (128<<20)/(int(s.Act.Size())*s.ShardRows())/64*64))
	for next := s; next.HeadChunk < most; s = next {
		if next.HeadChunk += 64; next.HeadBytes() > s.BlockForwardBytes() {
			break
		}
	}
	return s.HeadChunk
}

// leastMicroBatch returns the smallest micro-batch that Resolve chooses by itself: one row, or
// maxMicroBatchTokens if rows are longer.
func leastMicroBatch(q Request) int { return min(q.RowTokens, maxMicroBatchTokens) }

// resolveHead keeps the head whole in two cases: it fits in a block's slot and gradient buffer, or the device has room
// for it with automatic depths and the largest micro-batch. Otherwise it splits the head into the fewest parts that fit
// in a block's slot and buffer, if smaller slots or buffers result. On several lanes it takes more parts if that shortens
// a step. The result does not depend on requested depths.
func (r *Run) resolveHead(q Request) {
	r.Spec.HeadShards = pick(q.HeadShards, 1)
	if q.HeadShards > 0 {
		return
	}
	least := r.Depths
	r.Depths.WeightSlots = r.autoWeightSlots()
	r.Depths.GradBuffers = autoGradBuffers
	if r.SlabsAreCredits() {
		r.Depths.GradSlabs = max(least.GradSlabs, autoGradSlabs)
	}
	r.GradBF16 = q.GradDType == "bf16"
	r.setMicroBatch(q, pick(q.MicroBatchTokens, max(leastMicroBatch(q), min(maxMicroBatchTokens, q.Rows*q.RowTokens))))
	spares := !r.Unified || !r.EvalOnly && !r.GradsInPlace()
	if spares && r.tooLargeForDevice(q) {
		r.Spec.HeadShards = r.leastShards()
	}
	r.Spec.HeadShards = r.partsForLanes(q)
	r.Depths = least
}

// leastShards returns the smallest number of head parts that each fit in a block's slot and gradient buffer.
func (r *Run) leastShards() int {
	blocks := *r
	blocks.Spec.HeadShards = 1 // only blocks stream then
	slot, grad := blocks.largest(slotSize, schedule.Streamed), blocks.largest(gradSize, schedule.Streamed)
	head, kind, n := r.Layouts[r.Head()], r.Kind(r.Head()), 1
	for s := r.Spec; n < r.Spec.Config.VocabSize; n++ {
		s.HeadShards = n
		if t := kind.Part(s, head, kind.Largest(s, head)[0]); slotSize(t) <= slot && gradSize(t) <= grad {
			break
		}
	}
	return n
}

// resolveMicroBatch sets the requested micro-batch size or, if the request leaves it open, the
// largest that fits. It begins with the largest automatic size and halves it until the run fits.
func (r *Run) resolveMicroBatch(q Request) {
	if q.MicroBatchTokens > 0 {
		r.setMicroBatch(q, q.MicroBatchTokens)
		return
	}
	least := leastMicroBatch(q)
	for tokens := min(maxMicroBatchTokens, q.Rows*q.RowTokens); ; tokens /= 2 {
		r.setMicroBatch(q, max(tokens, least))
		if tokens <= least || r.fits(q) == nil {
			return
		}
	}
}

// resolveGradDType chooses fp32 if the run computes in fp32, or if fp32 gradients fit in memory with the smallest
// micro-batch and no gradients on disk. Otherwise it chooses bf16, which halves the gradients' disk traffic.
func (r *Run) resolveGradDType(q Request) {
	r.setMicroBatch(q, pick(q.MicroBatchTokens, leastMicroBatch(q)))
	r.gradsStay = true
	defer func() { r.gradsStay = false }()
	r.GradBF16 = q.GradDType == "bf16" || auto(q.GradDType) && q.Act == device.BF16 && q.Rounds <= 1 && r.fits(q) != nil
}

// raiseBuffers raises the depths that the request leaves open, as far as memory allows, so that copies run beside the
// work.
func (r *Run) raiseBuffers(q Request) {
	d := &r.Depths
	if q.Depths.GradBuffers == 0 {
		r.raise(q, &d.GradBuffers, r.autoGradBuffers())
	}
	if q.Depths.WeightSlots == 0 {
		r.raise(q, &d.WeightSlots, r.autoWeightSlots())
	}
	if q.Depths.GradSlabs == 0 && r.PoolsSlabs() {
		r.raise(q, &d.GradSlabs, autoGradSlabs)
	}
	if q.Depths.ExchangeBuffers == 0 && r.Ranks > 1 {
		r.raise(q, &d.ExchangeBuffers, autoExchanges)
	}
}

// autoWeightSlots returns the useful number of weight slots. Expert tiles are small: more slots keep the link busy
// during attention, which lasts as long as the copies of many tiles.
func (r *Run) autoWeightSlots() int {
	most := 0
	for _, v := range r.views() {
		most = max(most, v.streamedTiles())
	}
	return min(autoWeightSlots+r.moreBuffers(2)+r.Experts/4, most)
}

// autoGradBuffers returns the useful number of gradient buffers. In rounds a buffer is also filled from the host.
func (r *Run) autoGradBuffers() int { return autoGradBuffers + r.moreBuffers(1) }

// allActivations returns the number of activation slots with which nothing spills. An evaluation drops a layer's input
// as soon as the output exists. With several lanes the lane with the most activations counts. Two more slots hold
// activations that have arrived early from another lane, and activations to pass on.
func (r *Run) allActivations() int {
	passing := 0
	if r.Lane != nil {
		passing = 2
	}
	if r.EvalOnly {
		return max(minActSlots, r.roundMicroBatches()+1+passing)
	}
	most := 0
	for _, v := range r.views() {
		most = max(most, v.activations())
	}
	return max(minActSlots, most*r.roundMicroBatches()+passing)
}

// activations returns how many hidden states of one micro-batch exist at once at most. It counts the input of every
// layer but the embedding and, with a head in parts, the gradient. A whole head turns its input into the gradient. A
// lane without the head has the gradient besides its layers' inputs.
func (r *Run) activations() (n int) {
	lowest := model.LowestTrained(r.Layouts)
	for l := range r.Layouts {
		if r.has(l) && l >= lowest {
			n += r.Kind(l).Activations(r.Spec)
		}
	}
	if !r.has(r.Head()) {
		n++
	}
	if lowest > 1 { // the hidden state passing through the lower layers, whose inputs are not kept
		n++
	}
	return n
}

// pick returns asked, the requested value, unless it is 0 (open); then it returns auto, the automatic value.
func pick(asked, auto int) int {
	if asked > 0 {
		return asked
	}
	return auto
}

// raise raises a depth to want or, if memory does not allow that, as far as it allows. More depth needs more memory,
// with one exception: if every activation has a slot, spills need no memory. Therefore raise tries want first.
func (r *Run) raise(q Request, depth *int, want int) {
	low := *depth
	if want <= low {
		return
	}
	if *depth = want; r.fits(q) == nil {
		return
	}
	for high := want - 1; low < high; {
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
