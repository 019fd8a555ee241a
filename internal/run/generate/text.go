package generate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"mt/base/files"
	"mt/checkpoint"
	"mt/data"
	"mt/data/tokenizer"
	"mt/device"
	"mt/host"
	"mt/internal/run/config"
	"mt/internal/run/open"
	"mt/internal/run/report"
	"mt/internal/run/settings"
)

// TextOptions configures Text: the model, the prompt and the sampling.
type TextOptions struct {
	settings.Options
	Config       *config.Config // keys of the model and the device
	Prompt       string
	MaxNewTokens int
	Temperature  float64
	TopK         int
	TopP         float64
	Seed         int64
	LogitKeys    // replace the keys in generation_config.json
}

// sampling returns the options for Run. Values from generation_config.json (file) apply where the command line gives
// none.
func (o *TextOptions) sampling(file LogitKeys) Options {
	g := Options{MaxNewTokens: o.MaxNewTokens, Temperature: o.Temperature, TopK: o.TopK, TopP: o.TopP, Seed: o.Seed}
	o.addTo(&g, file)
	return g
}

// sampled reports whether the command line says how tokens are sampled. generation_config.json then does not.
func (o *TextOptions) sampled() bool {
	return o.Temperature > 0 || o.TopK > 0 || o.TopP > 0 && o.TopP < 1 || valueOf(o.MinP) > 0
}

// Text continues a prompt and streams the tokens to Stdout.
func Text(ctx context.Context, o TextOptions) (err error) {
	l, err := Load(&o, nil)
	if err != nil {
		return err
	}
	defer open.CloseAfter(l, &err)
	fmt.Fprint(o.Stdout, o.Prompt)
	err = l.Generate(ctx, o.sampling(l.asked), o.Prompt, o.Stdout)
	fmt.Fprintln(o.Stdout)
	if err != nil && ctx.Err() != nil {
		return settings.ErrInterrupted
	}
	return err
}

// Loaded is a model whose weights are in memory and that is ready to write text.
type Loaded struct {
	Writer
	asked   LogitKeys // from the model's generation_config.json
	closers open.Closers
}

// Close frees the model's memory.
func (l *Loaded) Close() error { return l.closers.Close() }

// Load opens a model and loads its weights. Before any slow work it calls check, unless check is nil. check returns
// notes for the user, or an error that ends Load.
func Load(o *TextOptions, check func(*open.Inputs) ([]string, error)) (_ *Loaded, err error) {
	l := &Loaded{}
	defer func() {
		if err != nil {
			open.CloseAfter(l, &err)
		}
	}()
	in, err := open.OpenModelAlone(o.Config, o.Options, func(in *open.Inputs) (notes []string, err error) {
		if in.ModelDir == "" {
			return nil, in.Config.Errorf("model", "generating needs a model directory")
		}
		if in.TokenizerErr != nil {
			return nil, in.TokenizerErr
		}
		if l.asked, err = readLogitKeys(in.ModelDir); err != nil {
			return nil, err
		}
		notes = generationNotes(in.ModelDir, o.sampled())
		if check == nil {
			return notes, nil
		}
		more, err := check(in)
		return append(notes, more...), err
	})
	if err != nil {
		return nil, err
	}
	l.closers.AddErr(in.Close)
	report.ShowAll(o.Stderr, in.Config.Warnings, in.Notes, report.NotesOf(in.Devices).Take())
	hw, err := in.OpenHardware()
	if err != nil {
		return nil, err
	}
	l.closers.AddErr(hw.Close)
	layouts := in.Model.Layouts(in.Act == device.BF16)
	for i := range layouts {
		layouts[i].BF16Master = !in.StartsRows()
	}
	store, err := in.WeightsOf(layouts, false, hw.Pool)
	if err != nil {
		return nil, err
	}
	l.closers.Add(func() { _ = store.Close() })
	l.Writer = Writer{in, hw.Devs[0], store}
	return l, nil
}

// Writer writes text with the weights in a store.
type Writer struct {
	In     *open.Inputs
	Device device.Device
	Store  *host.Store
}

// Generate continues prompt and writes the text to `to` as soon as characters are complete.
func (w Writer) Generate(ctx context.Context, g Options, prompt string, to io.Writer) error {
	ids, err := data.Prompt(w.In.Tokenizer, []byte(prompt))
	if err != nil {
		return fmt.Errorf("prompt: %w", err)
	}
	_, err = w.GoOn(ctx, g, ids, to)
	return err
}

// GoOn continues ids and writes the text to `to`. It returns the number of new tokens.
func (w Writer) GoOn(ctx context.Context, g Options, ids []int32, to io.Writer) (made int, err error) {
	g.Device, g.Store, g.Config, g.Act = w.Device, w.Store, w.In.Model, w.In.Act
	for _, l := range w.Store.Layers {
		g.Layout = append(g.Layout, l.Layout)
	}
	stop, err := stopTokens(w.In)
	if err != nil {
		return 0, err
	}
	g.Stop = append(g.Stop, stop...)
	out := tokenizer.NewStream(w.In.Tokenizer, ids...)
	err = Run(ctx, g, ids, func(id int32) {
		made++
		_, _ = io.WriteString(to, out.Next(id))
	})
	_, _ = io.WriteString(to, out.Flush())
	return made, err
}

// generationNotes returns notes about keys of dir's generation_config.json that change an answer and that mt ignores.
// The sampling keys are among them, unless sampled says that the command line chooses the sampling.
func generationNotes(dir string, sampled bool) (notes []string) {
	var f map[string]any
	if _, err := readGeneration(dir, &f); err != nil {
		return nil // readLogitKeys reports the error
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

// answerKeys lists keys of generation_config.json that change an answer and that mt does not have. Each has the value
// that changes nothing, besides null, false, 0 and an empty list. Source: transformers.GenerationConfig.
var answerKeys = map[string]any{"encoder_repetition_penalty": 1.0, "no_repeat_ngram_size": 0.0, "encoder_no_repeat_ngram_size": 0.0,
	"bad_words_ids": nil, "sequence_bias": nil, "begin_suppress_tokens": nil, "forced_bos_token_id": nil, "forced_eos_token_id": nil,
	"exponential_decay_length_penalty": nil, "min_length": 0.0, "stop_strings": nil, "typical_p": 1.0, "epsilon_cutoff": 0.0,
	"eta_cutoff": 0.0, "num_beams": 1.0, "num_beam_groups": 1.0, "penalty_alpha": nil, "guidance_scale": 1.0, "watermarking_config": nil, "top_h": nil, "dola_layers": nil}

// samplingFlags returns the flags of mt generate for the sampling in a generation_config.json, with Transformers'
// defaults; "" if the file asks for no sampling.
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

// stopTokens returns the ids that end a text: the tokenizer's end-of-sequence token, and eos_token_id in config.json
// and generation_config.json.
func stopTokens(in *open.Inputs) ([]int32, error) {
	var out []int32
	if eos, ok := in.Tokenizer.EOS(); ok {
		out = append(out, eos)
	}
	for _, id := range in.Model.EOS {
		out = append(out, int32(id))
	}
	var f struct {
		EOS json.RawMessage `json:"eos_token_id"`
	}
	name, err := readGeneration(in.ModelDir, &f)
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

// LogitKeys holds the keys of generation_config.json that mt generate obeys, besides eos_token_id. nil: not given.
// Source: transformers.GenerationConfig.
type LogitKeys struct {
	RepetitionPenalty *float64 `json:"repetition_penalty"` // 1: none
	MinP              *float64 `json:"min_p"`              // applies when sampling; 0: none
	MinNewTokens      *int     `json:"min_new_tokens"`
	SuppressTokens    []int32  `json:"suppress_tokens"`
}

// addTo sets the fields of g from k, the keys of the command line. A key that k lacks gets the
// value of file, the keys of generation_config.json.
func (k LogitKeys) addTo(g *Options, file LogitKeys) {
	g.RepetitionPenalty = valueOf(cmp.Or(k.RepetitionPenalty, file.RepetitionPenalty))
	g.MinP = valueOf(cmp.Or(k.MinP, file.MinP))
	g.MinNewTokens = valueOf(cmp.Or(k.MinNewTokens, file.MinNewTokens))
	if g.SuppressTokens = k.SuppressTokens; g.SuppressTokens == nil {
		g.SuppressTokens = file.SuppressTokens
	}
}

// valueOf returns *p, or zero if p is nil.
func valueOf[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// check returns an error for the first value of k that is out of range.
func (k LogitKeys) check() error {
	switch p, share, least := k.RepetitionPenalty, valueOf(k.MinP), valueOf(k.MinNewTokens); {
	case p != nil && !(*p >= LeastPenalty && *p <= MostPenalty):
		return fmt.Errorf("repetition_penalty is %v; it is a number from %v to %v, 1 for none", *p, LeastPenalty, MostPenalty)
	case !(share >= 0 && share <= 1):
		return fmt.Errorf("min_p is %v; it is a number from 0 to 1, 0 for none", share)
	case least < 0:
		return fmt.Errorf("min_new_tokens is %d; it is a whole number of at least 0", least)
	}
	return nil
}

// readLogitKeys reads LogitKeys from dir's generation_config.json.
func readLogitKeys(dir string) (k LogitKeys, err error) {
	name, err := readGeneration(dir, &k)
	if err != nil {
		return k, err
	}
	if err := k.check(); err != nil {
		return k, fmt.Errorf("%s: %w", name, err)
	}
	return k, nil
}

// readGeneration parses dir's generation_config.json into v. It leaves v alone if there is no such file. name is the
// file's path.
func readGeneration(dir string, v any) (name string, err error) {
	if dir == "" {
		return "", nil
	}
	name = filepath.Join(dir, "generation_config.json")
	text, err := checkpoint.ReadCompanion(name)
	if errors.Is(err, fs.ErrNotExist) {
		return name, nil
	}
	if err != nil {
		return name, err
	}
	if err := files.Unmarshal(text, v); err != nil {
		return name, fmt.Errorf("%s: %w", name, err)
	}
	return name, nil
}
