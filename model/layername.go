package model

import (
	"fmt"
	"slices"
)

// LayerName is a name of layer i for people, in a model whose layers have these kinds. A
// block with experts is two layers, so the layer's number alone would not lead to the block.
func LayerName(kinds []LayerKind, i int) string {
	what := ""
	switch kinds[i] {
	case Attention:
		what = "attention of "
	case MoE:
		what = "experts of "
	}
	if kinds[i] == Embedding || kinds[i] == Head || !slices.Contains(kinds, MoE) {
		return fmt.Sprintf("layer %d", i)
	}
	block := 0
	for _, k := range kinds[:i] {
		if k == Block || k == MoE {
			block++
		}
	}
	return fmt.Sprintf("layer %d (%sblock %d)", i, what, block)
}
