package checkpoint

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
)

const stateName = "trainer_state.json"

// TrainerState is what a run must know, beside the layers, to go on
// after Step as if it had not stopped.
type TrainerState struct {
	Step      int     `json:"global_step"` // steps done
	AdamStep  int64   `json:"adam_step"`   // updates done: steps not skipped
	DataPos   int64   `json:"data_pos"`    // rows consumed since the start of training
	Tokens    int64   `json:"tokens"`      // tokens consumed since then
	Seed      int64   `json:"seed"`
	Epoch     float64 `json:"epoch"`
	NonFinite int     `json:"nonfinite"` // steps in a row that were skipped
	// Log is the window of the log after Step. It is absent after a step that was
	// logged, and in checkpoints of older versions, which had no windows: then the
	// window begins here.
	Log LogWindow `json:"log_window,omitzero"`
	// Best is what the evaluations of the steps before Step have come to, with save_best
	// or early stopping.
	Best Best `json:"best,omitzero"`
	// Ended is set where a run with save_best or early stopping is done, and absent in
	// checkpoints.
	Ended Ended `json:"ended,omitzero"`
	// Schedule says over which steps the learning rate's schedule lies, where a
	// run went on with another one than it began with.
	Schedule Laid `json:"schedule,omitzero"`
	// Origin is the checkpoint of another run that the run began from; empty: it did
	// not begin from one.
	Origin string `json:"origin,omitempty"`
	// Lanes is, by layer, the device that it was on; absent where devices are alike.
	Lanes []int `json:"lanes,omitempty"`
	// Ranks is how many ranks trained together up to there; absent where one process trained
	// alone.
	Ranks int `json:"ranks,omitempty"`
	// ModelOnly says that the optimizer's state was not saved.
	ModelOnly bool `json:"model_only,omitempty"`
	// ConfigDigests identify what a resume must share with this run, by name:
	// model, tokenizer, dataset.
	ConfigDigests map[string]string `json:"config_digests,omitempty"`
}

// Best is the lowest loss of a run's evaluations so far.
type Best struct {
	Step int     `json:"step"` // 0: no evaluation had a finite loss
	Loss float64 `json:"loss"` // nats per supervised token
	// Since is how many evaluations in a row were not lower by more than a threshold than
	// the lowest before them.
	Since int `json:"evaluations_since"`
}

// Add takes in the loss of the evaluation after a step. It counts as an improvement where
// it is lower than the lowest so far by more than threshold, as in the
// EarlyStoppingCallback of Transformers.
func (b *Best) Add(step int, loss, threshold float64) {
	finite := !math.IsNaN(loss) && !math.IsInf(loss, 0)
	switch {
	case finite && (b.Step == 0 || loss < b.Loss-threshold):
		b.Since = 0
	default:
		b.Since++
	}
	if finite && (b.Step == 0 || loss < b.Loss) {
		b.Step, b.Loss = step, loss
	}
}

// Ended says how a run has ended.
type Ended struct {
	Model int  `json:"model_of_step"` // the step whose weights the final model has
	Best  Best `json:"best,omitzero"` // after all evaluations
	Early bool `json:"early,omitempty"`
}

// LogWindow is what the next line of the log will say of the steps since the last
// one: the mean of their losses, weighted by supervised tokens or, of runs on pairs, by pairs. A step whose loss
// is not finite counts as a step and not in the mean.
type LogWindow struct {
	Steps  int     `json:"steps"`
	Tokens int64   `json:"supervised_tokens"` // of the steps in Loss
	Loss   float64 `json:"loss"`              // nats per supervised token
	// Pairs, of runs on pairs, are those of the steps.
	Pairs PairLog `json:"pairs,omitzero"`
}

// Add takes in a step: the mean loss over so many supervised tokens. The mean is
// updated, not a sum, so that of one step it is that step's loss to the bit
// (West, Communications of the ACM 22(9), 1979).
func (w *LogWindow) Add(loss float64, supervised int64) {
	w.Steps++
	if math.IsNaN(loss) || math.IsInf(loss, 0) || supervised == 0 {
		return
	}
	w.Tokens += supervised
	w.Loss += (loss - w.Loss) * (float64(supervised) / float64(w.Tokens))
}

// Mean is the mean loss, NaN where no step has one.
func (w LogWindow) Mean() float64 {
	if w.Tokens == 0 {
		return math.NaN()
	}
	return w.Loss
}

// Laid is where a schedule lies: config.Laid, field by field.
type Laid struct {
	Base   int `json:"base"`
	From   int `json:"from"`
	Warmup int `json:"warmup"`
}

// ReadState reads the state of the checkpoint in dir.
func ReadState(dir string) (TrainerState, error) { return readTrainerState(dir, openFile) }

func readTrainerState(dir string, open opening) (TrainerState, error) {
	var s TrainerState
	file := filepath.Join(dir, stateName)
	raw, err := readSmall(file, open)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}
