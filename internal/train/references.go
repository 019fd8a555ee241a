package train

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

	"mt/checkpoint"
	"mt/data"
	"mt/device/op"
	"mt/internal/config"
	"mt/internal/files"
	"mt/internal/throttle"
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
	fingerprint string        // of its tensors
	train, eval references    // of the training data's pairs and of the held-out ones; nil: not known, or there are none
	pass        *plan.Run     // that finds what is not known; nil: there is none
	asked       *plan.Request // what pass was asked for
	unneeded    bool          // the run is finished
}

// readReferences reads what an earlier pass has found and kept.
func (j *resolving) readReferences() (err error) {
	if len(j.c.DPO) == 0 || !j.team.first() {
		return nil
	}
	if j.ref.fingerprint, err = checkpoint.Fingerprint(j.reference().modelDir); err != nil {
		return err
	}
	for _, of := range pairSets(j.Inputs, &j.ref) {
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

// pairSets are the data sets of a run and where ref has their references; none where no data is read.
func pairSets(in *Inputs, ref *reference) (sets []pairSet) {
	if in.set != nil {
		sets = append(sets, pairSet{in.set, &ref.train})
	}
	if in.evalSet != nil {
		sets = append(sets, pairSet{in.evalSet, &ref.eval})
	}
	return sets
}

// reference is the run of the reference's pass on the run's devices, with the numerics of the run. Its
// inputs are those of the run, which closes them.
func (j *Resolved) reference() *Resolved {
	in := *j.Inputs
	in.team, in.slow = alone(context.Background()), throttle.Limits{}
	if m := j.other; m != nil {
		in.opened, in.model, in.modelDir = m, m.Config, m.Dir
	}
	return &Resolved{Start: &Start{Inputs: &in}, plan: j.ref.pass}
}

// referencesFile is the file in which the references of set are kept, and the key that it begins with.
func (j *Resolved) referencesFile(set *data.Dataset) (path string, key [sha256.Size]byte, err error) {
	// Rows and documents follow from the data, its cut and the tokenizer; numbers from the weights, their rows for new tokens and the type.
	r := j.reference()
	name := fmt.Appendf(nil, "1 %s %s %d %v %d %x", j.ref.fingerprint, set.ID(), j.c.MaxSeqLen, j.act, r.model.VocabSize, r.model.JSON(""))
	if r.startsRows() && j.team.Size() > 1 {
		name = append(name, " upper"...)
	}
	key = sha256.Sum256(name)
	dir, err := data.CacheFolder(j.c.CacheDir)
	return filepath.Join(dir, hex.EncodeToString(key[:8])+".references"), key, err
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
