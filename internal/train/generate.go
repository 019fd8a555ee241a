package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"mt/checkpoint"
	"mt/data"
	"mt/device"
	"mt/internal/config"
	"mt/internal/files"
	"mt/internal/generate"
	"mt/tokenizer"
)

// GenerateOptions say what to continue, and how.
type GenerateOptions struct {
	Options
	Config       *config.Config // model and device keys
	Prompt       string
	MaxNewTokens int
	Temperature  float64
	TopK         int
	TopP         float64
	Seed         int64
}

// sampling is how tokens are chosen.
func (o *GenerateOptions) sampling() generate.Options {
	return generate.Options{MaxNewTokens: o.MaxNewTokens, Temperature: o.Temperature, TopK: o.TopK, TopP: o.TopP, Seed: o.Seed}
}

// Generate continues a prompt, printing tokens on Stdout as they come.
func Generate(ctx context.Context, o GenerateOptions) (err error) {
	s := &session{job: &job{c: o.Config, hooks: o.hooks, orCheckpoint: true}, o: o.Options}
	defer s.closeAfter(&err)
	if err := s.openToGenerate(nil); err != nil {
		return err
	}
	fmt.Fprint(o.Stdout, o.Prompt)
	err = s.generate(ctx, o.sampling(), o.Prompt, o.Stdout)
	fmt.Fprintln(o.Stdout)
	if err != nil && ctx.Err() != nil {
		return ErrInterrupted
	}
	return err
}

// openToGenerate opens a model and loads its weights. check runs before everything that
// takes long; it may be nil.
func (s *session) openToGenerate(check func() error) error {
	j := s.job
	if err := j.c.Require("model"); err != nil {
		return err
	}
	if err := j.findModel(); err != nil {
		return err
	}
	if err := j.openModel(); err != nil {
		return err
	}
	if j.modelDir == "" {
		return j.c.Errorf("model", "generating needs a model directory")
	}
	if j.tokErr != nil {
		return j.tokErr
	}
	if check != nil {
		if err := check(); err != nil {
			return err
		}
	}
	j.oneDevice = true
	if err := j.resolveDevice(s.o); err != nil {
		return err
	}
	j.showNotes(s.o.Stderr)
	var err error
	if s.dev, s.pool, err = j.openDevice(); err != nil {
		return err
	}
	layouts := j.model.Layouts(j.act == device.BF16)
	for i := range layouts {
		layouts[i].BF16Master = !j.startsRows()
	}
	s.store, err = j.weightsOf(layouts, s.pool)
	return err
}

// generate continues prompt with the session's weights and prints the text as
// whole characters arrive.
func (s *session) generate(ctx context.Context, g generate.Options, prompt string, w io.Writer) error {
	ids, err := data.Prompt(s.tok, []byte(prompt))
	if err != nil {
		return fmt.Errorf("prompt: %w", err)
	}
	_, err = s.goOn(ctx, g, ids, w)
	return err
}

// goOn continues ids as generate continues a prompt; made is how many tokens it has
// made.
func (s *session) goOn(ctx context.Context, g generate.Options, ids []int32, w io.Writer) (made int, err error) {
	g.Device, g.Store, g.Config, g.Act = s.dev, s.store, s.model, s.act
	for _, l := range s.store.Layers {
		g.Layout = append(g.Layout, l.Layout)
	}
	stop, err := s.stops()
	if err != nil {
		return 0, err
	}
	g.Stop = append(g.Stop, stop...)
	out := tokenizer.NewStream(s.tok, ids...)
	err = generate.Run(ctx, g, ids, func(id int32) {
		made++
		_, _ = io.WriteString(w, out.Next(id))
	})
	_, _ = io.WriteString(w, out.Flush())
	return made, err
}

// stops are the tokens that end a text: the tokenizer's, and all that config.json
// and generation_config.json name.
func (j *job) stops() ([]int32, error) {
	var out []int32
	if eos, ok := j.tok.EOS(); ok {
		out = append(out, eos)
	}
	for _, id := range j.model.EOS {
		out = append(out, int32(id))
	}
	if j.modelDir == "" {
		return out, nil
	}
	name := filepath.Join(j.modelDir, "generation_config.json")
	text, err := checkpoint.ReadCompanion(name)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	var f struct {
		EOS json.RawMessage `json:"eos_token_id"`
	}
	if err := json.Unmarshal(files.JSON(text), &f); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var one int32
	var several []int32
	switch {
	case f.EOS == nil:
	case json.Unmarshal(f.EOS, &several) == nil:
		out = append(out, several...)
	case json.Unmarshal(f.EOS, &one) == nil:
		out = append(out, one)
	default:
		return nil, fmt.Errorf("%s: eos_token_id is %s; it is a token's number, or a list of them", name, f.EOS)
	}
	return out, nil
}
