package bench

import (
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
)

// whole formats the median and range of s without decimals.
func whole(s Sample) string { return fmt.Sprintf("%.0f [%.0f–%.0f]", s.Median, s.Min, s.Max) }

// geomean returns the geometric mean of x, or 1 for an empty x.
func geomean(x []float64) float64 {
	var sum float64
	for _, v := range x {
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(max(len(x), 1)))
}

// loadNow returns the load average of the last minute: the mean number of threads that were running or ready to run on
// the machine. 0: unknown.
func loadNow() float64 {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	var load float64
	if _, err := fmt.Sscan(string(raw), &load); err != nil {
		return 0
	}
	return load
}

// busy returns a warning for a report if the machine was busy with other programs. load is the load
// average before the start; "" on an idle machine. Programs whose threads spin while they wait, as
// OpenMP's do, lose far more speed to other programs than others do.
func busy(load float64) string {
	if load < 0.25*float64(runtime.NumCPU()) {
		return ""
	}
	return fmt.Sprintf("other programs were running (load %.1f on %d cores): do not trust these ratios\n", load, runtime.NumCPU())
}

// writeTable prints rows as a table of right-aligned columns.
func writeTable(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, cells := range rows {
		if _, err := fmt.Fprintln(t, strings.Join(cells, "\t")+"\t"); err != nil {
			return err
		}
	}
	return t.Flush()
}
