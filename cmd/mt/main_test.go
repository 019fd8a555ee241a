package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"mt/internal/run/config"
	"mt/internal/run/machine"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// TestMain hides the GPUs of this machine, so that device: auto is the CPU. With the environment
// variable asCommand set, the test binary acts as mt. The runs are so small that garbage collection
// and measurements of the machine would take most of the time, so both are reduced.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	machine.CPURateSize, passingCopy, passingFile = 64, 1<<20, 1<<20
	if err := os.Setenv("CUDA_VISIBLE_DEVICES", "-1"); err != nil {
		panic(err)
	}
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// mt runs a command line in this process and returns its exit code and output.
func mt(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs}
	code = a.run(t.Context(), args)
	return code, out.String(), errs.String()
}

func TestBadUsage(t *testing.T) {
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	file := filepath.Join(t.TempDir(), "c.yaml")
	testkit.NoError(t, os.WriteFile(file, []byte("dataset: x\nsed: 1\nmax_steps: many\n"), 0o600))
	run := t.TempDir()
	testkit.NoError(t, os.WriteFile(filepath.Join(run, "metrics.jsonl"), nil, 0o600))
	l := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	taken := l.Addr().String()
	for _, tc := range []struct {
		args string
		want string
	}{
		{"trian", `mt: unknown command "trian"; did you mean "train"? (see mt --help)`},
		{"--nope", "mt: unknown flag: --nope (see mt --help)"},
		{"train", "mt: train: give CONFIG.yaml [--any-config-key value] (see mt train --help)"},
		{"train a b", `mt: train: takes one config file, got ["a" "b"]; commas separate the values of a list`},
		{"train nope.yaml", "mt: config: nope.yaml: no such file or directory"},
		{"train --seed", "mt: --seed: needs a value (write --seed=VALUE if the value begins with two dashes) (see mt train --help)"},
		{"train " + file, "mt: " + file + ":2:1: unknown key \"sed\"; did you mean \"seed\"?\n" + file + ":3:12: max_steps must be a whole number, not many"},
		{"train --output-dir --seed 1", "mt: --output-dir: needs a value (write --output-dir=VALUE if the value begins with two dashes) (see mt train --help)"},
		{"train -seed 1", "mt: -seed: flags have two dashes, as in --learning-rate 1e-4 (see mt train --help)"},
		{"train -host-memory 1GiB", "mt: -host-memory: flags have two dashes"},
		{"train --sed 1 --max_steps many", "mt: --sed: unknown key; did you mean \"--seed\"?\n--max_steps: must be a whole number, not many"},
		{"train --model {a:", "mt: --model:1:3: YAML: "},
		{"train --dry-run=7", "mt: --dry-run: must be true or false, not 7 (see mt train --help)"},
		{"plan --json --json", "mt: --json: given twice (see mt plan --help)"},
		{"train --dataset x", "mt: no model: "},
		{"train --model tiny", "mt: no dataset: "},
		{"train --model nopreset --dataset x --dry-run", "mt: --model: "},
		{"plan --dataset x", "mt: no model: "},
		{"eval --model a/b --dataset x --json", "mt: --model: a/b: no such directory, and no model of that name"},
		{"eval --dataset x", "mt: no model: "},
		{"generate --model a/b", "mt: no prompt: "},
		{"generate --model a/b --prompt x --top-p 2", "mt: --top-p: must be a number from 0 to 1, not 2"},
		{"generate --model a/b --prompt x --temperature nan", "mt: --temperature: must be a number from 0 to 1e+06, not nan"},
		{"generate --model a/b --prompt x --max_new_tokens 0", "mt: --max-new-tokens: must be a whole number of at least 1, not 0"},
		{"generate --model a/b --prompt x --min-p 1.5", "mt: --min-p: must be a number from 0 to 1, not 1.5"},
		{"generate --model a/b --prompt x --repetition-penalty 0", "mt: --repetition-penalty: must be a number from 0.01 to 100, not 0"},
		{"generate --model a/b --prompt x --min-new-tokens -1", "mt: --min-new-tokens: must be a whole number of at least 0, not -1"},
		{"generate --model a/b --prompt=", "mt: --prompt is empty: "},
		{"generate --model a/b --prompt -", "hf download a/b"},
		{"bench sgem", `mt: unknown command "sgem"; did you mean "sgemm"? (see mt bench --help)`},
		{"bench adamw --params 5", "mt: bench adamw: --params 5, --rounds 9: want at least 1024 and 1"},
		{"bench sgemm --rounds 0", "mt: bench sgemm: --threads 0, --rounds 0"},
		{"bench kernels --device cuda", "mt: bench kernels: --device cuda: kernels are counted in the emulator alone, --device emu"},
		{"bench train --peer nobody", `mt: bench train: --peer "nobody": want fsdp2, megatrain, torch, torch-compile, zero3`},
		{"bench train --peer megatrain", "mt: bench train: --peer megatrain runs with --device cuda, not with cpu"},
		{"bench sgemm 7", `mt: sgemm: takes no arguments, got ["7"]`},
		{"bench copy --device tpu", `mt: bench copy: --device "tpu": want cpu or cuda`},
		{"bench copy --sizes 1MiB,none", `mt: bench copy: --sizes "none": want sizes such as 64MiB`},
		{"bench attention --dims 0", "mt: bench attention: --dims 0: want numbers of at least 1"},
		{"bench attention --dtype int8", `mt: bench attention: --dtype "int8": want fp32 or bf16`},
		{"bench matmul --model nopreset", "mt: bench matmul: --model: "},
		{"bench matmul --runs 0", "mt: bench matmul: --runs 0"},
		{"bench matmul --device-memory lots", `mt: bench matmul: --device-memory "lots": want a size`},
		{"train --model tiny --dataset x --alias-layers", "mt: --alias-layers: unknown key"},
		{"data inspect --model tiny", "mt: no dataset: "},
		{"man", "mt: man: give one folder to write to (see mt man --help)"},
		{"watch", "mt: watch: give the output_dir of a run, or of several (see mt watch --help)"},
		{"watch /nope", "mt: watch: /nope: there is no such directory"},
		{"watch " + file, "mt: watch: " + file + " is a file; give the output_dir of a run"},
		{"watch " + filepath.Dir(file), "mt: watch: " + filepath.Dir(file) + " holds no metrics.jsonl; give the output_dir of a run"},
		{"watch" + strings.Repeat(" x", 25), "mt: watch: 25 runs, and a page shows 24 at most"},
		{"watch " + run + " --address 70000", `mt: --address: "70000" is no address: a port is a number from 0 to 65535`},
		{"watch " + run + " --address=", `mt: --address: "" is no address: it is empty`},
		{"watch " + run + " --address " + taken, "mt: --address: " + taken + " is in use; give another port, or 0 for a free one"},
		{"train --model tiny --dataset " + file + " --dashboard 70000 --output-dir " + run, `mt: --dashboard: dashboard: "70000" is no address`},
		{"train --model tiny --dataset " + file + " --dashboard " + taken + " --output-dir " + run, "mt: --dashboard: dashboard: " + taken + " is in use"},
		{"teach", `mt: unknown command "teach"`},
	} {
		code, stdout, stderr := mt(t, "", strings.Fields(tc.args)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, tc.want) {
			t.Errorf("mt %s: exit code %d\n%s%s\nwant %s", tc.args, code, stdout, stderr, tc.want)
		}
		if strings.Contains(stderr, "Usage:") || strings.Contains(stderr, "goroutine") {
			t.Errorf("mt %s: more than the error:\n%s", tc.args, stderr)
		}
	}
}

func TestHelp(t *testing.T) {
	for args, want := range map[string]string{
		"": "mt init ", "--help": "Exit codes:", "init --help": "--force", "help": "  completion  ", "train --help": "learning_rate", "train -h": "Examples:",
		"help train": "--help-all", "train --help-all": "sample_packing", "train run.yaml --help-all": "pipeline.head_shards", "plan --help": "allocates", "eval --help": "perplexity", "generate --help": "--top-p",
		"bench": "sgemm", "bench adamw --help": "--params", "data": "inspect", "doctor --help": "--json", "watch --help": "OUTPUT_DIR",
	} {
		code, stdout, stderr := mt(t, "", strings.Fields(args)...)
		if code != exitDone || stderr != "" || !strings.Contains(stdout, want) {
			t.Errorf("mt %s: exit code %d, %q is not in\n%s%s", args, code, want, stdout, stderr)
		}
	}
}

// TestHelpIsOneScreen: the help shows how to train, watch, resume, chat and export on one screen.
func TestHelpIsOneScreen(t *testing.T) {
	text := must(t, "--help")
	if n := strings.Count(text, "\n"); n > 42 {
		t.Errorf("mt --help has %d lines", n)
	}
	for line := range strings.Lines(text) {
		if len(line) > 100 {
			t.Errorf("mt --help has a line of %d characters: %s", len(line), line)
		}
	}
	for _, want := range []string{"mt train run.yaml --dashboard", "mt watch ", "resume", "--chat", "mt export "} {
		if !strings.Contains(text, want) {
			t.Errorf("mt --help says nothing of %q", want)
		}
	}
}

// TestCompletion: shells complete config keys as flags, but not the keys of other tools.
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"train --learn":                "--learning-rate\tPeak learning rate\n:4\n",
		"train --shuffle false --dry":  "--dry-run\n:4\n",
		"eval run.yaml --batch":        "--batch-size\t", // an alias
		"generate --max-n":             "--max-new-tokens\n--max-nonfinite-steps\t",
		"data inspect --pipeline.we":   "--pipeline.weight-slots\t",
		"train --deepsp":               ":4\n",
		"train --seed 1 --output-dir ": ":0\n",            // a file
		"train ":                       "yaml\nyml\n:8\n", // files with these extensions
		"plan run.yaml ":               ":4\n",            // there already is one
		"train --optim muon":           "adamw\nadamw_8bit\n",
		"eval --optimizer=":            "adamw\nadamw_8bit\n",
	} {
		code, stdout, stderr := mt(t, "", append([]string{"__complete"}, strings.Split(line, " ")...)...)
		if code != exitDone || !strings.HasPrefix(stdout, want) {
			t.Errorf("mt %s: exit code %d\n%s%s\nwant %s", line, code, stdout, stderr, want)
		}
	}
}

// TestCompletionScripts: every shell gets its script, which asks mt for the rest.
func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if script := must(t, "completion", shell); !strings.Contains(script, "__complete") {
			t.Errorf("mt completion %s does not ask mt:\n%s", shell, script)
		}
	}
}

// TestMan: every command has a page, which lists the keys once and not also as options.
func TestMan(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	must(t, "man", dir)
	for name, want := range map[string]string{
		"mt.1": "mt\\-train(1)", "mt-train.1": "compare_bigram", "mt-doctor.1": ".TP\n\\fB\\-\\-json\\fR\n", "mt-data-inspect.1": "SYNOPSIS\nmt data inspect",
	} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q: %v\n%s", name, want, err, text)
		}
		if name == "mt-train.1" && strings.Contains(string(text), "learning\\-rate\\fR") {
			t.Error("mt-train.1 has the keys as options too")
		}
	}
	file := filepath.Join(dir, "mt.1")
	if code, _, stderr := mt(t, "", "man", file); code != exitFailed || !strings.Contains(stderr, "mt: man: ") || !strings.Contains(stderr, file) {
		t.Errorf("mt man FILE: exit code %d, %s", code, stderr)
	}
}

// TestFlagsGoAnywhere: keys may stand before and after the command and its file.
func TestFlagsGoAnywhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	testkit.NoError(t, os.WriteFile(file, []byte("dataset: x\nmodel: tiny\nmax_steps: 5\n"), 0o600))
	for _, line := range []string{"plan FILE --shuffle false --json --max_steps 7", "plan --json --max-steps=7 --shuffle FILE", "--max-steps 7 plan --json -- FILE"} {
		got := object(t, must(t, strings.Fields(strings.ReplaceAll(line, "FILE", file))...))
		if got["max_steps"] != 7.0 {
			t.Errorf("mt %s: %v steps", line, got["max_steps"])
		}
	}
}

// TestCommandsAreDescribed checks that every command has a description.
func TestCommandsAreDescribed(t *testing.T) {
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Short == "" {
			t.Errorf("%s has no description", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit((&app{}).root())
}

func TestJSON(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "x.jsonl")
	testkit.NoError(t, os.WriteFile(file, []byte(`{"input_ids": [5, 6, 7]}`+"\n"), 0o600))
	for args, key := range map[string]string{
		"version --json": "platform",
		"doctor --json":  "cuda",
		"data inspect --json --dataset " + file + " --cache_dir " + dir: "supervised_tokens",
	} {
		code, stdout, stderr := mt(t, "", strings.Fields(args)...)
		var got map[string]any
		if err := json.Unmarshal([]byte(stdout), &got); code != exitDone || err != nil || got[key] == nil {
			t.Errorf("mt %s: exit code %d, %v\n%s%s", args, code, err, stdout, stderr)
		}
	}
	for args, want := range map[string]string{
		"version": "mt ", "--version": "mt ", "doctor": "device: cuda",
		"data inspect --dataset " + file + " --cache_dir " + dir: "3 (2 supervised)",
	} {
		if code, stdout, stderr := mt(t, "", strings.Fields(args)...); code != exitDone || !strings.Contains(stdout, want) {
			t.Errorf("mt %s: exit code %d\n%s%s", args, code, stdout, stderr)
		}
	}
}

// TestDoctorJudges: doctor reports the state of each part. A broken part is an error.
func TestDoctorJudges(t *testing.T) {
	testkit.NotShort(t)
	for args, want := range map[string]struct {
		code int
		disk string
	}{
		"doctor --json --dir " + t.TempDir(): {exitDone, "ok slow"},
		"doctor --json --dir /proc/nowhere":  {exitFailed, "broken"},
	} {
		code, stdout, stderr := mt(t, "", strings.Fields(args)...)
		var got struct {
			Checks []struct{ Name, State, Found string }
		}
		testkit.NoError(t, json.Unmarshal([]byte(stdout), &got))
		disk := ""
		for _, c := range got.Checks {
			if c.Name == "disk" {
				disk = c.State
			}
		}
		if code != want.code || disk == "" || !strings.Contains(want.disk, disk) || (code == exitDone) != (stderr == "") {
			t.Errorf("mt %s: exit code %d, disk %q\n%s", args, code, disk, stderr)
		}
	}
}

// TestDoctorSaveRefuses: an unwritable file is rejected before any measurement.
func TestDoctorSaveRefuses(t *testing.T) {
	dir := t.TempDir()
	for args, want := range map[string]string{
		"--save " + dir + "/no/r.json":                   "there is no folder " + dir + "/no; make it first",
		"--save " + dir:                                  "that is a folder; give the name of a file in it, such as " + dir + "/rates.json",
		"--save " + dir + "/r.json --dir " + dir + "/no": "--dir " + dir + "/no: not a folder",
		"--save " + dir + "/r.json --selftest":           "--save and --selftest are two commands",
		"--save " + dir + "/r.json --device gpu":         `--device "gpu": want auto, cpu or cuda`,
	} {
		code, stdout, stderr := mt(t, "", append([]string{"doctor"}, strings.Fields(args)...)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, want) || strings.Contains(stderr, "measuring") {
			t.Errorf("mt doctor %s: exit code %d\n%s%s", args, code, stdout, stderr)
		}
	}
}

// TestDoctorProfile: a profile is shown with its sources, or written to a file that is again a profile.
func TestDoctorProfile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.json")
	for _, name := range []string{"3090", file} {
		code, stdout, stderr := mt(t, "", "doctor", "--profile", name, "--save", file)
		for _, want := range []string{"NVIDIA RTX 3090", "products up to 64.08 TFLOP/s", "device.products.bf16: estimate: 0.9 of the datasheet's 71.2", "link.h2d_gb_per_s: measured", "saved"} {
			if code != exitDone || stderr != "" || !strings.Contains(stdout, want) {
				t.Errorf("%s: exit code %d, %q is not in\n%s%s", name, code, want, stdout, stderr)
			}
		}
	}
	if got := object(t, must(t, "doctor", "--profile", "h100+grace", "--json")); got["name"] != "h100-sxm+grace" {
		t.Errorf("%v", got["name"])
	}
	bad := filepath.Join(t.TempDir(), "bad.json")
	raw := testkit.Must(os.ReadFile(file))(t)
	testkit.NoError(t, os.WriteFile(bad, bytes.Replace(raw, []byte(`"h2d_gb_per_s": 25,`), []byte(`"h2d_gb_per_s": 25e9,`), 1), 0o600))
	for name, want := range map[string]string{"rtx-4091": `did you mean "rtx-4090"?`, bad: bad + ": link.h2d_gb_per_s is 2.5e+10 GB/s: want a number between"} {
		if code, _, stderr := mt(t, "", "doctor", "--profile", name); code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d\n%s", name, code, stderr)
		}
	}
}

// TestEveryExampleIsValid parses the example configs for users.
func TestEveryExampleIsValid(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, file := range files {
		c, err := config.Load(file, config.Args{})
		if err != nil {
			t.Error(err)
			continue
		}
		if err := c.Require("model", "dataset"); err != nil {
			t.Error(err)
		}
		if len(c.Warnings) > 0 {
			t.Errorf("%s: %q", file, c.Warnings)
		}
	}
}

func TestExitCode(t *testing.T) {
	interrupted, cancel := context.WithCancelCause(t.Context())
	cancel(settings.ErrInterrupted)
	for _, tc := range []struct {
		ctx  context.Context
		err  error
		want int
	}{
		{t.Context(), errors.New("x"), exitFailed},
		{t.Context(), fmt.Errorf("train: %w", config.Usagef("x")), exitUsage},
		{t.Context(), fmt.Errorf("train: %w", settings.ErrInterrupted), exitInterrupted},
		{interrupted, fmt.Errorf("bench: %w", context.Canceled), exitInterrupted},
		{t.Context(), context.Canceled, exitFailed},
		{interrupted, errors.New("the disk is full"), exitFailed},
	} {
		if got := exitCode(tc.ctx, tc.err); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.err, got, tc.want)
		}
	}
}

// brokenReader is a standard input that panics when it is read, like a broken invariant.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { panic("broken on purpose") }

func TestPanicIsOneLine(t *testing.T) {
	for _, debug := range []string{"", "1"} {
		t.Setenv("MT_DEBUG", debug)
		var errs bytes.Buffer
		a := &app{stdin: brokenReader{}, stdout: &errs, stderr: &errs}
		code := a.run(t.Context(), []string{"generate", "--model", "tiny", "--prompt", "-"})
		if code != exitFailed || !strings.HasPrefix(errs.String(), "mt: internal error, please report it: broken on purpose") {
			t.Errorf("exit code %d: %s", code, errs.String())
		}
		if trace := strings.Contains(errs.String(), "goroutine"); trace != (debug == "1") {
			t.Errorf("MT_DEBUG=%s: trace %t", debug, trace)
		}
	}
}
