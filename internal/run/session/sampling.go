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

// samples decides when a run prints samples (texts that the model writes during training).
type samples struct {
	every   int
	prompts []resolve.SamplePrompt
	last    int // step of the last samples
}

// samplesOwed reports whether samples (texts of the model) are due after the last step and not yet made.
func (s *session) samplesOwed() bool {
	m := &s.samples
	return m.every > 0 && s.lastStep > 0 && s.lastStep%m.every == 0 && m.last != s.lastStep
}

// pauseAfter returns the next step after which samples are due; 0: none.
func (s *session) pauseAfter() int {
	if every := s.samples.every; every > 0 {
		return (s.lastStep/every + 1) * every
	}
	return 0
}

// sampleOnRank0 makes samples. With several ranks rank 0 makes them while the others wait. If the run is asked to
// stop meanwhile, the samples are cut off and remain due.
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

// sample continues every prompt while the pipeline is idle. It only reads weights and changes nothing that training
// depends on.
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
		text := strings.ToValidUTF8(raw.String(), "\uFFFD") // JSON allows only valid UTF-8
		lines = append(lines, report.SampleLine{Step: s.lastStep, Prompt: p.Text, Text: text})
		s.line.Above(fmt.Sprintf("step %d/%d  sample of %q: %s", s.lastStep, c.MaxSteps, p.Text, text))
	}
	s.observers.Eval(report.Eval{Samples: lines})
	m.last = s.lastStep
	return nil
}
