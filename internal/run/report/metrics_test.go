package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"mt/actors"
	"mt/base/accounts"
	"mt/checkpoint"
	"mt/device"
	"mt/host"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// madeUpMeter returns a meter of a run of 10 steps on an invented machine with 8 TFLOP/s. A token
// costs 1 GFLOP, of which a quarter is recomputed, and an attention pair costs 1 MFLOP. `from` has
// the sums since the last logged step.
func madeUpMeter(from checkpoint.LogWindow) *Meter {
	return &Meter{maxSteps: 10, PeakFLOPS: 8e12, Window: from, products: func() int64 { return 0 }, groups: func(float64) map[string]float64 { return nil },
		epoch: func(step int) float64 { return float64(step) / 4 },
		flops: func(tokens, pairs, again int64) (float64, float64) {
			f := 1e9*float64(tokens) + 1e6*float64(pairs)
			return f, 1.25*1e9*float64(tokens) + 1e6*float64(pairs+again)
		},
		memory: func() MemoryUse {
			dev := device.Usage{Limit: 50, Capacity: 60}
			dev.Count(accounts.WeightSlots, 30)
			dev.Count(accounts.HostStaging, 5)
			var arenas accounts.Used
			arenas.Count(accounts.Weights, 45)
			arenas.Count(accounts.Planes, 20)
			arenas.Count(accounts.LoPlanes, 7)
			arenas.Count(accounts.LoPlanes, -7)
			return takenMemory(dev, arenas, 80, host.Machine{Resident: 75, Capacity: 200, Available: 100, Cached: 90, Nodes: 2})
		}}
}

// TestMetricsOfMadeUpTimes: every number in a metrics line is as expected for invented times and
// counts, which a reader can check by hand. Means cover the steps since the line before.
func TestMetricsOfMadeUpTimes(t *testing.T) {
	nan := math.NaN()
	reports := []actors.StepReport{
		{Step: 1, Loss: 4, GradNorm: 2, LR: 0.5, Supervised: 100, Tokens: 1000, TotalTokens: 1000, AttendedPairs: 2000, AttendedAgain: 500, Elapsed: 1500 * time.Millisecond,
			Compute: time.Second, Stall: [actors.NumCauses]time.Duration{actors.StallWeights: 500 * time.Millisecond}, H2D: 3e9, D2H: 1e9, Experts: 7, ExpertBytes: 70},
		{Step: 2, Loss: 2, GradNorm: 3, LR: 0.25, Supervised: 300, Tokens: 2000, TotalTokens: 3000, AttendedPairs: 6000, AttendedAgain: 1500, Elapsed: 500 * time.Millisecond,
			Compute: 500 * time.Millisecond, Stall: [actors.NumCauses]time.Duration{actors.StallData: 125 * time.Millisecond}, H2D: 1e9, D2H: 1e9, Experts: 9, ExpertBytes: 90},
		{Step: 3, Loss: nan, GradNorm: nan, LR: 0.125, Supervised: 50, Tokens: 500, TotalTokens: 3500, Elapsed: 2 * time.Second, Skipped: true},
		{Step: 4, Loss: 1, GradNorm: math.Inf(1), Supervised: 0, Tokens: 500, TotalTokens: 4000, Elapsed: time.Second, Skipped: true},
	}
	const memory = `"memory":{"device":{"weight slots":30},"device_limit":50,"device_capacity":60,"host":{"host staging":5,"moments":20,"weights":45},` +
		`"host_limit":80,"host_resident":75,"host_capacity":200,"host_available":100,"host_cached":90,"host_nodes":2},`
	const stalls = `"stall_s":{"activation":0,"checkpoint":0,"data":%s,"disk":0,"gradient_buffer":0,"passage":0,"routing":0,"update":0,"weights":%s},`
	one := `{"step":1,"max_steps":10,"epoch":0.25,"loss":4,"step_loss":4,"window_steps":1,"grad_norm":2,"lr":0.5,"tokens":1000,"tokens_total":1000,"timed_steps":1,` +
		`"tok_per_s":666.6666666666666,"tflops":0.668,"tflops_executed":0.835,"mfu":0.0835,"step_s":1.5,"eta_s":13.5,"host_bytes":70,"device_bytes":30,` +
		memory + `"h2d_gbps":2,"d2h_gbps":0.6666666666666666,` + fmt.Sprintf(stalls, "0", "0.5") + `"compute_s":1,"experts_fetched":7,"expert_bytes":70}`
	both := `{"step":2,"max_steps":10,"epoch":0.5,"loss":2.5,"step_loss":2,"window_steps":2,"grad_norm":3,"lr":0.25,"tokens":2000,"tokens_total":3000,"timed_steps":2,` +
		`"tok_per_s":1500,"tflops":1.504,"tflops_executed":1.88,"mfu":0.188,"step_s":1,"eta_s":8,"host_bytes":70,"device_bytes":30,` +
		memory + `"h2d_gbps":2,"d2h_gbps":1,` + fmt.Sprintf(stalls, "0.0625", "0.25") + `"compute_s":0.75,"experts_fetched":9,"expert_bytes":90}`
	alone := `{"step":2,"max_steps":10,"epoch":0.5,"loss":2,"step_loss":2,"window_steps":1,"grad_norm":3,"lr":0.25,"tokens":2000,"tokens_total":3000,"timed_steps":1,` +
		`"tok_per_s":4000,"tflops":4.012,"tflops_executed":5.015,"mfu":0.5015,"step_s":0.5,"eta_s":8,"host_bytes":70,"device_bytes":30,` +
		memory + `"h2d_gbps":2,"d2h_gbps":2,` + fmt.Sprintf(stalls, "0.125", "0") + `"compute_s":0.5,"experts_fetched":9,"expert_bytes":90}`
	skipped := `{"step":3,"max_steps":10,"epoch":0.75,"loss":%s,"step_loss":null,"window_steps":%d,"grad_norm":null,"lr":0.125,"tokens":500,"tokens_total":3500,"timed_steps":%d,`
	for _, tc := range []struct {
		name   string
		from   checkpoint.LogWindow
		steps  []int // of reports
		lines  []int // after which a line is written
		begins string
	}{
		{"a step", checkpoint.LogWindow{}, []int{1}, nil, one},
		{"two steps", checkpoint.LogWindow{}, []int{1, 2}, nil, both},
		{"a line between", checkpoint.LogWindow{}, []int{1, 2}, []int{1}, alone},
		{"a window that another run began", checkpoint.LogWindow{Steps: 3, Tokens: 300, Loss: 6}, []int{2}, nil,
			strings.Replace(strings.Replace(alone, `"loss":2,`, `"loss":4,`, 1), `"window_steps":1`, `"window_steps":4`, 1)[:200]},
		{"a step that is not finite is in no mean", checkpoint.LogWindow{}, []int{1, 2, 3}, nil, fmt.Sprintf(skipped, "2.5", 3, 3)},
		{"none that is finite", checkpoint.LogWindow{}, []int{3}, nil, fmt.Sprintf(skipped, "null", 1, 1)},
		{"after one that was not", checkpoint.LogWindow{}, []int{3, 2}, []int{3}, strings.Replace(alone, `"eta_s":8`, `"eta_s":10`, 1)},
		{"a step without supervised tokens is in no mean", checkpoint.LogWindow{}, []int{1, 4}, nil, `{"step":4,"max_steps":10,"epoch":1,"loss":4,"step_loss":1,"window_steps":2,"grad_norm":null,`},
	} {
		m := madeUpMeter(tc.from)
		var got StepMetrics
		for _, s := range tc.steps {
			got = m.Step(reports[s-1])
			if slices.Contains(tc.lines, s) {
				m.Logged()
			}
		}
		raw, err := json.Marshal(got)
		if err != nil || !strings.HasPrefix(string(raw), tc.begins) {
			t.Errorf("%s: %v\n%s, want\n%s", tc.name, err, raw, tc.begins)
		}
		checkBoard(t, got, raw)
	}
	m := madeUpMeter(checkpoint.LogWindow{})
	m.Step(actors.StepReport{Step: 1, Elapsed: time.Second, DiskRead: 3e9, DiskWritten: 2e9, DiskBusy: 600 * time.Millisecond,
		Stall: [actors.NumCauses]time.Duration{actors.StallDisk: 300 * time.Millisecond}})
	raw, err := json.Marshal(m.Step(actors.StepReport{Step: 2, Elapsed: time.Second, DiskRead: 1e9, DiskWritten: 2e9, DiskBusy: 900 * time.Millisecond}))
	if want := `"disk_read_gbps":2,"disk_write_gbps":2,"disk_read_bytes":2000000000,"disk_write_bytes":2000000000,"disk_hidden":0.8,"disk_steps_per_pb":500000,`; err != nil || !strings.Contains(string(raw), want) {
		t.Errorf("of disks: %v\n%s, want\n%s", err, raw, want)
	}
	m = madeUpMeter(checkpoint.LogWindow{})
	m.Step(actors.StepReport{Step: 1, Elapsed: time.Second, Peer: 5e9, Sent: 1e9})
	raw, err = json.Marshal(m.Step(actors.StepReport{Step: 2, Elapsed: time.Second, Peer: 3e9, Sent: 2e9}))
	if want := `"peer_gbps":4,"network_gbps":1.5,`; err != nil || !strings.Contains(string(raw), want) {
		t.Errorf("between devices and ranks: %v\n%s, want\n%s", err, raw, want)
	}
	m = madeUpMeter(checkpoint.LogWindow{})
	m.groups = func(lr float64) map[string]float64 { return map[string]float64{"b": 2 * lr, "a": 4 * lr} }
	grouped := m.Step(actors.StepReport{Step: 1, Elapsed: time.Second, LR: 0.5})
	raw, err = json.Marshal(grouped)
	if want := `"lr":0.5,"lr_groups":{"a":2,"b":1},`; err != nil || !strings.Contains(string(raw), want) {
		t.Errorf("of groups: %v\n%s, want\n%s", err, raw, want)
	}
	for _, want := range []Scalar{{Name: "train/learning_rate/a", Value: 2}, {Name: "train/learning_rate/b", Value: 1}} {
		if !slices.Contains(grouped.scalars(), want) {
			t.Errorf("boards show %v, and not %v", grouped.scalars(), want)
		}
	}
	m = madeUpMeter(checkpoint.LogWindow{})
	m.PeakFLOPS = 0
	if got := m.Step(reports[0]); got.MFU != nil {
		t.Errorf("mfu is %v of a rate that was not measured", got.MFU)
	}
}

// TestGlance: the machine's memory figures are read at most once a second, even if steps are
// shorter.
func TestGlance(t *testing.T) {
	asked, now := 0, time.Unix(1, 0)
	g := &glance{clock: func() time.Time { return now }, look: func() host.Machine { asked++; return host.Machine{Cached: int64(asked)} }}
	for i, ms := range []int{0, 400, 400, 400, 100, 1000} {
		now = now.Add(time.Duration(ms) * time.Millisecond)
		if got, want := g.now().Cached, []int64{1, 1, 1, 2, 2, 3}[i]; got != want {
			t.Errorf("look %d sees the answer %d, want %d", i, got, want)
		}
	}
}

// TestETALooksAtTheLastSteps: the estimate of the remaining time uses only the most recent steps.
func TestETALooksAtTheLastSteps(t *testing.T) {
	m := madeUpMeter(checkpoint.LogWindow{})
	m.maxSteps = etaSteps + 5
	var got StepMetrics
	for step := 1; step <= etaSteps+1; step++ {
		r := actors.StepReport{Step: step, Loss: 1, Supervised: 1, Tokens: 1, Elapsed: time.Second}
		if step == 1 {
			r.Elapsed = time.Hour
		}
		got = m.Step(r)
	}
	if got.EtaS != 4 {
		t.Errorf("4 steps of a second are left, and %v s are shown", got.EtaS)
	}
}

// checkBoard fails unless the numbers for TensorBoard equal those of the metrics line.
func checkBoard(t *testing.T, m StepMetrics, line []byte) {
	t.Helper()
	var want map[string]any
	testkit.NoError(t, json.Unmarshal(line, &want))
	want["learning_rate"] = want["lr"]
	got := map[string]any{}
	for _, s := range m.scalars() {
		key := strings.TrimPrefix(s.Name, "train/")
		if got[key] = s.Value; want[key] != s.Value {
			t.Errorf("TensorBoard shows %s %v, the line says %v", s.Name, s.Value, want[key])
		}
	}
	for _, key := range []string{"loss", "step_loss", "grad_norm", "learning_rate", "epoch", "tok_per_s", "tflops"} {
		if got[key] != want[key] {
			t.Errorf("TensorBoard shows %s %v, the line says %v", key, got[key], want[key])
		}
	}
}

// TestWindowsOfCheckpoints: Take returns the sums after the step that is being saved, even if later
// steps were reported. For a step that was not announced as saved, it returns the sums after the
// last reported step.
func TestWindowsOfCheckpoints(t *testing.T) {
	var w Windows
	at := func(step int) checkpoint.LogWindow { return checkpoint.LogWindow{Steps: step, Tokens: 1, Loss: 2} }
	for step := 1; step <= 5; step++ {
		w.Reported(step, step == 2 || step == 3, at(step))
	}
	for _, step := range []int{3, 2, 5} {
		if got := w.Take(step); got != at(step) {
			t.Errorf("step %d is saved with %+v", step, got)
		}
	}
	if len(w.awaits) != 0 {
		t.Errorf("the windows of steps %v are kept", slices.Collect(maps.Keys(w.awaits)))
	}
}

// TestMetricsAreDocumented: docs/metrics.md lists every field of a metrics line, and no other.
func TestMetricsAreDocumented(t *testing.T) {
	raw := testkit.Must(os.ReadFile("../../../docs/metrics.md"))(t)
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|").FindAllStringSubmatch(string(raw), -1) {
		for _, name := range strings.Split(row[1], ", ") {
			documented[strings.Trim(name, "`")] = true
		}
	}
	written := map[string]bool{}
	for _, v := range []any{StepMetrics{}, EvalMetrics{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !f.Anonymous {
				written[name] = true
			}
		}
	}
	if !maps.Equal(documented, written) {
		t.Errorf("documented are %v,\nwritten are %v", slices.Sorted(maps.Keys(documented)), slices.Sorted(maps.Keys(written)))
	}
}

// TestLogWithHoles: opening the log removes lines that are not JSON, however long. A disk that lost
// power leaves such lines.
func TestLogWithHoles(t *testing.T) {
	name := filepath.Join(t.TempDir(), settings.MetricsFile)
	first, last := `{"step":1}`+"\n", `{"step":2,"eval_loss":1.5,"eval_tokens":7}`+"\n"
	testkit.NoError(t, os.WriteFile(name, []byte(first+strings.Repeat("\x00", 2<<20)+"\n"+last+`{"step":2,`), 0o644))
	kept, eval, err := keepUntil(name, 2)
	if err != nil || string(kept) != first+last || eval.Loss != 1.5 {
		t.Errorf("%d bytes are kept, %+v, %v", len(kept), eval, err)
	}
}
