package bench

import (
	"context"
	"errors"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestKernelsTable: the table says that nothing was measured, and has rates of operations and shares of launches.
func TestKernelsTable(t *testing.T) {
	r := &KernelsReport{GPU: "h100-sxm", Operations: []KernelOperation{
		{Name: "Attention", Shape: "1 × 8", FLOPs: 3e6, Roofline: 1e-6, Bound: 2e-6, Expected: 4e-6, Launches: []KernelRow{
			{Kernel: "attention_forward", Bound: 2e-6, By: "tensor", Expected: 4e-6, ResidentWarps: 8, Limit: "registers", Sectors: 15.75, Conflicts: 0.25}}},
		{Name: "Scale", Shape: "7", Bytes: 4e6, Roofline: 1e-6, Bound: 1e-6, Expected: 2e-6},
	}}
	var b strings.Builder
	testkit.NoError(t, r.WriteTable(&b))
	for _, want := range []string{"COUNTED IN AN EMULATOR", "not measured", "0.8 TFLOP/s", "2000 GB/s", "50 % of bound", "tensor", "registers", "15.8", "25.0 %"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

// TestKernelsNeedTheEmulator: a build without the emulator explains how to get one, and errors name the command.
func TestKernelsNeedTheEmulator(t *testing.T) {
	old := countKernels
	defer func() { countKernels = old }()
	countKernels = nil
	if _, err := Kernels(context.Background(), KernelsOptions{}); err == nil || !strings.Contains(err.Error(), "go build -tags emu ./cmd/mt") {
		t.Errorf("without an emulator: error %v", err)
	}
	countKernels = func(context.Context, KernelsOptions) (*KernelsReport, error) { return nil, errors.New("lost") }
	if _, err := Kernels(context.Background(), KernelsOptions{}); err == nil || err.Error() != "bench kernels: lost" {
		t.Errorf("a failure: error %v", err)
	}
}
