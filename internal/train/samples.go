package train

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"mt/checkpoint"
	"mt/data"
	"mt/host"
	"mt/internal/generate"
)

// samplesFile has one JSON object for every sample: the step after which it was made, the
// prompt, and the text that continues it.
const samplesFile = "samples.jsonl"

// sampleLine is one object of samplesFile.
type sampleLine struct {
	Step   int    `json:"step"`
	Prompt string `json:"prompt"`
	Text   string `json:"text"`
}

// samples are what a run prints of its model every sample_steps.
type samples struct {
	every   int
	prompts []samplePrompt
	last    int         // the step of the samples made last
	log     *metricsLog // samplesFile; nil where it could not be written any more
}

// samplePrompt is a prompt in tokens, and which tokens end an answer to it beside those
// that end any text.
type samplePrompt struct {
	text string
	ids  []int32
	ends []int32
}

// findPrompts turns sample_prompts into tokens: where the data are chats a prompt is what
// the user says, else a text to go on with.
func (j *job) findPrompts() (out []samplePrompt, err error) {
	texts := j.c.Samples()
	if len(texts) == 0 {
		return nil, nil
	}
	if j.tokErr != nil {
		return nil, j.c.Errorf("sample_steps", "sample_steps: there is no tokenizer for sample_prompts: %w", j.tokErr)
	}
	toIDs := func(text string) ([]int32, error) { return data.Prompt(j.tok, []byte(text)) }
	var ends []int32
	if j.set.IsChat() {
		spec := j.c.DataSpec()
		spec.Tokenizer, spec.ModelDir, spec.VocabSize = j.tok, j.modelDir, j.model.VocabSize
		d, err := data.NewDialogue(spec)
		if err != nil {
			return nil, j.c.Errorf("sample_prompts", "sample_prompts: %w", err)
		}
		ends = d.Ends()
		toIDs = func(text string) ([]int32, error) {
			v := &data.Conversation{}
			v.Add("user", text)
			return d.Prompt(v)
		}
	}
	for _, text := range texts {
		p := samplePrompt{text: text, ends: ends}
		if p.ids, err = toIDs(text); err == nil && len(p.ids) == 0 {
			err = errors.New("it has no token")
		}
		if most := j.model.MaxPositions; err == nil && most > 0 && len(p.ids) >= most {
			err = fmt.Errorf("it has %d tokens and the model has %d positions (max_position_embeddings)", len(p.ids), most)
		}
		if err != nil {
			return nil, j.c.Errorf("sample_prompts", "sample_prompts: %q: %w", text, err)
		}
		out = append(out, p)
	}
	return out, nil
}

// openSamples opens samplesFile and takes out what a resumed run makes again: the lines of
// later steps, and those of the checkpoint's own step unless all are there.
func (s *session) openSamples(from resume) (err error) {
	name := filepath.Join(s.c.OutputDir, samplesFile)
	if len(s.prompts) == 0 {
		if from.state.Step == 0 { // what is there is of a run that this one replaces
			if err := s.fs().RemoveAll(name); err != nil {
				return fmt.Errorf("remove %s: %w", name, err)
			}
		}
		return nil
	}
	s.samples = samples{every: s.c.SampleSteps.Of(s.c.MaxSteps), prompts: s.prompts}
	var kept []byte
	if kept, s.samples.last, err = keepSamples(name, from.state.Step, len(s.prompts)); err == nil {
		err = checkpoint.WriteFile(s.fs(), name, kept)
	}
	if err != nil {
		return err
	}
	f, err := s.fs().Append(name)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func() { _ = f.Close() })
	s.samples.log = &metricsLog{name: name, f: f, out: f}
	return nil
}

// keepSamples returns the lines of the file called name that a run at step keeps, and the
// step of the last of them. A step has so many of them.
func keepSamples(name string, step, prompts int) (kept []byte, last int, err error) {
	if step == 0 {
		return nil, 0, nil
	}
	raw, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	var own []byte // lines of step itself
	n := 0
	for line := range bytes.Lines(raw) {
		var at sampleLine
		switch {
		case !bytes.HasSuffix(line, []byte("\n")) || json.Unmarshal(line, &at) != nil || at.Step > step:
		case at.Step == step:
			own = append(own, line...)
			n++
		default:
			kept, last = append(kept, line...), at.Step
		}
	}
	if n == prompts {
		kept, last = append(kept, own...), step
	}
	return kept, last, nil
}

// samplesOwed says whether samples are due after the last step done and not made.
func (s *session) samplesOwed() bool {
	m := &s.samples
	return m.every > 0 && s.lastStep > 0 && s.lastStep%m.every == 0 && m.last != s.lastStep
}

// pauseAfter is the next step after which samples are made; 0: there is none.
func (s *session) pauseAfter() int {
	if every := s.samples.every; every > 0 {
		return (s.lastStep/every + 1) * every
	}
	return 0
}

// sampleTogether makes samples. Of several ranks the first one makes them, and the others wait for
// it. They are cut off, and owed still, where the run is asked to stop meanwhile.
func (s *session) sampleTogether(ctx context.Context) (cut bool, err error) {
	if s.team.first() {
		err = s.sample(ctx)
	}
	if cut = err != nil && ctx.Err() != nil; cut {
		err = nil
	}
	if s.team == nil || err != nil {
		return cut, err
	}
	text, err := json.Marshal(cut)
	if err != nil {
		return cut, err
	}
	all, err := s.team.meet("the samples", said{Stop: cut, Value: text})
	if err != nil {
		return cut, err
	}
	if err := json.Unmarshal(all[0].Value, &cut); err != nil {
		return cut, err
	}
	if !cut {
		s.samples.last = s.lastStep
	}
	return cut, nil
}

// sample continues every prompt, with the pipeline at rest. It reads weights, and nothing
// that training goes by changes.
func (s *session) sample(ctx context.Context) error {
	m, c := &s.samples, s.c
	if f := s.hooks.sampling; f != nil {
		f(s.lastStep)
	}
	var lines []sampleLine
	for i, p := range m.prompts {
		room := c.SampleMaxNewTokens
		if most := s.model.MaxPositions; most > 0 {
			room = min(room, most-len(p.ids))
		}
		var raw strings.Builder
		_, err := s.goOn(ctx, generate.Options{MaxNewTokens: room, Temperature: c.SampleTemperature, TopK: c.SampleTopK, TopP: c.SampleTopP,
			Seed: c.Seed + int64(i), Stop: p.ends}, p.ids, &raw)
		if err != nil {
			return fmt.Errorf("sample after step %d: %w", s.lastStep, err)
		}
		text := strings.ToValidUTF8(raw.String(), "\uFFFD") // JSON has no other
		lines = append(lines, sampleLine{s.lastStep, p.text, text})
		s.line.above(fmt.Sprintf("step %d/%d  sample of %q: %s", s.lastStep, c.MaxSteps, p.text, text))
	}
	s.write(lines)
	m.last = s.lastStep
	return nil
}

// write appends lines to samplesFile. Where that fails the run has a note and goes on
// without the file.
func (s *session) write(lines []sampleLine) {
	m := &s.samples
	if m.log == nil {
		return
	}
	var err error
	for _, l := range lines {
		if err == nil {
			err = m.log.write(l)
		}
	}
	if err == nil {
		err = m.log.sync()
	}
	if err != nil {
		s.late.add(fmt.Sprintf("%v; training goes on, and samples are only printed from here on", err))
		m.log = nil
	}
}

// saveAsItIs writes a checkpoint of the state after the last step, with the pipeline at
// rest, unless there is one or the keys say that none is written.
func (s *session) saveAsItIs() error {
	sv := s.saver
	if s.c.SaveStrategy == "no" || sv.last.Step == s.lastStep {
		return nil
	}
	err := sv.Open(s.lastStep)
	for i := 0; err == nil && i < len(s.store.Layers); i++ {
		err = s.store.Lend(i, false, func(l *host.LayerState) error { return sv.Layer(i, l) })
	}
	if err == nil {
		err = sv.Commit(s.reached, s.train.Pos(s.lastStep))
	}
	if err != nil {
		sv.Abort()
		return fmt.Errorf("save step %d: %w", s.lastStep, err)
	}
	return nil
}
