package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/doctor"
	"mt/internal/testkit"
)

// TestFromReport: the measurements of a report become a file of rates that mt plan uses. An unreadable report is
// rejected.
func TestFromReport(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		testkit.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		return file
	}
	put("parts.txt", "matmul=done in 4 s\n")
	products := put("matmul.json", `{"device": "NVIDIA H100 80GB HBM3", "cores": 16, "tokens": 8192, "rows": [{"name": "down, forward", "dtype": "bf16", "m": 8192, "n": 3584, "k": 18944, "trans_b": true,
		"tflops": {"median": 700, "min": 690, "max": 710}, "predicted": 790, "measured": 700, "ratio": 0.886}]}`)
	if page := must(t, "bench", "report", dir); !strings.Contains(page, "- matmul: done in 4 s") || !strings.Contains(page, "| TFLOP/s | 790       | 700      | 0.89  |") {
		t.Errorf("the page is\n%s", page)
	}
	file := filepath.Join(t.TempDir(), "rates.json")
	out := must(t, "doctor", "--from-report", dir, "--save", file)
	for _, want := range []string{"device.products.bf16 8192×3584×18944 A·Bᵀ", "not measured, as in h100-sxm+ddr5-4800x8-16c: device.memory_gib, ", "saved " + file} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if out = must(t, "plan", "--model", "quickstart", "--gpu", file); !strings.Contains(out, "predicted for NVIDIA H100 80GB HBM3 (measured by mt bench") {
		t.Errorf("%s", out)
	}
	got := object(t, must(t, "doctor", "--from-report", products, "--profile", "h200+ddr5-4800x8", "--json"))
	if got["base"] != "h200+ddr5-4800x8" || got["machine"] == nil || got["changes"] == nil {
		t.Errorf("%v", got)
	}
	other := put("other.json", `{"device": "NVIDIA L40S", "cores": 8, "rows": []}`)
	unknown := filepath.Join(t.TempDir(), "matmul.json")
	testkit.NoError(t, os.WriteFile(unknown, []byte(`{"device": "NVIDIA H100 NVL", "tokens": 1, "rows": []}`), 0o644))
	for _, tt := range []struct {
		flags []string
		code  int
		want  string
	}{
		{[]string{dir}, 1, other + `: device is "NVIDIA L40S", and "NVIDIA H100 80GB HBM3" in ` + products},
		{[]string{unknown}, exitUsage, `no GPU is called "NVIDIA H100 NVL"`},
		{[]string{unknown}, exitUsage, "name rates to begin with by --profile"},
		{[]string{dir + "/none"}, exitUsage, "none: no such file or directory: name the folder of bench/gpu.sh --out"},
		{[]string{products, "--selftest"}, exitUsage, "--from-report and --selftest are two commands"},
		{[]string{products, "--profile", "h101"}, exitUsage, `no GPU is called "h101"`},
		{[]string{products, "--save", dir}, exitUsage, "that is a folder"},
	} {
		if code, _, stderr := mt(t, "", append([]string{"doctor", "--from-report"}, tt.flags...)...); code != tt.code || !strings.Contains(stderr, tt.want) {
			t.Errorf("%v: exit code %d and %q, want %d and %q", tt.flags, code, stderr, tt.code, tt.want)
		}
	}
}

// TestSelfTestReport: a report replaces the previous one, and does not touch the file into which bench/gpu.sh prints.
func TestSelfTestReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "selftest.json")
	testkit.NoError(t, os.WriteFile(file+".part", []byte("printed"), 0o644))
	for _, device := range []string{"one", "two"} {
		testkit.NoError(t, (selfTest{report: file}).save(&doctor.SelfTestReport{Device: device}))
		raw, err := os.ReadFile(file)
		if err != nil || object(t, string(raw))["device"] != device {
			t.Errorf("%s, %v", raw, err)
		}
	}
	if raw, err := os.ReadFile(file + ".part"); err != nil || string(raw) != "printed" {
		t.Errorf("%q, %v", raw, err)
	}
}
