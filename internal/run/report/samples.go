package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"mt/checkpoint"
	"mt/internal/run/settings"
)

// SampleLine is one line of SamplesFile.
type SampleLine struct {
	Step   int    `json:"step"`
	Prompt string `json:"prompt"`
	Text   string `json:"text"`
}

// Samples is the observer that writes SamplesFile.
type Samples struct {
	noopObserver
	log  *Log // nil: no longer writable, or no samples
	note func(string)
}

// OpenSamples opens SamplesFile in dir. It removes the lines that a run resumed at step writes again: later steps,
// and step itself if its lines are incomplete. With prompts = 0 it writes nothing; a run from step 0 then removes the
// old file. last is the step of the last remaining samples.
func OpenSamples(dir settings.Dir, step, prompts int, note func(string)) (s *Samples, last int, err error) {
	name := filepath.Join(dir.Path, settings.SamplesFile)
	if prompts == 0 {
		if step == 0 {
			if err := dir.FS.RemoveAll(name); err != nil {
				return nil, 0, fmt.Errorf("remove %s: %w", name, err)
			}
		}
		return &Samples{}, 0, nil
	}
	var kept []byte
	if kept, last, err = keepSamples(name, step, prompts); err == nil {
		err = checkpoint.WriteFile(dir.FS, name, kept)
	}
	if err != nil {
		return nil, last, err
	}
	f, err := dir.FS.Append(name)
	if err != nil {
		return nil, last, err
	}
	return &Samples{log: &Log{name: name, File: f, out: f}, note: note}, last, nil
}

// keepSamples returns the lines of the file called name that a run resumed at step keeps, and the step of the last of
// them. The lines of a step are kept only if there is one for each of the prompts.
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
		var at SampleLine
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

// Eval implements Observer. It appends the samples of an evaluation. If SamplesFile cannot be
// written, the run adds a note and continues without the file.
func (s *Samples) Eval(e Eval) {
	if s.log == nil || e.Samples == nil {
		return
	}
	var err error
	for _, l := range e.Samples {
		if err == nil {
			err = s.log.Write(l)
		}
	}
	if err == nil {
		err = s.log.Sync()
	}
	if err != nil {
		s.note(fmt.Sprintf("%v; training goes on, and samples are only printed from here on", err))
		s.log.Close()
		s.log = nil
	}
}

// End implements Observer.
func (s *Samples) End(error) {
	if s.log != nil {
		s.log.Close()
	}
}
