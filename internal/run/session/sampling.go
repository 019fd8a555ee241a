package session

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"mt/internal/run/generate"
	"mt/internal/run/ranks"
	"mt/internal/run/report"
	"mt/internal/run/resolve"
)

// samples say when a run prints what its model writes.
type samples struct {
	every   int
	prompts []resolve.SamplePrompt
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

// sampleOnRank0 makes samples. Of several ranks the first one makes them, and the others wait for
// it. They are cut off, and owed still, where the run is asked to stop meanwhile.
func (s *session) sampleOnRank0(ctx context.Context) (cut bool, err error) {
	if s.Ranks.First() {
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
	all, err := s.Ranks.Meet("the samples", ranks.Said{Stop: cut, Value: text})
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
	m, c := &s.samples, s.Config
	if f := s.Hooks.Sampling; f != nil {
		f(s.lastStep)
	}
	var lines []report.SampleLine
	for i, p := range m.prompts {
		room := c.SampleMaxNewTokens
		if most := s.Model.MaxPositions; most > 0 {
			room = min(room, most-len(p.IDs))
		}
		var raw strings.Builder
		_, err := generate.Writer{In: s.Inputs, Device: s.devs[0], Store: s.Store}.GoOn(ctx, generate.Options{MaxNewTokens: room, Temperature: c.SampleTemperature, TopK: c.SampleTopK, TopP: c.SampleTopP,
			Seed: c.Seed + int64(i), Stop: p.Ends}, p.IDs, &raw)
		if err != nil {
			return fmt.Errorf("sample after step %d: %w", s.lastStep, err)
		}
		text := strings.ToValidUTF8(raw.String(), "\uFFFD") // JSON has no other
		lines = append(lines, report.SampleLine{Step: s.lastStep, Prompt: p.Text, Text: text})
		s.line.Above(fmt.Sprintf("step %d/%d  sample of %q: %s", s.lastStep, c.MaxSteps, p.Text, text))
	}
	s.observers.Eval(report.Eval{Samples: lines})
	m.last = s.lastStep
	return nil
}
