package model

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
)

// InitRow fills dst with rows of p from row on, as a model trained from scratch
// starts: matrices, sinks and a router's bias from N(0, initializer_range), the embedding's padding rows
// and other biases 0, norms such that they multiply by 1 (transformers'
// _init_weights). dst holds whole rows: len(dst) is a multiple of p.Cols.
//
// Every row of a matrix has a generator of its own, keyed by seed, tensor name
// and row, so the values depend neither on the order nor on which rows are
// asked for together.
func InitRow(c *Config, p Param, row int, seed int64, dst []float32) {
	switch p.Role {
	case RoleAttnNorm, RolePostAttnNorm, RoleQNorm, RoleKNorm, RoleQANorm, RoleKVANorm, RoleMLPNorm, RolePostMLPNorm, RoleFinalNorm:
		fill(dst, 1-c.NormOffset)
		return
	case RoleRecurNorm, RoleRecurDtBias:
		fill(dst, 1)
		return
	case RoleRecurDecay: // rates of decay, uniform in [0.01, 16)
		for i := range dst {
			part, local := p.storedOf(row + i)
			dst[i] = float32(math.Log(0.01 + 15.99*rand.New(rand.NewPCG(rowKey(seed, part.Name, local))).Float64()))
		}
		return
	case RoleQKVBias, RoleQABias, RoleKVABias, RoleOBias, RoleGateUpBias, RoleUpBias, RoleDownBias, RoleAttnNormBias, RoleMLPNormBias, RoleFinalNormBias,
		RoleExpertGateUpBias, RoleExpertDownBias, RoleChoiceBias, RoleLMHeadBias:
		fill(dst, 0)
		return
	}
	deviation := c.InitializerRange
	if c.ResidualInit && (p.Role == RoleO || p.Role == RoleDown) {
		deviation /= math.Sqrt(float64(2 * c.NumLayers))
	}
	source := rand.NewPCG(0, 0)
	normal := rand.New(source)
	for i := 0; i < len(dst); i, row = i+p.Cols, row+1 {
		values := dst[i : i+p.Cols]
		part, local := p.storedOf(row)
		if p.Role == RoleEmbed && len(c.PAD) > 0 && c.PAD[0] == row {
			fill(values, 0)
			continue
		}
		source.Seed(rowKey(seed, part.Name, local))
		for j := range values {
			values[j] = float32(deviation * normal.NormFloat64())
		}
	}
}

// storedOf is the tensor of p.Stored that has the given row, and which of its rows that is.
func (p Param) storedOf(row int) (Stored, int) {
	for _, t := range p.Stored {
		if row < t.Row+t.Rows {
			return t, row - t.Row
		}
	}
	panic(fmt.Sprintf("model: row %d of %s, which has %d", row, p.Role, p.Rows))
}

func rowKey(seed int64, name string, row int) (uint64, uint64) {
	b := make([]byte, 0, 128)
	b = binary.LittleEndian.AppendUint64(b, uint64(seed))
	b = binary.LittleEndian.AppendUint64(b, uint64(row))
	sum := sha256.Sum256(append(b, name...))
	return binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])
}

func fill(dst []float32, v float32) {
	for i := range dst {
		dst[i] = v
	}
}
