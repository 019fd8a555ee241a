package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// These tests check the contract with scripts around mt: files and their keys, output streams and exit codes. They use
// the smallest possible runs.

// smallRun returns the output directory and the arguments of a very short mt train run, and creates
// its data file. `more` are further arguments.
func smallRun(t *testing.T, more ...string) (out string, args []string) {
	t.Helper()
	dir := t.TempDir()
	text := filepath.Join(dir, "notes.txt")
	var b strings.Builder
	for i := range 60 {
		fmt.Fprintf(&b, "Line %d says nothing that line %d did not.\n", i, i*i)
	}
	testkit.NoError(t, os.WriteFile(text, []byte(b.String()), 0o600))
	out = filepath.Join(dir, "out")
	return out, append([]string{"train", "--model", "tiny", "--dataset", text, "--cache-dir", filepath.Join(dir, "cache"),
		"--output-dir", out, "--max-seq-len", "32", "--batch_size", "2", "--threads", "1"}, more...)
}

// must runs a command line that must succeed, and returns its standard output.
func must(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := mt(t, "", args...)
	if code != exitDone {
		t.Fatalf("mt %s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// object parses a JSON object.
func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return out
}

func TestTrainLeavesWhatScriptsRead(t *testing.T) {
	out, args := smallRun(t, "--max_steps=4", "--logging-steps", "2", "--val_set_size", "3", "--save-steps", "2",
		"--report-to", "none", "--sample-prompt", "Line ")
	stdout := must(t, args...)
	if !strings.Contains(stdout, "--- sample ---\nLine ") || !strings.Contains(stdout, "model written to "+out) {
		t.Errorf("printed %s", stdout)
	}
	for _, name := range []string{"config.json", "model.safetensors", "tokenizer.json", "config.yaml", "metrics.jsonl",
		"checkpoint-2/trainer_state.json", "checkpoint-4/model.safetensors", "checkpoint-4/optimizer"} {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
	checkMetrics(t, filepath.Join(out, "metrics.jsonl"))

	again := must(t, "train", filepath.Join(out, "config.yaml"))
	if want := "checkpoint-4 is at step 4 of 4: training is done"; !strings.Contains(again, want) {
		t.Errorf("the resolved config again: %q is not in %q", want, again)
	}
	must(t, append(args, "--resume-from-checkpoint", "false", "--seed", "7")...)
	if again := must(t, "train", filepath.Join(out, "config.yaml")); !strings.Contains(again, "training is done") {
		t.Errorf("the resolved config of a run that was to start afresh: %q", again)
	}
	for _, tc := range []struct {
		flags string
		code  int
		says  string
	}{
		{"--seed 8", exitUsage, "--seed: the checkpoint " + out + "/checkpoint-4 was made with another value: seed was 7, is 8; "},
		{"--learning_rate 1", 0, "learning_rate 1.0 (was 5.0e-05): no effect, since all steps are done; raise max_steps to go on"},
		{"--learning_rate 1e-4 --max-steps 6", 0, "checkpoint-4 goes on with max_steps 6 (was 4), learning_rate 0.0001 (was 5.0e-05): the learning rate was 1.25e-05 at step 4 and is 0.0001 at step 5; linear is laid anew"},
		{"--max-steps 5", exitUsage, "--max-steps: max_steps is 5, and the checkpoint " + out + "/checkpoint-6 is at step 6"},
	} {
		code, _, stderr := mt(t, "", append([]string{"train", filepath.Join(out, "config.yaml")}, strings.Fields(tc.flags)...)...)
		if code != tc.code || !strings.Contains(stderr, tc.says) {
			t.Errorf("%s: exit code %d, %s", tc.flags, code, stderr)
		}
	}
}

// checkMetrics checks the metrics.jsonl of a run of four steps that logs every second step and
// evaluates once.
func checkMetrics(t *testing.T, file string) {
	t.Helper()
	raw := testkit.Must(os.ReadFile(file))(t)
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines: %s", len(lines), raw)
	}
	for i, line := range lines[:2] {
		got := object(t, line)
		for _, key := range strings.Fields(`step max_steps epoch loss grad_norm lr tokens tokens_total tok_per_s tflops tflops_executed
			mfu step_s eta_s host_bytes device_bytes memory h2d_gbps d2h_gbps stall_s`) {
			if _, ok := got[key]; !ok {
				t.Errorf("line %d has no %s", i+1, key)
			}
		}
		if got["step"] != float64(2*i+2) || got["max_steps"] != 4.0 {
			t.Errorf("line %d is of step %v of %v", i+1, got["step"], got["max_steps"])
		}
	}
	if got := object(t, lines[2]); got["step"] != 4.0 || got["eval_loss"] == nil || got["eval_tokens"] == nil {
		t.Errorf("the evaluation is %s", lines[2])
	}
}

func TestEvalAndGenerate(t *testing.T) {
	out, args := smallRun(t, "--max-steps", "2", "--save-dtype", "fp32")
	must(t, args...)
	data, cache := args[4], args[6]
	if code, _, stderr := mt(t, "", "train", "--model_name_or_path", out, "--dataset", data, "--output-dir", out); code != exitUsage || !strings.Contains(stderr, "is where the model is loaded from") {
		t.Errorf("training a model onto itself: exit code %d, %s", code, stderr)
	}
	got := object(t, must(t, "eval", "--model", out, "--dataset", data, "--max-seq-len", "32", "--cache-dir", cache, "--json"))
	if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, []string{"loss", "perplexity", "tokens"}) {
		t.Errorf("eval --json has %q", keys)
	}
	if text := must(t, "eval", "--model", out, "--dataset", data, "--max_seq_len=32", "--cache_dir", cache); !strings.HasPrefix(text, fmt.Sprintf("loss %.6f  perplexity ", got["loss"])) {
		t.Errorf("eval printed %q", text)
	}
	flag := must(t, "generate", "--model", out, "--prompt", "Line 7", "--max-new-tokens", "12")
	code, piped, stderr := mt(t, "Line 7", "generate", "--model", out, "--prompt", "-", "--max_new_tokens=12", "--temperature", "0")
	if code != exitDone || piped != flag || !strings.HasPrefix(flag, "Line 7") {
		t.Errorf("exit code %d: %q from a pipe, %q from a flag\n%s", code, piped, flag, stderr)
	}
	testkit.NoError(t, os.Remove(filepath.Join(out, "tokenizer.json")))
	if _, _, stderr := mt(t, "", "eval", "--model", out, "--dataset", data, "--max-seq-len", "32", "--cache-dir", cache, "--device", "cpu"); stderr != "note: "+out+" has no tokenizer: text is read as bytes\n" {
		t.Errorf("without its tokenizer: %q", stderr)
	}
	warm := []string{"generate", "--model", out, "--prompt", "Line 7", "--temperature", "1.5", "--max-new-tokens", "40", "--seed"}
	if a, b, c := must(t, append(warm, "1")...), must(t, append(warm, "1")...), must(t, append(warm, "2")...); a != b || a == c {
		t.Errorf("seed 1: %q, %q; seed 2: %q", a, b, c)
	}
}

// TestNoDiskIsNeeded: a run that uses no state_dir says so, and that rounds are a reason.
func TestNoDiskIsNeeded(t *testing.T) {
	for rounds, want := range map[string]string{"1": "has room for everything, so", "2": "has room for everything in rounds, so"} {
		_, args := smallRun(t, "--dry-run", "--state-dir", t.TempDir(), "--micro-batch-order", "lanes", "--pipeline.micro-batch-tokens", "32", "--pipeline.rounds", rounds)
		if code, stdout, stderr := mt(t, "", args...); code != exitDone || !strings.Contains(stdout+stderr, want) {
			t.Errorf("%s rounds: exit code %d, %q is not in\n%s%s", rounds, code, want, stdout, stderr)
		}
	}
}

func TestPlanLeavesNothing(t *testing.T) {
	out, args := smallRun(t, "--max-steps", "2")
	table := must(t, append(args, "--dry-run")...)
	for _, want := range []string{"parameters", "host    weights", "device  total", "disk  one checkpoint", "disk  at most"} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in\n%s", want, table)
		}
	}
	asJSON := must(t, append(args, "--dry_run", "--json")...)
	// A plan has the same memory as the run, for rows of max_seq_len tokens. It knows neither the
	// data nor the disk.
	got, plan := object(t, asJSON), object(t, must(t, append([]string{"plan", "--json"}, args[1:]...)...))
	if rows, _ := got["rows"].(float64); rows == 0 || plan["rows"] != nil {
		t.Errorf("rows: %v, and %v in a plan", got["rows"], plan["rows"])
	}
	for o, known := range map[*map[string]any]bool{&got: true, &plan: false} {
		disk, _ := (*o)["disk"].(map[string]any)
		if (disk["free_bytes"] != nil) != known || (disk["token_cache"] != nil) != known || disk["checkpoint_bytes"] == nil || disk["at_most_bytes"] == nil {
			t.Errorf("disk %v", disk)
		}
		for _, key := range []string{"free_bytes", "token_cache", "token_cache_bytes"} {
			delete(disk, key)
		}
		delete(*o, "rows")
	}
	for _, o := range []map[string]any{got, plan} { // rates are measured anew each time
		if bound, _ := o["bound"].(map[string]any); bound["step_seconds"] == nil {
			t.Errorf("the bound is %v", bound)
		}
		delete(o, "bound")
	}
	if !reflect.DeepEqual(got, plan) {
		t.Errorf("mt plan --json printed\n%v\nmt train --dry-run --json\n%v", plan, got)
	}
	memory, _ := got["memory"].(map[string]any)
	depths, _ := got["pipeline"].(map[string]any)
	if rows, _ := memory["rows"].([]any); len(rows) == 0 || memory["host_bytes"] == nil || memory["device_bytes"] == nil {
		t.Errorf("memory is %v", memory)
	}
	if got["max_steps"] != 2.0 || depths["weight_slots"] == nil {
		t.Errorf("max_steps %v, pipeline %v", got["max_steps"], depths)
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("%s: %v", out, err)
	}
}

func TestExitCodesOfTraining(t *testing.T) {
	_, args := smallRun(t)
	broken := filepath.Join(t.TempDir(), "broken.jsonl")
	testkit.NoError(t, os.WriteFile(broken, []byte("{\"text\": 5}\n"), 0o600))
	for _, tc := range []struct {
		more []string
		code int
		want string
	}{
		{[]string{"--json"}, exitUsage, "--json goes with --dry-run"},
		{[]string{"--dataset=" + broken}, exitUsage, "--dataset: given twice"},
		{[]string{"--device-memory", "1MiB", "--batch-size", "64"}, exitUsage, "--batch-size: given twice"},
		{[]string{"--val-size", "1000"}, exitUsage, "leaves none to train on"},
		{[]string{"--host-memory", "1MiB"}, exitUsage, "--host-memory: plan: the run needs"},
		{[]string{"--device", "cuda"}, exitUsage, "--device: "},
	} {
		code, stdout, stderr := mt(t, "", append(args, tc.more...)...)
		if code != tc.code || stdout != "" || !strings.Contains(stderr, tc.want) {
			t.Errorf("%q: exit code %d\n%s%s\nwant %d, %s", tc.more, code, stdout, stderr, tc.code, tc.want)
		}
	}
	args[4] = broken
	if code, _, stderr := mt(t, "", args...); code != exitFailed || !strings.Contains(stderr, "broken.jsonl:1: ") {
		t.Errorf("broken data: exit code %d, %s", code, stderr)
	}
	if code, _, stderr := mt(t, "", "train", t.TempDir()); code != exitUsage || !strings.Contains(stderr, "is a directory; give the YAML file") {
		t.Errorf("a directory for a config: exit code %d, %s", code, stderr)
	}
}

// interrupter is a standard error that cancels the run when its text contains when.
type interrupter struct {
	bytes.Buffer
	when   string
	cancel context.CancelCauseFunc
}

func (i *interrupter) Write(b []byte) (int, error) {
	n, err := i.Buffer.Write(b)
	if strings.Contains(i.String(), i.when) {
		i.cancel(settings.ErrInterrupted)
	}
	return n, err
}

// interrupted runs a command line and interrupts it when its standard error contains when.
func interrupted(t *testing.T, when string, args ...string) (code int, stderr string) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	errs := &interrupter{when: when, cancel: cancel}
	a := &app{stdin: strings.NewReader(""), stdout: &bytes.Buffer{}, stderr: errs}
	code = a.run(ctx, args)
	return code, errs.String()
}

func TestInterruptedRunsResume(t *testing.T) {
	out, args := smallRun(t, "--max-steps", "100000", "--logging-steps", "1")
	code, stderr := interrupted(t, "step 2/", args...)
	saved, err := filepath.Glob(filepath.Join(out, "checkpoint-*"))
	if code != exitInterrupted || err != nil || len(saved) != 1 {
		t.Fatalf("exit code %d, checkpoints %q, %v\n%s", code, saved, err, stderr)
	}
	if !strings.Contains(stderr, "is saved in "+saved[0]) || !strings.HasSuffix(stderr, "mt: interrupted; run the same command again to go on\n") {
		t.Errorf("the first run said\n%s", stderr)
	}
	code, stderr = interrupted(t, "resuming from", args...)
	if code != exitInterrupted || !strings.Contains(stderr, "resuming from "+saved[0]) {
		t.Errorf("the second run: exit code %d\n%s", code, stderr)
	}
}

// fullDisk is an output that rejects every write.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestOutputThatDoesNotArriveIsAFailure(t *testing.T) {
	_, args := smallRun(t, "--dry-run", "--device", "cpu")
	for _, command := range [][]string{args, {"version"}, {"train", "--help"}, {"doctor", "--json"}} {
		var errs bytes.Buffer
		a := &app{stdin: strings.NewReader(""), stdout: fullDisk{}, stderr: &errs}
		if code := a.run(t.Context(), command); code != exitFailed || errs.String() != "mt: no space left\n" {
			t.Errorf("mt %s: exit code %d, %q", strings.Join(command, " "), code, errs.String())
		}
	}
}

// TestErrorsReplaceProgress: on a terminal an error overwrites a progress line.
func TestErrorsReplaceProgress(t *testing.T) {
	var errs bytes.Buffer
	a := &app{stdin: strings.NewReader(""), stdout: &errs, stderr: &errs, interactive: true}
	if code := a.run(t.Context(), []string{"train"}); code != exitUsage || !strings.HasPrefix(errs.String(), eraseLine+"mt: train: give ") {
		t.Errorf("exit code %d, %q", code, errs.String())
	}
}

// TestInterruptedPlan: an interrupt ends a prediction of a plan, and nothing is printed but the cause.
func TestInterruptedPlan(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(settings.ErrInterrupted)
	var out, errs bytes.Buffer
	a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &errs}
	code := a.run(ctx, []string{"plan", "--model", "quickstart", "--gpu", "h100", "--host-memory", "64GiB"})
	if code != exitInterrupted || !strings.HasSuffix(errs.String(), "mt: interrupted\n") || out.Len() > 0 {
		t.Errorf("exit code %d\n%s%s", code, out.String(), errs.String())
	}
}

func TestInterruptedReading(t *testing.T) {
	_, args := smallRun(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(settings.ErrInterrupted)
	for _, command := range [][]string{args, {"data", "inspect", "--dataset", args[4], "--cache-dir", args[6]}} {
		var errs bytes.Buffer
		a := &app{stdin: strings.NewReader(""), stdout: &errs, stderr: &errs}
		if code := a.run(ctx, command); code != exitInterrupted {
			t.Errorf("mt %s: exit code %d\n%s", strings.Join(command, " "), code, errs.String())
		}
	}
}

// TestPlanPredicts: with --gpu a plan has a prediction, a recommendation, the smallest sufficient machine and, on
// request, a table. It needs no GPU. For a run that does not fit, the plan states the requirements.
func TestPlanPredicts(t *testing.T) {
	testkit.NotShort(t)
	got := object(t, must(t, "plan", "--model", "quickstart", "--gpu", "rtx3090", "--host", "ddr4-3200x2", "--sweep", "seq", "--json"))
	p, ok := got["prediction"].(map[string]any)
	if !ok {
		t.Fatalf("no prediction in %v", got)
	}
	for _, key := range []string{"step_seconds", "tokens_per_second", "tflops", "tflops_executed"} {
		if x, _ := p[key].(float64); x <= 0 {
			t.Errorf("%s is %v", key, p[key])
		}
	}
	for _, key := range []string{"recommended", "smallest", "sweep"} {
		if got[key] == nil {
			t.Errorf("%s is missing", key)
		}
	}
	if smallest, _ := got["smallest"].(map[string]any); smallest["gpu"] != "rtx-3080" {
		t.Errorf("the smallest machine for a small model: %v", smallest)
	}
	text := must(t, "plan", "--model", "quickstart", "--gpu", "h100", "--sweep", "depth")
	for _, want := range []string{"predicted for h100-sxm+", "weight_slots: 4", "smallest"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	several := []string{"plan", "--model", "quickstart", "--gpu", "l40s", "--micro-batch-order", "lanes", "--devices", "4"}
	for way, flags := range map[string][]string{"from device to device": nil, "through the host": {"--peer-copies=false"}} {
		if out := must(t, append(slices.Clone(several), flags...)...); !strings.Contains(out, "what passes between them goes "+way) {
			t.Errorf("%v: no %q in\n%s", flags, way, out)
		}
	}
	if out := must(t, append(several, "--gpus-per-switch", "2")...); !strings.Contains(out, "switch to the devices") || !strings.Contains(out, " from device to device\n") {
		t.Errorf("GPUs behind switches are predicted as others:\n%s", out)
	}
	if text = must(t, "plan", "--model", "quickstart", "--gpu", "h100", "--gpus", "4"); !strings.Contains(text, "links × 2") || !strings.Contains(text, "; with 4 devices tokens a second would rise by: ") {
		t.Errorf("no table over numbers of devices in\n%s", text)
	}
	got = object(t, must(t, "plan", "--model", "quickstart", "--gpu", "h100", "--gpus", "3", "--json"))
	if scaling, _ := got["scaling"].(map[string]any); scaling == nil || len(scaling["counts"].([]any)) != 3 {
		t.Errorf("the table over one, two and three devices is %v", got["scaling"])
	}
	text = must(t, "plan", "--model", "quickstart", "--gpu", "rtx4090,rtx3090", "--host", "ddr5-4800x8")
	for _, want := range []string{"2 devices; on device 0 layers 0 1 3 4 6 7; on device 1 layers 2 5", "predicted for rtx-4090+ddr5-4800x8 and ", "\n2 "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	trace := filepath.Join(t.TempDir(), "trace.json")
	must(t, "plan", "--model", "quickstart", "--gpu", "h100", "--trace", trace)
	var events []map[string]any
	raw, err := os.ReadFile(trace)
	if err == nil {
		err = json.Unmarshal(raw, &events)
	}
	if err != nil || !strings.Contains(string(raw), "predicted") || len(events) < 100 {
		t.Errorf("the predicted trace has %d events, %v", len(events), err)
	}
	for _, bad := range [][2]string{
		{"--gpu rtx3080 --trace /dev/full", "trace /dev/full"},
		{"--gpu rtx3099", `no GPU is called "rtx3099"; did you mean`},
		{"--gpu h100 --host ddr9", `no host is called "ddr9"`},
		{"--gpu rates.json --host ddr5-4800x8", "has a host of its own"},
		{"--sweep batch", "need --gpu"},
		{"--gpus-per-switch 2", "needs --gpu"},
		{"--network 100Gb/s", "goes with --hosts"},
		{"--hosts 0", "from 1 to"},
		{"--hosts 2 --network 100Gb/s", "needs --gpu"},
		{"--gpu h100 --hosts 2", "such as --network 100Gb/s"},
		{"--gpu h100 --hosts 2 --network 100", "such as 100Gb/s or 12.5GB/s"},
		{"--gpu h100 --gpus-per-switch -1", "at least one GPU"},
		{"--gpu h100 --sweep all", "want batch, seq or depth"},
		{"--gpu h100,a100 --gpus 3", "3 devices, and --gpu names 2"},
		{"--gpu h100 --device cpu", "the rates are those of a cuda device"},
		{"--gpu rtx3080 --device-memory 40GiB", "has 10 GiB"},
		{"--gpu rtx3080 --host-memory 10MiB", "as it is, the run needs at least"},
	} {
		code, _, stderr := mt(t, "", append([]string{"plan", "--model", "quickstart"}, strings.Fields(bad[0])...)...)
		if code != exitUsage || !strings.Contains(stderr, bad[1]) {
			t.Errorf("mt plan %s: exit code %d, %s, want %q", bad[0], code, stderr, bad[1])
		}
	}
}
