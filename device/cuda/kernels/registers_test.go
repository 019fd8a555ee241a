package kernels_test

import (
	"os"
	"strings"
	"testing"

	"mt/device/cuda/kernels"
	"mt/internal/testkit"
)

// TestRegisters: registers.txt lists exactly the existing kernels, with the static shared memory
// that their PTX declares. check.sh, not this test, compares the registers with ptxas.
func TestRegisters(t *testing.T) {
	testkit.NotShort(t)
	text := testkit.Must(os.ReadFile("registers.txt"))(t)
	listed := strings.Count(string(text), "\n") - 1
	for _, of := range kernels.Modules() {
		m := testkit.Must(module(of))(t)
		for _, name := range m.Kernels() {
			listed--
			architectures := []string{"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}
			if strings.HasSuffix(of, "_sm90a") {
				architectures = []string{"sm_90"}
			}
			for _, a := range architectures {
				u, err := kernels.UseOn(name, a)
				if err != nil {
					t.Error(err, "- check.sh -rewrite adds it")
				} else if u.Registers < 6 || u.Registers > 255 || u.Static != m.Kernel(name).StaticShared {
					t.Errorf("%s on %s: %+v, and its PTX declares %d bytes of shared memory", name, a, u, m.Kernel(name).StaticShared)
				}
			}
		}
	}
	if listed != 0 {
		t.Errorf("registers.txt has %d kernels more than there are", listed)
	}
	for _, c := range []struct{ kernel, architecture, want string }{
		{"no_such", "sm_80", "no kernel no_such"},
		{"attention_sm90a_forward_d128", "sm_80", "on sm_80 (known: sm_90)"},
		{"scale_f32", "sm_70", "on sm_70 (known: sm_100, sm_120, sm_80, sm_86, sm_89, sm_90)"},
	} {
		if _, err := kernels.UseOn(c.kernel, c.architecture); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s on %s: error %v, want one with %q", c.kernel, c.architecture, err, c.want)
		}
	}
}
