package trials

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"mt/actors"
	"mt/base/accounts"
	"mt/base/parallel"
	"mt/data"
	"mt/device"
	"mt/device/cuda"
	"mt/device/wrap"
	"mt/host"
	"mt/host/optim"
	"mt/internal/run/config"
	"mt/internal/run/machine"
	"mt/internal/run/open"
	"mt/internal/run/report"
	"mt/internal/run/settings"
	"mt/layers/schedule"
	"mt/model"
	"mt/plan"
)

// SyntheticOptions configures a run over random tokens for benchmarks: the whole pipeline without files.
type SyntheticOptions struct {
	Model        *model.Config
	Rows, SeqLen int
	Act          device.DType // compute dtype
	Threads      int          // 0: all cores
	Unified      bool
	Recompute    string // auto, full or none
	Depths       plan.Depths
	MicroTokens  int // 0: auto
	ChunkTokens  int // 0: auto
	// On is the device, which the caller closes; nil: StartSynthetic opens one according to Device, DeviceMemory,
	// Threads, Unified and Throttle, and Close closes it.
	On           device.Device
	Device       string // cpu (or empty) or cuda
	Devices      int    // number of devices; 0: one
	DeviceMemory int64  // bytes per device; 0: all
	NoClip       bool   // no gradient clipping: a layer's update starts when its gradient lands
	Profile      bool   // time every operation of the first device
	// AttentionKernels is the key attention_kernels: auto (or empty), fused, portable, sm90a or sm90a_fused.
	AttentionKernels string
	TimedMatMul      bool // use the fastest algorithm for matrix products, like matmul: timed
	Throttle         settings.Throttle
	// Weights fills row with the values of row r of p. Many goroutines call it. nil: the initial weights of training
	// from scratch.
	Weights func(p model.Param, r int, row []float32)
	// Batch returns the rows of a step, counted from 1; nil: random tokens.
	Batch func(step int) []data.Row
}

// The optimizer's settings in a synthetic run, exported for programs that compute the same run again.
const (
	SyntheticLR          = 1e-4
	SyntheticMaxGradNorm = 1.0
)

// Synthetic is a run over random or given tokens. It pauses between calls of Run.
type Synthetic struct {
	Plan    *plan.Run
	o       SyntheticOptions
	devs    []device.Device // by lane
	noted   []device.Device // the same devices without wrappers, for their notes
	profile *wrap.Profiled  // nil: no timing of operations
	pool    *parallel.Pool
	store   *host.Store
	allowed chan struct{} // one value per step that may start
	reports chan actors.StepReport
	stop    chan struct{}
	ending  chan struct{} // closed when the pipeline ends, also after a failure
	ended   chan error
	// attention names the attention kernels; empty: the devices have no choice.
	attention string
	closers   []func()
}

// maxSyntheticSteps is the number of steps that the learning rate's schedule covers, more than any benchmark runs.
const maxSyntheticSteps = 1 << 30

// StartSynthetic allocates all memory and starts the pipeline.
func StartSynthetic(o SyntheticOptions) (_ *Synthetic, err error) {
	if o.Batch == nil {
		random := o
		o.Batch = func(step int) []data.Row { return randomRows(random, step) }
	}
	s := &Synthetic{o: o, allowed: make(chan struct{}, 1<<20), reports: make(chan actors.StepReport, 1<<10), stop: make(chan struct{}), ending: make(chan struct{}), ended: make(chan error, 1)}
	defer func() {
		if err != nil {
			s.free()
			err = fmt.Errorf("synthetic run: %w", err)
		}
	}()
	if err := s.openDevices(); err != nil {
		return nil, err
	}
	if err := s.chooseAttention(); err != nil {
		return nil, err
	}
	if s.Plan, err = s.resolve(); err != nil {
		return nil, err
	}
	s.pool = parallel.New(o.Threads)
	s.closers = append(s.closers, s.pool.Close)
	if s.store, err = host.NewStore(s.Plan.Layouts, s.Plan.Planes, s.pool); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() { _ = s.store.Close() })
	if o.Weights != nil {
		err = open.FillRows(s.store, s.pool, o.Weights)
	} else {
		err = open.Initialise(s.store, o.Model, 1, s.pool)
	}
	if err != nil {
		return nil, err
	}
	go func() { s.ended <- actors.Run(s.options(o)) }()
	return s, nil
}

// resolve plans the run.
func (s *Synthetic) resolve() (*plan.Run, error) {
	o := s.o
	q := o.request()
	q.Fused = cuda.NeedsSums(s.attention)
	for i, dev := range s.devs {
		use := dev.Usage()
		if i == 0 || use.Limit < q.DeviceMemory {
			q.DeviceMemory = use.Limit
		}
		q.Unified, q.Context, q.HostMemory = dev.Unified(), max(q.Context, use.Now[accounts.Context]), 0
		q.OneMemory = q.OneMemory || use.Integrated
	}
	q.HostMemory = open.BudgetOf(q.OneMemory, host.AvailableMemory()).Budget()
	return plan.Resolve(q)
}

// request returns the request for the plan of the synthetic run.
func (o SyntheticOptions) request() plan.Request {
	order := schedule.Zigzag
	if o.Devices > 1 {
		order = schedule.Lanes
	}
	return plan.Request{Config: o.Model, Planes: SyntheticRecipe.Planes, Act: o.Act, GradDType: "auto", Order: order, Devices: o.Devices, Recompute: o.Recompute, MicroBatchTokens: o.MicroTokens,
		ChunkTokens: o.ChunkTokens, Depths: o.Depths, Rows: o.Rows, RowTokens: o.SeqLen, Clip: !o.NoClip, Unified: o.Unified, HostMemory: host.AvailableMemory().Budget(),
		DeviceMemory: o.DeviceMemory}
}

// PlanSynthetic returns the plan of a CPU run that StartSynthetic would start.
func PlanSynthetic(o SyntheticOptions) (*plan.Run, error) { return plan.Resolve(o.request()) }

// lent is a device that belongs to the caller of StartSynthetic. Its Close does nothing.
type lent struct{ device.Device }

func (lent) Close() error { return nil }

// openDevices opens the devices. With Profile it times their operations.
func (s *Synthetic) openDevices() (err error) {
	o := machine.Options{Device: s.o.Device, MemoryLimit: config.Bytes(s.o.DeviceMemory), Threads: s.o.Threads, Unified: s.o.Unified, TimedMatMul: s.o.TimedMatMul, LinkLimit: s.o.Throttle.Link}
	if s.o.On != nil {
		s.devs = []device.Device{lent{s.o.On}}
	} else if s.devs, err = machine.OpenAll(o, max(1, s.o.Devices)); err != nil {
		return err
	}
	s.noted = slices.Clone(s.devs)
	s.closers = append(s.closers, func() { _ = machine.CloseAll(s.devs) })
	if s.o.Device == "cuda" && s.o.Unified && s.o.On == nil {
		if _, _, err := open.BindInPlace(s.devs, false, (&open.Inputs{}).ReadRates); err != nil {
			return err
		}
	}
	if s.o.Profile {
		s.profile = wrap.Profile(s.devs[0])
		s.devs[0] = s.profile
	}
	return nil
}

// chooseAttention selects the attention kernels that a training run with the same attention_kernels would use.
func (s *Synthetic) chooseAttention() error {
	var devs []open.Attender
	sm90a := true
	for _, dev := range s.noted {
		if l, ok := dev.(lent); ok {
			dev = l.Device
		}
		d, ok := dev.(open.Attender)
		if !ok {
			return nil
		}
		devs, sm90a = append(devs, d), sm90a && d.RunsSM90a()
	}
	switch s.attention = s.o.AttentionKernels; {
	case s.attention != "" && s.attention != "auto":
	case sm90a:
		s.attention = cuda.SM90aFused
	default:
		s.attention = cuda.Fused
	}
	for _, d := range devs {
		if err := d.UseAttention(s.attention); err != nil {
			return fmt.Errorf("attention_kernels: %w", err)
		}
	}
	return nil
}

// AttentionKernels returns the name of the attention kernels; "" if the device has no choice.
func (s *Synthetic) AttentionKernels() string { return s.attention }

// SyntheticRecipe is the optimizer of a synthetic run, with its hyperparameters.
var SyntheticRecipe = optim.AdamW{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1}

func (s *Synthetic) options(o SyntheticOptions) actors.Options {
	norm := SyntheticMaxGradNorm
	if o.NoClip {
		norm = 0
	}
	return actors.Options{Devices: s.devs, Home: s.store, Pool: s.pool, Plan: s.Plan, MaxGradNorm: norm, Stop: s.stop, Ending: func() { close(s.ending) },
		Schedule: actors.Schedule{FirstStep: 1, LastStep: maxSyntheticSteps, MaxNonFinite: 1, NoSave: true,
			LR: func(int) float64 { return SyntheticLR }, DataPos: func(int) int64 { return 0 }},
		Optimizer: o.Throttle.Optimizer(SyntheticRecipe),
		Batch: func(step int, _ bool) (*data.Batch, error) {
			select {
			case <-s.allowed:
			case <-s.stop:
			case <-s.ending:
			}
			return data.NewBatch(step, o.Batch(step), s.Plan.Limits.MicroBatchTokens), nil
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

// Run runs k steps without a pause and returns their reports. Between calls the pipeline is idle, so only the reports
// in the middle of a call show the cost of a step. The first report includes the time since the last call, and the last
// step's update overlaps with no other step.
func (s *Synthetic) Run(k int) ([]actors.StepReport, error) {
	for range k {
		s.allowed <- struct{}{}
	}
	var out []actors.StepReport
	for len(out) < k {
		select {
		case r := <-s.reports:
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

// Notes returns the devices' notes, such as memory that cannot be pinned or products that cuBLASLt does not compute.
// Notes can appear at any time during the run.
func (s *Synthetic) Notes() []string {
	var all []string
	for _, dev := range s.noted {
		if d, ok := dev.(interface{ Notes() []string }); ok {
			all = append(all, d.Notes()...)
		}
	}
	return all
}

// FLOPs returns the model's FLOPs of a step and the executed FLOPs.
func (s *Synthetic) FLOPs(r actors.StepReport) (counted, executed float64) {
	return report.FLOPs(s.Plan)(r.Tokens, r.AttendedPairs, r.AttendedAgain)
}

// Times returns the durations of operations since the last call, longest first; nil without Profile.
func (s *Synthetic) Times() ([]wrap.OpTime, error) {
	if s.profile == nil {
		return nil, nil
	}
	return s.profile.Times()
}

// DeviceName returns the device's name, with the number of devices if there are several.
func (s *Synthetic) DeviceName() string {
	if n := len(s.devs); n > 1 {
		return fmt.Sprintf("%d × %s", n, s.devs[0].Name())
	}
	return s.devs[0].Name()
}

// Device returns the first device without its wrappers.
func (s *Synthetic) Device() device.Device { return s.noted[0] }

// DeviceUsage returns the memory use of the device with the highest peak.
func (s *Synthetic) DeviceUsage() device.Usage {
	most := s.devs[0].Usage()
	for _, d := range s.devs[1:] {
		if u := d.Usage(); u.PeakTotal > most.PeakTotal {
			most = u
		}
	}
	return most
}

// Close ends the run and frees its memory.
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
