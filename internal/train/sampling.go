package train

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"mt/host"
	"mt/internal/generate"
)

// samples say when a run prints what its model writes.
type samples struct {
	every   int
	prompts []samplePrompt
	last    int // the step of the samples made last
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
	if err != nil {
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
		_, err := writer{s.Inputs, s.devs[0], s.store}.goOn(ctx, generate.Options{MaxNewTokens: room, Temperature: c.SampleTemperature, TopK: c.SampleTopK, TopP: c.SampleTopP,
			Seed: c.Seed + int64(i), Stop: p.ends}, p.ids, &raw)
		if err != nil {
			return fmt.Errorf("sample after step %d: %w", s.lastStep, err)
		}
		text := strings.ToValidUTF8(raw.String(), "\uFFFD") // JSON has no other
		lines = append(lines, sampleLine{s.lastStep, p.text, text})
		s.line.above(fmt.Sprintf("step %d/%d  sample of %q: %s", s.lastStep, c.MaxSteps, p.text, text))
	}
	s.observers.Eval(seenEval{Samples: lines})
	m.last = s.lastStep
	return nil
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
