package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/run/config"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// asked runs mt init with typed as what the user types at the terminal.
func asked(ctx context.Context, typed string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	a := &app{stdin: strings.NewReader(typed), stdout: &out, stderr: &errs, asks: true}
	code = a.run(ctx, append([]string{"init"}, args...))
	return code, out.String(), errs.String()
}

// inFolder creates a folder with the data sets text.txt and chats.jsonl, and makes it the current
// one.
func inFolder(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"text.txt": strings.Repeat("Once upon a time. ", 100), "chats.jsonl": `{"messages": [{"role": "user", "content": "hi"}]}`} {
		testkit.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
}

// written parses a config file that init has written.
func written(t *testing.T, file string) *config.Config {
	t.Helper()
	c := testkit.Must(config.Load(file, config.Args{}))(t)
	return c
}

// TestInitAsks: bad answers are asked again, and good ones are in the file. The run is planned, and the next command
// is printed.
func TestInitAsks(t *testing.T) {
	inFolder(t)
	code, stdout, stderr := asked(t.Context(), "tinny\n\ntiny\nnone.txt\ntext.txt, chats.jsonl\nmuch\ncpu\nlong\n 40 steps\n\n")
	if code != exitDone {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	c := written(t, "run.yaml")
	testkit.Check(t, "run.yaml",
		testkit.Is("model", c.Model.Preset, "tiny"),
		testkit.Is("dataset", strings.Join(c.Dataset, "+"), "text.txt+chats.jsonl"),
		testkit.Is("device", c.Device, "cpu"),
		testkit.Is("max_steps", c.MaxSteps, 40),
		testkit.Is("output_dir", c.OutputDir, "out/tiny"),
		testkit.Is("max_seq_len", c.MaxSeqLen, 256),
		testkit.Is("learning_rate", c.LearningRate, 1e-3),
		testkit.Is("weight_decay", c.WeightDecay, 0.1),
		testkit.Is("seed is given", c.Given("seed"), false),
	)
	for _, want := range []string{`no preset is called "tinny"`, "none.txt", "device_memory", "num_train_epochs", "[out/tiny] > "} {
		if !strings.Contains(strings.ReplaceAll(stderr, "-", "_"), strings.ReplaceAll(want, "-", "_")) {
			t.Errorf("the terminal shows no %q:\n%s", want, stderr)
		}
	}
	if n := strings.Count(stderr, "Which model?"); n != 3 {
		t.Errorf("the model is asked for %d times, want 3", n)
	}
	for _, want := range []string{"run.yaml is written:", "host    total ", "It fits.", "mt train run.yaml --dashboard", "mt generate --model out/tiny --prompt "} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}

// TestInitTakesFlags: a question answered by a flag is skipped, and every other flag is in the file. An existing model
// gets another recipe and is used for chatting.
func TestInitTakesFlags(t *testing.T) {
	testkit.NotShort(t)
	inFolder(t)
	must(t, "train", "--model", "tiny", "--dataset", "text.txt", "--max-seq-len", "32", "--max-steps", "1", "--output-dir", "first")
	stdout := must(t, "init", "--model", "./first", "--dataset", "text.txt", "--warmup-steps", "2", "--eval-dataset", "text.txt", "--pipeline.weight-slots", "3")
	c := written(t, "run.yaml")
	if c.Model.Path != "./first" || c.NumTrainEpochs != 3 || c.Device != "auto" || c.OutputDir != "out/first" || c.LearningRate != 3e-4 || c.Pipeline.WeightSlots != 3 ||
		c.WarmupSteps != 2 || c.Given("warmup_ratio") || c.Given("val_size") || c.Template != "default" {
		t.Errorf("run.yaml is\n%s", c.YAML(""))
	}
	must(t, "init", "pairs.yaml", "--model", "./first", "--dataset", "text.txt", "--dpo", "{beta: 0.2}")
	if c = written(t, "pairs.yaml"); c.LearningRate != 1e-5 || !c.Given("dpo") {
		t.Errorf("pairs.yaml is\n%s", c.YAML(""))
	}
	if !strings.Contains(stdout, "mt generate --model out/first --chat --template default") {
		t.Errorf("nothing says how to talk to it:\n%s", stdout)
	}
	checkTrainsChats(t)
	testkit.NoError(t, os.WriteFile("first/chat_template.jinja", []byte("{{ messages[0].content }}"), 0o600))
	must(t, "init", "own.yaml", "--model", "./first", "--dataset", "text.txt")
	if c = written(t, "own.yaml"); c.Template != "" {
		t.Errorf("a model with a chat template gets template: %s", c.Template)
	}
	testkit.NoError(t, os.Remove("first/chat_template.jinja"))
	code, _, stderr := asked(t.Context(), "\n1 step\nhere\n", "b.yaml", "--model", "tiny", "--dataset", "text.txt", "--force")
	if c = written(t, "b.yaml"); code != exitDone || c.MaxSteps != 1 || c.OutputDir != "here" || strings.Contains(stderr, "Which") {
		t.Errorf("exit code %d, %d steps to %s\n%s", code, c.MaxSteps, c.OutputDir, stderr)
	}
	testkit.NoError(t, errors.Join(os.Mkdir("out", 0o700), os.Rename("first", "out/first")))
	must(t, "init", "again.yaml", "--model", "out/first", "--dataset", "text.txt")
	if c = written(t, "again.yaml"); c.OutputDir != "out/first-tuned" {
		t.Errorf("what is tuned of out/first goes to %s", c.OutputDir)
	}
}

// checkTrainsChats trains the model in folder ./first on chats, with the config that mt init writes. The model has no
// chat template, so the config names mt's own one, `template: default`. The error of mt generate without --template names
// this template.
func checkTrainsChats(t *testing.T) {
	t.Helper()
	chat := `{"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "eins"}]}` + "\n"
	testkit.NoError(t, os.WriteFile("chats.jsonl", []byte(strings.Repeat(chat, 4)), 0o600))
	must(t, "init", "chats.yaml", "--model", "./first", "--dataset", "chats.jsonl", "--max-steps", "1", "--output-dir", "chats", "--val-size", "0")
	must(t, "train", "chats.yaml")
	code, _, stderr := mt(t, "", "generate", "--model", "chats", "--chat", "--prompt", "one")
	if code != exitUsage || !strings.Contains(stderr, "template: default, so give --template default") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	must(t, "generate", "--model", "chats", "--chat", "--template", "default", "--prompt", "one", "--max-new-tokens", "2")
}

// TestInitRefuses: nothing is written if an answer is missing or wrong, nor over an existing file.
func TestInitRefuses(t *testing.T) {
	inFolder(t)
	for _, tc := range []struct{ args, want string }{
		{"", "init: there is no terminal to ask on: give --model and --dataset"},
		{"--model tiny", "no terminal to ask on"},
		{"--dataset text.txt", "no terminal to ask on"},
		{"--model tinny --dataset text.txt", `no preset is called "tinny"`},
		{"--model tiny --dataset none.txt", "--dataset: no such file or directory: none.txt"},
		{"--model tiny --dataset text.txt --sed 1", `unknown key; did you mean "--seed"?`},
		{"a.yaml b.yaml", `takes one name of a file to write, got ["a.yaml" "b.yaml"]`},
		{"text.txt --model tiny --dataset text.txt", "text.txt is there already: give another name, or --force"},
	} {
		code, stdout, stderr := mt(t, "", append([]string{"init"}, strings.Fields(tc.args)...)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, tc.want) {
			t.Errorf("mt init %s: exit code %d\n%s%s\nwant %s", tc.args, code, stdout, stderr, tc.want)
		}
	}
	if code, _, stderr := asked(t.Context(), "tiny\n"); code != exitUsage || !strings.Contains(stderr, "nothing is written") {
		t.Errorf("a terminal that closes: exit code %d, %s", code, stderr)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	stop(settings.ErrInterrupted)
	waits, done := blocked(t)
	defer done()
	var errs bytes.Buffer
	if code := (&app{stdin: waits, stdout: &errs, stderr: &errs, asks: true}).run(ctx, []string{"init"}); code != exitInterrupted {
		t.Errorf("Ctrl-C at a question: exit code %d\n%s", code, errs.String())
	}
	if left, err := filepath.Glob("*"); err != nil || len(left) != 2 {
		t.Errorf("there are %v, %v", left, err)
	}
}

// blocked returns a standard input from which nothing ever comes, and a function that closes it.
func blocked(t *testing.T) (*os.File, func()) {
	t.Helper()
	r, w, err := os.Pipe()
	testkit.NoError(t, err)
	return r, func() { _ = w.Close() }
}

// TestInitThatDoesNotFit: the file is written although the plan fails, and the error is the plan's. --force overwrites
// it.
func TestInitThatDoesNotFit(t *testing.T) {
	testkit.NotShort(t)
	inFolder(t)
	args := []string{"init", "--model", "quickstart", "--dataset", "text.txt"}
	code, stdout, stderr := mt(t, "", append(args, "--host-memory", "10MiB")...)
	if code == exitDone || strings.Contains(stdout, "It fits") || !strings.Contains(stderr, "run.yaml is written, and the run cannot be as it is") ||
		!strings.Contains(stderr, "host memory") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if c := written(t, "run.yaml"); c.HostMemory != 10<<20 {
		t.Errorf("host_memory is %s", c.HostMemory)
	}
	must(t, append(args, "--force")...)
	if c := written(t, "run.yaml"); c.HostMemory != 0 {
		t.Errorf("host_memory is still %s", c.HostMemory)
	}
}
