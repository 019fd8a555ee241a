package train

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"mt/data"
	"mt/device"
	"mt/host"
	"mt/internal/config"
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
	LogitKeys    // they replace those of generation_config.json
}

// sampling returns how tokens are chosen; file are the keys of generation_config.json.
func (o *GenerateOptions) sampling(file LogitKeys) generate.Options {
	g := generate.Options{MaxNewTokens: o.MaxNewTokens, Temperature: o.Temperature, TopK: o.TopK, TopP: o.TopP, Seed: o.Seed}
	o.addTo(&g, file)
	return g
}

// sampled tells whether the command line says how tokens are chosen.
func (o *GenerateOptions) sampled() bool {
	return o.Temperature > 0 || o.TopK > 0 || o.TopP > 0 && o.TopP < 1 || valueOf(o.MinP) > 0
}

// Generate continues a prompt, printing tokens on Stdout as they come.
func Generate(ctx context.Context, o GenerateOptions) (err error) {
	l, err := loadToGenerate(&o, nil)
	if err != nil {
		return err
	}
	defer closeAfter(l, &err)
	fmt.Fprint(o.Stdout, o.Prompt)
	err = l.generate(ctx, o.sampling(l.asked), o.Prompt, o.Stdout)
	fmt.Fprintln(o.Stdout)
	if err != nil && ctx.Err() != nil {
		return ErrInterrupted
	}
	return err
}

// loaded is a model that is loaded to write text.
type loaded struct {
	writer
	asked   LogitKeys // of the model's generation_config.json
	closers closers
}

// Close gives the memory back.
func (l *loaded) Close() error { return l.closers.close() }

// loadToGenerate opens a model and loads its weights. check runs before everything that
// takes long and returns notes; it may be nil.
func loadToGenerate(o *GenerateOptions, check func(*Inputs) ([]string, error)) (_ *loaded, err error) {
	l := &loaded{}
	defer func() {
		if err != nil {
			closeAfter(l, &err)
		}
	}()
	in, err := OpenModelAlone(o.Config, o.Options, func(in *Inputs) (notes []string, err error) {
		if in.modelDir == "" {
			return nil, in.c.Errorf("model", "generating needs a model directory")
		}
		if in.tokErr != nil {
			return nil, in.tokErr
		}
		if l.asked, err = logitKeys(in.modelDir); err != nil {
			return nil, err
		}
		notes = generationNotes(in.modelDir, o.sampled())
		if check == nil {
			return notes, nil
		}
		more, err := check(in)
		return append(notes, more...), err
	})
	if err != nil {
		return nil, err
	}
	l.closers.addErr(in.Close)
	showAll(o.Stderr, in.c.Warnings, in.notes, newsOf(in.devs).take())
	hw, err := in.start()
	if err != nil {
		return nil, err
	}
	l.closers.addErr(hw.Close)
	layouts := in.model.Layouts(in.act == device.BF16)
	for i := range layouts {
		layouts[i].BF16Master = !in.startsRows()
	}
	store, err := in.weightsOf(layouts, false, hw.pool)
	if err != nil {
		return nil, err
	}
	l.closers.add(func() { _ = store.Close() })
	l.writer = writer{in, hw.devs[0], store}
	return l, nil
}

// writer writes text with the weights in a store.
type writer struct {
	in    *Inputs
	dev   device.Device
	store *host.Store
}

// generate continues prompt and prints the text as whole characters arrive.
func (w writer) generate(ctx context.Context, g generate.Options, prompt string, to io.Writer) error {
	ids, err := data.Prompt(w.in.tok, []byte(prompt))
	if err != nil {
		return fmt.Errorf("prompt: %w", err)
	}
	_, err = w.goOn(ctx, g, ids, to)
	return err
}

// goOn continues ids as generate continues a prompt; made is how many tokens it has
// made.
func (w writer) goOn(ctx context.Context, g generate.Options, ids []int32, to io.Writer) (made int, err error) {
	g.Device, g.Store, g.Config, g.Act = w.dev, w.store, w.in.model, w.in.act
	for _, l := range w.store.Layers {
		g.Layout = append(g.Layout, l.Layout)
	}
	stop, err := stopTokens(w.in)
	if err != nil {
		return 0, err
	}
	g.Stop = append(g.Stop, stop...)
	out := tokenizer.NewStream(w.in.tok, ids...)
	err = generate.Run(ctx, g, ids, func(id int32) {
		made++
		_, _ = io.WriteString(to, out.Next(id))
	})
	_, _ = io.WriteString(to, out.Flush())
	return made, err
}

// generationNotes name what the generation_config.json in dir asks for that is not done: sampling, unless the command line says how tokens
// are chosen, and keys that change an answer and that mt does not have.
func generationNotes(dir string, sampled bool) (notes []string) {
	var f map[string]any
	if _, err := readGeneration(dir, &f); err != nil {
		return nil // logitKeys reports the error
	}
	if flags := samplingFlags(f); flags != "" && !sampled {
		notes = append(notes, fmt.Sprintf("generation_config.json asks for sampling; the likeliest token is taken each time, unless you give %s", flags))
	}
	var names []string
	for name, usual := range answerKeys {
		v := f[name]
		if list, ok := v.([]any); v == nil || v == false || v == 0.0 || ok && len(list) == 0 {
			continue
		}
		if value, _ := json.Marshal(v); v != usual { // it was read from JSON
			names = append(names, fmt.Sprintf("%s %s", name, value))
		}
	}
	if slices.Sort(names); len(names) > 0 {
		notes = append(notes, fmt.Sprintf("generation_config.json asks for %s, which mt generate does not have: answers differ from those of programs that have it", strings.Join(names, ", ")))
	}
	return notes
}

// answerKeys are the keys of generation_config.json that change an answer and that mt does not have, with the values that
// change nothing beside null, false, 0 and an empty list. Source: transformers.GenerationConfig.
var answerKeys = map[string]any{"encoder_repetition_penalty": 1.0, "no_repeat_ngram_size": 0.0, "encoder_no_repeat_ngram_size": 0.0,
	"bad_words_ids": nil, "sequence_bias": nil, "begin_suppress_tokens": nil, "forced_bos_token_id": nil, "forced_eos_token_id": nil,
	"exponential_decay_length_penalty": nil, "min_length": 0.0, "stop_strings": nil, "typical_p": 1.0, "epsilon_cutoff": 0.0,
	"eta_cutoff": 0.0, "num_beams": 1.0, "num_beam_groups": 1.0, "penalty_alpha": nil, "guidance_scale": 1.0, "watermarking_config": nil, "top_h": nil, "dola_layers": nil}

// samplingFlags are the flags of mt generate that sample as a generation_config.json says, with Transformers' defaults; empty
// where it does not sample.
func samplingFlags(f map[string]any) string {
	if f["do_sample"] != true {
		return ""
	}
	flags := ""
	for _, of := range []struct {
		key, flag string
		usual     float64
	}{{"temperature", "temperature", 1}, {"top_k", "top-k", 50}, {"top_p", "top-p", 1}} {
		x, given := f[of.key].(float64)
		if !given {
			x = of.usual
		}
		if given || of.key != "top_p" {
			flags += fmt.Sprintf(" --%s %g", of.flag, x)
		}
	}
	return flags[1:]
}

// stopTokens are the tokens that end a text: the tokenizer's, and all that config.json
// and generation_config.json name.
func stopTokens(j *Inputs) ([]int32, error) {
	var out []int32
	if eos, ok := j.tok.EOS(); ok {
		out = append(out, eos)
	}
	for _, id := range j.model.EOS {
		out = append(out, int32(id))
	}
	var f struct {
		EOS json.RawMessage `json:"eos_token_id"`
	}
	name, err := readGeneration(j.modelDir, &f)
	if err != nil {
		return nil, err
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
