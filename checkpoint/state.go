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

// TrainerState is what a run needs, beside the layers, to continue after Step as if it had never stopped.
type TrainerState struct {
	Step      int     `json:"global_step"` // completed steps
	AdamStep  int64   `json:"adam_step"`   // completed updates: steps without the skipped ones
	DataPos   int64   `json:"data_pos"`    // rows consumed since the start of training
	Tokens    int64   `json:"tokens"`      // tokens consumed since the start of training
	Seed      int64   `json:"seed"`
	Epoch     float64 `json:"epoch"`
	NonFinite int     `json:"nonfinite"` // number of consecutive skipped steps so far
	// Log averages the steps since the last line of the log. It is absent if Step itself was logged, and in
	// checkpoints of older versions; the average then begins after Step.
	Log LogWindow `json:"log_window,omitzero"`
	// Best is the result of the evaluations before Step, for save_best and early stopping.
	Best Best `json:"best,omitzero"`
	// Ended describes the end of a run with save_best or early stopping. Only the state beside the final model has
	// it, no checkpoint.
	Ended Ended `json:"ended,omitzero"`
	// Schedule is the position of the learning rate's schedule, if a resume has changed the schedule.
	Schedule SchedulePosition `json:"schedule,omitzero"`
	// ParentRun is the checkpoint of another run that this run started from; "": none.
	ParentRun string `json:"origin,omitempty"`
	// Lanes is the index of the device that computes each layer; absent if all devices are alike.
	Lanes []int `json:"lanes,omitempty"`
	// Ranks is the number of ranks that trained together until Step; absent for a single process.
	Ranks int `json:"ranks,omitempty"`
	// ModelOnly reports that the optimizer's state was not saved.
	ModelOnly bool `json:"model_only,omitempty"`
	// ConfigDigests has the digests of the run's model, tokenizer and dataset, by these names. A run can resume
	// from this state only if its own digests are equal.
	ConfigDigests map[string]string `json:"config_digests,omitempty"`
}

// Best is the lowest evaluation loss of a run so far, and how long no evaluation has improved on it.
type Best struct {
	Step int     `json:"step"` // 0: no evaluation has had a finite loss
	Loss float64 `json:"loss"` // nats per supervised token
	// Since is the number of consecutive evaluations that did not improve on the lowest loss by more than the
	// threshold.
	Since int `json:"evaluations_since"`
}

// Add adds the loss of the evaluation after a step. As in Transformers' EarlyStoppingCallback, a loss is an
// improvement if it is lower than the lowest so far by more than threshold.
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

// Ended describes how a run has ended.
type Ended struct {
	Model int  `json:"model_of_step"` // step whose weights the final model has
	Best  Best `json:"best,omitzero"` // after all evaluations
	Early bool `json:"early,omitempty"`
}

// LogWindow is the log's next line so far: the mean loss of the steps since the last line. The mean is weighted by
// supervised tokens or, for runs on pairs, by pairs. A step without a finite loss counts as a step but not in the
// mean.
type LogWindow struct {
	Steps  int     `json:"steps"`
	Tokens int64   `json:"supervised_tokens"` // of the steps that count in Loss
	Loss   float64 `json:"loss"`              // nats per supervised token
	// Pairs holds the sums over the steps' pairs, for runs on pairs.
	Pairs PairLog `json:"pairs,omitzero"`
}

// Add adds a step with the mean loss over supervised tokens. It updates the mean rather than a sum, so the mean of
// a single step is exactly its loss (West, Communications of the ACM 22(9), 1979).
func (w *LogWindow) Add(loss float64, supervised int64) {
	w.Steps++
	if math.IsNaN(loss) || math.IsInf(loss, 0) || supervised == 0 {
		return
	}
	w.Tokens += supervised
	w.Loss += (loss - w.Loss) * (float64(supervised) / float64(w.Tokens))
}

// Mean returns the mean loss; NaN: no step has a finite loss.
func (w LogWindow) Mean() float64 {
	if w.Tokens == 0 {
		return math.NaN()
	}
	return w.Loss
}

// SchedulePosition says at which steps the learning-rate schedule started, for runs whose resume
// has changed it. The schedule, warm-up included, starts after step Base. It restarted without a
// warm-up after step From (0: never). Warmup is the number of warm-up steps after Base.
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

// PairLog is a number of pairs and sums over them. In JSON it is the list of the fields in order.
type PairLog struct {
	Pairs                  float64
	Chosen, Rejected       float64 // rewards of the chosen and the rejected answers
	Right                  float64 // pairs whose chosen answer has the larger reward
	LogChosen, LogRejected float64 // log-probabilities of the chosen and the rejected answers
}

// numbers returns the fields in order.
func (l *PairLog) numbers() [6]*float64 {
	return [6]*float64{&l.Pairs, &l.Chosen, &l.Rejected, &l.Right, &l.LogChosen, &l.LogRejected}
}

// AddPairs adds the sums over a step's pairs to w, unless one of them is not finite.
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

// MarshalJSON writes the fields as a list.
func (l PairLog) MarshalJSON() ([]byte, error) { return json.Marshal(l.numbers()) }

// UnmarshalJSON reads the list that MarshalJSON writes.
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

// nonFiniteName is the file that marks a checkpoint after which no step was finite. No manifest lists it, so a
// marked checkpoint is still valid.
const nonFiniteName = "nonfinite.json"

// nonFiniteMark is the content of nonFiniteName.
type nonFiniteMark struct {
	LastFiniteStep int `json:"last_finite_step"` // the update of this step may have broken the weights
	FailedStep     int `json:"failed_step"`      // step at which the run gave up
}

// MarkNonFinite marks the checkpoints in output whose step is from finite to last. finite is the run's last step with
// finite loss and gradients; at step failed the run gave up. No later step has shown that the marked weights are
// good, so Latest skips these checkpoints. good is the newest unmarked checkpoint before finite; "": none.
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

// NonFinite returns a sentence that says why the checkpoint in dir is marked; "": it is not.
func NonFinite(dir string) string {
	why, _ := nonFinite(dir, openFile) // Latest reports an unreadable mark
	return why
}

// nonFinite returns the same sentence as NonFinite, and the error if the mark cannot be read.
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

// Newest returns the newest checkpoint in output that is not marked by MarkNonFinite, with its state; dir is "" if
// there is none. Unlike Latest it reads no weights; loading them shows whether they are intact.
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
