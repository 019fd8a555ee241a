//go:build emu

package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"mt/cudart/emu/ptx"
	"mt/device/cuda/appraise"
)

func init() { countKernels = kernelsOnEmulator }

func kernelsOnEmulator(ctx context.Context, o KernelsOptions) (*KernelsReport, error) {
	g, err := appraise.FindGPU(o.GPU)
	if err != nil {
		return nil, err
	}
	cases := appraise.Cases(appraise.Full)
	if err := checkOnly(o.Only, cases); err != nil {
		return nil, err
	}
	r := &KernelsReport{GPU: g.Name}
	for i := range cases {
		c := &cases[i]
		if len(o.Only) > 0 && !slices.Contains(o.Only, c.Name) {
			continue
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if o.Log != nil {
			o.Log(c.Name + ", " + c.Shape)
		}
		done, err := appraise.Count(c, g)
		if err != nil {
			return nil, err
		}
		r.Operations = append(r.Operations, operationRow(done, g))
	}
	return r, nil
}

// checkOnly returns an error if only names an operation that cases does not have.
func checkOnly(only []string, cases []appraise.Case) error {
	var known []string
	for _, c := range cases {
		if !slices.Contains(known, c.Name) {
			known = append(known, c.Name)
		}
	}
	for _, name := range only {
		if !slices.Contains(known, name) {
			return fmt.Errorf("no operation %q is counted (known: %s)", name, strings.Join(known, ", "))
		}
	}
	return nil
}

func operationRow(o *appraise.Operation, g *appraise.GPU) KernelOperation {
	out := KernelOperation{Name: o.Name, Shape: o.Shape, FLOPs: o.FLOPs, Bytes: o.Bytes, Roofline: o.Roofline(g)}
	for i := range o.Launches {
		l := launchRow(&o.Launches[i])
		out.Bound += l.Bound
		out.Expected += l.Expected
		out.Launches = append(out.Launches, l)
	}
	return out
}

func launchRow(l *appraise.Launch) KernelRow {
	longest := appraise.Longest(l.Bound)
	global, shared := l.Counts.Global(), l.Counts.Shared()
	out := KernelRow{Kernel: l.Kernel, Blocks: l.Blocks, Threads: l.Threads, Registers: l.Registers, Shared: l.Shared,
		ResidentBlocks: l.Occupancy.Blocks, ResidentWarps: l.Occupancy.Warps, Limit: l.Occupancy.Limit, Memory: l.Memory, Ran: l.Ran, Deviation: l.Deviation,
		Busy: map[string]float64{}, Bound: longest.Seconds, By: longest.Resource, Expected: l.Expected,
		Sectors: part(global.Sectors, global.Requests), Conflicts: part(shared.Conflicts, shared.Wavefronts)}
	for _, b := range l.Bound {
		out.Busy[b.Resource] = b.Seconds
	}
	out.Counts = map[string]int64{"off": l.Counts.Off, "threads": l.Counts.Lanes, "divergent": l.Counts.Divergent, "products": l.Counts.Products,
		"global_bytes": global.Bytes, "global_sectors": global.Sectors, "fresh_sectors": l.Counts.Fresh,
		"shared_wavefronts": shared.Wavefronts, "shared_conflicts": shared.Conflicts}
	for c := range ptx.Classes {
		if n := l.Counts.By[c]; n > 0 {
			out.Counts[c.String()] = n
		}
	}
	return out
}

// part returns a/b; 0 if both are 0.
func part(a, b int64) float64 { return float64(a) / float64(max(b, 1)) }
