package predict

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/dustin/go-humanize"

	"mt/host"
	"mt/internal/run/config"
	"mt/internal/run/open"
	"mt/internal/run/report"
	"mt/internal/run/resolve"
	"mt/internal/run/save"
	"mt/internal/run/settings"
	"mt/plan"
	"mt/plan/rates"
)

// Plan prints what a run of c would take, from the configuration alone. It reads no data and no output_dir, and needs
// no GPU if device_memory gives the GPU's size.
//
// If ctx is cancelled, it ends soon with ErrInterrupted.
func Plan(ctx context.Context, c *config.Config, o settings.Options) error {
	if m := o.Forecast.Machine; m != nil && !c.PeerCopies {
		o.Forecast.Machine = m.WithoutPeers()
	}
	err := Print(ctx, c, o, func(o settings.Options) (*save.Output, error) {
		in, err := open.Open(c, o, open.Asks{Sketch: true, Paper: true})
		if err != nil {
			return nil, err
		}
		r, err := resolve.Sketch(in, o.Forecast.Hosts)
		if err != nil {
			err = withSmallest(r, err, o.Forecast)
			open.CloseAfter(in, &err)
			return nil, err
		}
		return save.NewOutput(r), nil
	})
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return settings.ErrInterrupted
	}
	return err
}

// Print prints the plan of a run with the settings c. begin opens and plans that run without allocating memory.
func Print(ctx context.Context, c *config.Config, o settings.Options, begin func(o settings.Options) (*save.Output, error)) (err error) {
	r, err := begin(o)
	if err != nil {
		return err
	}
	defer open.CloseAfter(r, &err)
	news := report.NotesOf(r.Devices)
	report.ShowAll(o.Stderr, r.AllNotes(), news.Take())
	if o.Forecast.Machine == nil {
		report.ShowAll(o.Stderr, open.NodeNotes(host.MachineNodes()))
	}
	if from := r.From; from.Dir != "" {
		fmt.Fprintf(o.Stderr, "note: the run goes on from %s, step %d of %d\n", from.Dir, from.State.Step, r.Config.MaxSteps)
	}
	f, err := forecast(ctx, r.Resolved, o)
	if err != nil {
		return err
	}
	if err := Show(r, o.Stdout, o.JSON, f); err != nil {
		return err
	}
	report.ShowAll(o.Stderr, news.Take()) // planning asked devices whether they copy to each other, which can add notes
	return nil
}

// Outlook describes the time of a step: a lower bound measured on this machine, or a prediction from a machine's rates.
type Outlook struct {
	bound       *plan.Bound // nil: not measured
	pass        *passTime   // bound on the reference pass; nil: no pass, or not measured
	prediction  *Predicted  // nil, like all fields below: no prediction
	recommended *recommendation
	smallest    *Smallest
	spared      float64 // seconds of recomputing on the devices that tensors on the host spare
	sweep       []Swept
	scaling     *scaling // nil: a single device
	hosting     *hosting // nil: a single host
	source      string   // source of the rates
}

// forecast predicts the run on o's machine. Without a machine it measures this one and returns a lower bound on
// the step time instead.
func forecast(ctx context.Context, r *resolve.Resolved, o settings.Options) (out Outlook, err error) {
	m := o.Forecast.Machine
	if m == nil {
		if out.bound, err = boundHere(r); out.bound != nil && err == nil {
			out.pass, err = timePass(r, out.bound.Rates)
		}
		return out, err
	}
	f := newForecaster(ctx, m, o)
	defer f.line.End()
	f.of = expected(r.Asked, o.Forecast.Sweep)
	p, err := predictTraced(ctx, r, m)
	if err != nil {
		return out, err
	}
	out.prediction, out.source = describe(m, p), m.Source
	out.spared = r.Plan.TravelSpares() / (paces(r.Plan, m).MatMul * float64(r.Plan.Lanes()))
	f.made = []made{{r.Plan, m, out.prediction}}
	f.tell(1)
	if out.pass, err = timePass(r, paces(r.Plan, m)); err != nil {
		return out, err
	}
	if out.recommended, err = f.recommend(r.Asked, out.prediction); err != nil {
		return out, err
	}
	s, err := SmallestOf(r)
	if err != nil {
		return out, err
	}
	out.smallest = &s
	if out.scaling, err = f.scale(r.Asked); err != nil {
		return out, err
	}
	if out.hosting, err = f.hosts(r.Asked); err != nil {
		return out, err
	}
	out.sweep, err = f.tryAll(sweep(o.Forecast.Sweep, r.Asked), m, 0, 0)
	return out, err
}

// Show prints the run's memory, disk space and step time.
func Show(run *save.Output, w io.Writer, asJSON bool, o Outlook) error {
	t := memoryTable(run.Resolved)
	d, err := run.Disk()
	if err != nil {
		return err
	}
	passing, err := betweenDevices(run.Inputs)
	if err != nil {
		return err
	}
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		out := map[string]any{"memory": t, "disk": d, "max_steps": known(run.Config.MaxSteps), "rows_per_step": run.Config.RowsPerStep(), "row_tokens": run.RowTokens(),
			"rows": nil, "recompute_keeps": run.Plan.Spec.Keep.String(), "kept_by_layer": run.Plan.KeptByLayer(), "rounds": run.Plan.StepRounds(), "pipeline": run.Plan.Depths,
			"micro_batch_tokens": run.Config.Pipeline.MicroBatchTokens, "head_shards": run.Plan.Spec.Shards(), "experts": run.Plan.ExpertTraffic(), "lanes": run.Plan.Lane, "head_lanes": run.Plan.Spec.HeadLanes, "passing": known(passing), "bound": o.bound, "reference_pass": o.pass,
			"prediction": o.prediction, "spared_seconds": o.spared, "recommended": o.recommended, "smallest": o.smallest, "sweep": o.sweep, "scaling": o.scaling, "hosting": o.hosting, "ranks": known(run.Plan.Ranks),
			"device": run.Config.Device, "compute_dtype": run.Config.ComputeDType, "grad_dtype": run.Config.GradDType, "master_dtype": run.Config.MasterDType, "attention": known(run.AttentionWords(run.Plan.Spec.Chooses() != nil))}
		if run.Data != nil {
			out["rows"] = run.Data.Train().Rows()
		}
		return e.Encode(out)
	}
	return showText(run, w, t, d, passing, o)
}

// showText prints the results of Show as text: memory from t, disk space from d, the reference pass from passing (""
// if none), and times from o.
func showText(out *save.Output, w io.Writer, t plan.Table, d save.Disk, passing string, o Outlook) error {
	count := func(n int) string { return humanize.Comma(int64(n)) }
	data, steps := "rows of max_seq_len tokens: "+count(out.RowTokens()), "steps"
	if out.Data != nil {
		data = fmt.Sprintf("%s rows of at most %s tokens", count(out.Data.Train().Rows()), count(out.RowTokens()))
	}
	if n := out.Config.MaxSteps; n > 0 {
		steps = count(n) + " " + steps
	}
	frozen := ""
	if n := t.Params - out.Model.TrainedParams(); n > 0 {
		frozen = fmt.Sprintf(", of which %s are frozen", humanize.Comma(n))
	}
	fmt.Fprintf(w, "%s parameters%s, %s\n", humanize.Comma(t.Params), frozen, data)
	master := ""
	if out.BF16Master() {
		master = ", master weights bf16"
	}
	fmt.Fprintf(w, "%s of %s rows, compute %s%s, gradients %s\n", steps, count(out.Config.RowsPerStep()), out.Config.ComputeDType, master, out.Config.GradDType)
	fmt.Fprintf(w, "micro-batches of %s tokens, kept for the backward: %s\n", count(out.Config.Pipeline.MicroBatchTokens), out.Plan.Spec.Keep)
	if words := out.Plan.TravelWords(); words != "" {
		fmt.Fprintf(w, "on the host until then: %s\n", words)
	}
	if words := out.Plan.RoundWords(); words != "" {
		fmt.Fprintf(w, "%s\n", words)
	}
	if n := out.Plan.Spec.Shards(); n > 1 {
		fmt.Fprintf(w, "the head in %d shards of the vocabulary, in two sweeps\n", n)
	}
	if n := out.Plan.Ranks; n > 1 {
		own := ", each with a host of its own"
		if _, beside := out.Ranks.Neighbours(); beside > 1 {
			own = fmt.Sprintf(", %d of them on this host", beside)
		}
		fmt.Fprintf(w, "%d ranks%s: rank %d computes %s of the rows and keeps all that streams and its share of the rest\n", n, own, out.Plan.Rank, count((out.Config.RowsPerStep()+n-1)/n))
	}
	if words := out.AttentionWords(out.Plan.Spec.Chooses() != nil); words != "" {
		fmt.Fprintln(w, words)
	}
	if words := out.Plan.LaneWords(); words != "" {
		fmt.Fprintln(w, words)
		if passing != "" {
			fmt.Fprintf(w, "what passes between them goes %s\n", passing)
		}
	}
	if x := out.Plan.ExpertTraffic(); x != nil {
		fmt.Fprintln(w, x)
	}
	t.Write(w)
	d.Write(w)
	if words := passWords(out.Resolved, o.pass, t); words != "" {
		fmt.Fprintln(w, words)
	}
	if o.bound != nil {
		o.bound.Write(w)
	}
	if o.prediction != nil {
		return o.write(w)
	}
	return nil
}

// known returns v, or nil if v is zero, empty or negative, the values that stand for unknown. A number that depends on
// the data is unknown before the data is read. JSON shows nil as null.
func known[T int | string](v T) any {
	var none T
	if v <= none {
		return nil
	}
	return v
}

// Descriptions of the ways between devices.
const (
	directly    = "from device to device, where a slot waits for it"
	partly      = "from device to device between some of them, else through the host"
	throughHost = "through the host"
)

// betweenDevices describes how data passes from one device to another. It returns "" for a single device, or if no
// device is here to ask.
func betweenDevices(in *open.Inputs) (string, error) {
	switch {
	case in.Lanes <= 1:
		return "", nil
	case !in.Config.PeerCopies:
		return throughHost, nil
	case in.Profile == nil && in.Config.Device == "cpu":
		return directly, nil
	}
	reaches := func(from, to int) (bool, error) { // from the rates; no device is asked
		return in.Profile.On(from).Link.Peer > 0 && in.Profile.On(to).Link.Peer > 0, nil
	}
	n := in.Lanes
	if in.Profile == nil {
		n = len(in.Devices)
		reaches = func(from, to int) (bool, error) { return in.Devices[from].Reach(in.Devices[to]) }
	}
	ways, pairs := 0, n*(n-1)
	for k := range n * n {
		from, to := k/n, k%n
		if from == to {
			continue
		}
		ok, err := reaches(from, to)
		if err != nil {
			return "", err
		}
		if ok {
			ways++
		}
	}
	switch {
	case pairs == 0:
		return "", nil
	case ways == 0:
		return throughHost, nil
	case ways < pairs:
		return partly, nil
	}
	return directly, nil
}

// memoryTable returns the run's memory table. If the reference pass uses another model or needs more memory than the
// run, the table has rows for the pass too.
func memoryTable(r *resolve.Resolved) plan.Table {
	t := r.Plan.Table()
	if r.Ref.Pass == nil {
		return t
	}
	p, detail := r.Ref.Pass.Table(), "given back before training: all pairs go forward through "
	if r.OtherReference == nil {
		detail += "the model"
	} else {
		detail += "dpo.reference_model"
	}
	for _, side := range []struct {
		where      string
		pass, runs int64
	}{{"host", p.Host, t.Host}, {"device", p.Device, t.Device}} {
		if r.OtherReference != nil || side.pass > side.runs {
			t.Before = append(t.Before, plan.Row{Where: side.where, Purpose: "reference pass", Bytes: side.pass, Detail: detail})
		}
	}
	return t
}

// passTime is a lower bound on the time that the reference pass of DPO takes, in seconds, if all rows are full.
type passTime struct {
	Step  float64  `json:"step_seconds"`      // one batch with a step's rows
	Steps int      `json:"steps,omitempty"`   // 0: depends on the data
	All   *float64 `json:"seconds,omitempty"` // nil: depends on the data
}

// timePass returns a lower bound on the time of the reference pass at the rates at. It returns nil if there is no such
// pass.
func timePass(r *resolve.Resolved, at plan.Rates) (*passTime, error) {
	if r.Ref.Pass == nil {
		return nil, nil
	}
	b, err := plan.Time(r.Ref.Pass, at)
	if err != nil {
		return nil, err
	}
	t := &passTime{Step: b.Step, Steps: passSteps(r)}
	if t.Steps > 0 {
		all := b.Step * float64(t.Steps)
		t.All = &all
	}
	return t, nil
}

// passSteps returns the number of batches in the reference pass; 0 if the number depends on data that was not read.
func passSteps(r *resolve.Resolved) (n int) {
	for _, of := range resolve.PairSets(r.Inputs, &r.Ref) {
		if *of.Refs == nil {
			n += r.PassSampler(of.Set).StepsPerEpoch()
		}
	}
	return n
}

// paces returns the mean rates of m's devices in the run r, for lower bounds.
func paces(r *plan.Run, m *rates.Machine) plan.Rates {
	at, n := plan.Rates{Host: m.Host.Bandwidth * 1e9}, float64(r.Lanes())
	for lane := range r.Lanes() {
		flops, link := m.On(lane).Pace(r.Spec.Act.String())
		at.MatMul, at.Link = at.MatMul+flops/n, at.Link+link/n
	}
	return at
}

// passWords describes the time of the reference pass (t) and its memory, if table has no rows for the pass. It returns
// "" if there is nothing to say.
func passWords(r *resolve.Resolved, t *passTime, table plan.Table) string {
	var takes []string
	if n := passSteps(r); n > 0 {
		takes = append(takes, fmt.Sprintf("%s batches of %s rows", humanize.Comma(int64(n)), humanize.Comma(int64(r.Config.RowsPerStep()))))
	}
	switch {
	case t != nil && t.All != nil:
		takes = append(takes, fmt.Sprintf("at least %.4g s where all rows are full", *t.All))
	case t != nil:
		takes = append(takes, fmt.Sprintf("at least %.4g s for a batch of full rows, of which a step has %s", t.Step, humanize.Comma(int64(r.Config.RowsPerStep()))))
	}
	if len(table.Before) == 0 {
		takes = append(takes, "no more memory than training")
	}
	if r.Ref.Pass == nil || takes == nil {
		return ""
	}
	return r.PassName() + " takes " + strings.Join(takes, ", ")
}
