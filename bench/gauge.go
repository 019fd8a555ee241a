package bench

import (
	"fmt"

	"mt/internal/run/trials"
	"mt/model"
)

// gauge measures the current speed of the machine. The speed of a shared machine can change within a minute by more
// than the difference that a comparison looks for. The gauge is a small training run that pauses between readings.
type gauge struct{ run *trials.Synthetic }

// gaugeSteps is the number of steps in a reading, which takes about a tenth of a second.
const gaugeSteps = 5

func newGauge() (*gauge, error) {
	m, err := model.FromInline(map[string]any{"model_type": "llama", "hidden_size": int64(192), "intermediate_size": int64(448), "num_hidden_layers": int64(2),
		"num_attention_heads": int64(4), "num_key_value_heads": int64(2), "vocab_size": int64(800), "max_position_embeddings": int64(112), "tie_word_embeddings": false}, "gauge")
	if err != nil {
		return nil, err
	}
	run, err := trials.StartSynthetic(trials.SyntheticOptions{Model: m, Rows: 2, SeqLen: 112})
	if err != nil {
		return nil, fmt.Errorf("gauge: %w", err)
	}
	g := &gauge{run}
	if _, err := g.read(); err != nil { // this reading does not count: the first run touches new memory
		return nil, err
	}
	return g, nil
}

// read runs gaugeSteps steps and returns the mean time of a step, in seconds.
func (g *gauge) read() (float64, error) {
	reports, err := g.run.Run(gaugeSteps)
	if err != nil {
		return 0, fmt.Errorf("gauge: %w", err)
	}
	var took []float64
	for _, r := range reports {
		took = append(took, r.Elapsed.Seconds())
	}
	return Median(took), nil
}

func (g *gauge) close() error { return g.run.Close() }

// steady is the largest ratio of two gauge readings at which the machine's speed counts as unchanged.
const steady = 1.1

// timed calls do, with a gauge reading before and after each call, until the two readings differ by at most the factor
// steady. After the given number of attempts it stops anyway. It returns the mean of the last two readings.
func timed(read func() (float64, error), attempts int, do func() error) (float64, error) {
	for try := 1; ; try++ {
		before, err := read()
		if err != nil {
			return 0, err
		}
		if err := do(); err != nil {
			return 0, err
		}
		after, err := read()
		if err != nil {
			return 0, err
		}
		if max(before, after) <= steady*min(before, after) || try == attempts {
			return (before + after) / 2, nil
		}
	}
}
