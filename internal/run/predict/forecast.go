package predict

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"

	"mt/actors"
	"mt/base/human"
	"mt/base/timeline"
	"mt/device/virtual"
	"mt/internal/run/report"
	"mt/internal/run/resolve"
	"mt/internal/run/settings"
	"mt/plan"
	"mt/plan/rates"
)

// Predicted is a prediction for display and JSON. Times are in seconds.
type Predicted struct {
	Machine         string             `json:"machine"`
	Step            float64            `json:"step_seconds"`
	Tokens          int64              `json:"tokens"`
	TokensPerSecond float64            `json:"tokens_per_second"`
	TFLOPS          float64            `json:"tflops"`          // FLOPs of the model
	TFLOPSExecuted  float64            `json:"tflops_executed"` // includes recomputation
	Stall           map[string]float64 `json:"stall_seconds"`   // by cause
	StallShare      float64            `json:"stall_share"`     // share of the compute stream's time
	// Busy is the share of the step in which each resource is fully used.
	Busy  map[string]float64 `json:"busy"`
	Binds string             `json:"binds"` // what limits the step, in words
	H2D   int64              `json:"h2d_bytes"`
	D2H   int64              `json:"d2h_bytes"`
	Peer  int64              `json:"peer_bytes"` // copied between devices
	// Bytes read from and written to state_dir and param_dir, the share of the disk's time during which the device
	// has work, and the number of steps that a disk lasts per petabyte of rated writes.
	DiskRead       int64   `json:"disk_read_bytes,omitempty"`
	DiskWritten    int64   `json:"disk_written_bytes,omitempty"`
	DiskHidden     float64 `json:"disk_hidden,omitempty"`
	DiskStepsPerPB int64   `json:"disk_steps_per_pb,omitempty"`
}

// predictTraced predicts the plan. If the key trace is set, it also writes the predicted timeline to that file.
func predictTraced(ctx context.Context, r *resolve.Resolved, m *rates.Machine) (*Prediction, error) {
	path := r.Config.Trace
	if path == "" {
		return Predicting{Batch: FullBatch(r.Plan)}.Predict(ctx, r.Plan, m)
	}
	if err := report.CheckTrace(r.Config); err != nil {
		return nil, err
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, r.Config.Errorf("trace", "trace %s: %w", path, report.Reason(err))
	}
	var failed error
	to := timeline.NewFile(f, strings.HasSuffix(path, ".gz"), func(err error) { failed = err })
	p, err := Predicting{Batch: FullBatch(r.Plan), to: timeline.New(timeline.Options{Process: "predicted", File: to})}.Predict(ctx, r.Plan, m)
	to.Close()
	if err == nil && failed != nil {
		err = fmt.Errorf("trace %s: %w", path, report.Reason(failed))
	}
	return p, err
}

// describe returns the prediction p for the machine m in the form in which it is shown.
func describe(m *rates.Machine, p *Prediction) *Predicted {
	r, step := p.Report, p.Step().Seconds()
	out := &Predicted{Machine: m.Name, Step: step, Tokens: r.Tokens, TokensPerSecond: float64(r.Tokens) / step, TFLOPS: p.Counted / step / 1e12,
		TFLOPSExecuted: p.Executed / step / 1e12, Stall: map[string]float64{}, Busy: map[string]float64{}, H2D: r.H2D, D2H: r.D2H, Peer: r.Peer, DiskRead: r.DiskRead, DiskWritten: r.DiskWritten,
		DiskStepsPerPB: report.StepsPerPetabyte(r.DiskWritten)}
	if disk := p.Use[virtual.Disk]; disk > 0 && r.DiskWritten > 0 {
		out.DiskHidden = max(0, 1-r.Stall[actors.StallDisk].Seconds()/disk)
	}
	for c := actors.NoStall + 1; c < actors.NumCauses; c++ {
		if s := r.Stall[c].Seconds(); s > 0 {
			out.Stall[c.String()] = s
			out.StallShare += s / r.Compute.Seconds()
		}
	}
	for u, seconds := range p.Use {
		if seconds > 0 {
			out.Busy[virtual.Resource(u).String()] = seconds / step
		}
	}
	out.Binds = binds(r, out)
	return out
}

// binds returns in words what limits the step: computing, or else the busiest resource for which the compute stream
// waits.
func binds(r actors.StepReport, p *Predicted) string {
	if p.StallShare < 0.05 {
		return fmt.Sprintf("computing: the compute stream works for %.0f %% of the step", 100*(1-p.StallShare))
	}
	most := actors.NoStall + 1
	for c := most; c < actors.NumCauses; c++ {
		if r.Stall[c] > r.Stall[most] {
			most = c
		}
	}
	waits := fmt.Sprintf("the compute stream waits most for %s, %.0f %% of the step", most, 100*r.Stall[most].Seconds()/r.Compute.Seconds())
	const shared = "devices share a link to the host; larger steps hide weights and gradients"
	busiest, advice := "", map[virtual.Resource]string{virtual.HostMemory: "updates end late; larger steps hide them", virtual.Cores: "updates end late; larger steps hide them",
		virtual.LinkUp: "weights or activations arrive late; larger steps hide weights", virtual.LinkDown: "gradients leave late; larger steps hide them, grad_dtype: bf16 halves them",
		virtual.LinkBoth: "weights, activations and gradients are late; larger steps hide all but activations", virtual.Disk: "checkpoints are written late",
		virtual.SwitchUp: shared, virtual.SwitchDown: shared, virtual.SwitchBoth: shared,
		virtual.Network: "gradients and weights of other hosts are late; larger steps hide them, grad_dtype: bf16 sends half as much of gradients"}
	if p.DiskWritten > 0 {
		advice[virtual.Disk] = "updates wait for their states; larger steps, 8-bit moments or more host_memory hide that"
	}
	for _, u := range []virtual.Resource{virtual.HostMemory, virtual.Cores, virtual.LinkUp, virtual.LinkDown, virtual.LinkBoth,
		virtual.SwitchUp, virtual.SwitchDown, virtual.SwitchBoth, virtual.Disk, virtual.Network} {
		if share := p.Busy[u.String()]; share > max(0.5, p.Busy[busiest]) {
			busiest = u.String()
			waits = fmt.Sprintf("%s, busy for %.0f %% of the step: %s (%s)", u, 100*share, advice[u], waits)
		}
	}
	if busiest == "" {
		return "the order of works, and no resource: " + waits + "; other depths may help"
	}
	return waits
}

// Smallest is the least memory with which a run works.
type Smallest struct {
	Device int64 `json:"device_bytes"` // 0: the device shares the host's memory
	Host   int64 `json:"host_bytes"`
	// GPU is the smallest GPU among mt's profiles with enough memory; empty: none, or the run is on the CPU.
	GPU string `json:"gpu,omitempty"`
}

func (s Smallest) String() string {
	if s.Device == 0 {
		return human.Bytes(s.Host) + " of one memory for host and device"
	}
	gpu := ""
	if s.GPU != "" {
		gpu = fmt.Sprintf(" (such as %s)", s.GPU)
	}
	return fmt.Sprintf("%s on the device%s and %s on the host", human.Bytes(s.Device), gpu, human.Bytes(s.Host))
}

// SmallestOf returns the least memory with which the run works, including the reference pass of DPO before training.
func SmallestOf(r *resolve.Resolved) (Smallest, error) {
	s, err := SmallestFor(r.Asked)
	if err != nil || r.Ref.Asked == nil {
		return s, err
	}
	p, err := SmallestFor(*r.Ref.Asked)
	s.Host = max(s.Host, p.Host)
	if p.Device > s.Device {
		s.Device, s.GPU = p.Device, p.GPU
	}
	return s, err
}

// SmallestFor returns the least memory with which a plan for q exists.
func SmallestFor(q plan.Request) (Smallest, error) {
	var s Smallest
	roomy := q
	roomy.HostMemory = 1 << 60
	_, err := plan.Resolve(roomy)
	if lack := (*plan.NotFitting)(nil); errors.As(err, &lack) && lack.Where == "device" { // more host memory would not help
		q.DeviceMemory, q.LaneMemory = 1<<60, nil
	}
	if s.Host, err = least(q, "host", func(q *plan.Request, bytes int64) { q.HostMemory = bytes }); err != nil || q.Unified || q.OneMemory {
		return s, err
	}
	q.HostMemory, q.LaneMemory = 1<<60, nil
	if s.Device, err = least(q, "device", func(q *plan.Request, bytes int64) { q.DeviceMemory = bytes }); err != nil {
		return s, err
	}
	var has float64
	for _, name := range rates.GPUs() {
		m, err := rates.Find(name)
		if err != nil {
			return s, err
		}
		if m.Device.Memory*(1<<30) >= float64(s.Device) && (has == 0 || m.Device.Memory < has) {
			s.GPU, has = name, m.Device.Memory
		}
	}
	return s, nil
}

// least returns the smallest budget on one side (where is "host" or "device") with which q has a plan. set puts a
// budget for that side into a request. The search begins with a tiny budget and then tries what each error says is
// needed. The other side must have enough memory. If the other side becomes the limit, least returns what a plan
// without limits takes on this side.
func least(q plan.Request, where string, set func(*plan.Request, int64)) (int64, error) {
	for budget := int64(1); ; {
		set(&q, budget)
		_, err := plan.Resolve(q)
		lack := (*plan.NotFitting)(nil)
		switch {
		case err == nil:
			return budget, nil
		case !errors.As(err, &lack):
			return 0, err
		case lack.Where != where:
			set(&q, 1<<60)
			r, err := plan.Resolve(q)
			if err != nil {
				return 0, err
			}
			if t := r.Table(); where == "host" {
				return t.OnHost(), nil
			} else {
				return t.Device, nil
			}
		}
		budget = max(lack.Need, budget+budget/1000)
	}
}

// withSmallest returns err, the error of a run that does not fit into memory, with the least memory that the run
// needs. Other errors, and errors without a machine to predict, are returned unchanged.
func withSmallest(r *resolve.Resolved, err error, f settings.Forecast) error {
	if lack := (*plan.NotFitting)(nil); f.Machine == nil || !errors.As(err, &lack) {
		return err
	}
	s, failed := SmallestOf(r)
	if failed != nil {
		return err
	}
	return fmt.Errorf("%w; as it is, the run needs at least %s", err, s)
}

// write prints a prediction as text.
func (o Outlook) write(w io.Writer) error {
	p := o.prediction
	fmt.Fprintf(w, "predicted for %s (%s)\n", p.Machine, o.source)
	rows := [][]string{
		{"step", fmt.Sprintf("%.4g s", p.Step), fmt.Sprintf("%s tokens, %s a second, %.4g TFLOPS of the model, %.4g with what is computed again",
			humanize.Comma(p.Tokens), humanize.Comma(int64(p.TokensPerSecond)), p.TFLOPS, p.TFLOPSExecuted)},
		{"stalls", fmt.Sprintf("%.1f %%", 100*p.StallShare), shares(p.Stall, func(s float64) string { return fmt.Sprintf("%.3g s", s) })},
		{"busy", "", shares(p.Busy, func(s float64) string { return fmt.Sprintf("%.0f %%", 100*s) })},
		{"link", "", linkWords(p)},
		{"spared", fmt.Sprintf("%.3g s", o.spared), "at least, of computing again what waits on the host"},
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
	rows = slices.DeleteFunc(rows, func(cells []string) bool {
		return cells[0] == "disk" && cells[2] == "" || cells[0] == "spared" && o.spared == 0
	})
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

// linkWords describes the bytes that cross links per step.
func linkWords(p *Predicted) string {
	out := fmt.Sprintf("%s to the device and %s back a step", human.Bytes(p.H2D), human.Bytes(p.D2H))
	if p.Peer > 0 {
		out += fmt.Sprintf(", %s from device to device", human.Bytes(p.Peer))
	}
	return out
}

// diskWords describes the bytes read from and written to state_dir and param_dir per step, and the disk's life. It
// returns "" if nothing is written.
func diskWords(p *Predicted) string {
	if p.DiskWritten == 0 {
		return ""
	}
	return fmt.Sprintf("%s read and %s written a step, %.0f %% of it hidden behind computing; a petabyte of rated writes lasts %s steps", human.Bytes(p.DiskRead), human.Bytes(p.DiskWritten),
		100*p.DiskHidden, humanize.Comma(p.DiskStepsPerPB))
}

// shares lists the amounts in of with their names, largest first. word turns an amount into text.
func shares(of map[string]float64, word func(float64) string) string {
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int { return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b)) })
	var out []string
	for _, n := range names {
		out = append(out, n+" "+word(of[n]))
	}
	return strings.Join(out, ", ")
}

// align prints rows of cells as a table in which the cells of a column begin below each other.
func align(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, cells := range rows {
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}
