package kernels_test

import (
	"regexp"
	"strings"
	"testing"

	"mt/cudart/emu/ptx"
	"mt/device/conformance"
	"mt/device/cuda/kernels"
	"mt/internal/testkit"
)

var (
	product = regexp.MustCompile(`^\s*mul\.f32\s+(%f\d+), (\S+), (\S+);$`)
	sum     = regexp.MustCompile(`^\s*(add|sub)\.f32\s+(%f\d+), (\S+), (\S+);$`)
	result  = regexp.MustCompile(`^\s*(?:@\S+\s+)?\S+\s+\{?(%f\d+)`)
)

// contracted returns PTX in which a multiplication followed by an addition in straight-line code is
// one fma instruction, as a driver's compiler may generate. It also returns the number of these
// fma.
func contracted(source string) (string, int) {
	type factors struct{ a, b string }
	known, made := map[string]factors{}, 0
	lines := strings.SplitAfter(source, "\n")
	for i, line := range lines {
		text := strings.TrimRight(line, "\n")
		if strings.HasPrefix(text, "$") || strings.Contains(text, "bra") || strings.ContainsAny(text, "{}") {
			clear(known)
			continue
		}
		if m := sum.FindStringSubmatch(text); m != nil {
			to, a, b, minus := m[2], m[3], m[4], m[1] == "sub"
			f, first := known[a]
			g, second := known[b]
			switch {
			case first && minus:
				lines[i] = "{ .reg .f32 n; neg.f32 n, " + b + "; fma.rn.f32 " + to + ", " + f.a + ", " + f.b + ", n; }\n"
			case first:
				lines[i] = "fma.rn.f32 " + to + ", " + f.a + ", " + f.b + ", " + b + ";\n"
			case second && minus:
				lines[i] = "{ .reg .f32 n; neg.f32 n, " + g.a + "; fma.rn.f32 " + to + ", n, " + g.b + ", " + a + ";}\n"
			case second:
				lines[i] = "fma.rn.f32 " + to + ", " + g.a + ", " + g.b + ", " + a + ";\n"
			}
			if first || second {
				made++
			}
		}
		if m := result.FindStringSubmatch(text); m != nil { // the register is overwritten here
			delete(known, m[1])
			for r, f := range known {
				if f.a == m[1] || f.b == m[1] {
					delete(known, r)
				}
			}
		}
		if m := product.FindStringSubmatch(text); m != nil && m[1] != m[2] && m[1] != m[3] {
			known[m[1]] = factors{m[2], m[3]}
		}
	}
	return strings.Join(lines, ""), made
}

// TestContracted: if the driver's compiler contracts products and sums to fma, results stay within
// the bounds of the conformance tests, and operations that promise equal bits keep that promise.
// Without MT_LONG it runs one in 15 cases of the operations whose kernels change.
func TestContracted(t *testing.T) {
	testkit.NotShort(t)
	dev, made := newRig(), map[string]int{}
	for _, name := range kernels.Modules() {
		text, n := contracted(string(kernels.PTX(name)))
		if n == 0 {
			continue
		}
		m := testkit.Must(ptx.Parse(name+".ptx", text))(t)
		dev.modules[name], made[name] = m, n
	}
	t.Logf("%v sums are contracted", made)
	if made["layernorm"] < 12 || made["crossentropy_terms"] < 4 {
		t.Errorf("%v sums are contracted: layernorm has 12, crossentropy_terms 4", made)
	}
	some := conformance.OneIn(15)
	conformance.SomeOperations(t, dev, func(name string) bool {
		changed := strings.HasPrefix(name, "CrossEntropy") || strings.HasPrefix(name, "LayerNorm")
		return changed && (testkit.LongAsked() || some(name))
	})
}
