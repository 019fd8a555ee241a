package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"mt/base/files"
	"mt/data"
	"mt/internal/run/config"
	"mt/internal/run/open"
	"mt/internal/run/predict"
	"mt/internal/run/settings"
)

func (a *app) initCommand() *cobra.Command {
	var force bool
	c := a.keyed(&cobra.Command{
		Use:   "init [CONFIG.yaml] [--any-config-key value]",
		Short: "Write a first config by asking five questions, and say whether it fits",
		Long: `Init asks which model, which data, what to compute on, how long and where to, and
writes a config (run.yaml) with what was answered and a recipe to begin with. It
plans the run, as mt plan does, says whether it fits, and what to run next.

Every key of mt train is a flag. What a flag answers is not asked; the others go
into the file too. Where there is no terminal, --model and --dataset are needed,
and the other questions take their defaults. With --dpo '{beta: 0.1}' the data is
pairs of answers (docs/preferences.md).

  --force     write over a file that is there`,
		Example: `  mt init
  mt init chat.yaml --model Qwen/Qwen3-4B --dataset chats.jsonl
  mt init big.yaml --model qwen2.5-7b --dataset 'text/**/*.txt' --device-memory 24GiB --max-steps 1000`,
	}, nil)
	config.Switch(c.Flags(), "force", &force)
	c.RunE = func(c *cobra.Command, args []string) error {
		file := "run.yaml"
		switch len(args) {
		case 0:
		case 1:
			file = args[0]
		default:
			return config.Usagef("init: takes one name of a file to write, got %q", args)
		}
		if _, err := os.Lstat(file); !force && !errors.Is(err, fs.ErrNotExist) {
			return config.Usagef("init: %s is there already: give another name, or --force to write over it", file)
		}
		in, err := a.interview(c.Context(), *a.keys[c])
		if err != nil {
			return err
		}
		return a.begin(c.Context(), file, in, force)
	}
	return c
}

// start is a default that mt init writes for a key. It applies unless the user gave key, or the key in unless, which
// contradicts key.
type start struct{ key, value, unless string }

// recipe returns the defaults for a new config. template is the chat template that the data needs; "": the model's own. Training from scratch takes a high learning rate, fine-tuning a low
// one and preference pairs a much lower one. Small models take higher rates than large ones.
func recipe(m *open.Model, pairs bool, template string) []start {
	length := fmt.Sprint(min(2048, m.Config.MaxPositions))
	all := []start{{"max_seq_len", length, ""}, {"val_size", "0.05", "eval_dataset"}, {"per_device_train_batch_size", "8", ""},
		{"lr_scheduler_type", "cosine", ""}, {"save_total_limit", "2", ""}}
	if template != "" {
		all = append(all, start{"template", template, ""})
	}
	small := m.Config.Params() < 100e6
	switch {
	case pairs && small:
		return append(all, start{"learning_rate", "1e-5", ""}, start{"warmup_ratio", "0.1", "warmup_steps"})
	case pairs:
		return append(all, start{"learning_rate", "5e-7", ""}, start{"warmup_ratio", "0.1", "warmup_steps"})
	case m.Dir != "" && small:
		return append(all, start{"learning_rate", "3e-4", ""}, start{"warmup_ratio", "0.1", "warmup_steps"})
	case m.Dir != "":
		return append(all, start{"learning_rate", "1e-5", ""}, start{"warmup_ratio", "0.1", "warmup_steps"})
	case small:
		all = append(all, start{"learning_rate", "1e-3", ""})
	default:
		all = append(all, start{"learning_rate", "3e-4", ""})
	}
	return append(all, start{"warmup_ratio", "0.03", "warmup_steps"}, start{"weight_decay", "0.1", ""})
}

// comments maps keys that a newcomer may want to change to the comments behind them in the written config file.
var comments = map[string]string{
	"max_seq_len":                 "tokens of a row; what a step holds grows with it",
	"val_size":                    "the share of the rows that is held out, for the loss on what was not seen",
	"per_device_train_batch_size": "rows of a step",
	"learning_rate":               "the first thing to try other values of",
	"save_total_limit":            "checkpoints that stay; one is written every save_steps (500)",
	"template":                    "the model has no chat template; every tokenizer can write this one",
	"device_memory":               "no more of the device than this is used",
}

// begin writes the config of the interview to file, plans the run and prints the next command. force replaces an
// existing file.
func (a *app) begin(ctx context.Context, file string, in *interview, force bool) error {
	text := in.cfg.Brief("Written by mt init. mt train --help-all lists all keys; each one is also a flag.", comments)
	written, err := config.Parse(file, text, config.Args{})
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	if err := writeNew(file, text, force); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	fmt.Fprintf(a.stdout, "%s is written:\n\n%s\n", file, text)
	if err := predict.Plan(ctx, written, a.options(false)); err != nil {
		return fmt.Errorf("init: %s is written, and the run cannot be as it is; change it and see mt plan %s: %w", file, file, err)
	}
	talk := "--prompt \"Once upon a time\""
	if in.model.Dir != "" {
		talk = "--chat"
	}
	if data.IsLayout(written.Template) { // a Jinja template is saved with the model
		talk += " --template " + written.Template
	}
	_, err = fmt.Fprintf(a.stdout, `
It fits. What to run next:

  mt train %[1]s --dry-run      # the same with the data, which is read then
  mt train %[1]s --dashboard    # train, with a page that shows the run; Ctrl-C stops it
  mt train %[1]s                # after any stop: go on where it was
  mt generate --model %[2]s %[3]s
`, file, written.OutputDir, talk)
	return err
}

// writeNew writes a new file. With force it also replaces an existing file.
func writeNew(name string, text []byte, force bool) error {
	if force {
		return replaceFile(name, text)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// interview is the state of mt init while it asks its questions.
type interview struct {
	given config.Args    // the flags given, and the answers in the form of flags
	cfg   *config.Config // the config that results from given
	model *open.Model    // model of cfg, known after the first question
}

// question is one question of mt init, with the keys to which the answer belongs.
type question struct {
	keys   []string                                // skip the question if one of these keys was given
	text   string                                  // the question
	preset func(cfg *config.Config) string         // default answer; nil: an answer is required
	key    func(answer string) (key, value string) // converts an answer to a key and its value
	check  func(in *interview) error               // validates the answer; nil: the config's own checks suffice
}

// questions are the five questions in order.
var questions = []question{
	{keys: []string{"model_name_or_path"}, key: as("model"), check: (*interview).openModel,
		text: "Which model? A folder, or a name of the Hub that is in the local cache, to go on from; or to train\n" +
			"from scratch a preset: tiny and quickstart are for a CPU, mt train --help lists them all"},
	{keys: []string{"dataset"}, key: as("dataset"), check: (*interview).findData,
		text: "Which data? Files, folders or patterns such as text/**/*.txt, with commas between: text, or chats"},
	{keys: []string{"device", "device_memory", "devices"}, key: deviceKey, preset: func(*config.Config) string { return "auto" },
		text: "What to compute on? auto, cpu or cuda; or the memory of a GPU to plan for, such as 24GiB"},
	{keys: []string{"max_steps", "num_train_epochs"}, key: lengthKey, preset: func(*config.Config) string { return "3" },
		text: "How long? A number of passes over the data; or of steps, such as 500 steps"},
	{keys: []string{"output_dir"}, key: as("output_dir"), preset: outputDir,
		text: "Where to? The folder for checkpoints and the model"},
}

// as returns a function for the field key of a question. The function stores the answer unchanged under key.
func as(key string) func(string) (string, string) {
	return func(answer string) (string, string) { return key, answer }
}

// deviceKey returns the key that an answer about the device sets: the kind of device, or a memory size.
func deviceKey(answer string) (key, value string) {
	if answer == "auto" || answer == "cpu" || answer == "cuda" {
		return "device", answer
	}
	return "device_memory", answer
}

// lengthKey returns the key that an answer about the length of training sets. "3" means epochs; "500 steps" and "1
// step" mean steps.
func lengthKey(answer string) (key, value string) {
	if n, steps := strings.CutSuffix(strings.TrimSuffix(answer, "s"), "step"); steps {
		return "max_steps", strings.TrimSpace(n)
	}
	return "num_train_epochs", answer
}

// outputDir returns the default output folder, out/ and the model's name. It differs from the folder of the model
// itself.
func outputDir(cfg *config.Config) string {
	name := cfg.Model.Preset
	if cfg.Model.Path != "" {
		name = filepath.Base(cfg.Model.Path)
	}
	if name == "" || name == "." || name == ".." || name == "/" {
		name = "run"
	}
	dir := "out/" + name
	if files.Same(dir, cfg.Model.Path) {
		dir += "-tuned"
	}
	return dir
}

// openModel reads the model's configuration without its weights.
func (in *interview) openModel() (err error) {
	in.model, err = open.OpenModel(in.cfg)
	return err
}

// findData checks that the files of the data set exist.
func (in *interview) findData() error {
	err := data.CheckFiles(in.cfg.DataSpec())
	var wrong *data.SpecError
	if errors.As(err, &wrong) {
		return in.cfg.Errorf(cmp.Or(wrong.Key, "dataset"), "%w", err)
	}
	return err
}

// template returns the chat template to write: default for a model without one, otherwise "". A model that is trained
// from scratch gets none, because its data are texts.
func (in *interview) template() string {
	if in.model.Dir == "" || in.model.Tokenizer == nil {
		return ""
	}
	spec := in.cfg.DataSpec()
	spec.Tokenizer, spec.ModelDir, spec.VocabSize = in.model.Tokenizer, in.model.Dir, in.model.Config.VocabSize
	if _, err := data.NewDialogue(spec); errors.Is(err, data.ErrNoTemplate) {
		return "default"
	}
	return ""
}

// give sets a key as if the user had given its flag, and loads the config again.
func (in *interview) give(key, value string) error {
	given, err := in.given.With(key, value)
	if err != nil {
		return err
	}
	cfg, err := config.Load("", given)
	if err != nil {
		return err
	}
	in.given, in.cfg = given, cfg
	return nil
}

// interview asks the user for the settings that given lacks. Keys that got neither a flag nor an answer get the
// defaults of a recipe.
func (a *app) interview(ctx context.Context, given config.Args) (*interview, error) {
	cfg, err := config.Load("", given)
	if err != nil {
		return nil, err
	}
	if !a.asks && (!cfg.Given("model_name_or_path") || !cfg.Given("dataset")) {
		return nil, config.Usagef("init: there is no terminal to ask on: give --model and --dataset (see mt init --help)")
	}
	in := &interview{given: given, cfg: cfg}
	var lines <-chan string
	if a.asks {
		lines = linesOf(a.stdin)
	}
	for _, q := range questions {
		if err := a.settle(ctx, in, q, lines); err != nil {
			return nil, err
		}
	}
	for _, r := range recipe(in.model, in.cfg.Given("dpo"), in.template()) {
		if in.cfg.Given(r.key) || in.cfg.Given(r.unless) {
			continue
		}
		if err := in.give(r.key, r.value); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// settle gets the answer to one question from a flag, from the user or from the default. It repeats
// the question until the answer is valid.
func (a *app) settle(ctx context.Context, in *interview, q question, lines <-chan string) error {
	for _, key := range q.keys {
		if in.cfg.Given(key) {
			return q.accept(in)
		}
	}
	preset := ""
	if q.preset != nil {
		preset = q.preset(in.cfg)
	}
	if !a.asks {
		return in.give(q.key(preset))
	}
	for {
		fmt.Fprintln(a.stderr, q.text)
		if preset != "" {
			fmt.Fprintf(a.stderr, "[%s] ", preset)
		}
		fmt.Fprint(a.stderr, "> ")
		answer, err := next(ctx, lines)
		if err != nil {
			return err
		}
		before := *in
		if answer = cmp.Or(answer, preset); answer == "" {
			continue
		}
		err = in.give(q.key(answer))
		if err == nil {
			err = q.accept(in)
		}
		if err == nil {
			return nil
		}
		*in = before
		fmt.Fprintf(a.stderr, "%v\n", err)
	}
}

// accept runs the check of the question q, if q has one, on the config that contains the answer.
func (q *question) accept(in *interview) error {
	if q.check == nil {
		return nil
	}
	return q.check(in)
}

// next returns the next line that the user types, without spaces around it. It returns an error if there are no more
// lines or a signal arrives.
func next(ctx context.Context, lines <-chan string) (string, error) {
	select {
	case line, more := <-lines:
		if !more {
			return "", config.Usagef("init: the questions were not all answered, and nothing is written")
		}
		return strings.TrimSpace(line), nil
	case <-ctx.Done():
		return "", settings.ErrInterrupted
	}
}

// linesOf sends the lines of r to the returned channel, so that the receiver can wait for a signal at the same time.
func linesOf(r io.Reader) <-chan string {
	out := make(chan string)
	go func() {
		defer close(out)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			out <- lines.Text()
		}
	}()
	return out
}
