package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"mt/data"
	"mt/internal/run/settings"
)

func TestFit(t *testing.T) {
	texts := []string{"█░ step 1", "step 1", "st"}
	for _, tc := range []struct {
		width int
		want  string
	}{{0, "█░ step 1"}, {9, "█░ step 1"}, {8, "step 1"}, {6, "step 1"}, {5, "st"}, {1, "s"}, {-1, "█░ step 1"}} {
		if got := fit(tc.width, texts); got != tc.want {
			t.Errorf("%d columns: %q, want %q", tc.width, got, tc.want)
		}
	}
}

// TestStepFitsATerminal: the progress line of a long run fits the usual 80 columns, with the loss
// and the remaining time.
func TestStepFitsATerminal(t *testing.T) {
	m := StepMetrics{Step: 123456, MaxSteps: 200000, Loss: 12.3456, GradNorm: 1234.567, LR: 1e-5, TokPerS: 123456, WindowSteps: 10, EtaS: 99 * 3600}
	for _, width := range []int{200, 80, 60} {
		got := fit(width-1, m.texts(true, "▇▆▅▅▄▄▃▂▂▂▁▁"))
		if len([]rune(got)) >= width || !strings.Contains(got, "loss 12.3456") || !strings.Contains(got, "ETA 99h00m") {
			t.Errorf("%d columns: %q", width, got)
		}
	}
	m.Step, m.MaxSteps, m.EtaS = 400, 999, 60
	if got := fit(79, m.texts(true, "▇▆▅▅▄▄▃▂▂▂▁▁")); !strings.HasPrefix(got, "step 400/999  loss 12.3456 ▇▆▅▅▄▄▃▂▂▂▁▁  123,456 tok/s") {
		t.Errorf("80 columns: %q", got)
	}
	if got := m.texts(true, ""); !strings.HasPrefix(got[0], "████████░░") || !strings.Contains(got[0], "  loss 12.3456  1") {
		t.Errorf("without a sparkline: %q", got)
	}
	if got := m.texts(false, "▇▁"); strings.ContainsRune(got[0], '▇') || len(got) != 1 || strings.Contains(got[0], "░") || !strings.Contains(got[0], "grad_norm 1234.567") {
		t.Errorf("elsewhere: %q", got)
	}
}

// TestProgressOfSlowWork: checking a token cache or pinning memory prints a progress line only if
// it is slow.
func TestProgressOfSlowWork(t *testing.T) {
	const total = 100 << 20
	for _, tc := range []struct {
		name        string
		interactive bool
		tenth       time.Duration // that a tenth of the work takes
		want        string
	}{
		{"quick", false, slowWork / 11, ""},
		{"quick, on a terminal", true, slowWork / 11, ""},
		{"slow", false, slowWork / 5, "check token cache: 50 MiB of 100 MiB\n"},
		{"slow, on a terminal", true, slowWork / 8,
			"\rcheck token cache: 80 MiB of 100 MiB\rcheck token cache: 90 MiB of 100 MiB\rcheck token cache: 100 MiB of 100 MiB\n"},
	} {
		var out bytes.Buffer
		clock := time.Unix(0, 0)
		show := progressBy(settings.Options{Stderr: &out, Interactive: tc.interactive}, func() time.Time { return clock })
		for tenth := range int64(11) {
			show(total*tenth/10, total, data.CheckingCache)
			clock = clock.Add(tc.tenth)
		}
		if out.String() != tc.want {
			t.Errorf("%s:\n%q, want\n%q", tc.name, out.String(), tc.want)
		}
		out.Reset()
		for tenth := range int64(11) {
			show(total*tenth/10, total, Pinning)
			clock = clock.Add(tc.tenth)
		}
		if want := strings.ReplaceAll(tc.want, data.CheckingCache, Pinning); out.String() != want {
			t.Errorf("pinning, %s:\n%q, want\n%q", tc.name, out.String(), want)
		}
	}
}

func TestProgressOfReading(t *testing.T) {
	const total = 100 << 20
	for _, tc := range []struct {
		name        string
		interactive bool
		total       int64
		want        string
	}{
		{"a pipe gets a line for each tenth, and the work's end once", false, total,
			"a: 5.0 MiB of 100 MiB\na: 50 MiB of 100 MiB\na: 100 MiB of 100 MiB\nb: 100 MiB of 100 MiB\n"},
		{"a terminal is drawn over", true, total,
			"\ra: 5.0 MiB of 100 MiB\ra: 6.0 MiB of 100 MiB\ra: 50 MiB of 100 MiB \ra: 100 MiB of 100 MiB\n\rb: 100 MiB of 100 MiB\n"},
		{"little is read before it could be shown", true, quickRead - 1, ""},
	} {
		var out bytes.Buffer
		show := Reading(settings.Options{Stderr: &out, Interactive: tc.interactive})
		for _, percent := range []int64{5, 6, 50, 100, 100} {
			show(tc.total*percent/100, tc.total, "a")
		}
		show(tc.total, tc.total, "b")
		if out.String() != tc.want {
			t.Errorf("%s:\n%q, want\n%q", tc.name, out.String(), tc.want)
		}
	}
}
