package trials

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"mt/actors"
	"mt/base/parallel"
	"mt/data"
	"mt/device"
	"mt/host"
	"mt/internal/run/config"
	"mt/internal/run/machine"
	"mt/internal/run/open"
	"mt/internal/run/predict"
	"mt/internal/run/report"
	"mt/internal/run/resolve"
	"mt/internal/run/save"
	"mt/internal/run/settings"
	"mt/plan"
	"mt/plan/rates"
)

// Knobs are the settings that tuning may change: depths, threads and micro-batch sizes. 0 leaves a depth to the plan,
// and Threads to the number of cores.
type Knobs struct {
	WeightSlots      int `json:"weight_slots"`
	GradBuffers      int `json:"grad_buffers"`
	GradSlabs        int `json:"grad_slabs,omitempty"` // 0 if every layer has its own
	ActivationSlots  int `json:"activation_slots"`
	Threads          int `json:"threads,omitempty"` // threads of the CPU device and of updates
	MicroBatchTokens int `json:"micro_batch_tokens"`
	ChunkTokens      int `json:"chunk_tokens"`
}

// List returns the knobs in the order of their fields.
func (k Knobs) List() []int {
	return []int{k.WeightSlots, k.GradBuffers, k.GradSlabs, k.ActivationSlots, k.Threads, k.MicroBatchTokens, k.ChunkTokens}
}

// Trials runs one configuration with different depths, over rows of max_seq_len random tokens. All trials share the
// memory of the same random weights. One trial runs at a time, on all devices of the configuration.
type Trials struct {
	in            *open.Inputs
	request       *resolve.Resolved // the plan's request; it has no plan itself
	store         *host.Store       // nil until the first run
	stateOnDisk   []bool            // by layer: its state is on a disk; as the store has it
	gradOnDisk    []bool            // by layer: its gradient is on a disk
	weightsOnDisk []bool            // by layer: its tile is on a disk
	slots         int               // state slots of the store
	ends          []func() error    // remove the files of the states
	news          *report.DeviceNotes
	batches       map[int]*data.Batch
}

// OpenTrials opens the model and the device of c, but neither data nor output_dir.
func OpenTrials(c *config.Config, o settings.Options) (_ *Trials, err error) {
	in, err := open.Open(c, o, open.Asks{Trials: true})
	if err != nil {
		return nil, err
	}
	return &Trials{in: in, request: resolve.Request(in), news: report.NotesOf(in.Devices), batches: map[int]*data.Batch{}}, nil
}

// Close frees all memory.
func (t *Trials) Close() error {
	return errors.Join(t.closeStore(), t.in.Close())
}

// open creates the store that plan r needs. It keeps the current store if that has the same layers on disks.
func (t *Trials) open(r *plan.Run, pool *parallel.Pool) error {
	if t.store != nil && slices.Equal(t.stateOnDisk, r.StateOnDisk) && slices.Equal(t.gradOnDisk, r.GradOnDisk) && slices.Equal(t.weightsOnDisk, r.WeightsOnDisk) && t.slots == r.Depths.StateSlots {
		return nil
	}
	if err := t.closeStore(); err != nil {
		return err
	}
	tier, _, err := save.NewOutput(t.request.WithPlan(r)).OpenTier(r, false, func(end func() error) { t.ends = append(t.ends, end) })
	if err != nil {
		return err
	}
	if t.store, err = host.NewTieredStore(r.Layouts, r.Planes, nil, tier, pool); err != nil {
		return err
	}
	t.store.SetEMA(settings.Average(t.in.Config))
	t.stateOnDisk, t.gradOnDisk, t.weightsOnDisk, t.slots = r.StateOnDisk, r.GradOnDisk, r.WeightsOnDisk, r.Depths.StateSlots
	return open.Initialise(t.store, t.in.Model, 1, pool)
}

// closeStore frees the store's memory and removes its files.
func (t *Trials) closeStore() (err error) {
	if t.store != nil {
		err = t.store.Close()
	}
	for _, end := range t.ends {
		err = errors.Join(err, end())
	}
	t.store, t.ends = nil, nil
	return err
}

// WriteNotes prints the notes for the user, each once.
func (t *Trials) WriteNotes(w io.Writer) {
	report.ShowAll(w, save.NewOutput(t.request).AllNotes(), t.news.Take())
}

// Asked returns the knobs as the configuration sets them.
func (t *Trials) Asked() Knobs {
	d, q := t.request.Asked.Depths, t.request.Asked
	return Knobs{WeightSlots: d.WeightSlots, GradBuffers: d.GradBuffers, GradSlabs: d.GradSlabs, ActivationSlots: d.ActivationSlots,
		Threads: t.in.Config.Threads, MicroBatchTokens: q.MicroBatchTokens, ChunkTokens: q.ChunkTokens}
}

// Plan returns the plan of a trial. It returns a *plan.NotFitting if memory is short.
func (t *Trials) Plan(k Knobs) (*plan.Run, error) {
	q := t.request.Asked
	q.Depths.WeightSlots, q.Depths.GradBuffers, q.Depths.GradSlabs, q.Depths.ActivationSlots = k.WeightSlots, k.GradBuffers, k.GradSlabs, k.ActivationSlots
	q.MicroBatchTokens, q.ChunkTokens = k.MicroBatchTokens, k.ChunkTokens
	return plan.Resolve(q)
}

// Check returns the error that training with the knobs k would give if they do not fit into memory; otherwise nil. The
// error names configuration keys.
func (t *Trials) Check(k Knobs) error {
	r, err := t.Plan(k)
	if err != nil {
		if err = t.request.PlanError(err); !config.IsUsage(err) {
			err = config.Usagef("%w", err)
		}
		return err
	}
	return t.request.WithPlan(r).CheckRoom("the run")
}

// Machine returns m, slowed down as MT_THROTTLE says. It returns an error if m's rates do not suit this run.
func (t *Trials) Machine(m *rates.Machine) (*rates.Machine, error) {
	if want := t.in.Config.Device; m.Device.Kind != want {
		return nil, config.Usagef("the rates of %s are those of device %s, and the run is on %s: measure this machine with mt doctor --save FILE --device %s",
			m.Name, m.Device.Kind, want, want)
	}
	if n := 1 + len(m.More); n > 1 && n < t.in.Lanes {
		return nil, config.Usagef("the rates are those of %d devices, and the run has %d: give those of each, or of one for all", n, t.in.Lanes)
	}
	slow := t.in.Throttle
	if !t.OnCPU() {
		slow.Link = 0 // only the CPU device has a link limit
	}
	out := slow.Machine(m)
	if !t.in.Config.PeerCopies {
		out = out.WithoutPeers()
	}
	return out, nil
}

// Predict predicts a step of the plan r on m, a machine that the method Machine has returned.
func (t *Trials) Predict(r *plan.Run, m *rates.Machine) (*predict.Prediction, error) {
	batch := t.batches[r.Limits.MicroBatchTokens]
	if batch == nil {
		batch = predict.FullBatch(r)
		t.batches[r.Limits.MicroBatchTokens] = batch
	}
	return predict.Predicting{Batch: batch}.Predict(context.Background(), r, m)
}

// OnCPU reports whether the run is on the CPU device.
func (t *Trials) OnCPU() bool { return t.in.Config.Device == "cpu" }

// Calibrated calls f with the device whose rates tuning measures. The limits of MT_THROTTLE do not apply to this
// device.
func (t *Trials) Calibrated(f func(device.Device) error) error {
	if t.in.Devices != nil {
		return f(t.in.Devices[0])
	}
	dev, err := machine.Open(machine.Options{Device: "cpu", Unified: t.in.Unified})
	if err != nil {
		return err
	}
	return errors.Join(f(dev), dev.Close())
}

// Run runs r for the given steps with the given threads (0: one per core) and returns the steps' reports. If ctx is
// cancelled, it ends after the step in progress and returns the cause.
func (t *Trials) Run(ctx context.Context, r *plan.Run, threads, steps int) (reports []actors.StepReport, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("trial: %w", err)
		}
	}()
	pool := parallel.New(threads)
	defer pool.Close()
	if err := t.open(r, pool); err != nil {
		return nil, err
	}
	t.store.SetPool(pool)
	devs := t.in.Devices
	if devs == nil {
		if devs, err = t.in.OpenCPUs(threads); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, machine.CloseAll(devs)) }()
	}
	rows := [][]data.Row{randomRows(t.shape(r), 1), randomRows(t.shape(r), 2)}
	var preferences *actors.Preferences
	if !r.Spec.Preference.None() {
		inPairs(rows)
		preferences = &actors.Preferences{Reference: func(bool, int64) [2]float32 { return [2]float32{} }}
	}
	err = actors.Run(actors.Options{Devices: devs, Home: t.store, Pool: pool, Plan: r, MaxGradNorm: t.in.Config.MaxGradNorm, LayerNorms: t.in.Config.Clip == "layerwise", Stop: ctx.Done(), ThroughHost: !t.in.Config.PeerCopies,
		Schedule: actors.Schedule{FirstStep: 1, LastStep: steps, MaxNonFinite: 1, NoSave: true, SynchronousUpdates: t.in.Config.SynchronousUpdates,
			LR: func(int) float64 { return 0 }, DataPos: func(int) int64 { return 0 }},
		Optimizer: t.in.Optimizer(), Matrices: settings.Muon(t.in.Config), Preferences: preferences,
		Batch: func(step int, _ bool) (*data.Batch, error) {
			return data.NewBatch(step, rows[step%len(rows)], r.Limits.MicroBatchTokens), nil
		},
		OnStep: func(s actors.StepReport) { reports = append(reports, s) }})
	if ctx.Err() != nil {
		err = errors.Join(err, context.Cause(ctx))
	}
	return reports, err
}

// inPairs turns each row of random tokens into a preference pair: its first half and its second half become the two
// answers.
func inPairs(steps [][]data.Row) {
	for _, rows := range steps {
		for i := range rows {
			n := int32(len(rows[i].IDs))
			rows[i].Docs, rows[i].Pairs = []int32{n / 2, n - n/2}, []data.Pair{{Chosen: 0, Rejected: 1}}
		}
	}
}

// shape returns SyntheticOptions with the model, the rows per step and the row length of plan r, for making random
// tokens.
func (t *Trials) shape(r *plan.Run) SyntheticOptions {
	return SyntheticOptions{Model: t.in.Model, Rows: r.Limits.Tokens / r.RowTokens, SeqLen: r.RowTokens}
}
