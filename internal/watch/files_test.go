package watch

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// stepLine returns a line of metrics.jsonl of an invented run, whose loss is raised by higher.
func stepLine(step, of int, higher float64) string {
	share := float64(step) / float64(of)
	return fmt.Sprintf(`{"step":%d,"max_steps":%d,"epoch":%g,"loss":%g,"step_loss":2,"window_steps":10,"grad_norm":%g,"lr":%g,"tokens":16384,"tokens_total":%d,`+
		`"timed_steps":10,"tok_per_s":%g,"tflops":212.5,"tflops_executed":280,"mfu":0.41,"step_s":5.2,"eta_s":%g,"host_bytes":96000000000,"device_bytes":16000000000,`+
		`"memory":{"device":{"weight slots":1700000000,"gradient buffers":1740000000,"activations":3221225472,"saved for backward":6200000000,"workspace":2400000000,"batch":1000000,"tables":2000000,"context":560000000},`+
		`"device_limit":21474836480,"device_capacity":25757220864,"host":{"weights":32000000000,"moments":64000000000,"gradient slabs":32000000000,"host staging":900000000},`+
		`"host_resident":129500000000,"host_capacity":270000000000,"host_available":131000000000,"host_cached":42000000000},`+
		`"h2d_gbps":11,"d2h_gbps":6,"stall_s":{"activation":%g,"checkpoint":%g,"data":0.01,"gradient_buffer":0.02,"routing":0,"update":%g,"weights":%g},"compute_s":5}`+"\n",
		step, of, 2*share, higher+1.6+4*math.Exp(-6*share)+0.08*math.Sin(float64(step)*1.7), 1.2+2*math.Exp(-9*share)+0.3*math.Sin(float64(step)*2.3)*math.Sin(float64(step)*0.9),
		3e-4*math.Min(1, share*20)*(1-0.9*share), 16384*step, 3150+90*math.Sin(float64(step)), 5.2*float64(of-step),
		0.03+0.02*math.Sin(float64(step)/7), map[bool]float64{true: 0.3}[step%200 == 0], 0.12+0.06*math.Sin(float64(step)/5), 0.25+0.1*math.Cos(float64(step)/9))
}

func evalLine(step int, loss float64) string {
	return fmt.Sprintf(`{"step":%d,"eval_loss":%g,"eval_perplexity":%g,"eval_tokens":4096}`+"\n", step, loss, math.Exp(loss))
}

// madeUp writes the output directory of a run that has done done of its steps. Every tenth step is logged.
func madeUp(t *testing.T, dir string, done, of int, higher float64) string {
	t.Helper()
	var text strings.Builder
	for step := 10; step <= done; step += 10 {
		text.WriteString(stepLine(step, of, higher))
		if step%100 == 0 {
			text.WriteString(evalLine(step, higher+1.7+4*math.Exp(-6*float64(step)/float64(of))))
		}
	}
	write(t, dir, metricsFile, text.String())
	write(t, dir, configFile, fmt.Sprintf("# The run.\n\n# Model\nmodel_name_or_path: Qwen/Qwen3-8B\nlearning_rate: %g\npipeline:\n  weight_slots: 3\nlong_key: \"%s\"\n",
		3e-4*(1+higher), strings.Repeat("long ", 60)))
	write(t, dir, samplesFile, `{"step":100,"prompt":"The sea ","text":"is the sea is the sea is"}`+"\n"+
		`{"step":200,"prompt":"The sea ","text":"was <b>calm</b> & the wind had gone.\n\nNobody spoke of it again."}`+"\n"+
		`{"step":200,"prompt":"func ","text":"`+strings.Repeat("x", 300)+`"}`+"\n")
	write(t, dir, timelineFile, madeUpTimeline())
	return dir
}

// madeUpTimeline returns the timeline.json of an invented step of 24 layers, with a stream in each
// direction, two actors and slots.
func madeUpTimeline() string {
	tracks := map[string][]string{}
	add := func(track, format string, args ...any) {
		tracks[track] = append(tracks[track], fmt.Sprintf(format, args...))
	}
	for i := range 48 {
		at, layer, way := 0.1*float64(i), i, "forward"
		if i >= 24 {
			layer, way = 47-i, "backward"
			add("d2h", `{"name":"gradient %d","start":%g,"end":%g}`, layer, at+0.13, at+0.19)
			add("optimizer", `{"name":"update %d","start":%g,"end":%g}`, layer, at+0.2, at+0.27)
		}
		add("h2d", `{"name":"layer %d","start":%g,"end":%g}`, layer, at, at+0.07)
		add("compute", `{"name":"wait for weights","cause":"weights","start":%g,"end":%g}`, at+0.1-0.02, at+0.1)
		add("compute", `{"name":"%s %d","start":%g,"end":%g}`, way, layer, at+0.1, at+0.18)
		add(fmt.Sprintf("weight slot %d", i%3), `{"name":"layer %d","start":%g,"end":%g}`, layer, at, at+0.18)
	}
	var parts []string
	for _, track := range []struct{ name, kind string }{{"h2d", "stream"}, {"compute", "stream"}, {"d2h", "stream"}, {"optimizer", "actor"},
		{"weight slot 0", "credit"}, {"weight slot 1", "credit"}, {"weight slot 2", "credit"}} {
		parts = append(parts, fmt.Sprintf(`{"name":%q,"kind":%q,"spans":[%s]}`, track.name, track.kind, strings.Join(tracks[track.name], ",")))
	}
	return `{"step":200,"seconds":5.2,"tracks":[` + strings.Join(parts, ",\n") + "]}\n"
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	testkit.NoError(t, os.MkdirAll(dir, 0o755))
	temp := filepath.Join(dir, name+".tmp")
	testkit.NoError(t, os.WriteFile(temp, []byte(text), 0o644))
	testkit.NoError(t, os.Rename(temp, filepath.Join(dir, name)))
}

func appendTo(t *testing.T, dir, name, text string) {
	t.Helper()
	f := testkit.Must(os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644))(t)
	testkit.Must(f.WriteString(text))(t)
	testkit.NoError(t, f.Close())
}
