package train

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
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
	"mt/device/op"
	"mt/internal/config"
	"mt/internal/files"
	"mt/internal/parallel"
	"mt/plan"
)

// This file makes what training on pairs (dpo) compares with: log p of every answer by the reference model, found once by a
// forward pass over all pairs, before training begins, and kept in a file beside the token caches.

// references are log p of the chosen and the rejected answer of a data set's pairs, by the pairs' numbers. NaN: no row has
// the pair.
type references [][2]float32

// preferenceKinds are the values of dpo.loss_type.
var preferenceKinds = map[string]op.PreferenceKind{"sigmoid": op.Sigmoid, "hinge": op.Hinge, "ipo": op.IPO}

// preferenceLoss is the loss that c asks for.
func preferenceLoss(c *config.Config) op.PreferenceLoss {
	p := c.Preference()
	if p.LossType == "" {
		return op.PreferenceLoss{}
	}
	return op.PreferenceLoss{Kind: preferenceKinds[p.LossType], Beta: float32(p.Beta), Smoothing: float32(p.LabelSmoothing)}
}

// reference is the model that pairs are compared with, and what it thinks of them.
type reference struct {
	other       *Model        // dpo.reference_model; nil: it is the model that training starts from
	fingerprint string        // of its tensors
	train, eval references    // of the training data's pairs and of the held-out ones; nil: not known, or there are none
	pass        *plan.Run     // that finds what is not known; nil: there is none
	asked       *plan.Request // what pass was asked for
	unneeded    bool          // the run is finished
}

// preferences are what the pipeline needs for pairs; nil where training is not on pairs.
func (s *session) preferences() *actors.Preferences {
	if s.plan.Spec.Preference.None() {
		return nil
	}
	return &actors.Preferences{Likelihood: s.c.Preference().RPOAlpha, Reference: func(eval bool, id int64) [2]float32 {
		if eval {
			return s.ref.eval[id]
		}
		return s.ref.train[id]
	}}
}

// toldReferences are references as rank 0 tells them to the others.
type toldReferences struct {
	Train []byte `json:"train"`
	Eval  []byte `json:"eval"`
}

// readReferences reads what an earlier pass has found and kept.
func (j *job) readReferences() (err error) {
	if len(j.c.DPO) == 0 || !j.team.first() {
		return nil
	}
	if j.ref.fingerprint, err = checkpoint.Fingerprint(j.referenceJob().modelDir); err != nil {
		return err
	}
	for _, of := range j.pairSets() {
		path, key, err := j.referencesFile(of.set)
		if err != nil {
			return err
		}
		if refs, err := readReferences(path, key, of.set.Pairs()); err == nil { // else referencesOf looks again, since another run may have written it meanwhile, and says why it makes the pass
			*of.refs = refs
		}
	}
	return nil
}

// pairSet is a data set of pairs, and where what the reference thinks of them is kept.
type pairSet struct {
	set  *data.Dataset
	refs *references
}

// pairSets are the data sets of the run; none where no data is read.
func (j *job) pairSets() (sets []pairSet) {
	if j.set != nil {
		sets = append(sets, pairSet{j.set, &j.ref.train})
	}
	if j.evalSet != nil {
		sets = append(sets, pairSet{j.evalSet, &j.ref.eval})
	}
	return sets
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
	if s.team.size() == 1 {
		return nil
	}
	all, err := tell(s.team, "the references of pairs", toldReferences{Train: s.ref.train.bytes(), Eval: s.ref.eval.bytes()})
	if err == nil {
		s.ref.train, s.ref.eval = referencesFrom(all[0].Train), referencesFrom(all[0].Eval)
	}
	return err
}

// makeReferences makes the references of the data sets that none are known of.
func (s *session) makeReferences(pool *parallel.Pool) (err error) {
	for _, of := range s.pairSets() {
		if *of.refs == nil {
			if *of.refs, err = s.referencesOf(of.set, pool); err != nil {
				return err
			}
		}
	}
	if s.evalSet == nil {
		s.ref.eval = s.ref.train
	}
	return nil
}

// referenceJob is a job for the reference's pass on the run's devices, with the numerics of the run.
func (j *job) referenceJob() *job {
	r := &job{c: j.c, opened: j.opened, model: j.model, modelDir: j.modelDir, set: j.set, longest: j.longest, plan: j.ref.pass, act: j.act, unified: j.unified, integrated: j.integrated,
		dev: j.dev, devs: j.devs, lanes: j.lanes, paces: j.paces, memory: j.memory, context: j.context, budget: j.budget, hooks: j.hooks, oneDevice: j.oneDevice,
		profile: j.profile, upperMeans: j.team != nil}
	if m := j.ref.other; m != nil {
		r.opened, r.model, r.modelDir = m, m.Config, m.Dir
	}
	return r
}

// openReference opens dpo.reference_model, so that what is wrong with it is told before data is tokenised. It is given the
// model's tokens: a note tells where these mean something else to it.
func (j *job) openReference() error {
	name := j.c.Preference().ReferenceModel
	if name == "" || !j.team.first() {
		return nil
	}
	const key = "dpo.reference_model"
	if _, err := config.ModelDir(name); err != nil { // OpenModel would name another key
		return j.c.Errorf("dpo", key+": %w; give a directory with its weights, or leave it out: the reference is then the model that training starts from", err)
	}
	c := j.c.Clone()
	c.Model = config.ModelRef{Path: name}
	m, err := OpenModel(c)
	if err != nil {
		return j.c.Errorf("dpo", key+": %w", err)
	}
	if m.Config.VocabSize < j.model.VocabSize {
		return j.c.Errorf("dpo", key+": %s has rows for %d tokens, and the model has %d: the two need one vocabulary", m.Dir, m.Config.VocabSize, j.model.VocabSize)
	}
	weights, err := checkpoint.OpenSource(m.Dir, m.Stored.Layouts(false))
	if err != nil {
		return j.c.Errorf("dpo", key+": %w", err)
	}
	weights.Close()
	j.ref.other = m
	j.compareTokens(m)
	return nil
}

// compareTokens notes which tokens of the model are others in the reference m.
func (j *job) compareTokens(m *Model) {
	if m.Tokenizer == nil || j.tok == nil || j.modelDir == "" || m.withoutTokenizer() || j.opened.withoutTokenizer() {
		return
	}
	others, example := 0, int32(0)
	for id := int32(min(m.Tokenizer.VocabSize(), j.tok.VocabSize())) - 1; id >= 0; id-- {
		if m.Tokenizer.Token(id) != j.tok.Token(id) {
			others, example = others+1, id
		}
	}
	if others > 0 {
		j.note("dpo.reference_model: %d tokens are others there than in the model, such as %d, which is %q there and %q here: the two need one vocabulary",
			others, example, m.Tokenizer.Token(example), j.tok.Token(example))
	}
}

// referencesFile is the file in which the references of set are kept, and the key that it begins with.
func (j *job) referencesFile(set *data.Dataset) (path string, key [sha256.Size]byte, err error) {
	// Rows and documents follow from the data, its cut and the tokenizer; numbers from the weights, their rows for new tokens and the type.
	r := j.referenceJob()
	name := fmt.Appendf(nil, "1 %s %s %d %v %d %x", j.ref.fingerprint, set.ID(), j.c.MaxSeqLen, j.act, r.model.VocabSize, r.model.JSON(""))
	if r.startsRows() && r.upperMeans {
		name = append(name, " upper"...)
	}
	key = sha256.Sum256(name)
	dir, err := data.CacheFolder(j.c.CacheDir)
	return filepath.Join(dir, hex.EncodeToString(key[:8])+".references"), key, err
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
	r := s.referenceJob()
	defer r.closeAfter(&err)
	store, err := r.weightsOf(r.plan.Layouts, pool)
	if err != nil {
		return nil, err
	}
	refs = make(references, set.Pairs())
	for i := range refs {
		refs[i] = [2]float32{float32(math.NaN()), float32(math.NaN())}
	}
	sampler, done := s.passSampler(set), false
	tell := s.tellReferences(set.PairsInRows())
	var damaged atomic.Pointer[error] // the first log p that are no numbers
	err = actors.Run(actors.Options{Devices: r.devs, Home: store, Pool: pool, Plan: r.plan, MaxGradNorm: 1, Stop: s.job.stop, ThroughHost: !s.c.PeerCopies,
		Schedule: actors.Schedule{FirstStep: 1, LastStep: 0, EvalPasses: sampler.StepsPerEpoch(), EvalAtStart: true, NoSave: true},
		Preferences: &actors.Preferences{Found: func(id int64, logp [2]float32) {
			if err := r.notFinite(id, logp); err != nil {
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
func (j *job) notFinite(id int64, logp [2]float32) error {
	if x := float64(logp[0]) + float64(logp[1]); !math.IsNaN(x) && !math.IsInf(x, 0) {
		return nil
	}
	return fmt.Errorf("dpo: the reference %s gives the answers of pair %d the log p %v and %v: its weights are damaged, or compute_dtype does not hold them", j.modelDir, id+1, logp[0], logp[1])
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

// referencesMagic begins a file of references. Then come its key, how many pairs there are, their numbers, little-endian, and the
// SHA-256 of all before it.
const referencesMagic = "mt references 1\n"

func encodeReferences(refs references, key [sha256.Size]byte) []byte {
	b := append([]byte(referencesMagic), key[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(refs)))
	b = append(b, refs.bytes()...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// bytes are the numbers, little-endian.
func (refs references) bytes() (b []byte) {
	for _, pair := range refs {
		for _, x := range pair {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
	}
	return b
}

// referencesFrom reads what bytes has made.
func referencesFrom(b []byte) references {
	refs := make(references, len(b)/8)
	for i := range refs {
		for k := range refs[i] {
			refs[i][k] = math.Float32frombits(binary.LittleEndian.Uint32(b[8*i+4*k:]))
		}
	}
	return refs
}

// readReferences reads a file that encodeReferences made, which must be whole, of this key and of so many pairs.
func readReferences(path string, key [sha256.Size]byte, pairs int64) (references, error) {
	const head = len(referencesMagic) + sha256.Size + 8
	b, err := files.Read(path, int64(head)+8*pairs+sha256.Size)
	if err != nil {
		return nil, err
	}
	if int64(len(b)) != int64(head)+8*pairs+sha256.Size {
		return nil, fmt.Errorf("it has %d bytes, and not those of %d pairs", len(b), pairs)
	}
	refs := referencesFrom(b[head : len(b)-sha256.Size])
	if !bytes.Equal(encodeReferences(refs, key), b) {
		return nil, errors.New("it is damaged, or of another model or data")
	}
	return refs, nil
}
