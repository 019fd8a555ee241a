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

// whole prints s without digits after the point.
func whole(s Sample) string { return fmt.Sprintf("%.0f [%.0f–%.0f]", s.Median, s.Min, s.Max) }

// geomean is the geometric mean of x, and 1 where x is empty.
func geomean(x []float64) float64 {
	var sum float64
	for _, v := range x {
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(max(len(x), 1)))
}

// loadNow is the number of threads that ran or wanted to, on the whole machine,
// in the last minute; 0 where the system does not tell.
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

// busy is a line that warns of what else ran when the load was measured, empty
// on a machine at rest. Programs that wait in a spin, as OpenMP's do, lose far
// more to a neighbour than others.
func busy(load float64) string {
	if load < 0.25*float64(runtime.NumCPU()) {
		return ""
	}
	return fmt.Sprintf("other programs were running (load %.1f on %d cores): do not trust these ratios\n", load, runtime.NumCPU())
}

// writeTable aligns rows of cells in columns, numbers to the right.
func writeTable(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, cells := range rows {
		if _, err := fmt.Fprintln(t, strings.Join(cells, "\t")+"\t"); err != nil {
			return err
		}
	}
	return t.Flush()
}
