package predict

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"

	"mt/internal/human"
)

// write prints a prediction for people.
func (o Outlook) write(w io.Writer) error {
	p := o.prediction
	fmt.Fprintf(w, "predicted for %s (%s)\n", p.Machine, o.source)
	rows := [][]string{
		{"step", fmt.Sprintf("%.4g s", p.Step), fmt.Sprintf("%s tokens, %s a second, %.4g TFLOPS of the model, %.4g with what is computed again",
			humanize.Comma(p.Tokens), humanize.Comma(int64(p.TokensPerSecond)), p.TFLOPS, p.TFLOPSExecuted)},
		{"stalls", fmt.Sprintf("%.1f %%", 100*p.StallShare), shares(p.Stall, func(s float64) string { return fmt.Sprintf("%.3g s", s) })},
		{"busy", "", shares(p.Busy, func(s float64) string { return fmt.Sprintf("%.0f %%", 100*s) })},
		{"link", "", linkWords(p)},
		{"disk", "", diskWords(p)},
		{"binds", "", p.Binds},
	}
	if r := o.recommended; r.Rows > 0 {
		text := fmt.Sprintf("%d rows a step: %s tokens a second, %.0f %% or more of what larger ones reach", r.Rows, humanize.Comma(int64(r.TokensPerSecond)), 100*closeEnough)
		rows = append(rows, []string{"batch", "", text})
		text = "those of the plan"
		if d := r.Depths; d != nil {
			text = fmt.Sprintf("weight_slots %d, grad_buffers %d, activation_slots %d", d.WeightSlots, d.GradBuffers, d.ActivationSlots)
			if d.GradSlabs > 1 {
				text += fmt.Sprintf(", grad_slabs %d", d.GradSlabs)
			}
			text += fmt.Sprintf(": %.0f %% faster than those of the plan", 100*r.Gain)
		}
		rows = append(rows, []string{"depths", "", text})
	}
	rows = append(rows, []string{"smallest", "", o.smallest.String()})
	rows = slices.DeleteFunc(rows, func(cells []string) bool { return cells[0] == "disk" && cells[2] == "" })
	for i := range rows {
		rows[i] = append([]string{""}, rows[i]...)
	}
	if err := align(w, rows); err != nil {
		return err
	}
	if o.scaling != nil {
		fmt.Fprintln(w)
		if err := o.scaling.write(w); err != nil {
			return err
		}
	}
	if o.hosting != nil {
		fmt.Fprintln(w)
		if err := o.hosting.write(w); err != nil {
			return err
		}
	}
	if len(o.sweep) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return writeSwept(w, o.sweep)
}

// linkWords says what crosses links in a step.
func linkWords(p *Predicted) string {
	out := fmt.Sprintf("%s to the device and %s back a step", human.Bytes(p.H2D), human.Bytes(p.D2H))
	if p.Peer > 0 {
		out += fmt.Sprintf(", %s from device to device", human.Bytes(p.Peer))
	}
	return out
}

// diskWords says what is read from and written to state_dir and param_dir in a step, and how long a disk lasts; empty:
// nothing is.
func diskWords(p *Predicted) string {
	if p.DiskWritten == 0 {
		return ""
	}
	return fmt.Sprintf("%s read and %s written a step, %.0f %% of it hidden behind computing; a petabyte of rated writes lasts %s steps", human.Bytes(p.DiskRead), human.Bytes(p.DiskWritten),
		100*p.DiskHidden, humanize.Comma(p.DiskStepsPerPB))
}

// shares lists named amounts, the largest first.
func shares(of map[string]float64, word func(float64) string) string {
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int { return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b)) })
	var out []string
	for _, n := range names {
		out = append(out, n+" "+word(of[n]))
	}
	return strings.Join(out, ", ")
}

// align prints rows of cells in columns.
func align(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, cells := range rows {
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}
