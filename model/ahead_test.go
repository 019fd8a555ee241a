package model

import (
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestLayerNameOfPredictionAhead: the layers around the block of multi-token prediction have names of their own.
func TestLayerNameOfPredictionAhead(t *testing.T) {
	c, err := parse(t, small("glm4_moe", map[string]any{"n_routed_experts": 3, "first_k_dense_replace": 1, "num_hidden_layers": 2}))
	testkit.NoError(t, err)
	testkit.NoError(t, c.PredictAhead())
	var kinds []LayerKind
	for _, l := range c.Layers() {
		kinds = append(kinds, l.Kind)
	}
	var names []string
	for i := range kinds {
		names = append(names, LayerName(kinds, i))
	}
	if got, want := strings.Join(names, ", "), "layer 0, layer 1 (block 0), layer 2 (attention of block 1), layer 3 (experts of block 1), layer 4 (input of multi-token prediction), "+
		"layer 5 (attention of block 2), layer 6 (experts of block 2), layer 7 (norm of multi-token prediction), layer 8"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestOwnEmbeddingAhead: a module that has its own embedding is not trained.
func TestOwnEmbeddingAhead(t *testing.T) {
	c, err := parse(t, changed("qwen3_5_text", map[string]any{"mtp_use_dedicated_embeddings": true}))
	testkit.NoError(t, err)
	if err := c.PredictAhead(); err == nil || !strings.Contains(err.Error(), "mtp_use_dedicated_embeddings: ") || c.Ahead != 0 {
		t.Errorf("%v, and %d modules", err, c.Ahead)
	}
}
