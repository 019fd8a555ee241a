package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"mt/data"
	"mt/internal/config"
	"mt/internal/files"
	"mt/internal/run/open"
	"mt/internal/run/settings"
)

// interview is what mt init knows so far.
type interview struct {
	given config.Args    // flags, and answers as if they were flags
	cfg   *config.Config // what given says
	model *open.Model    // of cfg, when the first question is answered
}

// question is one that init asks.
type question struct {
	keys   []string                                // that answer it: it is not asked where one was given
	text   string                                  // what is asked
	preset func(cfg *config.Config) string         // what an empty answer means; nil: there must be an answer
	key    func(answer string) (key, value string) // what the answer says
	check  func(in *interview) error               // what is wrong with the answer; nil: what the config says of it
}

// questions are the five, in order.
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

// as makes an answer the value of a key.
func as(key string) func(string) (string, string) {
	return func(answer string) (string, string) { return key, answer }
}

// deviceKey is the key that names a device, or the size of one.
func deviceKey(answer string) (key, value string) {
	if answer == "auto" || answer == "cpu" || answer == "cuda" {
		return "device", answer
	}
	return "device_memory", answer
}

// lengthKey is the key of "3", "500 steps" or "1 step".
func lengthKey(answer string) (key, value string) {
	if n, steps := strings.CutSuffix(strings.TrimSuffix(answer, "s"), "step"); steps {
		return "max_steps", strings.TrimSpace(n)
	}
	return "num_train_epochs", answer
}

// outputDir is a folder named after the model, and another one than the model's.
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

// openModel reads what the model is, without its weights.
func (in *interview) openModel() (err error) {
	in.model, err = open.OpenModel(in.cfg)
	return err
}

// findData looks for the files of the data set.
func (in *interview) findData() error {
	err := data.CheckFiles(in.cfg.DataSpec())
	var wrong *data.SpecError
	if errors.As(err, &wrong) {
		return in.cfg.Errorf(cmp.Or(wrong.Key, "dataset"), "%w", err)
	}
	return err
}

// give sets a key.
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

// interview is the config that the flags and the answers give, with a recipe for what neither says.
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
	for _, r := range recipe(in.model, in.cfg.Given("dpo")) {
		if in.cfg.Given(r.key) || in.cfg.Given(r.unless) {
			continue
		}
		if err := in.give(r.key, r.value); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// settle has a question answered: by a flag, by the user, who is asked until the answer will do, or by its default.
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

// accept is the error of an answer that will not do.
func (q *question) accept(in *interview) error {
	if q.check == nil {
		return nil
	}
	return q.check(in)
}

// next is the next line that the user types.
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

// linesOf are the lines of r, up to its end. Who reads the channel can wait for something else as well.
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
