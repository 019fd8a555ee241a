package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
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
	Schedule SchedulePosition `json:"schedule,omitzero"`
	// ParentRun is the checkpoint of another run that the run began from; empty: it did
	// not begin from one.
	ParentRun string `json:"origin,omitempty"`
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

// SchedulePosition is where a schedule lies: config.SchedulePosition, field by field.
type SchedulePosition struct {
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

// PairLog is a number of pairs and sums over them. In a file it is the list of these numbers, in the order of the fields.
type PairLog struct {
	Pairs                  float64
	Chosen, Rejected       float64 // rewards of both answers
	Right                  float64 // how often the chosen one's was larger
	LogChosen, LogRejected float64 // log p of both answers
}

// numbers are the fields in their order.
func (l *PairLog) numbers() [6]*float64 {
	return [6]*float64{&l.Pairs, &l.Chosen, &l.Rejected, &l.Right, &l.LogChosen, &l.LogRejected}
}

// AddPairs takes in the pairs of a step, unless something of them is not finite.
func (w *LogWindow) AddPairs(pairs PairLog) {
	for _, x := range pairs.numbers() {
		if math.IsNaN(*x) || math.IsInf(*x, 0) {
			return
		}
	}
	for i, x := range pairs.numbers() {
		*w.Pairs.numbers()[i] += *x
	}
}

// MarshalJSON writes the list.
func (l PairLog) MarshalJSON() ([]byte, error) { return json.Marshal(l.numbers()) }

// UnmarshalJSON reads the list.
func (l *PairLog) UnmarshalJSON(b []byte) error {
	var list []float64
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	if n := len(l.numbers()); len(list) != n {
		return fmt.Errorf("pairs has %d numbers, not %d", len(list), n)
	}
	for i, x := range l.numbers() {
		*x = list[i]
	}
	return nil
}

// nonFiniteName is the file that marks a checkpoint after which no step was finite. It
// is in no manifest, so that a checkpoint it marks is still whole.
const nonFiniteName = "nonfinite.json"

// nonFiniteMark is its content.
type nonFiniteMark struct {
	LastFiniteStep int `json:"last_finite_step"` // its update may have broken the weights
	FailedStep     int `json:"failed_step"`      // where the run gave up
}

// MarkNonFinite marks the checkpoints in output from step finite to step last,
// after a run whose last finite step was finite gave up at step failed: no step
// has shown that their weights are good, so Latest passes them over. good is the
// newest of those before, whose weights a step has shown to be good; it is empty
// where there is none.
func MarkNonFinite(fs FS, output string, finite, last, failed int) (good string, marked []string, err error) {
	checkpoints, _, err := list(output)
	if err != nil {
		return "", nil, fmt.Errorf("mark checkpoints: %w", err)
	}
	raw, err := json.Marshal(nonFiniteMark{finite, failed})
	if err != nil {
		return "", nil, err
	}
	for _, c := range checkpoints {
		switch {
		case c.step >= finite && c.step <= last:
			if err := WriteFile(fs, filepath.Join(c.path, nonFiniteName), append(raw, '\n')); err != nil {
				return "", nil, fmt.Errorf("mark checkpoints: %w", err)
			}
			marked = append(marked, c.path)
		case c.step < finite && good == "" && NonFinite(c.path) == "":
			good = c.path
		}
	}
	return good, marked, nil
}

// NonFinite says in a sentence why the checkpoint in dir is marked; nothing
// where it is not.
func NonFinite(dir string) string {
	why, _ := nonFinite(dir, openFile) // Latest reports a mark that cannot be read
	return why
}

// nonFinite is NonFinite, or the error of reading the mark.
func nonFinite(dir string, open opening) (why string, err error) {
	raw, err := readSmall(filepath.Join(dir, nonFiniteName), open)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var m nonFiniteMark
	if err := json.Unmarshal(raw, &m); err != nil {
		return fmt.Sprintf("%s: %v", nonFiniteName, err), nil
	}
	return fmt.Sprintf("the run that made it failed at step %d, and no step after %d was finite: its weights may be broken", m.FailedStep, m.LastFiniteStep), nil
}

// Newest is the newest checkpoint in output by its name, with its state; dir is
// empty where there is none. One that is marked as NonFinite is passed over. Unlike
// Latest it reads no weights: whoever loads them sees whether they are whole.
func Newest(output string) (dir string, state TrainerState, err error) {
	checkpoints, _, err := list(output)
	if err != nil {
		return "", state, fmt.Errorf("look for checkpoints: %w", err)
	}
	for _, c := range checkpoints {
		if state, err := ReadState(c.path); err == nil && NonFinite(c.path) == "" {
			return c.path, state, nil
		}
	}
	return "", state, nil
}
