package train

import (
	"math"
	"time"

	"mt/actors"
	"mt/checkpoint"
	"mt/device"
	"mt/internal/accounts"
)

// metricsFile has one JSON object per logged step, and one per evaluation.
// docs/metrics.md says what is in them.
const metricsFile = "metrics.jsonl"

// rankMetricsFile is the name of what a rank but the first has in its place, on its host.
const rankMetricsFile = "rank-%d.jsonl"

// number is a float64 that JSON can hold: null where it is not finite.
func number(f float64) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil
	}
	return f
}

// stepMetrics is one object of metrics.jsonl. Units are in the names; stall_s is by
// cause. Its window is the steps since the object before it.
type stepMetrics struct {
	Step          int                `json:"step"`
	MaxSteps      int                `json:"max_steps"`
	Epoch         float64            `json:"epoch"`
	Loss          any                `json:"loss"`
	StepLoss      any                `json:"step_loss"`
	WindowSteps   int                `json:"window_steps"`
	GradNorm      any                `json:"grad_norm"`
	LR            float64            `json:"lr"`
	GroupLR       map[string]float64 `json:"lr_groups,omitempty"` // by the names of lr_groups
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
	Memory        memoryUse          `json:"memory"`
	H2DGBps       float64            `json:"h2d_gbps"`
	D2HGBps       float64            `json:"d2h_gbps"`
	PeerGBps      float64            `json:"peer_gbps,omitempty"`
	NetworkGBps   float64            `json:"network_gbps,omitempty"`
	DiskReadGBps  float64            `json:"disk_read_gbps,omitempty"`
	DiskWriteGBps float64            `json:"disk_write_gbps,omitempty"`
	// What a step reads from disks and writes to them, the part of that time in which the device had work, and how many
	// steps a disk lasts for every petabyte of writes that it is rated for.
	DiskReadBytes  int64              `json:"disk_read_bytes,omitempty"`
	DiskWriteBytes int64              `json:"disk_write_bytes,omitempty"`
	DiskHidden     *float64           `json:"disk_hidden,omitempty"`
	DiskStepsPerPB int64              `json:"disk_steps_per_pb,omitempty"`
	StallS         map[string]float64 `json:"stall_s"`
	ComputeS       float64            `json:"compute_s"`
	SkippedUpdate  bool               `json:"skipped,omitempty"`
	// How many tiles of experts crossed the link, and their bytes.
	ExpertsFetched int64 `json:"experts_fetched,omitempty"`
	ExpertBytes    int64 `json:"expert_bytes,omitempty"`
	*PairMetrics
	// How many matrix products mt's own kernels have computed so far in cuBLASLt's place.
	OwnProducts int64 `json:"own_products,omitempty"`
}

// meter turns the pipeline's reports into metrics, which depend on the reports and on
// what the functions below return, and on nothing else.
type meter struct {
	maxSteps  int
	peakFLOPS float64 // matrix product rate of this device; 0: not measured
	epoch     func(step int) float64
	flops     func(tokens, pairs, again int64) (model, executed float64)
	memory    func() memoryUse                    // taken now
	products  func() int64                        // see OwnProducts
	groups    func(lr float64) map[string]float64 // see GroupLR

	window checkpoint.LogWindow // the steps since the last logged one
	timed  timed                // those of them that this process made
	recent []time.Duration      // of the last steps
}

// etaSteps is how many steps the remaining time is estimated from. Reports of short
// steps come in bunches, so that one alone says little.
const etaSteps = 20

// timed sums up what steps took.
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

// hidden is the part of the time in which something was read from or written to disks that the device did not wait
// for; nil: nothing was.
func (t *timed) hidden() *float64 {
	if t.disks <= 0 {
		return nil
	}
	part := max(0, 1-t.stall[actors.StallDisk].Seconds()/t.disks.Seconds())
	return &part
}

// petabyte is what the writes that disks are rated for are counted in.
const petabyte = 1e15

// stepsPerPetabyte is how many steps that write so many bytes a disk lasts for each petabyte; 0: nothing is written.
func stepsPerPetabyte(written int64) int64 {
	if written == 0 {
		return 0
	}
	return petabyte / written
}

// mean is d divided by the number of steps, in seconds.
func (t *timed) mean(d time.Duration) float64 { return d.Seconds() / float64(t.steps) }

// ownProducts is how many matrix products mt's own kernels have computed so far on all devices because
// there is no cuBLASLt or it refused them.
func ownProducts(devs []device.Device) (n int64) {
	for _, d := range devs {
		if d, ok := d.(interface{ OwnProducts() int64 }); ok {
			n += d.OwnProducts()
		}
	}
	return n
}

// step adds a step to the window and returns the metrics after it.
func (m *meter) step(r actors.StepReport) stepMetrics {
	if r.Pairs != nil {
		m.window.Add(r.Loss, r.Pairs.Pairs)
		m.window.AddPairs(pairLog(r.Pairs))
	} else {
		m.window.Add(r.Loss, r.Supervised)
	}
	m.timed.add(r)
	m.recent = append(m.recent, r.Elapsed)
	if len(m.recent) > etaSteps {
		m.recent = m.recent[1:]
	}
	t := &m.timed
	sec := max(t.elapsed, 1).Seconds()
	flops, executed := m.flops(t.tokens, t.pairs, t.again)
	out := stepMetrics{Step: r.Step, MaxSteps: m.maxSteps, Epoch: m.epoch(r.Step), Loss: number(m.window.Mean()), StepLoss: number(r.Loss),
		WindowSteps: m.window.Steps, GradNorm: number(r.GradNorm), LR: r.LR, GroupLR: m.groups(r.LR), Tokens: r.Tokens, TokensTotal: r.TotalTokens, TimedSteps: t.steps,
		TokPerS: float64(t.tokens) / sec, TFLOPS: flops / sec / 1e12, TFLOPSExec: executed / sec / 1e12, StepS: sec / float64(t.steps),
		EtaS: m.eta(r.Step), H2DGBps: float64(t.h2d) / sec / 1e9, D2HGBps: float64(t.d2h) / sec / 1e9, PeerGBps: float64(t.peer) / sec / 1e9, NetworkGBps: float64(t.sent) / sec / 1e9,
		DiskReadGBps: float64(t.read) / sec / 1e9, DiskWriteGBps: float64(t.written) / sec / 1e9, StallS: map[string]float64{},
		DiskReadBytes: t.read / int64(t.steps), DiskWriteBytes: t.written / int64(t.steps), DiskHidden: t.hidden(), DiskStepsPerPB: stepsPerPetabyte(t.written / int64(t.steps)),
		ComputeS: t.mean(t.compute), SkippedUpdate: r.Skipped, ExpertsFetched: r.Experts, ExpertBytes: r.ExpertBytes}
	if r.Pairs != nil {
		out.PairMetrics = pairMetricsOf(m.window.Pairs)
	}
	out.Memory, out.OwnProducts = m.memory(), m.products()
	out.HostBytes, out.DeviceBytes = out.Memory.hostTotal, out.Memory.deviceTotal
	if m.peakFLOPS > 0 {
		out.MFU = flops / sec / m.peakFLOPS
	}
	for c := actors.NoStall + 1; c < actors.NumCauses; c++ {
		out.StallS[c.String()] = t.mean(t.stall[c])
	}
	return out
}

// logged ends the window: the metrics that step returned last have been written.
func (m *meter) logged() { m.window, m.timed = checkpoint.LogWindow{}, timed{} }

// eta is how many seconds the steps after step will take at the pace of the most recent
// ones.
func (m *meter) eta(step int) float64 {
	var sum time.Duration
	for _, d := range m.recent {
		sum += d
	}
	return sum.Seconds() / float64(len(m.recent)) * float64(m.maxSteps-step)
}

// evalMetrics is the object of an evaluation.
type evalMetrics struct {
	Step       int   `json:"step"`
	Loss       any   `json:"eval_loss"`
	Perplexity any   `json:"eval_perplexity"`
	Tokens     int64 `json:"eval_tokens"`
	*EvalPairMetrics
}

// usage is what all of devs hold together.
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
