package report

import (
	"fmt"
	"math"
	"time"

	"github.com/dustin/go-humanize"

	"mt/actors"
	"mt/base/accounts"
	"mt/checkpoint"
	"mt/device"
	"mt/host"
	"mt/internal/run/config"
	"mt/plan"
)

// number returns f for JSON: nil if f is not finite.
func number(f float64) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil
	}
	return f
}

// StepMetrics is one line of metrics.jsonl for a step. Units are in the names; stall_s is by cause. Means and sums
// cover the steps since the previous line.
type StepMetrics struct {
	Step          int                `json:"step"`
	MaxSteps      int                `json:"max_steps"`
	Epoch         float64            `json:"epoch"`
	Loss          any                `json:"loss"`
	StepLoss      any                `json:"step_loss"`
	AheadLoss     *any               `json:"mtp_loss,omitempty"`
	WindowSteps   int                `json:"window_steps"`
	GradNorm      any                `json:"grad_norm"`
	LR            float64            `json:"lr"`
	GroupLR       map[string]float64 `json:"lr_groups,omitempty"` // learning rate by group name
	Tokens        int64              `json:"tokens"`
	TokensTotal   int64              `json:"tokens_total"`
	TimedSteps    int                `json:"timed_steps"`
	TokPerS       float64            `json:"tok_per_s"`
	TFLOPS        float64            `json:"tflops"`
	TFLOPSExec    float64            `json:"tflops_executed"`
	MFU           any                `json:"mfu"`
	StepS         float64            `json:"step_s"`
	EtaS          float64            `json:"eta_s"`
	HostBytes     int64              `json:"host_bytes"`
	DeviceBytes   int64              `json:"device_bytes"`
	Memory        MemoryUse          `json:"memory"`
	H2DGBps       float64            `json:"h2d_gbps"`
	D2HGBps       float64            `json:"d2h_gbps"`
	PeerGBps      float64            `json:"peer_gbps,omitempty"`
	NetworkGBps   float64            `json:"network_gbps,omitempty"`
	DiskReadGBps  float64            `json:"disk_read_gbps,omitempty"`
	DiskWriteGBps float64            `json:"disk_write_gbps,omitempty"`
	// Per step: bytes read from and written to disks, the share of the disk's time during which the device had work,
	// and the number of steps that a disk lasts per petabyte of rated writes.
	DiskReadBytes  int64              `json:"disk_read_bytes,omitempty"`
	DiskWriteBytes int64              `json:"disk_write_bytes,omitempty"`
	DiskHidden     *float64           `json:"disk_hidden,omitempty"`
	DiskStepsPerPB int64              `json:"disk_steps_per_pb,omitempty"`
	StallS         map[string]float64 `json:"stall_s"`
	ComputeS       float64            `json:"compute_s"`
	SkippedUpdate  bool               `json:"skipped,omitempty"`
	// Number and bytes of expert tiles that crossed the link.
	ExpertsFetched int64 `json:"experts_fetched,omitempty"`
	ExpertBytes    int64 `json:"expert_bytes,omitempty"`
	*PairMetrics
	// Number of matrix products so far that mt's own kernels computed instead of cuBLASLt.
	OwnProducts int64 `json:"own_products,omitempty"`
}

// Meter turns the pipeline's reports into metrics. The result depends only on the reports and on the functions below.
type Meter struct {
	maxSteps  int
	PeakFLOPS float64 // the device's rate of matrix products; 0: not measured
	epoch     func(step int) float64
	flops     func(tokens, pairs, again int64) (model, executed float64)
	memory    func() MemoryUse                    // current use
	products  func() int64                        // see OwnProducts
	groups    func(lr float64) map[string]float64 // see GroupLR

	Window checkpoint.LogWindow // metrics summed over the steps since the last logged step
	timed  timed                // measurements of the steps in Window that this process ran
	recent []time.Duration      // durations of the last steps
}

// etaSteps is the number of recent steps from which the remaining time of the run is estimated. Reports of short steps
// arrive in bunches, so the duration of a single step says little.
const etaSteps = 20

// timed accumulates the durations and other measurements of the steps since the last logged one.
type timed struct {
	steps                int
	elapsed, compute     time.Duration
	stall                [actors.NumCauses]time.Duration
	tokens, pairs, again int64
	h2d, d2h, peer, sent int64
	read, written        int64
	disks                time.Duration
}

func (t *timed) add(r actors.StepReport) {
	t.steps++
	t.elapsed += r.Elapsed
	t.compute += r.Compute
	for c, d := range r.Stall {
		t.stall[c] += d
	}
	t.tokens += r.Tokens
	t.pairs += r.AttendedPairs
	t.again += r.AttendedAgain
	t.h2d += r.H2D
	t.d2h += r.D2H
	t.peer += r.Peer
	t.sent += r.Sent
	t.read += r.DiskRead
	t.written += r.DiskWritten
	t.disks += r.DiskBusy
}

// hidden returns the share of the disks' busy time during which the device did not wait for them; nil: no disk was
// used.
func (t *timed) hidden() *float64 {
	if t.disks <= 0 {
		return nil
	}
	part := max(0, 1-t.stall[actors.StallDisk].Seconds()/t.disks.Seconds())
	return &part
}

// petabyte is the unit, in bytes, for the amount of writes that a disk's maker guarantees.
const petabyte = 1e15

// StepsPerPetabyte returns how many steps a disk lasts for each petabyte of writes that its maker guarantees, if a
// step writes written bytes. 0 means that nothing is written.
func StepsPerPetabyte(written int64) int64 {
	if written == 0 {
		return 0
	}
	return petabyte / written
}

// mean returns the duration d, summed over the steps in t, per step and in seconds.
func (t *timed) mean(d time.Duration) float64 { return d.Seconds() / float64(t.steps) }

// ownProducts returns the number of matrix products so far, on all devices, that mt's own kernels computed because
// cuBLASLt is missing or refused them.
func ownProducts(devs []device.Device) (n int64) {
	for _, d := range devs {
		if d, ok := d.(interface{ OwnProducts() int64 }); ok {
			n += d.OwnProducts()
		}
	}
	return n
}

// Step adds a step to the window and returns the metrics after it.
func (m *Meter) Step(r actors.StepReport) StepMetrics {
	if r.Pairs != nil {
		m.Window.Add(r.Loss, r.Pairs.Pairs)
		m.Window.AddPairs(pairLog(r.Pairs))
	} else {
		m.Window.Add(r.Loss, r.Supervised)
	}
	m.timed.add(r)
	m.recent = append(m.recent, r.Elapsed)
	if len(m.recent) > etaSteps {
		m.recent = m.recent[1:]
	}
	t := &m.timed
	sec := max(t.elapsed, 1).Seconds()
	flops, executed := m.flops(t.tokens, t.pairs, t.again)
	out := StepMetrics{Step: r.Step, MaxSteps: m.maxSteps, Epoch: m.epoch(r.Step), Loss: number(m.Window.Mean()), StepLoss: number(r.Loss), AheadLoss: aheadLoss(r.Ahead),
		WindowSteps: m.Window.Steps, GradNorm: number(r.GradNorm), LR: r.LR, GroupLR: m.groups(r.LR), Tokens: r.Tokens, TokensTotal: r.TotalTokens, TimedSteps: t.steps,
		TokPerS: float64(t.tokens) / sec, TFLOPS: flops / sec / 1e12, TFLOPSExec: executed / sec / 1e12, StepS: sec / float64(t.steps),
		EtaS: m.eta(r.Step), H2DGBps: float64(t.h2d) / sec / 1e9, D2HGBps: float64(t.d2h) / sec / 1e9, PeerGBps: float64(t.peer) / sec / 1e9, NetworkGBps: float64(t.sent) / sec / 1e9,
		DiskReadGBps: float64(t.read) / sec / 1e9, DiskWriteGBps: float64(t.written) / sec / 1e9, StallS: map[string]float64{},
		DiskReadBytes: t.read / int64(t.steps), DiskWriteBytes: t.written / int64(t.steps), DiskHidden: t.hidden(), DiskStepsPerPB: StepsPerPetabyte(t.written / int64(t.steps)),
		ComputeS: t.mean(t.compute), SkippedUpdate: r.Skipped, ExpertsFetched: r.Experts, ExpertBytes: r.ExpertBytes}
	if r.Pairs != nil {
		out.PairMetrics = pairMetricsOf(m.Window.Pairs)
	}
	out.Memory, out.OwnProducts = m.memory(), m.products()
	out.HostBytes, out.DeviceBytes = out.Memory.hostTotal, out.Memory.deviceTotal
	if m.PeakFLOPS > 0 {
		out.MFU = flops / sec / m.PeakFLOPS
	}
	for c := actors.NoStall + 1; c < actors.NumCauses; c++ {
		out.StallS[c.String()] = t.mean(t.stall[c])
	}
	return out
}

// aheadLoss returns the loss of multi-token prediction; nil: it is not trained.
func aheadLoss(loss *float64) *any {
	if loss == nil {
		return nil
	}
	v := number(*loss)
	return &v
}

// Logged begins a new window. The caller has written the last metrics that Step returned to metrics.jsonl.
func (m *Meter) Logged() { m.Window, m.timed = checkpoint.LogWindow{}, timed{} }

// eta estimates the seconds for the steps after step from the most recent steps.
func (m *Meter) eta(step int) float64 {
	var sum time.Duration
	for _, d := range m.recent {
		sum += d
	}
	return sum.Seconds() / float64(len(m.recent)) * float64(m.maxSteps-step)
}

// EvalMetrics is one line of metrics.jsonl for an evaluation.
type EvalMetrics struct {
	Step       int   `json:"step"`
	Loss       any   `json:"eval_loss"`
	Perplexity any   `json:"eval_perplexity"`
	AheadLoss  *any  `json:"eval_mtp_loss,omitempty"`
	Tokens     int64 `json:"eval_tokens"`
	*EvalPairMetrics
}

// usage returns the memory use of all devs together.
func usage(devs []device.Device) device.Usage {
	var sum device.Usage
	for _, d := range devs {
		u := d.Usage()
		for p := range accounts.NumPurposes {
			sum.Now[p] += u.Now[p]
			sum.Peak[p] += u.Peak[p]
		}
		sum.Total += u.Total
		sum.Limit += u.Limit
		sum.Capacity += u.Capacity
	}
	return sum
}

// NewMeter returns the meter of a run with plan p on devs. window has the sums over the steps since the last logged
// step, from a checkpoint. epoch returns the number of epochs done after a step.
func NewMeter(c *config.Config, p *plan.Run, devs []device.Device, window checkpoint.LogWindow, epoch func(step int) float64) *Meter {
	system := &glance{look: host.MachineMemory, clock: time.Now}
	return &Meter{maxSteps: c.MaxSteps, groups: c.GroupRates, Window: window, flops: FLOPs(p), epoch: epoch,
		memory:   func() MemoryUse { return takenMemory(usage(devs), host.Usage(), int64(c.HostMemory), system.now()) },
		products: func() int64 { return ownProducts(devs) }}
}

// PairMetrics holds means over pairs for a step's line in metrics.jsonl, under TRL's names.
type PairMetrics struct {
	Chosen      float64 `json:"rewards/chosen"`
	Rejected    float64 `json:"rewards/rejected"`
	Accuracies  float64 `json:"rewards/accuracies"`
	Margins     float64 `json:"rewards/margins"`
	LogChosen   float64 `json:"logps/chosen"`
	LogRejected float64 `json:"logps/rejected"`
}

// EvalPairMetrics holds the same means for an evaluation.
type EvalPairMetrics struct {
	Chosen      float64 `json:"eval_rewards/chosen"`
	Rejected    float64 `json:"eval_rewards/rejected"`
	Accuracies  float64 `json:"eval_rewards/accuracies"`
	Margins     float64 `json:"eval_rewards/margins"`
	LogChosen   float64 `json:"eval_logps/chosen"`
	LogRejected float64 `json:"eval_logps/rejected"`
}

// pairLog returns the sums over pairs in a report, in the form in which checkpoints keep them.
func pairLog(s *actors.PairSums) checkpoint.PairLog {
	return checkpoint.PairLog{Pairs: float64(s.Pairs), Chosen: s.Chosen, Rejected: s.Rejected, Right: s.Right, LogChosen: s.LogChosen, LogRejected: s.LogReject}
}

// pairMetricsOf returns the means of l; nil if l has no pairs.
func pairMetricsOf(l checkpoint.PairLog) *PairMetrics {
	n := l.Pairs
	if n == 0 {
		return nil
	}
	return &PairMetrics{Chosen: l.Chosen / n, Rejected: l.Rejected / n, Accuracies: l.Right / n, Margins: (l.Chosen - l.Rejected) / n,
		LogChosen: l.LogChosen / n, LogRejected: l.LogRejected / n}
}

// text formats m for the progress line.
func (m *PairMetrics) text() string {
	return fmt.Sprintf("margin %.4f  accuracy %.3f", m.Margins, m.Accuracies)
}

// scalars returns m's numbers for boards.
func (m *PairMetrics) scalars(under string) []Scalar {
	return []Scalar{{Name: under + "rewards/chosen", Value: m.Chosen}, {Name: under + "rewards/rejected", Value: m.Rejected},
		{Name: under + "rewards/accuracies", Value: m.Accuracies}, {Name: under + "rewards/margins", Value: m.Margins},
		{Name: under + "logps/chosen", Value: m.LogChosen}, {Name: under + "logps/rejected", Value: m.LogRejected}}
}

// EvalMetricsOf returns the metrics of an evaluation.
func EvalMetricsOf(r actors.EvalReport) *EvalMetrics {
	m := EvalMetrics{Step: r.Step, Loss: number(r.Loss), Perplexity: number(math.Exp(r.Loss)), AheadLoss: aheadLoss(r.Ahead), Tokens: r.Tokens}
	if r.Pairs != nil {
		m.Perplexity, m.EvalPairMetrics = nil, (*EvalPairMetrics)(pairMetricsOf(pairLog(r.Pairs)))
	}
	return &m
}

// text formats an evaluation for the progress line of a run with maxSteps steps.
func (e *Eval) text(maxSteps int) string {
	r := e.Report
	text := fmt.Sprintf("perplexity %.3f  (%s tokens)", math.Exp(r.Loss), humanize.Comma(r.Tokens))
	if pairs := (*PairMetrics)(e.Metrics.EvalPairMetrics); r.Pairs != nil {
		text = fmt.Sprintf("%s  (%s pairs)", pairs.text(), humanize.Comma(r.Pairs.Pairs))
	}
	return fmt.Sprintf("step %d/%d  eval_loss %.4f  %s", r.Step, maxSteps, r.Loss, text)
}

// scalars returns the numbers of an evaluation for boards.
func (m *EvalMetrics) scalars(loss float64) []Scalar {
	out := []Scalar{{Name: "eval/loss", Value: loss}}
	if m.AheadLoss != nil {
		out = appendFinite(out, "eval/mtp_loss", *m.AheadLoss)
	}
	if m.EvalPairMetrics != nil {
		out = append(out, (*PairMetrics)(m.EvalPairMetrics).scalars("eval/")...)
	}
	return out
}

// MemoryUse is the memory in a line of metrics.jsonl, in bytes: the run's use by purpose, its limits, and the
// machine's totals.
type MemoryUse struct {
	Device         map[string]int64 `json:"device"`
	DeviceLimit    int64            `json:"device_limit,omitempty"`
	DeviceCapacity int64            `json:"device_capacity,omitempty"`
	Host           map[string]int64 `json:"host"`
	HostLimit      int64            `json:"host_limit,omitempty"`
	HostResident   int64            `json:"host_resident,omitempty"`
	HostCapacity   int64            `json:"host_capacity,omitempty"`
	HostAvailable  int64            `json:"host_available,omitempty"`
	HostCached     int64            `json:"host_cached,omitempty"`
	HostNodes      int              `json:"host_nodes,omitempty"`

	hostTotal, deviceTotal int64 // sums of Host and Device
}

// takenMemory returns the figures of one line of metrics. dev is the use of the devices, arenas that of host memory by
// purpose, and hostLimit the budget for host memory in bytes (0: none). system has the machine's figures.
func takenMemory(dev device.Usage, arenas accounts.Used, hostLimit int64, system host.Machine) MemoryUse {
	m := MemoryUse{Device: map[string]int64{}, DeviceLimit: dev.Limit, DeviceCapacity: dev.Capacity, Host: map[string]int64{}, HostLimit: hostLimit,
		HostResident: system.Resident, HostCapacity: system.Capacity, HostAvailable: system.Available, HostCached: system.Cached, HostNodes: system.Nodes}
	for p := range accounts.NumPurposes {
		switch d, h := dev.Now[p], arenas.Now[p]; {
		case p == accounts.HostStaging && d+h != 0:
			m.Host[p.String()] = d + h
		case p.OfDevice() && d != 0:
			m.Device[p.String()] = d
		case p.OfArena() && h != 0:
			m.Host[p.String()] = h
		}
	}
	m.hostTotal, m.deviceTotal = arenas.Total+dev.Now[accounts.HostStaging], dev.Total
	return m
}

// glance reads the machine's memory figures at most once a second and returns the last ones in between. Reading takes
// 0.2 ms, which would slow short steps.
type glance struct {
	look  func() host.Machine
	clock func() time.Time
	at    time.Time
	seen  host.Machine
}

func (g *glance) now() host.Machine {
	if t := g.clock(); g.at.IsZero() || t.Sub(g.at) >= time.Second {
		g.at, g.seen = t, g.look()
	}
	return g.seen
}

// FLOPs returns a function that counts the floating point operations of one step. Its arguments are the step's tokens,
// its (query, key) pairs in attention, and the pairs that the backward computes again. Its result model is what the
// model needs; executed includes recomputation.
func FLOPs(p *plan.Run) func(tokens, pairs, again int64) (model, executed float64) {
	token, pair := p.Spec.Config.FLOPs(1, 0), p.Spec.Config.FLOPs(0, 1)
	return func(tokens, pairs, again int64) (model, executed float64) {
		model = token*float64(tokens) + pair*float64(pairs)
		return model, model + float64(p.Spec.RecomputedFLOPs(tokens, again)+p.Spec.HeadRecomputedFLOPs(tokens))
	}
}
