package train

import (
	"math"
	"time"

	"mt/actors"
	"mt/device"
	"mt/host"
	"mt/plan"
)

// metricsFile has one JSON object per logged step, and one per evaluation.
const metricsFile = "metrics.jsonl"

// number is a float64 that JSON can hold: null where it is not finite.
func number(f float64) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil
	}
	return f
}

// stepMetrics is one object of metrics.jsonl. Units are in the names; stall_s
// is by cause.
type stepMetrics struct {
	Step          int                `json:"step"`
	MaxSteps      int                `json:"max_steps"`
	Epoch         float64            `json:"epoch"`
	Loss          any                `json:"loss"`
	GradNorm      any                `json:"grad_norm"`
	LR            float64            `json:"lr"`
	Tokens        int64              `json:"tokens"`
	TokensTotal   int64              `json:"tokens_total"`
	TokPerS       float64            `json:"tok_per_s"`
	TFLOPS        float64            `json:"tflops"`
	TFLOPSExec    float64            `json:"tflops_executed"`
	MFU           any                `json:"mfu"`
	StepS         float64            `json:"step_s"`
	EtaS          float64            `json:"eta_s"`
	HostBytes     int64              `json:"host_bytes"`
	DeviceBytes   int64              `json:"device_bytes"`
	H2DGBps       float64            `json:"h2d_gbps"`
	D2HGBps       float64            `json:"d2h_gbps"`
	StallS        map[string]float64 `json:"stall_s"`
	ComputeS      float64            `json:"compute_s"`
	SkippedUpdate bool               `json:"skipped,omitempty"`
	// Of tiles of experts, those that crossed the link.
	ExpertsFetched int64 `json:"experts_fetched,omitempty"`
	ExpertBytes    int64 `json:"expert_bytes,omitempty"`

	rate float64 // tokens per second over the last steps, for people to see
}

// meter turns the pipeline's reports into metrics.
type meter struct {
	j         *job
	dev       device.Device
	peakFLOPS float64 // matrix product rate of this device; 0: not measured
	recent    []time.Duration
	tokens    []int64 // of the recent steps
}

// window is how many steps the throughput and ETA of the progress line look
// back. Reports of short steps come in bunches: one alone says little.
const window = 20

func (m *meter) step(r actors.StepReport) stepMetrics {
	j := m.j
	m.recent = append(m.recent, r.Elapsed)
	m.tokens = append(m.tokens, r.Tokens)
	if len(m.recent) > window {
		m.recent, m.tokens = m.recent[1:], m.tokens[1:]
	}
	sec := max(r.Elapsed, 1).Seconds()
	use := m.dev.Usage()
	flops := j.model.FLOPs(r.Tokens, r.AttendedPairs)
	executed := flops + recomputedFLOPs(j.plan, r.Tokens, r.AttendedPairs)
	out := stepMetrics{Step: r.Step, MaxSteps: j.c.MaxSteps, Loss: number(r.Loss), GradNorm: number(r.GradNorm), LR: r.LR,
		Epoch:  float64(j.train.Pos(r.Step)) / float64(j.set.Train().Rows()),
		Tokens: r.Tokens, TokensTotal: r.TotalTokens, TokPerS: float64(r.Tokens) / sec, TFLOPS: flops / sec / 1e12,
		TFLOPSExec: executed / sec / 1e12, StepS: sec, EtaS: m.eta(r.Step).Seconds(), HostBytes: host.Usage().Total + use.Now[device.ForHostStaging],
		DeviceBytes: use.Total, H2DGBps: float64(r.H2D) / sec / 1e9, D2HGBps: float64(r.D2H) / sec / 1e9,
		rate: m.rate(), StallS: map[string]float64{}, ComputeS: r.Compute.Seconds(), SkippedUpdate: r.Skipped, ExpertsFetched: r.Experts, ExpertBytes: r.ExpertBytes}
	if m.peakFLOPS > 0 {
		out.MFU = flops / sec / m.peakFLOPS
	}
	for c := actors.NoStall + 1; c < actors.NumCauses; c++ {
		out.StallS[c.String()] = r.Stall[c].Seconds()
	}
	return out
}

func (m *meter) eta(step int) time.Duration {
	return m.span() / time.Duration(len(m.recent)) * time.Duration(m.j.c.MaxSteps-step)
}

// span is how long the recent steps took.
func (m *meter) span() (sum time.Duration) {
	for _, d := range m.recent {
		sum += d
	}
	return sum
}

// rate is the tokens per second of the recent steps.
func (m *meter) rate() float64 {
	var sum int64
	for _, n := range m.tokens {
		sum += n
	}
	return float64(sum) / max(m.span(), 1).Seconds()
}

// recomputedFLOPs is what a step computes a second time.
func recomputedFLOPs(p *plan.Run, tokens, pairs int64) float64 {
	return float64(p.Spec.RecomputedFLOPs(tokens, pairs) + p.Spec.HeadRecomputedFLOPs(tokens))
}

// evalMetrics is the object of an evaluation.
type evalMetrics struct {
	Step       int   `json:"step"`
	Loss       any   `json:"eval_loss"`
	Perplexity any   `json:"eval_perplexity"`
	Tokens     int64 `json:"eval_tokens"`
}
