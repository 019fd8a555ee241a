package train

import (
	"fmt"
	"maps"
	"math"
	"sync"

	"mt/actors"
	"mt/checkpoint"
	"mt/host"
	"mt/host/extents"
	"mt/jinja"
)

// configFile is the resolved configuration in an output directory and in every
// checkpoint.
const configFile = "config.yaml"

// saver writes checkpoints for the pipeline. Of several ranks the first one writes, and the others
// send it what they keep.
type saver struct {
	j       *Output
	log     *metricsLog
	kept    *windows
	extra   map[string][]byte
	w       *checkpoint.Writer      // nil on other ranks than the first
	staging *staging                // nil: this process trains alone
	last    checkpoint.TrainerState // of the checkpoint committed last
	bests   awaited[checkpoint.Best]
	record  func() error // records how the device computes

	mu      sync.Mutex // guards what follows
	finite  int        // the last step whose loss and gradients were finite
	writing bool       // a save is under way
	best    int        // the step of the checkpoint that save_best keeps; 0: none
	older   bool       // an older checkpoint is kept until a step shows that the last is good
}

// Open implements actors.Saver.
func (s *saver) Open(step int) (err error) {
	s.mu.Lock()
	s.writing = true
	s.mu.Unlock()
	if !s.j.team.first() {
		return nil
	}
	s.w, err = checkpoint.NewWriter(s.j.c.OutputDir, s.j.writerOptions(step))
	return err
}

// Layer implements actors.Saver.
func (s *saver) Layer(i int, l *host.LayerState) error {
	whole, err := s.whole(i, l)
	if err != nil || !s.j.team.first() {
		return err
	}
	if o := s.j.linked(); o != nil && o[i] {
		whole.Extent = &checkpoint.Extent{Memory: l.State, Pin: func() string { return s.j.links.Pin(i) }}
	}
	return s.w.WriteLayer(i, whole)
}

// whole is layer i with all that is saved of it, on rank 0.
func (s *saver) whole(i int, l *host.LayerState) (checkpoint.Layer, error) {
	switch {
	case !s.j.c.SaveOnlyModel:
		return s.staging.bring(i, l, everything)
	case s.j.needsLower(l.Layout):
		return s.staging.bring(i, l, lowerHalves)
	}
	return checkpointLayer(l), nil
}

// Commit implements actors.Saver.
func (s *saver) Commit(st actors.State, dataPos int64) error {
	c := s.j.c
	if s.log != nil {
		if err := s.log.sync(); err != nil {
			return err // a checkpoint must not be ahead of the metrics
		}
	}
	if s.record != nil {
		if err := s.record(); err != nil {
			return err
		}
	}
	state := s.j.trainerState(st, dataPos)
	state.ModelOnly, state.Log = c.SaveOnlyModel, s.kept.take(st.Step)
	if best := s.bests.take(st.Step); weighs(s.j.c) {
		state.Best = best
	}
	if s.w != nil {
		if err := s.w.Commit(state, s.extra); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.writing, s.older = state, false, state.Step >= s.finite
	s.j.prune(c.SaveTotalLimit, s.finite, st.Step, s.best)
	return nil
}

// stepped notes that a step was finite. The first after a save shows that what
// was saved is good: older checkpoints that were kept until then go.
func (s *saver) stepped(step int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finite = step
	if s.writing || !s.older {
		return
	}
	s.older = false
	s.j.prune(s.j.c.SaveTotalLimit, s.finite, s.last.Step, s.best)
}

// isBest notes the step of the best evaluation, whose checkpoint stays with save_best.
func (s *saver) isBest(step int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.j.c.SaveBest {
		s.best = step
	}
}

// pruneLast removes what save_total_limit does not keep once the run is done; loss is
// the held-out loss of its model. No later step can show that the last checkpoint is
// good, so it counts as good if its step and loss are finite.
func (s *saver) pruneLast(loss float64) {
	finite := s.finite
	if s.last.NonFinite == 0 && !math.IsNaN(loss) {
		finite = s.last.Step + 1
	}
	s.j.prune(s.j.c.SaveTotalLimit, finite, s.last.Step, s.best)
}

// trainerState is what a run must know to go on after st.Step.
func (j *Output) trainerState(st actors.State, dataPos int64) checkpoint.TrainerState {
	ranks := j.team.Size()
	if ranks == 1 {
		ranks = 0
	}
	return checkpoint.TrainerState{Step: st.Step, AdamStep: st.AdamStep, DataPos: dataPos, Seed: j.c.Seed, NonFinite: st.NonFinite, Tokens: st.Tokens, Ranks: ranks,
		Schedule: checkpoint.Laid(j.c.Laid), Origin: j.origin, Lanes: j.table(), Epoch: float64(dataPos) / float64(j.set.Train().Rows()), ConfigDigests: j.digests()}
}

// checkpointName is the name of the checkpoint after a step.
func checkpointName(step int) string { return fmt.Sprintf("checkpoint-%d", step) }

// Abort implements actors.Saver.
func (s *saver) Abort() {
	if s.w != nil {
		s.w.Abort()
	}
}

func (j *Output) writerOptions(step int) checkpoint.WriterOptions {
	var extra int64
	for _, data := range j.beside {
		extra += int64(len(data))
	}
	return checkpoint.WriterOptions{Step: step, Extra: extra, Config: j.model, Layouts: j.plan.Layouts, Planes: j.plan.Planes, SaveDType: checkpoint.DType(j.c.SaveDType), Zstd: j.c.OptimizerZstd,
		ModelOnly: j.c.SaveOnlyModel, Linked: j.linked(),
		FS: j.fs(), Source: j.source}
}

// companions are the files that are saved beside weights: those of the tokenizer and of
// generation that the model trained from has, or the byte tokenizer's; the tokenizer's
// with the tokens that were added; and the chat templates that the data went through, in place of the model's.
func (j *Output) companions() (_ map[string][]byte, err error) {
	if j.beside != nil {
		return j.beside, nil
	}
	out := map[string][]byte{}
	if j.modelDir != "" {
		if out, err = checkpoint.Companions(j.modelDir); err != nil {
			return nil, err
		}
	}
	if j.modelDir == "" && j.tok != nil {
		maps.Copy(out, j.tok.Files())
	}
	maps.Copy(out, j.opened.files)
	if j.set != nil {
		if chat := j.set.ChatTemplates(); chat != nil {
			maps.DeleteFunc(out, func(name string, _ []byte) bool { return jinja.IsFile(name) })
			for name, text := range chat {
				out[name] = []byte(text)
			}
		}
	}
	j.beside = out
	return out, nil
}

// Output is what a run writes into its output directory, and from where.
type Output struct {
	*Resolved
	late   *lateNotes
	notes  []string          // for the user, once
	links  *extents.Files    // with states that checkpoints link; nil: they do not
	beside map[string][]byte // what companions has read
}
