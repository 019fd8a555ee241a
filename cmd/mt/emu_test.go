package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestEmulatorCompiles: the code under the build tag emu compiles. Linking and running it takes
// longer and is left to TestEmulatorBuild.
func TestEmulatorCompiles(t *testing.T) {
	testkit.NotShort(t)
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("go is not in the path")
	}
	if out, err := exec.Command(goTool, "build", "-tags", "emu", "mt/internal/run/machine", "mt/bench").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestEmulatorBuild: mt built with the tag emu says so, and trains with device: cuda on any machine. The test is long
// because it links mt again.
func TestEmulatorBuild(t *testing.T) {
	testkit.LongOnly(t)
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("go is not in the path")
	}
	dir := t.TempDir()
	bin, rows := filepath.Join(dir, "mt"), filepath.Join(dir, "x.jsonl")
	if out, err := exec.Command(goTool, "build", "-ldflags=-s -w", "-tags", "emu", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	testkit.NoError(t, os.WriteFile(rows, []byte(strings.Repeat(`{"input_ids": [5, 6, 7, 8]}`+"\n", 8)), 0o600))
	for _, tc := range []struct{ args, want string }{
		{"version", "device: cuda is an emulator"},
		{"doctor", "Emulated GPU"},
		{"doctor --selftest --device cuda --only Scale/bf16,portable-attention", "AttentionBackward bf16 by the kernels for all GPUs"},
		{"train --model tiny --dataset " + rows + " --cache-dir " + dir + " --max-steps 2 --logging-steps 1 --device cuda --output-dir " + dir + "/out", "step 2/2"},
		{"bench kernels --device emu --gpu a100 --only Scale", "scale16_bf16"},
		{"bench kernels --gpu rtx-4090 --only Scale --json", `"bound_by": "memory"`},
	} {
		if out, err := exec.Command(bin, strings.Fields(tc.args)...).CombinedOutput(); err != nil || !strings.Contains(string(out), tc.want) {
			t.Errorf("mt %s: %v, %q is not in\n%s", tc.args, err, tc.want, out)
		}
	}
	for _, tc := range []struct{ args, want string }{
		{"bench kernels --gpu voodoo2", "no GPU is called"},
		{"bench kernels --only Scale,Scael", `no operation "Scael" is counted (known: Attention, `},
	} {
		if out, err := exec.Command(bin, strings.Fields(tc.args)...).CombinedOutput(); err == nil || !strings.Contains(string(out), tc.want) {
			t.Errorf("mt %s: %v, %q is not in\n%s", tc.args, err, tc.want, out)
		}
	}
}
