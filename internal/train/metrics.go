package train

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"mt/actors"
	"mt/device"
	"mt/host"
	"mt/model"
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
}

// meter turns the pipeline's reports into metrics.
type meter struct {
	j         *job
	dev       device.Device
	peakFLOPS float64 // matrix product rate of this device; 0: not measured
	recent    []time.Duration
}

// window is how many steps throughput and ETA look back.
const window = 20

func (m *meter) step(r actors.StepReport) stepMetrics {
	j := m.j
	m.recent = append(m.recent, r.Elapsed)
	if len(m.recent) > window {
		m.recent = m.recent[1:]
	}
	sec := r.Elapsed.Seconds()
	flops := modelFLOPs(j.model, r.Tokens, r.AttendedPairs)
	executed := flops + float64(j.model.NumLayers)*float64(j.plan.Spec.RecomputedFLOPs(r.Tokens, r.AttendedPairs))
	out := stepMetrics{Step: r.Step, MaxSteps: j.c.MaxSteps, Loss: number(r.Loss), GradNorm: number(r.GradNorm), LR: r.LR,
		Epoch:  float64(j.train.Pos(r.Step)) / float64(j.set.Train().Rows()),
		Tokens: r.Tokens, TokensTotal: r.TotalTokens, TokPerS: float64(r.Tokens) / sec, TFLOPS: flops / sec / 1e12,
		TFLOPSExec: executed / sec / 1e12, StepS: sec, EtaS: m.eta(r.Step).Seconds(), HostBytes: host.Usage().Total,
		DeviceBytes: m.dev.Usage().Total, H2DGBps: float64(r.H2D) / sec / 1e9, D2HGBps: float64(r.D2H) / sec / 1e9,
		StallS: map[string]float64{}, ComputeS: r.Compute.Seconds(), SkippedUpdate: r.Skipped}
	if m.peakFLOPS > 0 {
		out.MFU = flops / sec / m.peakFLOPS
	}
	for c := actors.NoStall + 1; c < actors.NumCauses; c++ {
		out.StallS[c.String()] = r.Stall[c].Seconds()
	}
	return out
}

func (m *meter) eta(step int) time.Duration {
	var sum time.Duration
	for _, d := range m.recent {
		sum += d
	}
	return sum / time.Duration(len(m.recent)) * time.Duration(m.j.c.MaxSteps-step)
}

// modelFLOPs is what a step costs on paper: 6 per matrix parameter and token,
// and 12·layers·heads·head_dim per (query, key) pair that is attended.
func modelFLOPs(c *model.Config, tokens, pairs int64) float64 {
	if tokens == 0 {
		return 0
	}
	return float64(tokens) * c.FLOPsPerToken(float64(pairs)/float64(tokens))
}

// metricsLog appends to metrics.jsonl.
type metricsLog struct{ f *os.File }

// openMetrics opens the log of an output directory and cuts what lies after
// step: a resumed run writes those again.
func openMetrics(dir string, step int) (*metricsLog, error) {
	name := filepath.Join(dir, metricsFile)
	kept, err := keepUntil(name, step)
	if err != nil {
		return nil, err
	}
	tmp := name + ".tmp"
	if err := os.WriteFile(tmp, kept, 0o644); err != nil {
		return nil, err
	}
	if err := os.Rename(tmp, name); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &metricsLog{f}, nil
}

// keepUntil is the whole lines of a log up to and including step; a line cut
// off by a crash goes.
func keepUntil(name string, step int) ([]byte, error) {
	raw, err := os.ReadFile(name)
	if os.IsNotExist(err) || step == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	sc := bufio.NewScanner(bytes.NewReader(raw))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var at struct{ Step int }
		if json.Unmarshal(sc.Bytes(), &at) == nil && at.Step <= step {
			out.Write(sc.Bytes())
			out.WriteByte('\n')
		}
	}
	return out.Bytes(), sc.Err()
}

// write appends one object.
func (l *metricsLog) write(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = l.f.Write(append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", l.f.Name(), err)
	}
	return nil
}
