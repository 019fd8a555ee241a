package train

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"syscall"

	"mt/checkpoint"
	"mt/data"
	"mt/device"
	"mt/device/op"
	"mt/host"
	"mt/host/extents"
	"mt/internal/config"
	"mt/internal/parallel"
	"mt/internal/throttle"
	"mt/internal/watch"
	"mt/model"
	"mt/plan"
	"mt/plan/rates"
	"mt/schedule"
	"mt/tokenizer"
)

// job is a configuration with everything it names opened, and nothing big
// allocated yet.
type job struct {
	c        *config.Config // resolved
	opened   *Model
	model    *model.Config      // opened.Config
	modelDir string             // opened.Dir
	source   *checkpoint.Source // of modelDir, open until the end: saves copy from it; nil: from scratch
	tok      tokenizer.Tokenizer
	tokErr   error
	set      *data.Dataset
	evalSet  *data.Dataset // nil: held out from set, or none
	train    *data.Sampler
	epochs   bool          // num_train_epochs decides the number of steps
	origin   string        // the checkpoint of another run that this one began from; empty: none
	eval     *data.Sampler // nil: no evaluation
	evalView data.View
	longest  int  // tokens of the longest row
	heldOut  bool // dataset is for evaluation: of a directory with splits, the held-out one is read
	plan     *plan.Run
	act      device.DType
	unified  bool
	// integrated says that the GPU has no memory of its own: what it takes counts as the host's.
	integrated bool
	dev        device.Device     // the first of devs; nil: not open yet
	devs       []device.Device   // by lane
	lanes      int               // how many devices the run has
	links      *extents.Files    // with states that checkpoints link; nil: they do not
	paces      []plan.Pace       // by lane, what each device reaches; nil: they are alike
	memory     []int64           // by lane, bytes that may be used; nil: they are alike
	differ     bool              // the devices differ in what they reach
	began      []int             // by layer, the lane that it was on in the run that this one goes on; nil: its devices were alike
	context    int64             // device memory in bytes that is taken before anything is allocated
	budget     int64             // memory of the open device that may be used, in bytes
	notes      []string          // for the user, once
	late       lateNotes         // notes that come up while the run is under way
	unusable   map[string]string // checkpoints that cannot be gone on from, with the reason
	told       []int             // by device: how many of its notes were shown
	closing    error             // the error of closing the device
	beside     map[string][]byte // what companions has read
	hooks      hooks
	slow       throttle.Limits // how much slower the CPU device is than it could be
	stop       <-chan struct{} // closed when the user interrupts; nil: never
	closers    []func()
	page       net.Listener // of the dashboard; nil: none
	pageAt     watch.Address

	profile      *rates.Machine // that the run is planned for; nil: it is for this machine
	asked        plan.Request   // what the plan was asked for
	prompts      []samplePrompt // sample_prompts, with sample_steps
	orCheckpoint bool           // as in Options
	oneDevice    bool           // it computes on one device, whatever devices says
	team         *team          // nil: it trains alone
	done         bool           // of several ranks: rank 0 has found the finished model of where they go on from
	hosts        int            // how many it is only planned for; 0: as many as there are
	ref          reference      // of training on pairs
	upperMeans   bool           // new tokens begin at the mean of upper halves: of several ranks none has all lower ones
}

// close runs the closers, the last one first, and returns what went wrong with
// what matters: devices, and files that are to be removed.
func (j *job) close() error {
	for i := len(j.closers) - 1; i >= 0; i-- {
		j.closers[i]()
	}
	return j.closing
}

// closeAfter closes j and, unless *err is set already, sets it to the error of closing.
func (j *job) closeAfter(err *error) {
	if e := j.close(); *err == nil {
		*err = e
	}
}

func (j *job) note(format string, args ...any) {
	j.notes = append(j.notes, fmt.Sprintf(format, args...))
}

// lateNotes are notes that come up while a run is under way, on any goroutine. The same
// text is shown only once.
type lateNotes struct {
	mu      sync.Mutex
	pending []string
	said    map[string]bool
}

func (l *lateNotes) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.said == nil {
		l.said = map[string]bool{}
	}
	if !l.said[text] {
		l.said[text] = true
		l.pending = append(l.pending, text)
	}
}

// take returns the notes that were not shown yet, and forgets them.
func (l *lateNotes) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.pending
	l.pending = nil
	return out
}

// openJob checks c and opens what it names. It changes c: every auto that it settles is
// replaced by its value. The checks in first run before the data is read; a sketch
// reads no data, and neither do trials. Closing stop ends the reading with ErrResumable.
func openJob(stop <-chan struct{}, c *config.Config, o Options, first ...func(*job) error) (_ *job, err error) {
	j := &job{c: c, hooks: o.hooks, stop: stop, unusable: o.unusable, orCheckpoint: o.orCheckpoint, team: o.team}
	defer func() {
		if err != nil {
			j.closeAfter(&err)
		}
	}()
	if j.slow, err = throttle.FromEnv(); err != nil {
		return nil, err
	}
	required := []string{"model", "dataset"}
	if o.sketch || o.trials {
		required = required[:1]
	}
	if err := c.Require(required...); err != nil {
		return nil, err
	}
	if err := j.findModel(); err != nil {
		return nil, err
	}
	if err := j.openModel(); err != nil {
		return nil, err
	}
	if err := c.CheckGradSlabs(len(j.model.Layers())); err != nil {
		return nil, err
	}
	if err := j.checkRanks(); err != nil {
		return nil, err
	}
	if err := j.resolveDevice(o); err != nil {
		return nil, err
	}
	if err := j.checkMaster(); err != nil {
		return nil, err
	}
	for _, check := range first {
		if err := check(j); err != nil {
			return nil, err
		}
	}
	if o.trials {
		return j, nil
	}
	if err := j.openReference(); err != nil || o.sketch {
		return j, err
	}
	if len(c.DPO) > 0 && j.modelDir == "" {
		return nil, c.Errorf("dpo", "dpo compares with the model that training starts from, and this one begins at random: give model_name_or_path")
	}
	if err := j.openData(o.Stderr, o.Interactive); err != nil {
		return nil, err
	}
	return j, nil
}

// openModel opens the model, its tokenizer and the files of its weights.
func (j *job) openModel() error {
	m, err := OpenModel(j.c)
	if err != nil {
		return err
	}
	j.opened, j.model, j.modelDir, j.tok, j.tokErr = m, m.Config, m.Dir, m.Tokenizer, m.Err
	j.notes = append(j.notes, m.Notes...)
	if d := j.model.Dropout; d != "" {
		j.note("config.json asks for dropout (%s), which mt does not have: it trains without", d)
	}
	if class := j.model.Class; class != "" {
		j.note("config.json names the class %s; by its model_type %q the model is read as %s", class, j.model.ModelType, j.model.Arch)
	}
	if j.model.NearExperts > 0 {
		j.note("Transformers draws this model's experts at random in training; mt takes those that an evaluation takes")
	}
	if err := j.model.SetFreeze(model.Freeze{Names: j.c.Freeze, But: j.c.Unfrozen}); err != nil {
		key := "freeze"
		if len(j.c.Freeze) == 0 {
			key = "unfrozen_parameters"
		}
		return j.c.Errorf(key, "%s: %w", key, err)
	}
	if err := j.setGroups(); err != nil {
		return err
	}
	if j.modelDir == "" {
		return nil
	}
	if j.source, err = checkpoint.OpenSource(j.modelDir, m.Stored.Layouts(false)); err != nil {
		return err
	}
	j.closers = append(j.closers, j.source.Close)
	return nil
}

// open opens and reads a data set of the configuration, for the model at hand.
func (j *job) open(spec data.Spec, w io.Writer, interactive bool) (*data.Dataset, error) {
	spec.Tokenizer, spec.TokenizerErr, spec.ModelDir, spec.VocabSize = j.tok, j.tokErr, j.modelDir, j.model.VocabSize
	spec.Progress, spec.Stop = Options{Stderr: w, Interactive: interactive}.Progress(), j.stop
	set, err := data.Open(spec)
	if err != nil {
		return nil, err
	}
	j.closers = append(j.closers, func() { _ = set.Close() })
	if set.IsPairs() && !spec.Pairs {
		return nil, errors.New("the data set holds pairs of answers (chosen and rejected), which are trained on with dpo: give dpo, as in `dpo: {beta: 0.1}`, or other data")
	}
	j.notes = append(j.notes, set.Warnings()...)
	if err := set.Read(func() { j.longest = max(j.longest, set.All().Longest()) }); err != nil {
		return nil, err
	}
	return set, nil
}

// openData opens the data sets and settles the number of steps.
func (j *job) openData(w io.Writer, interactive bool) (err error) {
	c := j.c
	if f := j.hooks.reading; f != nil {
		f("dataset")
	}
	spec := c.DataSpec()
	spec.Held = j.heldOut
	if j.set, err = j.open(spec, w, interactive); err != nil {
		return j.dataError(c.DataKey(), err)
	}
	if j.set.IsText() && j.opened.withoutTokenizer() {
		j.note("%s has no tokenizer: text is read as bytes", j.modelDir)
	}
	for _, key := range []string{"train_on_prompt", "mask_history", "template", "chat_template_kwargs", "enable_thinking"} {
		if c.Given(key) && !j.set.IsChat() {
			j.note("%s has no effect: the data set holds no chats", key)
		}
	}
	view := j.set.Eval()
	if c.HasEvalData() {
		if j.evalSet, err = j.open(c.EvalSpec(), w, interactive); err != nil {
			return j.dataError(c.EvalDataKey(), err)
		}
		view = j.evalSet.All()
	}
	if j.set.Train().Rows() == 0 {
		return c.Errorf("val_size", "val_size leaves no row to train on of %d: lower it", j.set.Rows())
	}
	j.train, j.evalView = j.set.Sampler(c.RowsPerStep()), view
	if view.Rows() > 0 && c.EvalStrategy != "no" {
		j.eval = data.NewSampler(view, c.RowsPerStep(), c.Seed, false)
	}
	if j.epochs = c.MaxSteps <= 0; j.epochs {
		c.MaxSteps = int(math.Ceil(c.NumTrainEpochs * float64(j.train.StepsPerEpoch())))
		if err := c.CheckAverage(); err != nil {
			return c.Errorf("ema_update_after_step", "%w", err)
		}
	}
	c.Packing = config.Off
	if j.set.Packed() {
		c.Packing = config.On
	}
	return nil
}

// dataError words an error of opening the data set that key names. A mistake in the
// configuration becomes an error of the configuration.
func (j *job) dataError(key string, err error) error {
	var spec *data.SpecError
	switch {
	case errors.Is(err, data.ErrStopped):
		return ErrResumable
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%s: token cache: %w: free some there, or set cache_dir to a folder on another disk", key, err)
	case errors.As(err, &spec):
		return j.c.Errorf(cmp.Or(spec.Key, key), "%w", err)
	}
	return fmt.Errorf("%s: %w", key, err)
}

// rowTokens is how many tokens the longest row of a batch can have: where no data was read
// max_seq_len, or two answers of that length.
func (j *job) rowTokens() int {
	if j.set == nil {
		return data.RowTokens(j.c.MaxSeqLen, len(j.c.DPO) > 0)
	}
	return j.longest
}

// ropePositions is how many positions the rotary tables are made for where that number
// changes the frequencies (type dynamic). It is then max_seq_len, so that the
// frequencies do not depend on the data. Otherwise it is 0, which leaves it to the
// plan.
func (j *job) ropePositions() int {
	for _, r := range j.model.Ropes() {
		if r.Type == "dynamic" {
			return j.c.MaxSeqLen
		}
	}
	return 0
}

// resolvePlan settles what the configuration leaves to mt, and checks that the run fits
// into memory.
func (j *job) resolvePlan() error { return j.resolve(false) }

// resolveEvalPlan is resolvePlan for an evaluation alone.
func (j *job) resolveEvalPlan() error { return j.resolve(true) }

func (j *job) resolve(evalOnly bool) (err error) {
	q := j.request(evalOnly)
	if err := j.checkPositions(j.model, "the model"); err != nil {
		return err
	}
	if j.hosts > 1 {
		q.Ranks = j.hosts
	}
	j.asked = q
	if j.plan, err = plan.Resolve(q); err != nil {
		return j.planError(err)
	}
	j.recordResolved()
	j.noteNumerics(q)
	if len(j.c.StateDir) > 0 && j.plan.Away == nil && !q.EvalOnly {
		j.note("state_dir: host memory has room for everything, so nothing is kept there; host_memory says how much mt may take")
	} else if len(j.c.ParamDir) > 0 && j.plan.ParamAway == nil && !q.EvalOnly {
		j.note("param_dir: host memory has room for the weights, so they are not kept there; host_memory says how much mt may take")
	}
	if idle := j.plan.Idle(); idle > idleEnough {
		j.note("%d micro-batches a step keep %d devices at work %.0f %% of the time at most: lower pipeline.micro_batch_tokens, raise the rows of a step, or use fewer devices",
			j.plan.Limits.MicroBatches, j.lanes, 100*(1-idle))
	}
	if err := j.checkParams(); err != nil || evalOnly {
		return err
	}
	return j.planPass()
}

// idleEnough is the share of a step in which several devices may stand still, as predicted, before
// the user is told.
const idleEnough = 0.25

// request asks for the plan of what the configuration says.
func (j *job) request(evalOnly bool) plan.Request {
	c := j.c
	q := plan.Request{Config: j.model, Act: j.act, Terms: op.LossTerms{Smoothing: float32(c.LabelSmoothing), Z: float32(c.ZLoss)}, Preference: preferenceLoss(c),
		Noise:     op.Noise{Alpha: float32(c.NoiseAlpha), Seed: uint64(c.Seed)},
		GradDType: c.GradDType, BF16Master: j.bf16Master() || evalOnly && !j.startsRows(), Recompute: c.Recompute, HiddenStates: c.HiddenStates, Fused: j.fuses(),
		MicroBatchTokens: c.Pipeline.MicroBatchTokens, ChunkTokens: c.Pipeline.ChunkTokens,
		Order: j.order(), Devices: j.lanes, Paces: j.paces, LaneMemory: j.memory, Lane: j.began,
		Depths: plan.Depths{WeightSlots: c.Pipeline.WeightSlots, GradBuffers: c.Pipeline.GradBuffers, GradSlabs: c.Pipeline.GradSlabs,
			ActivationSlots: c.Pipeline.ActivationSlots, BatchesAhead: c.Pipeline.BatchesAhead, ExchangeBuffers: c.Pipeline.ExchangeBuffers, GathersAhead: c.Pipeline.GathersAhead, StateSlots: c.Pipeline.StateSlots,
			MatrixBuffers: c.Pipeline.MatrixBuffers}, StateDir: len(c.StateDir) > 0, ParamDir: len(c.ParamDir) > 0 && j.team.size() <= 1 && j.hosts <= 1, Compress: c.Compress == "byteplane", HeadShards: c.Pipeline.HeadShards,
		Rows: c.RowsPerStep(), RowTokens: j.rowTokens(), Positions: j.ropePositions(), Clip: c.WaitsForNorm(), Unified: j.unified, OneMemory: j.integrated, EvalOnly: evalOnly, Planes: j.average().With(j.optimizer().Planes), Optim: c.Optim,
		NSSteps: j.nsSteps(), Ranks: j.team.size(), Rank: j.team.number(), Units: j.optimizer().Units,
		Context: j.contextBytes(), DeviceMemory: j.deviceBudget(), HostMemory: j.share(int64(c.HostMemory))}
	if q.HostMemory == 0 {
		room := j.budgetOf(j.room())
		q.HostMemory, q.HostBy = room.Budget(), room.By
	}
	return q
}

// order is in which order layers take the micro-batches.
func (j *job) order() schedule.Order {
	if o := j.c.MicroBatchOrder; o == schedule.Lanes.String() || o == "auto" && j.lanes > 1 {
		return schedule.Lanes
	}
	return schedule.Zigzag
}

// recordResolved writes what the plan chose into the configuration, for
// config.yaml and for resuming.
func (j *job) recordResolved() {
	c, p := j.c, j.plan
	c.MicroBatchOrder = p.Order.String()
	c.GradDType = gradType(p)
	d := p.Depths
	c.Pipeline = config.Pipeline{WeightSlots: d.WeightSlots, GradBuffers: d.GradBuffers, ActivationSlots: d.ActivationSlots,
		BatchesAhead: d.BatchesAhead, GradSlabs: c.Pipeline.GradSlabs, ExchangeBuffers: d.ExchangeBuffers, GathersAhead: d.GathersAhead, StateSlots: cmp.Or(d.StateSlots, c.Pipeline.StateSlots),
		MatrixBuffers: cmp.Or(d.MatrixBuffers, c.Pipeline.MatrixBuffers), MicroBatchTokens: c.Pipeline.MicroBatchTokens,
		ChunkTokens: p.Spec.ChunkTokens, HeadShards: p.Spec.Shards()}
	if p.SlabsAreCredits() {
		c.Pipeline.GradSlabs = d.GradSlabs
	}
	if c.Pipeline.MicroBatchTokens == 0 {
		c.Pipeline.MicroBatchTokens = p.Limits.MicroBatchTokens
	}
}

// initialise fills the store with the first weights of training from scratch.
func initialise(s *host.Store, c *model.Config, seed int64, pool *parallel.Pool) error {
	return fillRows(s, pool, func(p model.Param, r int, row []float32) { model.InitRow(c, p, r, seed, row) })
}

// fillRows writes every row of every parameter with what fill stores in row. fill is
// called from all workers of pool. Only a disk can fail.
func fillRows(s *host.Store, pool *parallel.Pool, fill func(p model.Param, r int, row []float32)) error {
	for _, i := range s.Distinct() {
		if err := s.Lend(i, true, func(l *host.LayerState) error {
			fillLayer(l, pool, fill)
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

func fillLayer(l *host.LayerState, pool *parallel.Pool, fill func(p model.Param, r int, row []float32)) {
	for t, tl := range l.Layout.Tensors {
		if tl.Ref {
			continue
		}
		rowsAt := max(1, (1<<16)/tl.Cols)
		pool.Run((tl.Rows+rowsAt-1)/rowsAt, func(i int) {
			row := make([]float32, tl.Cols)
			for r := i * rowsAt; r < min(tl.Rows, (i+1)*rowsAt); r++ {
				fill(tl.Param, r, row)
				l.WriteRows(t, r, 1, row)
			}
		})
	}
}
