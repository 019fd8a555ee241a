package checkpoint

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

const stateName = "trainer_state.json"

// TrainerState is what a run must know, beside weights and moments, to go on
// after Step as if it had not stopped.
type TrainerState struct {
	Step      int     `json:"global_step"` // steps done
	AdamStep  int64   `json:"adam_step"`   // updates done: steps not skipped
	DataPos   int64   `json:"data_pos"`    // rows consumed since the start of training
	Tokens    int64   `json:"tokens"`      // tokens consumed since then
	Seed      int64   `json:"seed"`
	Epoch     float64 `json:"epoch"`
	NonFinite int     `json:"nonfinite"` // steps in a row that were skipped
	// ConfigDigests identify what a resume must share with this run, by name:
	// model, dataset, optimizer, schedule, ….
	ConfigDigests map[string]string `json:"config_digests,omitempty"`
	// Resolved are the values that `auto` stood for, by config key.
	Resolved map[string]string `json:"resolved,omitempty"`
}

// ReadState reads the state of the checkpoint in dir.
func ReadState(dir string) (TrainerState, error) {
	var s TrainerState
	file := filepath.Join(dir, stateName)
	raw, err := os.ReadFile(file)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// CheckCompatible says whether a run with the digests now can go on from the
// checkpoint dir, which was made with saved. The error names the first part, in
// alphabetical order, that differs, and the way out.
func CheckCompatible(dir string, saved, now map[string]string) error {
	keys := slices.Sorted(maps.Keys(now))
	for k := range saved {
		if _, ok := now[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		if saved[k] == now[k] {
			continue
		}
		return fmt.Errorf("%s was made with another %s (there %s, here %s); train with the %s it was made with, "+
			"choose another output_dir, or set resume_from_checkpoint: false to start afresh", dir, k, orNone(saved[k]), orNone(now[k]), k)
	}
	return nil
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
