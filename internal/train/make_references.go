package train

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"

	"mt/actors"
	"mt/checkpoint"
	"mt/data"
	"mt/internal/parallel"
)

// This file makes the references of pairs by a forward pass over all of them, before training begins.

// preferences are what the pipeline needs for pairs; nil where training is not on pairs.
func (s *session) preferences() *actors.Preferences {
	if s.plan.Spec.Preference.None() {
		return nil
	}
	return &actors.Preferences{Likelihood: s.c.Preference().RPOAlpha, Reference: func(eval bool, id int64) [2]float32 {
		if eval {
			return s.pairs.eval[id]
		}
		return s.pairs.train[id]
	}}
}

// toldReferences are references as rank 0 tells them to the others.
type toldReferences struct {
	Train []byte `json:"train"`
	Eval  []byte `json:"eval"`
}

// findReferences makes what is not known of the references. It comes before the run's own memory is allocated, since making
// them takes memory for the reference model, which is given back. Of several ranks the first does so, and tells the others.
func (s *session) findReferences(pool *parallel.Pool) error {
	if s.plan.Spec.Preference.None() {
		return nil
	}
	if s.team.first() {
		if err := s.makeReferences(pool); err != nil {
			return err
		}
	}
	all, err := tell(s.team, "the references of pairs", toldReferences{Train: s.pairs.train.bytes(), Eval: s.pairs.eval.bytes()})
	if err == nil {
		s.pairs.train, s.pairs.eval = referencesFrom(all[0].Train), referencesFrom(all[0].Eval)
	}
	return err
}

// makeReferences makes the references of the data sets that none are known of.
func (s *session) makeReferences(pool *parallel.Pool) (err error) {
	for _, of := range pairSets(s.Inputs, &s.pairs) {
		if *of.refs == nil {
			if *of.refs, err = s.referencesOf(of.set, pool); err != nil {
				return err
			}
		}
	}
	if s.evalSet == nil {
		s.pairs.eval = s.pairs.train
	}
	return nil
}

// referencesOf are the references of set: from the cache, or by a pass of the reference, which is then kept there.
func (s *session) referencesOf(set *data.Dataset, pool *parallel.Pool) (references, error) {
	path, key, err := s.referencesFile(set)
	if err != nil {
		return nil, err
	}
	refs, err := readReferences(path, key, set.Pairs())
	switch {
	case err == nil:
		return refs, nil
	case !errors.Is(err, fs.ErrNotExist):
		s.line.above(fmt.Sprintf("note: %s is made anew: %v", path, err))
	}
	if refs, err = s.passReferences(set, pool); err != nil {
		return nil, err
	}
	if err = checkpoint.MakeDirs(s.fs(), filepath.Dir(path)); err == nil {
		err = checkpoint.WriteShared(s.fs(), path, encodeReferences(refs, key))
	}
	if err != nil { // the pass may have taken hours, and the run has what it needs
		s.line.above(fmt.Sprintf("note: the references of dpo are not kept, so a run that goes on from this one makes them anew: %v; set cache_dir to a folder on another disk", err))
	}
	return refs, nil
}

// passReferences is the reference's pass over all rows of set. All memory that it takes is given back.
func (s *session) passReferences(set *data.Dataset, pool *parallel.Pool) (refs references, err error) {
	if f := s.hooks.reading; f != nil {
		f("references")
	}
	r := s.reference()
	store, err := r.weightsOf(r.plan.Layouts, s.team.Size() > 1, pool)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	refs = make(references, set.Pairs())
	for i := range refs {
		refs[i] = [2]float32{float32(math.NaN()), float32(math.NaN())}
	}
	sampler, done := s.passSampler(set), false
	tell := s.tellReferences(set.PairsInRows())
	var damaged atomic.Pointer[error] // the first log p that are no numbers
	err = actors.Run(actors.Options{Devices: s.devs, Home: store, Pool: pool, Plan: r.plan, MaxGradNorm: 1, Stop: s.team.asked.Done(), ThroughHost: !s.c.PeerCopies,
		Schedule: actors.Schedule{FirstStep: 1, LastStep: 0, EvalPasses: sampler.StepsPerEpoch(), EvalAtStart: true, NoSave: true},
		Preferences: &actors.Preferences{Found: func(id int64, logp [2]float32) {
			if err := notFinite(r.modelDir, id, logp); err != nil {
				damaged.CompareAndSwap(nil, &err)
			}
			refs[id] = logp
			tell()
		}},
		Batch: func(step int, _ bool) (*data.Batch, error) {
			if err := damaged.Load(); err != nil {
				return nil, *err // what is left of the pass is of no use
			}
			return sampler.Batch(step, s.c.Pipeline.MicroBatchTokens)
		},
		OnEval: func(actors.EvalReport) { done = true }})
	s.line.end()
	if bad := damaged.Load(); bad != nil {
		return nil, *bad
	}
	if err == nil && !done {
		err = ErrResumable // the next start begins it anew
	}
	return refs, err
}

// notFinite is the error of log p that are no numbers.
func notFinite(dir string, id int64, logp [2]float32) error {
	if x := float64(logp[0]) + float64(logp[1]); !math.IsNaN(x) && !math.IsInf(x, 0) {
		return nil
	}
	return fmt.Errorf("dpo: the reference %s gives the answers of pair %d the log p %v and %v: its weights are damaged, or compute_dtype does not hold them", dir, id+1, logp[0], logp[1])
}

// tellReferences returns what is called for each pair of so many, and shows now and then how far the pass is.
func (s *session) tellReferences(total int64) func() {
	begun, done := time.Now(), int64(0)
	shown := begun
	every := time.Second
	if !s.o.Interactive {
		every = 30 * time.Second
	}
	return func() {
		done++
		now := time.Now()
		if done < total && now.Sub(shown) < every {
			return
		}
		shown = now
		eta := ""
		if done < total {
			eta = "  ETA " + duration(time.Duration(float64(now.Sub(begun))/float64(done)*float64(total-done)))
		}
		s.line.show(fmt.Sprintf("reference: %s of %s pairs%s", humanize.Comma(min(done, total)), humanize.Comma(total), eta))
	}
}
