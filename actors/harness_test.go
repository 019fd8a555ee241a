package actors

import (
	"fmt"
	"hash/crc64"
	"math"
	"math/rand"
	"testing"
	"time"

	"mt/base/accounts"
	"mt/base/parallel"
	"mt/base/timeline"
	"mt/data"
	"mt/device"
	"mt/device/cpu"
	"mt/device/op"
	"mt/host"
	"mt/host/extents"
	"mt/host/optim"
	"mt/internal/testkit"
	"mt/layers"
	"mt/layers/schedule"
	"mt/model"
	"mt/plan"
)

// trial is one small training run through the whole pipeline.
type trial struct {
	tied, qkNorm, bf16, gradBF16 bool
	copyTiles                    bool  // weights are copied to the device; false: a unified device uses them in place
	pinPiece                     int64 // as in cuda.Options
	blocks, rows, micro, steps   int
	maxLen                       int
	draw                         int64 // another draw of all rows
	keep                         layers.Keep
	keeps                        layers.Keeps // by block; nil: all blocks keep everything
	travel                       int          // slots through which what blocks keep travels to the host and back; 0: it stays
	travelOf                     schedule.Share
	rounds                       int  // rounds of a step; 0: one
	onHost                       bool // hidden states are on the host, and blocks keep nothing
	depths                       plan.Depths
	noClip, sync                 bool
	layerwise                    bool // each layer's gradient is clipped by its own norm
	muon                         bool
	noise                        bool // noise is added to embeddings
	ahead                        bool // multi-token prediction is trained
	threads                      int
	moreBatches                  int  // Options.extraBatchSlots
	shards                       int  // parts of the head; 0: a whole head
	experts, chosen              int  // experts of all blocks except the second; 0: none
	shared                       bool // one more expert is shared. Without the balancing loss sigmoids choose the experts; otherwise the shared one has a gate
	onDemand, aux                bool
	order                        schedule.Order
	lane                         []int // by layer: its lane; nil: one lane
	head                         []int // by part of the head: its lane; nil: that of the head
	throughHost                  bool
	faultyLane                   int // the lane whose device fails a call, if one must fail
	delay                        func(string, int64) time.Duration
	evalSteps                    int
	open                         func() (device.Device, error) // instead of a CPU device
	wrap                         func(device.Device) device.Device
	batch                        func(step int, b *data.Batch) // may spoil a batch
	start                        *outcome                      // weights, moments and step to resume from
	lr                           func(step int) float64
	maxNonFinite                 int
	stop                         <-chan struct{}
	leave                        func(error) bool // Options.LeavePinned
	abortStep                    <-chan struct{}
	saver                        Saver
	saveSteps                    int
	spoil                        func(s *host.Store)
	home                         func(s *host.Store) host.Home // replaces the store
	links                        bool                          // checkpoints link the states' files
	stateOnDisk                  []bool                        // by layer: its state is on a disk; nil: none is
	weightsOnDisk                []bool                        // by layer: its tile is on a disk too; nil: none is
	gradOnDisk                   []bool                        // by layer: its gradient waits on a disk; nil: none
	stateSlots                   int
	packed                       bool            // data on disks is compressed
	by                           optim.Optimizer // nil: recipe or, with muon, muonRecipe
	bf16Master                   bool            // weights are bf16 without lower halves
	wide                         bool            // most tensors are large enough for quantised moments
	planned                      *plan.Run       // replaces the plan from the fields above
	timeline                     *timeline.Recorder
	reported                     func(StepReport)
	pairs                        op.PreferenceKind // the loss, if rows are pairs
}

// outcome is the result of a trial.
type outcome struct {
	steps  []string // loss and norm of each step, as bits
	evals  []string
	state  []layerBytes
	end    State
	usage  device.Usage   // of the first lane
	usages []device.Usage // by lane
	// arenas is the host memory that the run held when it reported its last step.
	arenas [accounts.NumPurposes]int64
	// versions has the layers' states after 0, 1, 2, … steps. Only a trial that runs without
	// pipelining (the synchronous step) fills it.
	versions [][]layerBytes
	// experts counts the experts' tiles that all steps copied to the device; expertBytes is their
	// size.
	experts, expertBytes int64
	h2d, d2h, peer       int64 // sums over the steps' reports
}

type layerBytes struct {
	tile   []byte
	lo     []uint16
	planes [][]byte
}

// bytesOf copies a layer's tile, lower halves and planes, so that tests can compare them byte by
// byte.
func bytesOf(l *host.LayerState) layerBytes {
	out := layerBytes{tile: clone(l.Tile), lo: clone(l.Lo)}
	for _, p := range l.Planes {
		out.planes = append(out.planes, clone(p.Data))
	}
	return out
}

func (o outcome) digest() uint64 {
	h := crc64.New(crc64.MakeTable(crc64.ECMA))
	for _, l := range o.state {
		_, _ = h.Write(l.tile)
		for _, x := range l.lo {
			_, _ = h.Write([]byte{byte(x), byte(x >> 8)})
		}
		for _, p := range l.planes {
			_, _ = h.Write(p)
		}
	}
	return h.Sum64()
}

// testDepths returns the smallest depths with which a run works, apart from the given number of
// gradient buffers.
func testDepths(gradBuffers int) plan.Depths {
	return plan.Depths{WeightSlots: 1, GradBuffers: gradBuffers, GradSlabs: 1, ActivationSlots: 3, BatchesAhead: 1}
}

// base returns the trial that most tests change: three blocks, four steps, and enough slots that
// little waits.
func base() trial {
	return trial{blocks: 3, rows: 6, micro: 24, steps: 4, maxLen: 17, keep: layers.KeepAll, threads: 2,
		depths: plan.Depths{WeightSlots: 3, GradBuffers: 2, GradSlabs: 3, ActivationSlots: 64, BatchesAhead: 2}}
}

func (tr trial) config() *model.Config {
	c := &model.Config{Arch: "LlamaForCausalLM", ModelType: "llama", VocabSize: 37, HiddenSize: 24, IntermediateSize: 40, NumLayers: tr.blocks,
		NumHeads: 4, NumKVHeads: 2, HeadDim: 6, MaxPositions: 64, RMSNormEps: 1e-5, TieEmbeddings: tr.tied, QKNorm: tr.qkNorm,
		Rope: model.Rope{Type: "default", Theta: 10000}, InitializerRange: 0.1}
	if tr.wide {
		c.VocabSize, c.HiddenSize, c.IntermediateSize, c.HeadDim = 128, 64, 96, 16
	}
	if tr.experts > 0 {
		c.Arch, c.ModelType, c.QKNorm = "Qwen3MoeForCausalLM", "qwen3_moe", true
		c.NumExperts, c.NumExpertsPerTok, c.MoEIntermediateSize, c.NormTopKProb = tr.experts, tr.chosen, 20, true
		c.DecoderSparseStep, c.MLPOnlyLayers = 1, []int{1}
		c.OutputRouterLogits, c.RouterAuxLossCoef = tr.aux, 0.05
		if tr.shared {
			c.SharedSize, c.SharedGate = 28, tr.aux
			c.SigmoidScores, c.ChoiceBias, c.RoutedScale = !tr.aux, !tr.aux, 1.5
		}
	}
	if tr.ahead {
		c.Arch, c.ModelType = "Glm4MoeForCausalLM", "glm4_moe"
		if err := c.PredictAhead(); err != nil {
			panic(err)
		}
	}
	return c
}

// makeBatch returns the batch of a step: random rows that depend only on the step and the trial's
// sizes, so that compared trials train on the same data.
func (tr trial) makeBatch(step int) *data.Batch {
	b := data.NewBatch(step, tr.makeRows(step), tr.micro)
	if tr.batch != nil {
		tr.batch(step, b)
	}
	return b
}

func (tr trial) makeRows(step int) (rows []data.Row) {
	r := rand.New(rand.NewSource(int64(step)*7919 + tr.draw*1000003))
	for range tr.rows {
		row := data.Row{IDs: make([]int32, 2+r.Intn(tr.maxLen-1))}
		for i := range row.IDs {
			row.IDs[i] = int32(r.Intn(37))
		}
		if tr.pairs != op.NoPreference { // one pair, or two where there is room
			for at := 0; at < len(row.IDs); {
				n := len(row.IDs) - at
				if n > 9 {
					n = 5
				}
				row.Pairs = append(row.Pairs, data.Pair{ID: int64(100*step + 2*len(rows) + len(row.Pairs)), Chosen: int32(len(row.Docs)), Rejected: int32(len(row.Docs) + 1)})
				row.Docs = append(row.Docs, int32(n/2), int32(n-n/2))
				at += n
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func (tr trial) plan(c *model.Config) *plan.Run {
	if tr.planned != nil {
		return tr.planned
	}
	p := &plan.Run{Layouts: c.Layouts(tr.bf16), GradBF16: tr.gradBF16, Clip: !tr.noClip && !tr.layerwise, Unified: !tr.copyTiles, Depths: tr.depths, Order: tr.order, Lane: tr.lane,
		Limits: plan.NewLimits(tr.rows, tr.maxLen, tr.micro, c.VocabSize)}
	p.Rounds = tr.rounds
	p.ParamChunk, p.Compress = extents.BlockBytes, tr.packed
	for i := range p.Layouts {
		p.Layouts[i].BF16Master = tr.bf16Master
	}
	p.Experts, p.OnDemand = tr.experts, tr.onDemand
	p.StateOnDisk, p.GradOnDisk, p.WeightsOnDisk, p.Depths.StateSlots, p.Planes = tr.stateOnDisk, tr.gradOnDisk, tr.weightsOnDisk, tr.stateSlots, tr.recipe().Planes
	p.Spec = layers.Spec{Config: c, Keep: tr.keeps, MaxTokens: p.Limits.MicroBatchTokens, ChunkTokens: 16, HeadChunk: 8, HeadShards: tr.shards, HeadLanes: tr.head}
	p.Spec.AheadWeight = 0.3
	if tr.noise {
		p.Spec.Noise = op.Noise{Alpha: 1, Seed: 21}
	}
	if tr.keeps == nil {
		p.Spec.Keep = layers.KeepIn(tr.blocks, tr.keep)
	}
	if p.Spec.OnHost = tr.onHost; tr.onHost {
		p.Spec.Keep, p.Depths.ActivationSlots = nil, (tr.blocks+3)*p.Limits.MicroBatches+2
	}
	if p.KeptSlots = tr.travel; tr.travel > 0 {
		if p.Spec.KeptOf = tr.travelOf; p.Spec.KeptOf.Of == 0 {
			p.Spec.KeptOf = schedule.Share{N: p.Limits.MicroBatches, Of: p.Limits.MicroBatches}
		}
		for b := range tr.blocks {
			p.Spec.KeptOnHost = append(p.Spec.KeptOnHost, b%3 != 1 && p.Spec.Keep.Of(b) > layers.KeepNothing)
		}
	}
	if tr.pairs != op.NoPreference {
		p.Spec.Preference = op.PreferenceLoss{Kind: tr.pairs, Beta: 0.5, Smoothing: 0.125}
	}
	if tr.bf16 {
		p.Spec.Act = device.BF16
	}
	p.Spec.Positions = tr.maxLen
	if tr.muon {
		p.NSSteps, p.Depths.MatrixBuffers = muonRecipe.NSSteps, max(1, p.Depths.MatrixBuffers)
	}
	return p
}

// device opens the trial's device.
func (tr trial) device() (device.Device, error) {
	if tr.open != nil {
		return tr.open()
	}
	return cpu.New(cpu.Options{Threads: tr.threads, Unified: !tr.copyTiles, Delay: tr.delay})
}

// run trains and returns the outcome, or the run's error.
func (tr trial) run(t *testing.T) (_ outcome, err error) {
	t.Helper()
	pool := parallel.New(tr.threads)
	defer pool.Close()
	c := tr.config()
	p := tr.plan(c)
	var real, devs []device.Device
	for range p.Lanes() {
		dev, failed := tr.device()
		if failed != nil {
			return outcome{}, failed
		}
		defer func() {
			u := dev.Usage().Now
			u[accounts.Context] = 0
			if u != [accounts.NumPurposes]int64{} {
				t.Errorf("the run left device memory behind: %v", u)
			}
			if closing := dev.Close(); err == nil {
				err = closing
			}
		}()
		real = append(real, dev)
		if tr.wrap != nil {
			dev = tr.wrap(dev)
		}
		devs = append(devs, dev)
	}
	arenas := host.Usage().Now
	store, err := host.NewTieredStore(p.Layouts, tr.recipe().Planes, nil, openTier(t, p), pool)
	testkit.NoError(t, err)
	defer store.Close()
	store.SetRoundingSeed(14)
	tr.fill(t, store, c)
	var out outcome
	o := tr.options(devs, store, pool, p, &out)
	if tr.spoil != nil {
		tr.spoil(store)
	}
	if tr.home != nil {
		o.Home = tr.home(store)
	}
	err = Run(o)
	for _, dev := range real {
		out.usages = append(out.usages, dev.Usage())
	}
	out.usage = out.usages[0]
	if len(out.steps) > 0 {
		out.arenas = minus(out.arenas, arenas)
	}
	if err == nil || tr.stateOnDisk == nil {
		out.state = stateOf(t, store)
	}
	return out, err
}

// stateOf copies all layers' weights, lower halves and planes.
func stateOf(t *testing.T, store *host.Store) (out []layerBytes) {
	for i := range store.Layers {
		testkit.NoError(t, store.WithLayer(i, false, func(l *host.LayerState) error {
			out = append(out, bytesOf(l))
			return nil
		}))
	}
	return out
}

// openTier makes files for the states that plan p puts on disks.
func openTier(t *testing.T, p *plan.Run) host.Tier {
	t.Helper()
	if p.StateOnDisk == nil {
		return host.Tier{}
	}
	open := func(name string, chunk int64, size func(int) int64) *extents.Files {
		o := extents.Options{Dirs: []string{t.TempDir(), t.TempDir()}, Name: name, Chunk: chunk, Run: t.Name(), Compress: p.Compress}
		for l, onDisk := range p.StateOnDisk {
			bytes := int64(0)
			if onDisk {
				bytes = size(l)
			}
			o.Bytes, o.Names = append(o.Bytes, bytes), append(o.Names, fmt.Sprintf("layer %d", l))
		}
		e := testkit.Must(extents.Open(o))(t)
		testkit.Close(t, e)
		return e
	}
	tier := host.Tier{StateOnDisk: p.StateOnDisk, Slots: p.Depths.StateSlots, Extents: open("mt-state.bin", 0, p.ExtentBytes)}
	for l := range p.GradOnDisk {
		tier.Grads = append(tier.Grads, p.GradExtentBytes(l))
	}
	if p.GradOnDisk != nil {
		tier.GradExtents = open("mt-grads.bin", 0, p.GradExtentBytes)
	}
	if p.WeightsOnDisk != nil {
		tier.TileOnDisk, tier.TileExtents = p.WeightsOnDisk, open("mt-params.bin", p.ChunkBytes(), p.ParamBytes)
	}
	return tier
}

// recipe is the optimizer that trials train with, unless they use Muon.
var recipe = optim.AdamW{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1}

// muonRecipe is the optimizer of trials that use Muon.
var muonRecipe = optim.Muon{Momentum: 0.9, Nesterov: true, NSSteps: 3, Adjust: optim.MatchRMSAdamW, WeightDecay: 0.1, Scale: 1, Others: recipe, OthersScale: 0.5}

func (tr trial) recipe() optim.Optimizer {
	if tr.by != nil {
		return tr.by
	}
	if tr.muon {
		return muonRecipe
	}
	return recipe
}

func clone[T any](s []T) []T { return append([]T(nil), s...) }

// fill writes the weights and planes with which the trial begins into the store: random weights, or
// the end state of an earlier trial.
func (tr trial) fill(t *testing.T, store *host.Store, c *model.Config) {
	for i := range store.Layers {
		testkit.NoError(t, store.WithLayer(i, true, func(l *host.LayerState) error {
			tr.fillLayer(i, l, c)
			return nil
		}))
	}
}

func (tr trial) fillLayer(i int, l *host.LayerState, c *model.Config) {
	if tr.start != nil {
		s := tr.start.state[i]
		copy(l.Tile, s.tile)
		copy(l.Lo, s.lo)
		for k, p := range s.planes {
			copy(l.Planes[k].Data, p)
		}
		return
	}
	for k, tl := range l.Layout.Tensors {
		for r := 0; r < tl.Rows && !tl.Ref; r++ {
			row := make([]float32, tl.Cols)
			model.InitRow(c, tl.Param, r, 1, row)
			l.WriteRows(k, r, 1, row)
		}
	}
}

func (tr trial) options(devs []device.Device, store *host.Store, pool *parallel.Pool, p *plan.Run, out *outcome) Options {
	o := Options{Devices: devs, Home: store, Pool: pool, Plan: p, Stop: tr.stop, AbortStep: tr.abortStep, Saver: tr.saver, LinkStates: tr.links, Timeline: tr.timeline, ThroughHost: tr.throughHost, extraBatchSlots: tr.moreBatches, LeavePinned: tr.leave,
		Schedule: Schedule{FirstStep: 1, LastStep: tr.steps, EvalSteps: tr.evalSteps, EvalPasses: min(1, tr.evalSteps) * 2, MaxNonFinite: max(1, tr.maxNonFinite),
			SynchronousUpdates: tr.sync, NoSave: tr.saver == nil, SaveSteps: tr.saveSteps, LR: tr.lr, DataPos: func(s int) int64 { return int64(s * tr.rows) }},
		Optimizer: tr.recipe(), MaxGradNorm: 1, LayerNorms: tr.layerwise,
		Batch: func(step int, eval bool) (*data.Batch, error) {
			if eval {
				step = 1000 + step
			}
			return tr.makeBatch(step), nil
		},
		OnStep: func(r StepReport) {
			out.steps = append(out.steps, fmt.Sprintf("%d %x %x %t", r.Step, math.Float64bits(r.Loss), math.Float64bits(r.GradNorm), r.Skipped))
			if tr.reported != nil {
				tr.reported(r)
			}
			out.experts += r.Experts
			out.expertBytes += r.ExpertBytes
			out.arenas = host.Usage().Now
			out.h2d += r.H2D
			out.d2h += r.D2H
			out.peer += r.Peer
			out.end = State{Step: r.Step, AdamStep: out.end.AdamStep + 1, Tokens: r.TotalTokens}
			if r.Skipped {
				out.end.AdamStep--
			}
		},
		OnEval: func(r EvalReport) {
			eval := fmt.Sprintf("%d %x", r.Step, math.Float64bits(r.Loss))
			if r.Pairs != nil {
				eval += fmt.Sprintf(" %+v", *r.Pairs)
			}
			out.evals = append(out.evals, eval)
		}}
	if tr.pairs != op.NoPreference {
		o.Preferences = tr.preferences()
	}
	if tr.noClip {
		o.MaxGradNorm = 0
	}
	if tr.layerwise {
		o.MaxGradNorm = 0.3
	}
	if m, ok := tr.recipe().(optim.Muon); ok {
		o.Matrices = &m
	}
	if o.Schedule.LR == nil {
		o.Schedule.LR = func(step int) float64 { return 1e-2 / float64(step) }
	}
	if tr.start != nil {
		o.Start = tr.start.end
		o.Schedule.FirstStep = tr.start.end.Step + 1
		out.end = o.Start
	}
	return o
}

// preferences returns the settings for training on preference pairs. The log-probabilities of its
// reference model are made up from the pair's id.
func (tr trial) preferences() *Preferences {
	return &Preferences{Likelihood: 0.5, Reference: func(_ bool, id int64) [2]float32 {
		return [2]float32{-8 - float32(id%3), -9 + float32(id%5)}
	}}
}

// lossOf reads the loss from a line of outcome.steps or outcome.evals, which has it as the bits of
// a float64.
func lossOf(t *testing.T, line string) float64 {
	t.Helper()
	var step int
	var loss uint64
	testkit.Must(fmt.Sscanf(line, "%d %x", &step, &loss))(t)
	return math.Float64frombits(loss)
}
