package bench

import (
	"math"
	"strings"
	"testing"

	"mt/internal/testkit"
)

func TestPublished(t *testing.T) {
	r := testkit.Must(Published())(t)
	for _, f := range r.Figures {
		if f.System == "" || f.Hardware == "" || f.Value <= 0 || f.Source == "" {
			t.Errorf("incomplete: %+v", f)
		}
		if (f.Counts == countsUnsaid) != (f.TokensPerS == 0) {
			t.Errorf("%s of %s: %g tokens/s of a figure that counts %q", f.Unit, f.System, f.TokensPerS, f.Counts)
		}
	}
	// Qwen2.5-7B has 7,615,616,512 parameters, of which 544,997,376 are in the embedding and
	// 261,632 in norms and biases. These multiply nothing. Attention covers (1024+1)/2 positions on
	// average, in 28 blocks with 28 heads of 128 elements.
	f := PublishedFigure{Model: "qwen2.5-7b", RowTokens: 1024, Value: 284, Unit: "TFLOP/s", Counts: countsSix}
	testkit.NoError(t, f.convert())
	tokens := 284e12 / (6 * 7615616512)
	ours := tokens * (6*(7615616512-544997376-261632+128*28*0) + 12*28*28*128*512.5) / 1e12
	if math.Abs(f.TokensPerS-tokens) > 0.01 || math.Abs(f.ModelTFLOPS-ours) > 0.01 || math.Abs(f.SixTFLOPS-284) > 1e-9 {
		t.Errorf("%+v, want %g tokens/s and %g TFLOP/s", f, tokens, ours)
	}
	bare := PublishedFigure{Model: "qwen2.5-7b", Value: 100, Unit: "tokens/s", Counts: countsTokens}
	if err := bare.convert(); err != nil || bare.TokensPerS != 100 || bare.ModelTFLOPS >= 100*ours/tokens {
		t.Errorf("%v: %+v, want less than with attention", err, bare)
	}
	for _, bad := range []PublishedFigure{{Model: "none"}, {Model: "tiny", Unit: "TFLOP/s", Counts: countsTokens}, {Model: "tiny", Counts: "fours"}} {
		if err := bad.convert(); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	var table strings.Builder
	if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "MegaTrain") || strings.Count(table.String(), "\n") != len(r.Figures)+4 {
		t.Errorf("%v\n%s", err, &table)
	}
}
