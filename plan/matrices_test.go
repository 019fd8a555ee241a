package plan

import (
	"math"
	"testing"

	"mt/device"
	"mt/host/optim"
	"mt/internal/testkit"
	"mt/layers"
	"mt/model"
)

var muon = optim.Muon{Momentum: 0.95, NSSteps: 5, Adjust: optim.Original, Scale: 1, Others: optim.AdamW{}, OthersScale: 1}

// TestMuonsMemory: with Muon, a matrix takes 8 bytes a parameter on the host, 4 of weights and 4 of
// momentum; other tensors take 12. The table has rows for the device's matrix buffers and
// workspace. Preparing and applying matrices moves no more bytes than UpdateBytes predicts.
func TestMuonsMemory(t *testing.T) {
	c := &model.Config{Arch: "LlamaForCausalLM", ModelType: "llama", VocabSize: 256, HiddenSize: 256, IntermediateSize: 512, NumLayers: 2,
		NumHeads: 4, NumKVHeads: 2, HeadDim: 64, MaxPositions: 64, RMSNormEps: 1e-5, Rope: model.Rope{Type: "default", Theta: 10000}}
	r, err := Resolve(Request{Config: c, Act: device.BF16, Rows: 4, RowTokens: 32, Clip: true, Planes: muon.Planes, NSSteps: muon.NSSteps})
	testkit.NoError(t, err)
	// A block's matrices: q and o (256, 256), k and v (128, 256), gate and up (512, 256), down
	// (256, 512).
	const each, largest = 2*256*256 + 2*128*256 + 3*512*256, 512 * 256
	if got := len(r.Matrices(1)); got != 7 || len(r.Matrices(0))+len(r.Matrices(3)) != 0 {
		t.Errorf("%d matrices of a block", got)
	}
	rows := map[string]int64{}
	for _, row := range r.Table().Rows {
		rows[row.Where+" "+row.Purpose] += row.Bytes
	}
	others := int64(2*256*256 + 2*2*256 + 256)
	want := optim.Pages(4*each)*2 + 2*optim.Pages(4*256*256)*2 // and pages of vectors
	if got := rows["host moments"]; got < want || got > want+8*4096*4 {
		t.Errorf("moments of %d bytes, want %d for 8 bytes of %d and 4 of %d", got, want, others, 2*each)
	}
	if got := rows["host matrix buffers"]; got != 3*2*largest {
		t.Errorf("matrix buffers of %d bytes on the host", got)
	}
	if got := rows["device matrix buffers"]; got != 3*2*largest {
		t.Errorf("matrix buffers of %d bytes on the device", got)
	}
	if got, want := r.MatrixWorkspaceBytes(), int64(6*256*256+4*largest); got != want {
		t.Errorf("a workspace of %d bytes, want %d", got, want)
	}
	g := r.Gradients()[1]
	var moved float64
	for _, m := range r.Matrices(1) {
		moved += float64(r.PrepareBytes(1, m) + r.ApplyBytes(m))
	}
	if units := r.UnitBytes(1, g); moved != 24*each || units <= 0 || units > 28*2*(2*256)+28*2*128 {
		t.Errorf("matrices move %v bytes, want 24 of each of %d elements; all else %v", moved, each, units)
	}
	coded := muon
	coded.Bits, coded.Others = 8, optim.Quantised{By: optim.AdamW{}, Bits: 8}
	small, err := Resolve(Request{Config: c, Act: device.BF16, Rows: 4, RowTokens: 32, Clip: true, Planes: coded.Planes, NSSteps: muon.NSSteps})
	testkit.NoError(t, err)
	moved = 0
	for _, m := range small.Matrices(1) {
		moved += float64(small.PrepareBytes(1, m) + small.ApplyBytes(m))
	}
	if want := float64(18*each + 2*4*each/256); moved != want { // a scale for 256 elements
		t.Errorf("with a momentum of 8 bits matrices move %v bytes, want %v", moved, want)
	}
	if got := optim.Planes(coded.Planes).Bytes(small.Layouts[1]); got < each+4*each/256 || got > each+4*each/256+8*4*256*4 {
		t.Errorf("the momentum of 8 bits takes %d bytes of %d elements", got, each)
	}
	flops, bytes := r.matrixTraffic()
	if bytes != 2*2*each || math.Abs(flops/(2*each)/(20*256)-1.2) > 0.3 {
		t.Errorf("%v operations on %v bytes", flops, bytes)
	}
	b, err := Time(r, Rates{MatMul: flops, Host: 1e30, Link: 1e30})
	if err != nil || math.Abs(b.Matrices-1) > 1e-9 || b.Step < 1 {
		t.Errorf("the matrices take %v s of %v (%v)", b.Matrices, b.Step, err)
	}
}

// TestNewtonSchulzFLOPs: five iterations on a matrix with sides short and long take 20·short +
// 10·short²/long FLOPs for each of its short·long parameters.
func TestNewtonSchulzFLOPs(t *testing.T) {
	for _, sh := range [][2]int{{100, 700}, {700, 100}, {64, 64}} {
		short, long := float64(min(sh[0], sh[1])), float64(max(sh[0], sh[1]))
		if got, want := layers.NewtonSchulzFLOPs(sh[0], sh[1], 5), short*long*(20*short+10*short*short/long); got != want {
			t.Errorf("%v: %v, want %v", sh, got, want)
		}
	}
}
