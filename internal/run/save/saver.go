package save

import (
	"fmt"
	"math"
	"sync"

	"mt/actors"
	"mt/checkpoint"
	"mt/host"
	"mt/internal/run/open"
	"mt/internal/run/report"
	"mt/internal/run/settings"
)

// Saver writes checkpoints for the pipeline. With several ranks rank 0 writes, and the others send it their shares.
type Saver struct {
	Weights *Weights
	Log     *report.Log
	Kept    *report.Windows
	Extra   map[string][]byte
	w       *checkpoint.Writer      // nil on ranks other than 0
	Last    checkpoint.TrainerState // state of the last committed checkpoint
	Bests   report.Awaited[checkpoint.Best]
	Record  func() error // records the algorithms of matrix products

	mu      sync.Mutex // guards the fields below
	Finite  int        // last step with finite loss and gradients
	writing bool       // a save is in progress
	best    int        // step of the checkpoint that save_best keeps; 0: none
	older   bool       // an older checkpoint is kept until the step after the last save has a finite loss
}

// Open implements actors.Saver. It begins the checkpoint after step; only rank 0 has a file to
// open.
func (s *Saver) Open(step int) (err error) {
	s.mu.Lock()
	s.writing = true
	s.mu.Unlock()
	if !s.Weights.Ranks.First() {
		return nil
	}
	s.w, err = checkpoint.NewWriter(s.Weights.Config.OutputDir, s.Weights.content.writerOptions(step))
	return err
}

// Layer implements actors.Saver. It writes layer number i into the checkpoint.
func (s *Saver) Layer(i int, l *host.LayerState) error {
	whole, err := s.whole(i, l)
	if err != nil || !s.Weights.Ranks.First() {
		return err
	}
	if o := s.Weights.content.linked(); o != nil && o[i] {
		whole.Extent = &checkpoint.Extent{Memory: l.State, Pin: func() string { return s.Weights.content.links.Pin(i) }}
	}
	return s.w.WriteLayer(i, whole)
}

// whole returns layer number i on rank 0 with everything that a checkpoint keeps of it. Other ranks send rank 0 their
// shares.
func (s *Saver) whole(i int, l *host.LayerState) (checkpoint.Layer, error) {
	switch {
	case !s.Weights.Config.SaveOnlyModel:
		return s.Weights.staging.bring(i, l, everything)
	case s.Weights.needsLower(l.Layout):
		return s.Weights.staging.bring(i, l, lowerHalves)
	}
	return open.CheckpointLayer(l), nil
}

// Commit implements actors.Saver. It completes the checkpoint, once metrics.jsonl is on disk, and
// removes checkpoints beyond save_total_limit.
func (s *Saver) Commit(st actors.State, dataPos int64) error {
	c := s.Weights.Config
	if s.Log != nil {
		if err := s.Log.Sync(); err != nil {
			return err // a checkpoint must not be ahead of the metrics
		}
	}
	if s.Record != nil {
		if err := s.Record(); err != nil {
			return err
		}
	}
	state := s.Weights.TrainerState(st, dataPos)
	state.ModelOnly, state.Log = c.SaveOnlyModel, s.Kept.Take(st.Step)
	if best := s.Bests.Take(st.Step); settings.TracksBest(s.Weights.Config) {
		state.Best = best
	}
	if s.w != nil {
		if err := s.w.Commit(state, s.Extra); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Last, s.writing, s.older = state, false, state.Step >= s.Finite
	s.Weights.prune(c.SaveTotalLimit, s.Finite, st.Step, s.best)
	return nil
}

// Stepped records a step with finite loss and norm. The first such step after a save shows that the checkpoint's
// weights are good. Stepped then removes the older checkpoints that were kept until now.
func (s *Saver) Stepped(step int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Finite = step
	if s.writing || !s.older {
		return
	}
	s.older = false
	s.Weights.prune(s.Weights.Config.SaveTotalLimit, s.Finite, s.Last.Step, s.best)
}

// IsBest records the step of the best evaluation, whose checkpoint save_best keeps.
func (s *Saver) IsBest(step int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Weights.Config.SaveBest {
		s.best = step
	}
}

// PruneLast removes checkpoints beyond save_total_limit at the run's end. No later step can show that the weights of
// the last checkpoint are good. They count as good if their step and their held-out loss are finite.
func (s *Saver) PruneLast(loss float64) {
	finite := s.Finite
	if s.Last.NonFinite == 0 && !math.IsNaN(loss) {
		finite = s.Last.Step + 1
	}
	s.Weights.prune(s.Weights.Config.SaveTotalLimit, finite, s.Last.Step, s.best)
}

// Abort implements actors.Saver. It removes the unfinished checkpoint.
func (s *Saver) Abort() {
	if s.w != nil {
		s.w.Abort()
	}
}

// Save writes a checkpoint of a state while the pipeline is idle. It does nothing if the checkpoint exists or
// save_strategy is no.
func (s *Saver) Save(st actors.State, dataPos int64) error {
	if s.Weights.Config.SaveStrategy == "no" || s.Last.Step == st.Step {
		return nil
	}
	err := s.Open(st.Step)
	for i := 0; err == nil && i < len(s.Weights.Store.Layers); i++ {
		err = s.Weights.Store.WithLayer(i, false, func(l *host.LayerState) error { return s.Layer(i, l) })
	}
	if err == nil {
		err = s.Commit(st, dataPos)
	}
	if err != nil {
		s.Abort()
		return fmt.Errorf("save step %d: %w", st.Step, err)
	}
	return nil
}

// BestTracker finds the best evaluation of a run, for save_best and early stopping. It has one record for Enough and
// one for Report. The pipeline calls Enough earlier and on another goroutine, so the two cannot share a record. Both
// see the same evaluations in the same order.
type BestTracker struct {
	Patience  int // 0: no early stopping
	Threshold float64
	asked     checkpoint.Best
	Reported  checkpoint.Best
}

// Begin sets both records of the best evaluation to the checkpoint's.
func (b *BestTracker) Begin(from checkpoint.Best) { b.asked, b.Reported = from, from }

// Enough adds the evaluation r to the pipeline's own record and reports whether early stopping ends the run with it.
func (b *BestTracker) Enough(r actors.EvalReport) bool {
	b.asked.Add(r.Step, r.Loss, b.Threshold)
	return b.Over(b.asked)
}

// Report records a reported evaluation.
func (b *BestTracker) Report(r actors.EvalReport) { b.Reported.Add(r.Step, r.Loss, b.Threshold) }

// Over reports whether early stopping ends a run whose record of evaluations is at.
func (b *BestTracker) Over(at checkpoint.Best) bool { return b.Patience > 0 && at.Since >= b.Patience }
