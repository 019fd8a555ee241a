package rates

import (
	"math"
	"testing"

	"mt/device"
	"mt/internal/testkit"
)

// TestBeside: the ratio is measured over predicted, and without a prediction there is no ratio.
func TestBeside(t *testing.T) {
	if b := Against(4, 5); b != (Beside{4, 5, 1.25}) {
		t.Errorf("%+v", b)
	}
	if p, r := Against(12345.678, 12345.678).Words(); p != "12350" || r != "1.00" {
		t.Errorf("%s, %s", p, r)
	}
	b := Against(0, 5)
	if p, r := b.Words(); b != (Beside{0, 5, 0}) || p != "" || r != "" {
		t.Errorf("%+v, %q, %q", b, p, r)
	}
}

// TestSeconds: ProductSeconds and AttentionSeconds predict the times that Costs gives for the same
// operations. Both return 0 if the machine has no rates of the dtype.
func TestSeconds(t *testing.T) {
	m := testkit.Must(Find("h100"))(t)
	m.Device.Products["bf16"], m.Device.Launch, m.Device.Bandwidth = []Product{{M: 256, N: 512, K: 1024, Rate: 100}}, 3, 1e4
	if got, want := m.ProductSeconds(Product{M: 256, N: 512, K: 1024}, device.BF16, true), 3e-6+2*256*512*1024/100e12; math.Abs(got-want) > 1e-9*want {
		t.Errorf("%g s, want %g", got, want)
	}
	m.Device.Attention["bf16"] = []Attention{{Length: 64, Dim: 128, Forward: 10, Backward: 5}}
	for backward, want := range map[bool]float64{false: 3e-6 + 2*2*64*65*8*128/10e12, true: 3e-6 + 5*2*64*65*8*128/5e12} {
		for _, tokens := range []int{64, 128} { // one sequence, though it may be longer, and two
			want := 3e-6 + (want-3e-6)/2*float64(tokens/64)
			if got := m.AttentionSeconds(tokens, map[int]int{64: 1000, 128: 64}[tokens], 8, 2, 128, device.BF16, backward); math.Abs(got-want) > 1e-6*want {
				t.Errorf("backward %v, %d tokens: %g s, want %g", backward, tokens, got, want)
			}
		}
	}
	delete(m.Device.Products, "fp32")
	delete(m.Device.Attention, "fp32")
	for _, m := range []*Machine{nil, m} {
		if a, b := m.ProductSeconds(Product{M: 1, N: 1, K: 1}, device.F32, false), m.AttentionSeconds(1, 1, 1, 1, 1, device.F32, false); a != 0 || b != 0 {
			t.Errorf("%g and %g s by no rate", a, b)
		}
	}
}
