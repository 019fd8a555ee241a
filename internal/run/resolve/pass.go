package resolve

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
	"mt/base/human"
	"mt/base/parallel"
	"mt/checkpoint"
	"mt/data"
	"mt/device"
	"mt/internal/run/ranks"
	"mt/internal/run/report"
	"mt/internal/run/settings"
)

// This file makes the reference pass of DPO: a forward pass of the reference model over all pairs, before training. Its
// results, log p of every answer, are called references.

// toldReferences is rank 0's message with the references (log p of the reference model), which the other ranks do not
// compute.
type toldReferences struct {
	Train []byte `json:"train"`
	Eval  []byte `json:"eval"`
}

// FindReferences returns the references of all pairs, and makes the reference pass for those that no cache has. It runs
// before the run's memory is allocated, and frees the memory of the reference model. With several ranks, rank 0 makes
// the pass and sends the references to the others.
func FindReferences(r *Resolved, devs []device.Device, pool *parallel.Pool, say *report.Line) (Reference, error) {
	if r.Plan.Spec.Preference.None() {
		return r.Ref, nil
	}
	s := &referencePass{Resolved: r, found: r.Ref, devs: devs, pool: pool, line: say}
	if s.Ranks.First() {
		if err := s.makeReferences(); err != nil {
			return s.found, err
		}
	}
	all, err := ranks.Tell(s.Ranks, "the references of pairs", toldReferences{Train: s.found.Train.Bytes(), Eval: s.found.Eval.Bytes()})
	if err == nil {
		s.found.Train, s.found.Eval = ReferencesFrom(all[0].Train), ReferencesFrom(all[0].Eval)
	}
	return s.found, err
}

// referencePass is a reference pass in progress.
type referencePass struct {
	*Resolved
	found Reference
	devs  []device.Device
	pool  *parallel.Pool
	line  *report.Line
}

// makeReferences finds the references of each data set whose references are not known yet.
func (p *referencePass) makeReferences() (err error) {
	for _, of := range PairSets(p.Inputs, &p.found) {
		if *of.Refs == nil {
			if *of.Refs, err = p.referencesOf(of.Set); err != nil {
				return err
			}
		}
	}
	if p.EvalData == nil {
		p.found.Eval = p.found.Train
	}
	return nil
}

// referencesOf returns the references of set: from the cache, or from a forward pass whose result it then caches.
func (p *referencePass) referencesOf(set *data.Dataset) (References, error) {
	path, key, err := p.ReferencesFile(set)
	if err != nil {
		return nil, err
	}
	refs, err := ReadReferences(path, key, set.Pairs())
	switch {
	case err == nil:
		return refs, nil
	case !errors.Is(err, fs.ErrNotExist):
		p.line.Above(fmt.Sprintf("note: %s is made anew: %v", path, err))
	}
	if refs, err = p.passReferences(set); err != nil {
		return nil, err
	}
	if err = checkpoint.MakeDirs(p.FS(), filepath.Dir(path)); err == nil {
		err = checkpoint.WriteShared(p.FS(), path, EncodeReferences(refs, key))
	}
	if err != nil { // the pass may have taken hours, and the run can continue without the cache
		p.line.Above(fmt.Sprintf("note: the references of dpo are not kept, so a run that goes on from this one makes them anew: %v; set cache_dir to a folder on another disk", err))
	}
	return refs, nil
}

// passReferences runs the reference model's forward pass over all rows of set. It frees all memory that it allocates.
func (p *referencePass) passReferences(set *data.Dataset) (refs References, err error) {
	if f := p.Hooks.Reading; f != nil {
		f("references")
	}
	r := p.ForReference()
	store, err := r.WeightsOf(r.Plan.Layouts, p.Ranks.Size() > 1, p.pool)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	refs = make(References, set.Pairs())
	for i := range refs {
		refs[i] = [2]float32{float32(math.NaN()), float32(math.NaN())}
	}
	sampler, done := p.PassSampler(set), false
	tell := p.tellReferences(set.PairsInRows())
	var damaged atomic.Pointer[error] // the error for the first log p that is not finite
	err = actors.Run(actors.Options{Devices: p.devs, Home: store, Pool: p.pool, Plan: r.Plan, MaxGradNorm: 1, Stop: p.Ranks.Asked.Done(), ThroughHost: !p.Config.PeerCopies,
		Schedule: actors.Schedule{FirstStep: 1, LastStep: 0, EvalPasses: sampler.StepsPerEpoch(), EvalAtStart: true, NoSave: true},
		Preferences: &actors.Preferences{OnLogProbs: func(id int64, logp [2]float32) {
			if err := notFinite(r.ModelDir, id, logp); err != nil {
				damaged.CompareAndSwap(nil, &err)
			}
			refs[id] = logp
			tell()
		}},
		Batch: func(step int, _ bool) (*data.Batch, error) {
			if err := damaged.Load(); err != nil {
				return nil, *err // the rest of the pass would be useless
			}
			return sampler.Batch(step, p.Config.Pipeline.MicroBatchTokens)
		},
		OnEval: func(actors.EvalReport) { done = true }})
	p.line.End()
	if bad := damaged.Load(); bad != nil {
		return nil, *bad
	}
	if err == nil && !done {
		err = settings.ErrResumable // the next start repeats the pass
	}
	return refs, err
}

// notFinite returns an error if one of the two log p of a pair is NaN or infinite. id is the number of the pair, and
// dir the directory of the reference model.
func notFinite(dir string, id int64, logp [2]float32) error {
	if x := float64(logp[0]) + float64(logp[1]); !math.IsNaN(x) && !math.IsInf(x, 0) {
		return nil
	}
	return fmt.Errorf("dpo: the reference %s gives the answers of pair %d the log p %v and %v: its weights are damaged, or compute_dtype does not hold them", dir, id+1, logp[0], logp[1])
}

// tellReferences returns a function that the reference pass calls after each of its total pairs. The function shows
// the progress from time to time.
func (p *referencePass) tellReferences(total int64) func() {
	begun, done := time.Now(), int64(0)
	shown := begun
	every := time.Second
	if !p.line.Interactive {
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
			eta = "  ETA " + human.Duration(time.Duration(float64(now.Sub(begun))/float64(done)*float64(total-done)))
		}
		p.line.Show(fmt.Sprintf("reference: %s of %s pairs%s", humanize.Comma(min(done, total)), humanize.Comma(total), eta))
	}
}

// PreferencesOf returns what the pipeline needs to train on pairs: the loss and the references in found. It returns
// nil if the run does not train on pairs.
func PreferencesOf(r *Resolved, found Reference) *actors.Preferences {
	if r.Plan.Spec.Preference.None() {
		return nil
	}
	return &actors.Preferences{Likelihood: r.Config.Preference().RPOAlpha, Reference: func(eval bool, id int64) [2]float32 {
		if eval {
			return found.Eval[id]
		}
		return found.Train[id]
	}}
}
