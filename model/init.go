package model

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
)

// InitRow fills dst with the initial values of rows of p, beginning with row number row, for training from scratch. dst
// holds whole rows: len(dst) is a multiple of p.Cols. The values are those of transformers' _init_weights.
//   - Matrices, sinks and a router's bias are drawn from N(0, initializer_range).
//   - Other biases and the embedding's padding row are 0.
//   - Norms multiply by 1.
//
// Every row of a matrix has its own generator, keyed by seed, tensor name and row. The values depend neither on the
// order of calls nor on the rows requested together.
func InitRow(c *Config, p Param, row int, seed int64, dst []float32) {
	switch p.Role {
	case RoleAttnNorm, RolePostAttnNorm, RoleQNorm, RoleKNorm, RoleQANorm, RoleKVANorm, RoleIndexKNorm, RoleMLPNorm, RolePostMLPNorm, RoleFinalNorm,
		RoleExpertNorm, RolePostDenseNorm, RolePostExpertNorm, RolePerLayerPostNorm, RolePerLayerNorm, RoleAheadEmbedNorm, RoleAheadHiddenNorm, RoleAheadNorm:
		if c.FinalNormPlain && p.Role == RoleFinalNorm {
			fill(dst, 1)
			return
		}
		fill(dst, 1-c.NormOffset)
		return
	case RoleRecurDtBias:
		if c.KDA == nil {
			fill(dst, 1)
			return
		}
		for i := range dst { // whose softplus is log-uniform in [0.001, 0.1)
			dt := math.Exp(math.Log(1e-3) + math.Log(100)*p.uniform(row+i, seed))
			dst[i] = float32(dt + math.Log(-math.Expm1(-dt)))
		}
		return
	case RoleRecurNorm, RoleRecurSkip, RoleLayerScalar, RoleRouterNorm, RoleExpertScales:
		fill(dst, 1)
		return
	case RoleXIELU: // so that a = softplus(α₀) and b = 1/2 + softplus(α₁) of op.XIELU are both 0.8
		for i := range dst {
			dst[i] = float32(math.Log(math.Expm1([...]float64{0.8, 0.3}[row+i])))
		}
		return
	case RoleRecurDecay: // decay rates: of Mamba-2 1, 2, …, of KDA uniform in [1, 16), of others in [0.01, 16)
		for i := range dst {
			if c.Mamba2 != nil {
				dst[i] = float32(math.Log(float64(row + i + 1)))
				continue
			}
			least := 0.01
			if c.KDA != nil {
				least = 1
			}
			dst[i] = float32(math.Log(least + (16-least)*p.uniform(row+i, seed)))
		}
		return
	case RoleRecurInBias, RoleRecurTapsBias, RoleRecurOutBias, RoleQKVBias, RoleQABias, RoleKVABias, RoleIndexKNormBias, RoleOBias, RoleGateUpBias, RoleUpBias, RoleDownBias, RoleAttnNormBias, RoleMLPNormBias, RoleFinalNormBias,
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

// uniform returns the random number from 0 to 1 of row number row of p.
func (p Param) uniform(row int, seed int64) float64 {
	part, local := p.storedOf(row)
	return rand.New(rand.NewPCG(rowKey(seed, part.Name, local))).Float64()
}

// storedOf returns the tensor of p that has row number row of p, and the row's number inside that tensor.
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
