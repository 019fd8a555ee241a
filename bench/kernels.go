package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// KernelsOptions selects the operations whose kernels are counted, and the GPU whose times are modelled.
type KernelsOptions struct {
	GPU string // name for plan/rates: h100, rtx-4090
	// Only lists the operations to count, by name; empty: all.
	Only []string
	Log  func(string) // is called with the operation that is counted next; may be nil
}

// KernelsReport has the emulator's counts of mt's own kernels, and their times on a GPU by a model.
type KernelsReport struct {
	GPU        string            `json:"gpu"`
	Operations []KernelOperation `json:"operations"`
}

// KernelOperation is one operation at one shape. Times are in seconds.
type KernelOperation struct {
	Name  string  `json:"name"`
	Shape string  `json:"shape"`
	FLOPs float64 `json:"flops,omitempty"`
	Bytes int64   `json:"bytes"` // minimum traffic, whatever the implementation
	// Roofline is the longer of two times on the GPU: for FLOPs and for Bytes, at the peak rates of the datasheet.
	Roofline float64     `json:"roofline_s"`
	Bound    float64     `json:"bound_s"`    // least possible time by the model, summed over the launches
	Expected float64     `json:"expected_s"` // expected time by the model, summed over the launches
	Launches []KernelRow `json:"launches"`
}

// KernelRow has the counts and the modelled times of one kernel launch.
type KernelRow struct {
	Kernel    string `json:"kernel"`
	Blocks    int    `json:"blocks"`
	Threads   int    `json:"threads"`
	Registers int    `json:"registers"`
	Shared    int    `json:"shared_bytes"`
	// Numbers of blocks and warps that one multiprocessor holds at a time, and the resource that limits them.
	ResidentBlocks int    `json:"resident_blocks"`
	ResidentWarps  int    `json:"resident_warps"`
	Limit          string `json:"limit"`
	// Counts has the number of warp instructions by class, and the emulator's other counters.
	Counts    map[string]int64 `json:"counts"`
	Memory    int64            `json:"memory_bytes"`
	Ran       int              `json:"blocks_run"`
	Deviation float64          `json:"deviation"`
	// Busy has, for each resource of the GPU, the seconds that the launch keeps it busy.
	Busy     map[string]float64 `json:"busy_s"`
	Bound    float64            `json:"bound_s"`
	By       string             `json:"bound_by"`
	Expected float64            `json:"expected_s"`
	// Sectors is the mean number of 32-byte sectors that a request to global memory touches. Conflicts is the fraction
	// of shared-memory wavefronts that bank conflicts cause.
	Sectors   float64 `json:"sectors_per_request"`
	Conflicts float64 `json:"conflicts"`
}

// countKernels implements Kernels. It is nil in builds without the emulator.
var countKernels func(ctx context.Context, o KernelsOptions) (*KernelsReport, error)

// Kernels counts mt's own kernels in the emulator. In builds without the emulator it returns an error.
func Kernels(ctx context.Context, o KernelsOptions) (*KernelsReport, error) {
	if countKernels == nil {
		return nil, errors.New("bench kernels: this mt has no emulator to count in: build one with go build -tags emu ./cmd/mt")
	}
	r, err := countKernels(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("bench kernels: %w", err)
	}
	return r, nil
}

// WriteTable prints the report as a table.
func (r *KernelsReport) WriteTable(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "our kernels on %s: COUNTED IN AN EMULATOR AND PREDICTED BY A MODEL, not measured; times in µs\n", r.GPU); err != nil {
		return err
	}
	rows := [][]string{{"operation or kernel", "roofline", "bound", "by", "expected", "reaches", "warps", "limit", "sectors", "conflicts"}}
	for _, o := range r.Operations {
		rows = append(rows, []string{o.Name + ", " + o.Shape, micro(o.Roofline), micro(o.Bound), "", micro(o.Expected), o.reaches(), "", "", "", ""})
		for _, l := range o.Launches {
			rows = append(rows, []string{l.Kernel, "", micro(l.Bound), l.By, micro(l.Expected), fmt.Sprintf("%.0f %% of bound", 100*l.Bound/l.Expected),
				strconv.Itoa(l.ResidentWarps), l.Limit, fmt.Sprintf("%.1f", l.Sectors), fmt.Sprintf("%.1f %%", 100*l.Conflicts)})
		}
	}
	return writeTable(w, rows)
}

// reaches formats the rate that an operation is expected to reach.
func (o *KernelOperation) reaches() string {
	if o.FLOPs > 0 {
		return fmt.Sprintf("%.1f TFLOP/s", o.FLOPs/o.Expected/1e12)
	}
	return fmt.Sprintf("%.0f GB/s", float64(o.Bytes)/o.Expected/1e9)
}

// micro formats seconds as microseconds.
func micro(s float64) string { return fmt.Sprintf("%.1f", s*1e6) }
