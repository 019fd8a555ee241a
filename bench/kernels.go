package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// KernelsOptions say which kernels are counted, and on which GPU they are to be judged.
type KernelsOptions struct {
	GPU string // as plan/rates finds it: h100, rtx-4090
	// Only are the operations that are counted, by name; none: all.
	Only []string
	Log  func(string) // told what is counted next; may be nil
}

// KernelsReport is what kernels do, counted by the emulator, and what a GPU takes for it by a model.
type KernelsReport struct {
	GPU        string            `json:"gpu"`
	Operations []KernelOperation `json:"operations"`
}

// KernelOperation is an operation at a shape. Times are in seconds.
type KernelOperation struct {
	Name  string  `json:"name"`
	Shape string  `json:"shape"`
	FLOPs float64 `json:"flops,omitempty"`
	Bytes int64   `json:"bytes"` // that must move, whatever computes it
	// Roofline is what the GPU takes for FLOPs or Bytes at the datasheet's peaks.
	Roofline float64     `json:"roofline_s"`
	Bound    float64     `json:"bound_s"`    // the sum over the launches
	Expected float64     `json:"expected_s"` // the same
	Launches []KernelRow `json:"launches"`
}

// KernelRow is one launch.
type KernelRow struct {
	Kernel    string `json:"kernel"`
	Blocks    int    `json:"blocks"`
	Threads   int    `json:"threads"`
	Registers int    `json:"registers"`
	Shared    int    `json:"shared_bytes"`
	// What a multiprocessor holds at a time, and of what it has no more.
	ResidentBlocks int    `json:"resident_blocks"`
	ResidentWarps  int    `json:"resident_warps"`
	Limit          string `json:"limit"`
	// Counts are instructions of warps by class, and what else was counted.
	Counts    map[string]int64 `json:"counts"`
	Memory    int64            `json:"memory_bytes"`
	Ran       int              `json:"blocks_run"`
	Deviation float64          `json:"deviation"`
	// Busy is how long each resource of the GPU is busy.
	Busy     map[string]float64 `json:"busy_s"`
	Bound    float64            `json:"bound_s"`
	By       string             `json:"bound_by"`
	Expected float64            `json:"expected_s"`
	// Sectors are those of a request to global memory, Conflicts the part of the shared memory's wavefronts that are
	// there because of bank conflicts.
	Sectors   float64 `json:"sectors_per_request"`
	Conflicts float64 `json:"conflicts"`
}

// countKernels is Kernels in a build that has the emulator.
var countKernels func(ctx context.Context, o KernelsOptions) (*KernelsReport, error)

// Kernels counts our kernels in the emulator.
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

// WriteTable prints the report for people.
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

// reaches is the rate that is expected of an operation.
func (o *KernelOperation) reaches() string {
	if o.FLOPs > 0 {
		return fmt.Sprintf("%.1f TFLOP/s", o.FLOPs/o.Expected/1e12)
	}
	return fmt.Sprintf("%.0f GB/s", float64(o.Bytes)/o.Expected/1e9)
}

// micro prints seconds as microseconds.
func micro(s float64) string { return fmt.Sprintf("%.1f", s*1e6) }
