package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"

	"mt/base/files"
	"mt/model"
)

// Reader reads a checkpoint layer by layer, for callers without memory for the whole model. Like Load, it compares
// the data with the manifest's checksums.
type Reader struct {
	dir     string
	layers  int
	src     *source
	targets []target
	records map[string]fileRecord
	rounded []bool // by layer: weights were saved in bf16, and their lower halves beside them
}

// OpenReader opens the checkpoint dir of a model with these layouts. The caller must call Close.
func OpenReader(dir string, layouts []model.Layout) (*Reader, error) {
	r, err := openReader(dir, layouts)
	if err != nil {
		return nil, fmt.Errorf("resume from %s: %w", dir, err)
	}
	return r, nil
}

func openReader(dir string, layouts []model.Layout) (*Reader, error) {
	r := &Reader{dir: dir, layers: len(layouts), rounded: make([]bool, len(layouts))}
	var err error
	if r.records, err = readManifest(dir, openFile); err != nil {
		return nil, err
	}
	if err := r.records[stateName].verify(dir, openFile); err != nil {
		return nil, err
	}
	if r.src, err = openSource(dir); err != nil {
		return nil, err
	}
	if r.targets, err = r.src.match(layouts); err != nil {
		r.src.Close()
		return nil, err
	}
	for _, t := range r.targets {
		r.rounded[t.layer] = r.rounded[t.layer] || t.plane != planeF32
	}
	return r, nil
}

// Beside selects what Reader.Layer reads besides the weights.
type Beside int

// These are the values of Beside:
//
//   - Nothing: only the weights, for checkpoints without optimizer state.
//   - LowerHalves: the lower halves too, as LoadWeights does.
//   - Everything: the lower halves and the optimizer's planes, as Load does.
const (
	Nothing Beside = iota
	LowerHalves
	Everything
)

// Layer reads the weights of layer i into l, and in addition the parts that the argument beside selects.
func (r *Reader) Layer(i int, l Layer, beside Beside) error {
	if err := r.layer(i, l, beside); err != nil {
		return fmt.Errorf("resume from %s: %w", r.dir, err)
	}
	return nil
}

func (r *Reader) layer(i int, l Layer, beside Beside) error {
	err := r.src.readLayer(i, l, r.layers, r.targets, r.records)
	if err == nil && beside != Nothing {
		err = loadLayerState(r.dir, i, l, wanted{r.rounded[i], beside == Everything}, r.records)
	}
	return err
}

// Close closes the files.
func (r *Reader) Close() { r.src.Close() }

// Digest returns the SHA-256 of dir's manifest in hexadecimal; "": no manifest. Directories with equal digests hold
// the same checkpoint, or damaged copies of it.
func Digest(dir string) string {
	raw, err := files.Read(filepath.Join(dir, manifestName), maxHeader)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}
