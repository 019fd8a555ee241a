package checkpoint

import (
	"encoding/json"
	"fmt"
	"math"
)

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
