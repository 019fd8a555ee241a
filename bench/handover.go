package bench

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"

	"mt/data"
	"mt/internal/run/trials"
	"mt/model"
)

const (
	// tableLen is the number of random weights in the table. It is prime, so the rows of a matrix begin at different
	// places of the table and differ.
	tableLen = 4194301
	// tableStd is the standard deviation of the weights in the table.
	tableStd = 0.02
	// givenBatches is the number of different batches. After the last batch of them, the first one is trained again.
	givenBatches = 8
	// Settings of config.json that both sides share, besides the sizes.
	ropeTheta = 10000.0
	normEps   = 1e-6
)

// Handover holds the weights and batches that mt and the peer both use. Element i of the matrix NAME (its name in
// checkpoints), in row-major order, is table[(crc32(NAME) + i) mod tableLen]. Norms are 1 and biases 0. So billions of
// weights need 16 MiB, and each side fills its own weights from the table.
type Handover struct {
	shape   TrainShape
	table   []float32
	batches [][]int32 // each has Rows*SeqLen token ids
}

// weightTable is the table of every Handover. It is computed once.
var weightTable = sync.OnceValue(func() []float32 {
	table, r := make([]float32, tableLen), rand.New(rand.NewPCG(3, 4))
	for i := range table {
		table[i] = float32(tableStd * r.NormFloat64())
	}
	return table
})

// newHandover draws the batches for shape at random, with a fixed seed, so the draw is the same each time.
func newHandover(shape TrainShape) *Handover {
	h := &Handover{shape: shape, table: weightTable(), batches: make([][]int32, givenBatches)}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range h.batches {
		h.batches[i] = make([]int32, shape.Rows*shape.SeqLen)
		for k := range h.batches[i] {
			h.batches[i][k] = int32(r.IntN(shape.VocabSize))
		}
	}
	return h
}

// row stores rows of the parameter p in dst, from row r on, as many as dst holds. It serves as
// SyntheticOptions.Weights.
func (h *Handover) row(p model.Param, r int, dst []float32) {
	if p.Dims < 2 { // norms, biases
		var c model.Config // the zero value adds no offset to norms
		model.InitRow(&c, p, r, 0, dst)
		return
	}
	for ; len(dst) > 0; r, dst = r+1, dst[p.Cols:] {
		for _, t := range p.Stored {
			if r < t.Row || r >= t.Row+t.Rows {
				continue
			}
			at := (uint64(crc32.ChecksumIEEE([]byte(t.Name))) + uint64(r-t.Row)*uint64(p.Cols)) % tableLen
			for n := 0; n < p.Cols; at = 0 {
				n += copy(dst[n:p.Cols], h.table[at:])
			}
		}
	}
}

// batch returns the rows of the given step; the first step is 1. It serves as SyntheticOptions.Batch.
func (h *Handover) batch(step int) []data.Row {
	ids := h.batches[(step-1)%len(h.batches)]
	rows := make([]data.Row, h.shape.Rows)
	for i := range rows {
		rows[i].IDs = ids[i*h.shape.SeqLen : (i+1)*h.shape.SeqLen]
	}
	return rows
}

// write writes a peer's input into the folder dir: weights.f32 and batches.i32 (little endian), and handover.json with
// the settings. Unless chosen is nil, handover.json includes it: the settings that an earlier process of the peer found
// fastest.
func (h *Handover) write(dir string, s TrainSetup, chosen map[string]any) error {
	recipe := trials.SyntheticRecipe
	about := map[string]any{
		"shape": s.Shape, "head_dim": s.Shape.headDim(), "rope_theta": ropeTheta, "rms_norm_eps": normEps,
		"table": len(h.table), "batches": len(h.batches), "dtype": s.DType, "threads": s.Threads, "warmup": s.Warmup, "device": s.Device,
		"learning_rate": trials.SyntheticLR, "max_grad_norm": trials.SyntheticMaxGradNorm,
		"adam_beta1": recipe.Beta1, "adam_beta2": recipe.Beta2, "adam_epsilon": recipe.Eps, "weight_decay": recipe.WeightDecay,
	}
	if chosen != nil {
		about["chosen"] = chosen
	}
	raw, err := json.MarshalIndent(about, "", " ")
	if err != nil {
		return err
	}
	weights := make([]byte, 0, 4*len(h.table))
	for _, w := range h.table {
		weights = binary.LittleEndian.AppendUint32(weights, math.Float32bits(w))
	}
	var tokens []byte
	for _, b := range h.batches {
		for _, id := range b {
			tokens = binary.LittleEndian.AppendUint32(tokens, uint32(id))
		}
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "handover.json"), raw, 0o644),
		os.WriteFile(filepath.Join(dir, "weights.f32"), weights, 0o644), os.WriteFile(filepath.Join(dir, "batches.i32"), tokens, 0o644))
}
