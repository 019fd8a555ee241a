package train

import (
	"bytes"
	"testing"

	"mt/device"
	"mt/internal/long"
	"mt/model"
)

// A run with aliased layers moves what one without moves, takes less of the host, and
// leaves weights as they are; its plan is that of the whole model.
func TestAliasedLayersMoveTheSame(t *testing.T) {
	if long.Race {
		t.Skip("layers that share memory are read and updated at the same time: what they compute means nothing")
	}
	shape := map[string]any{"model_type": "llama", "hidden_size": int64(64), "intermediate_size": int64(128), "num_hidden_layers": int64(6), "num_attention_heads": int64(4),
		"num_key_value_heads": int64(2), "vocab_size": int64(128), "max_position_embeddings": int64(64), "tie_word_embeddings": false, "head_dim": int64(16)}
	c, err := model.FromInline(shape, "test")
	if err != nil {
		t.Fatal(err)
	}
	run := func(alias bool) (up, down, taken, whole int64) {
		s, err := StartSynthetic(SyntheticOptions{Model: c, Rows: 2, SeqLen: 32, Act: device.BF16, Threads: 2, NoClip: true, Recompute: "auto", AliasLayers: alias})
		if err != nil {
			t.Fatal(err)
		}
		var before [][]byte
		for _, l := range s.store.Layers {
			before = append(before, bytes.Clone(l.Tile))
		}
		reports, err := s.Run(3)
		if err != nil {
			t.Fatal(err)
		}
		same := true
		for i, l := range s.store.Layers {
			same = same && bytes.Equal(before[i], l.Tile)
		}
		if same != alias {
			t.Errorf("aliased %v: the weights are as before: %v", alias, same)
		}
		if s.store.Aliased() != alias {
			t.Errorf("aliased %v: the store says %v", alias, s.store.Aliased())
		}
		taken, whole = s.HostBytes()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		for _, r := range reports {
			up, down = up+r.H2D, down+r.D2H
		}
		return up, down, taken, whole
	}
	up, down, taken, whole := run(false)
	if taken != whole {
		t.Errorf("takes %d of %d", taken, whole)
	}
	aliasedUp, aliasedDown, less, wholeToo := run(true)
	if up != aliasedUp || down != aliasedDown || up == 0 || down == 0 {
		t.Errorf("moved %d up and %d down, aliased %d and %d", up, down, aliasedUp, aliasedDown)
	}
	if wholeToo != whole || whole-less < 5*64*128*3*12 {
		t.Errorf("aliased it takes %d of %d, else %d", less, wholeToo, whole)
	}
}
