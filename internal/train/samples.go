package train

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"mt/checkpoint"
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

// samplesFor is the observer that writes samplesFile.
type samplesFor struct {
	deaf
	log  *metricsLog // nil where it could not be written any more
	note func(string)
}

// openSamples opens samplesFile in dir and takes out what a run that is resumed at step makes again: the lines of later steps,
// and those of step itself unless all are there. last is the step of the samples made last.
func openSamples(dir outDir, step, prompts int, note func(string)) (s *samplesFor, last int, err error) {
	name := filepath.Join(dir.path, samplesFile)
	var kept []byte
	if kept, last, err = keepSamples(name, step, prompts); err == nil {
		err = checkpoint.WriteFile(dir.fs, name, kept)
	}
	if err != nil {
		return nil, last, err
	}
	f, err := dir.fs.Append(name)
	if err != nil {
		return nil, last, err
	}
	return &samplesFor{log: &metricsLog{name: name, f: f, out: f}, note: note}, last, nil
}

// removeSamples removes samplesFile, which is of a run that another replaces.
func removeSamples(dir outDir) error {
	name := filepath.Join(dir.path, samplesFile)
	if err := dir.fs.RemoveAll(name); err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
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

// Eval implements Observer. Where samplesFile cannot be written the run has a note and goes on without it.
func (s *samplesFor) Eval(e seenEval) {
	if s.log == nil || e.Samples == nil {
		return
	}
	var err error
	for _, l := range e.Samples {
		if err == nil {
			err = s.log.write(l)
		}
	}
	if err == nil {
		err = s.log.sync()
	}
	if err != nil {
		s.note(fmt.Sprintf("%v; training goes on, and samples are only printed from here on", err))
		_ = s.log.f.Close()
		s.log = nil
	}
}

// End implements Observer.
func (s *samplesFor) End(error) {
	if s.log != nil {
		_ = s.log.f.Close()
	}
}
