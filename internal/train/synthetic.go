package train

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"mt/actors"
	"mt/data"
	"mt/device"
	"mt/device/wrap/profile"
	"mt/host"
	"mt/host/optim"
	"mt/internal/accounts"
	"mt/internal/config"
	"mt/internal/machine"
	"mt/internal/parallel"
	"mt/model"
	"mt/plan"
)

// SyntheticOptions describe a run over random tokens, for benchmarks: the whole
// pipeline without files.
type SyntheticOptions struct {
	Model        *model.Config
	Rows, SeqLen int
	Act          device.DType // compute dtype
	Threads      int          // 0: all cores
	Unified      bool
	Recompute    string // auto, full or none
	Depths       plan.Depths
	MicroTokens  int    // 0: auto
	ChunkTokens  int    // 0: auto
	Device       string // cpu (or empty) or cuda
	DeviceMemory int64  // budget in bytes; 0: what the device has
	NoClip       bool   // no gradient clipping: a layer is updated as soon as its gradient lands
	Profile      bool   // time every operation
}

// Synthetic is a run over random tokens. It stands still between calls of Run.
type Synthetic struct {
	Plan    *plan.Run
	o       SyntheticOptions
	dev     device.Device
	profile *profile.Device // nil: operations are not timed
	pool    *parallel.Pool
	store   *host.Store
	allowed chan struct{} // one for every step that may begin
	reports chan actors.StepReport
	stop    chan struct{}
	ended   chan error
	idle    time.Time // since when it stands still
	closers []func()
}

// maxSyntheticSteps is the length of the schedule, more than any benchmark runs.
const maxSyntheticSteps = 1 << 30

// StartSynthetic allocates everything and starts the pipeline.
func StartSynthetic(o SyntheticOptions) (_ *Synthetic, err error) {
	s := &Synthetic{o: o, allowed: make(chan struct{}, 1<<20), reports: make(chan actors.StepReport, 1<<10), stop: make(chan struct{}), ended: make(chan error, 1)}
	defer func() {
		if err != nil {
			s.free()
			err = fmt.Errorf("synthetic run: %w", err)
		}
	}()
	if err := s.openDevice(); err != nil {
		return nil, err
	}
	s.Plan, err = plan.Resolve(plan.Request{Config: o.Model, Planes: syntheticRecipe.Planes, Act: o.Act, GradDType: "auto", Recompute: o.Recompute, MicroBatchTokens: o.MicroTokens,
		ChunkTokens: o.ChunkTokens, Depths: o.Depths, Rows: o.Rows, RowTokens: o.SeqLen, Clip: !o.NoClip, Unified: s.dev.Unified(), HostMemory: host.AvailableMemory().Budget(),
		DeviceMemory: s.dev.Usage().Limit, Context: s.dev.Usage().Now[accounts.Context]})
	if err != nil {
		return nil, err
	}
	s.pool = parallel.New(o.Threads)
	s.closers = append(s.closers, s.pool.Close)
	if s.store, err = host.NewStore(s.Plan.Layouts, s.Plan.Planes, s.pool); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() { _ = s.store.Close() })
	initialise(s.store, o.Model, 1, s.pool)
	go func() { s.ended <- actors.Run(s.options(o)) }()
	return s, nil
}

// openDevice opens the device; with Profile its operations are timed.
func (s *Synthetic) openDevice() (err error) {
	s.dev, err = machine.Open(machine.Options{Device: s.o.Device, MemoryLimit: config.Bytes(s.o.DeviceMemory), Threads: s.o.Threads, Unified: s.o.Unified})
	if err != nil {
		return err
	}
	if s.o.Profile {
		s.profile = profile.Wrap(s.dev)
		s.dev = s.profile
	}
	s.closers = append(s.closers, func() { _ = s.dev.Close() })
	return nil
}

// syntheticRecipe is the optimizer of a synthetic run.
var syntheticRecipe optim.Optimizer = optim.AdamW{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1}

func (s *Synthetic) options(o SyntheticOptions) actors.Options {
	norm := 1.0
	if o.NoClip {
		norm = 0
	}
	return actors.Options{Device: s.dev, Home: s.store, Pool: s.pool, Plan: s.Plan, MaxGradNorm: norm, Stop: s.stop,
		Schedule: actors.Schedule{FirstStep: 1, LastStep: maxSyntheticSteps, MaxNonFinite: 1, NoSave: true,
			LR: func(int) float64 { return 1e-4 }, DataPos: func(int) int64 { return 0 }},
		Optimizer: syntheticRecipe,
		Batch: func(step int, _ bool) (*data.Batch, error) {
			select {
			case <-s.allowed:
			case <-s.stop:
			}
			return data.NewBatch(step, randomRows(o, step), s.Plan.Limits.MicroBatchTokens), nil
		},
		OnStep: func(r actors.StepReport) { s.reports <- r }}
}

func randomRows(o SyntheticOptions, step int) []data.Row {
	r := rand.New(rand.NewPCG(uint64(step), 1))
	rows := make([]data.Row, o.Rows)
	for i := range rows {
		rows[i].IDs = make([]int32, o.SeqLen)
		for k := range rows[i].IDs {
			rows[i].IDs[k] = int32(r.IntN(o.Model.VocabSize))
		}
	}
	return rows
}

// Run does k steps and returns their reports. The first of them begins with the call:
// the time since the call before does not count, neither in Elapsed nor as a wait for
// data.
func (s *Synthetic) Run(k int) ([]actors.StepReport, error) {
	begin := time.Now()
	defer func() { s.idle = time.Now() }()
	for range k {
		s.allowed <- struct{}{}
	}
	var out []actors.StepReport
	for len(out) < k {
		select {
		case r := <-s.reports:
			if len(out) == 0 {
				r.Elapsed = time.Since(begin)
				if !s.idle.IsZero() {
					still := min(begin.Sub(s.idle), r.Stall[actors.StallData])
					r.Stall[actors.StallData] -= still
					r.Compute -= still
				}
			}
			out = append(out, r)
		case err := <-s.ended:
			if err == nil {
				err = errors.New("the run has ended")
			}
			s.ended <- err
			return out, err
		}
	}
	return out, nil
}

// FLOPs are the model FLOPs of a reported step and those that were executed, in
// floating point operations.
func (s *Synthetic) FLOPs(r actors.StepReport) (counted, executed float64) {
	return flops(s.Plan, r.Tokens, r.AttendedPairs)
}

// Times are how long the operations since the last call took, the longest first; none
// without Profile.
func (s *Synthetic) Times() ([]profile.Time, error) {
	if s.profile == nil {
		return nil, nil
	}
	return s.profile.Times()
}

// DeviceName is the device's name.
func (s *Synthetic) DeviceName() string { return s.dev.Name() }

// DeviceUsage is the memory that the device holds.
func (s *Synthetic) DeviceUsage() device.Usage { return s.dev.Usage() }

// Close ends the run and gives its memory back.
func (s *Synthetic) Close() error {
	close(s.stop)
	for {
		select {
		case <-s.reports: // the step in progress
		case err := <-s.ended:
			s.free()
			return err
		}
	}
}

func (s *Synthetic) free() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
}
