package resolve

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"mt/base/files"
	"mt/checkpoint"
	"mt/data"
	"mt/device/op"
	"mt/internal/run/config"
	"mt/internal/run/open"
	"mt/internal/run/ranks"
	"mt/internal/run/resume"
	"mt/internal/run/settings"
	"mt/model"
	"mt/plan"
)

// This file handles the references of training on preference pairs (key dpo): log p of every answer by the reference
// model. The reference pass computes them once before training (pass.go). A file beside the token caches keeps them.

// References has, by pair number, log p of the chosen and the rejected answer by the reference model. NaN: no row
// contains the pair.
type References [][2]float32

// preferenceKinds maps the values of dpo.loss_type.
var preferenceKinds = map[string]op.PreferenceKind{"sigmoid": op.Sigmoid, "hinge": op.Hinge, "ipo": op.IPO}

// preferenceLoss returns the loss that c's key dpo describes; the zero value if the run does not train on pairs.
func preferenceLoss(c *config.Config) op.PreferenceLoss {
	p := c.Preference()
	if p.LossType == "" {
		return op.PreferenceLoss{}
	}
	return op.PreferenceLoss{Kind: preferenceKinds[p.LossType], Beta: float32(p.Beta), Smoothing: float32(p.LabelSmoothing)}
}

// Reference is the reference model of DPO with its log-probabilities.
type Reference struct {
	fingerprint string        // of the reference's tensors
	Train, Eval References    // references of training and held-out pairs; nil: unknown, or no pairs
	Pass        *plan.Run     // plan of the reference pass for unknown references; nil: no pass is needed
	Asked       *plan.Request // the request for the plan Pass
	unneeded    bool          // the run is already finished, so no references are needed
}

// readReferences reads the references that an earlier reference pass has cached.
func (r *resolving) readReferences() (err error) {
	if len(r.Config.DPO) == 0 || !r.Ranks.First() {
		return nil
	}
	if r.Ref.fingerprint, err = checkpoint.Fingerprint(r.ForReference().ModelDir); err != nil {
		return err
	}
	for _, of := range PairSets(r.Inputs, &r.Ref) {
		path, key, err := r.ReferencesFile(of.Set)
		if err != nil {
			return err
		}
		if refs, err := ReadReferences(path, key, of.Set.Pairs()); err == nil { // on an error referencesOf tries again, since another run may have written the file, and reports why a pass is needed
			*of.Refs = refs
		}
	}
	return nil
}

// pairSet is a data set of pairs, with a pointer to the variable that holds its references.
type pairSet struct {
	Set  *data.Dataset
	Refs *References
}

// PairSets returns the run's data sets of pairs, each with a pointer to its references in ref. It returns nil if no
// data is read.
func PairSets(in *open.Inputs, ref *Reference) (sets []pairSet) {
	if in.Data != nil {
		sets = append(sets, pairSet{in.Data, &ref.Train})
	}
	if in.EvalData != nil {
		sets = append(sets, pairSet{in.EvalData, &ref.Eval})
	}
	return sets
}

// ForReference returns the run with the reference model in place of the model, for the reference pass. Devices and
// numerics are the run's own. The caller still owns and closes the run's inputs.
func (r *Resolved) ForReference() *Resolved {
	in := *r.Inputs
	in.Ranks, in.Throttle = ranks.Alone(context.Background()), settings.Throttle{}
	if m := r.OtherReference; m != nil {
		in.Opened, in.Model, in.ModelDir = m, m.Config, m.Dir
	}
	return &Resolved{Start: &resume.Start{Inputs: &in}, Plan: r.Ref.Pass}
}

// ReferencesFile returns the path of the cache file for set's references, and the key with which the file begins.
func (run *Resolved) ReferencesFile(set *data.Dataset) (path string, key [sha256.Size]byte, err error) {
	// Rows and documents follow from the data, its cut and the tokenizer. The values follow from the weights, their
	// rows for new tokens and the compute dtype.
	r := run.ForReference()
	name := fmt.Appendf(nil, "1 %s %s %d %v %d %x", run.Ref.fingerprint, set.ID(), run.Config.MaxSeqLen, run.Act, r.Model.VocabSize, r.Model.JSON(""))
	if r.StartsRows() && run.Ranks.Size() > 1 {
		name = append(name, " upper"...)
	}
	key = sha256.Sum256(name)
	dir, err := data.CacheFolder(run.Config.CacheDir)
	return filepath.Join(dir, hex.EncodeToString(key[:8])+".references"), key, err
}

// referencesMagic begins a references file. It is followed by the key, the number of pairs, the values
// (little-endian) and the SHA-256 of everything before.
const referencesMagic = "mt references 1\n"

// EncodeReferences returns the content of a file with refs. key identifies the data and the model, so that the file is
// not used for others.
func EncodeReferences(refs References, key [sha256.Size]byte) []byte {
	b := append([]byte(referencesMagic), key[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(refs)))
	b = append(b, refs.Bytes()...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// Bytes encodes the values, little-endian.
func (refs References) Bytes() (b []byte) {
	for _, pair := range refs {
		for _, x := range pair {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
	}
	return b
}

// ReferencesFrom decodes the result of Bytes.
func ReferencesFrom(b []byte) References {
	refs := make(References, len(b)/8)
	for i := range refs {
		for k := range refs[i] {
			refs[i][k] = math.Float32frombits(binary.LittleEndian.Uint32(b[8*i+4*k:]))
		}
	}
	return refs
}

// ReadReferences reads a file from EncodeReferences. It returns an error unless the file is intact and has this key
// and number of pairs.
func ReadReferences(path string, key [sha256.Size]byte, pairs int64) (References, error) {
	const head = len(referencesMagic) + sha256.Size + 8
	b, err := files.Read(path, int64(head)+8*pairs+sha256.Size)
	if err != nil {
		return nil, err
	}
	if int64(len(b)) != int64(head)+8*pairs+sha256.Size {
		return nil, fmt.Errorf("it has %d bytes, and not those of %d pairs", len(b), pairs)
	}
	refs := ReferencesFrom(b[head : len(b)-sha256.Size])
	if !bytes.Equal(EncodeReferences(refs, key), b) {
		return nil, errors.New("it is damaged, or of another model or data")
	}
	return refs, nil
}

// planPass plans the reference pass of DPO, unless all references are known or none are needed. The pass frees its
// memory before the run allocates, so each of them gets the whole budget. With several ranks only rank 0 makes the
// pass, with all memory of its host.
func (run *resolving) planPass() (err error) {
	if run.Plan.Spec.Preference.None() || !run.Ranks.First() || run.Ref.unneeded || run.knowsReferences() {
		return nil
	}
	r := run.ForReference()
	if m := run.OtherReference; m != nil {
		if err := run.checkPositions(m.Config, "dpo.reference_model"); err != nil {
			return err
		}
	}
	// Micro-batches and head parts are as in the run, so that one model gives the same bits in the pass and in the run.
	// Depths change no bits, and the run's depths may be too large for another model.
	q, asked := r.request(true), run.Asked.Depths
	q.Depths = plan.Depths{WeightSlots: asked.WeightSlots, ActivationSlots: asked.ActivationSlots, BatchesAhead: asked.BatchesAhead}
	run.Ref.Asked = &q
	run.Ref.Pass, err = plan.Resolve(q)
	if lack := (*plan.NotFitting)(nil); errors.As(err, &lack) {
		lack.What, lack.Keys = run.PassName(), lack.Keys+", or give a cache_dir in which a larger machine has left the numbers of these pairs"
		if run.OtherReference != nil {
			lack.Keys = strings.Replace(lack.Keys, "a smaller model", "a smaller dpo.reference_model", 1)
		}
		return r.PlanError(err)
	} else if err != nil {
		return r.PlanError(fmt.Errorf("%s: %w", run.PassName(), err))
	}
	return nil
}

// knowsReferences reports whether the references of all data sets are known.
func (r *Resolved) knowsReferences() bool {
	sets := PairSets(r.Inputs, &r.Ref)
	for _, of := range sets {
		if *of.Refs == nil {
			return false
		}
	}
	return len(sets) > 0
}

// PassName returns words that name the reference pass in errors and plans.
func (r *Resolved) PassName() string {
	of := "of the model, as the reference,"
	if m := r.OtherReference; m != nil {
		of = "of dpo.reference_model " + m.Dir
	}
	return "the forward pass " + of + " over all pairs before training"
}

// PassSampler returns the rows of set in the order of the reference pass.
func (r *Resolved) PassSampler(set *data.Dataset) *data.Sampler {
	return data.NewSampler(set.All(), r.Config.RowsPerStep(), 0, false)
}

// checkPositions returns an error if rows are longer than the learned position embeddings of m. It adds a note if they
// are only longer than m's max_position_embeddings. called names the model m in both.
func (r *resolving) checkPositions(m *model.Config, called string) error {
	n := min(r.RowTokens(), r.Config.MaxSeqLen)
	if n > m.MaxPositions && m.LearnedPositions {
		return r.Config.Errorf("max_seq_len", "rows have %d tokens, and %s has learned %d positions: it is at most that", n, called, m.MaxPositions)
	}
	if n > m.MaxPositions && m.MaxPositions > 0 {
		r.note("rows of %d tokens are longer than %s's max_position_embeddings of %d", n, called, m.MaxPositions)
	}
	return nil
}
