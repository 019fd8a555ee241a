package main

import (
	"strings"
	"testing"
)

// events joins lines of go test -json for package p.
func events(lines ...string) string { return strings.Join(lines, "\n") + "\n" }

func TestSummary(t *testing.T) {
	const passing = `{"Action":"pass","Package":"p","Test":"TestA"}`
	const ended = `{"Action":"pass","Package":"p","Elapsed":1.25}`
	tests := []struct {
		name, in string
		want     []string // parts of the output, in order
		err      string   // part of the error; "" for none
	}{
		{
			"all pass", events(passing, ended),
			[]string{"ok  \tp\t1.2s\n", "1 passed, 0 failed, 0 skipped\n"}, "",
		},
		{
			"skips by reason", events(
				passing,
				`{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN   TestB\n"}`,
				`{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:9: no fixtures here\n"}`,
				`{"Action":"output","Package":"p","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}`,
				`{"Action":"skip","Package":"p","Test":"TestB"}`,
				`{"Action":"output","Package":"p","Test":"TestC/x","Output":"    c_test.go:10: no fixtures here\n"}`,
				`{"Action":"skip","Package":"p","Test":"TestC/x"}`,
				`{"Action":"skip","Package":"p","Test":"TestD"}`,
				ended,
			),
			[]string{
				"skipped 2: no fixtures here (p TestB and 1 more)\n",
				"skipped 1: (no reason given) (p TestD)\n",
				"1 passed, 0 failed, 3 skipped\n",
			}, "",
		},
		{
			"as many skips for two reasons", events(
				passing,
				`{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:9: no GPU\n"}`,
				`{"Action":"skip","Package":"p","Test":"TestB"}`,
				`{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:9: no fixtures\n"}`,
				`{"Action":"skip","Package":"p","Test":"TestC"}`,
				ended,
			),
			[]string{"skipped 1: no GPU (p TestB)\n", "skipped 1: no fixtures (p TestC)\n"}, "",
		},
		{
			"a failure shows its output and no other's", events(
				`{"Action":"output","Package":"p","Test":"TestA","Output":"quiet\n"}`,
				`{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:9: got 1\n"}`,
				passing,
				`{"Action":"fail","Package":"p","Test":"TestB"}`,
				`{"Action":"output","Package":"p","Output":"FAIL\n"}`,
				`{"Action":"fail","Package":"p","Elapsed":0.5}`,
			),
			[]string{"FAIL\tp\t0.5s\n", "--- p TestB\n", "    b_test.go:9: got 1\n", "1 passed, 1 failed, 0 skipped\n"},
			"1 tests failed in 1 packages",
		},
		{
			"a crash in a test", events(
				passing,
				`{"Action":"output","Package":"p","Test":"TestB","Output":"panic: at 7\n"}`,
				`{"Action":"output","Package":"pq","Test":"TestB","Output":"quiet\n"}`,
				`{"Action":"fail","Package":"p","Elapsed":0.5}`,
			),
			[]string{"panic: at 7\n"}, "0 tests failed in 1 packages",
		},
		{
			"a package that does not build", events(
				`{"Action":"build-output","ImportPath":"p","Output":"p/a.go:1: undefined: x\n"}`,
				`{"Action":"build-fail","ImportPath":"p"}`,
				`{"Action":"fail","Package":"p","Elapsed":0}`,
				`{"Action":"pass","Package":"q","Test":"TestA"}`,
			),
			[]string{"p/a.go:1: undefined: x\n", "1 passed, 0 failed"},
			"0 tests failed in 1 packages",
		},
		{
			"a crash outside any test", events(passing, "fatal error: out of memory", `{"Action":"fail","Package":"p"}`),
			[]string{"fatal error: out of memory\n"}, "0 tests failed in 1 packages",
		},
		{"nothing ran", events(`{"Action":"skip","Package":"p"}`), []string{"?   \tp\t[no test files]\n"}, "no test ran"},
		{"empty input", "", []string{"0 passed"}, "no test ran"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := read(strings.NewReader(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			err = s.print(&b)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			rest := b.String()
			for _, part := range tt.want {
				_, after, ok := strings.Cut(rest, part)
				if !ok {
					t.Fatalf("output\n%s\nlacks %q, or has it too early", b.String(), part)
				}
				rest = after
			}
			if strings.Contains(b.String(), "quiet") {
				t.Errorf("output of a test that passed is shown:\n%s", b.String())
			}
		})
	}
}
