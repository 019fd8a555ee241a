package train

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/dustin/go-humanize"

	"mt/host"
	"mt/internal/config"
	"mt/internal/human"
	"mt/plan"
)

// Plan prints what a run of c would take, made of the configuration alone: it
// reads no data, looks at no output_dir and needs no GPU where device_memory says
// how large one is.
func Plan(c *config.Config, o Options) error {
	o.sketch = true
	if m := o.Forecast.Machine; m != nil && !c.PeerCopies {
		o.Forecast.Machine = m.WithoutPeers()
	}
	return printPlan(c, o, func(o Options) (*job, resume, error) {
		j, err := openJob(nil, c, o)
		if err != nil {
			return nil, resume{}, err
		}
		j.hosts = o.Forecast.Hosts
		if err = j.resolvePlan(); err != nil {
			err = j.withSmallest(err, o.Forecast)
			j.closeAfter(&err)
		}
		return j, resume{}, err
	})
}

// DryRun does what Train does before it takes memory, and prints what the run
// would take, on disk as well.
func DryRun(c *config.Config, o Options) error {
	return printPlan(c, o, func(o Options) (*job, resume, error) { return openRun(nil, c, o) })
}

// printPlan prints the plan of the job that open opens.
func printPlan(c *config.Config, o Options, open func(o Options) (*job, resume, error)) (err error) {
	o.paper = true
	j, from, err := open(o)
	if err != nil {
		return err
	}
	defer j.closeAfter(&err)
	j.showNotes(o.Stderr)
	if o.Forecast.Machine == nil {
		showAll(o.Stderr, nodeNotes(host.Nodes()))
	}
	if from.dir != "" {
		fmt.Fprintf(o.Stderr, "note: the run goes on from %s, step %d of %d\n", from.dir, from.state.Step, c.MaxSteps)
	}
	f, err := j.forecast(o.Forecast)
	if err != nil {
		return err
	}
	if err := j.show(from, o.Stdout, o.JSON, f); err != nil {
		return err
	}
	showAll(o.Stderr, j.deviceNotes()) // devices are asked then whether they copy to each other
	return nil
}

// showNotes prints what the user should know, once.
func (j *job) showNotes(w io.Writer) {
	showAll(w, slices.Concat(j.c.Warnings, j.notes, j.deviceNotes()))
}

func showAll(w io.Writer, notes []string) {
	for _, s := range notes {
		fmt.Fprintln(w, "note:", human.Screen(s))
	}
}

// outlook is what is said of the time of a step: a bound where the run is planned for this
// machine, a prediction where the rates of a machine are known.
type outlook struct {
	bound       *plan.Bound // nil: it was not measured
	pass        *passTime   // of the reference; nil: there is none, or nothing was measured
	prediction  *Predicted  // nil: as all that follows
	recommended *recommendation
	smallest    *smallest
	sweep       []swept
	scaling     *scaling // nil: the run has one device
	hosting     *hosting // nil: it has one host
	source      string   // where the rates are from
}

// forecast predicts, or measures this machine for a bound.
func (j *job) forecast(f Forecast) (o outlook, err error) {
	m := f.Machine
	if m == nil {
		if o.bound, err = j.bound(); o.bound != nil && err == nil {
			o.pass, err = j.timePass(o.bound.Rates)
		}
		return o, err
	}
	p, err := j.predictTraced(m)
	if err != nil {
		return o, err
	}
	o.prediction, o.source = describe(m, p), m.Source
	if o.pass, err = j.timePass(j.passRates(m)); err != nil {
		return o, err
	}
	if o.recommended, err = recommend(j.asked, m, o.prediction); err != nil {
		return o, err
	}
	s, err := j.smallest()
	if err != nil {
		return o, err
	}
	o.smallest = &s
	if o.scaling, err = scale(j.asked, m); err != nil {
		return o, err
	}
	if o.hosting, err = hosts(j.asked, m); err != nil {
		return o, err
	}
	o.sweep, err = sweep(f.Sweep, j.asked, m)
	return o, err
}

// show prints how much memory and disk space a run takes, and how long its steps take; from
// is where the run goes on from.
func (j *job) show(from resume, w io.Writer, asJSON bool, o outlook) error {
	t := j.memoryTable()
	d, err := j.disk(from)
	if err != nil {
		return err
	}
	passing, err := j.passing()
	if err != nil {
		return err
	}
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		out := map[string]any{"memory": t, "disk": d, "max_steps": known(j.c.MaxSteps), "rows_per_step": j.c.RowsPerStep(), "row_tokens": j.rowTokens(),
			"rows": nil, "recompute_keeps": j.plan.Spec.Keep.String(), "kept_by_layer": j.plan.KeptByLayer(), "pipeline": j.plan.Depths,
			"micro_batch_tokens": j.c.Pipeline.MicroBatchTokens, "head_shards": j.plan.Spec.Shards(), "experts": j.plan.ExpertTraffic(), "lanes": j.plan.Lane, "passing": known(passing), "bound": o.bound, "reference_pass": o.pass,
			"prediction": o.prediction, "recommended": o.recommended, "smallest": o.smallest, "sweep": o.sweep, "scaling": o.scaling, "hosting": o.hosting, "ranks": known(j.plan.Ranks),
			"device": j.c.Device, "compute_dtype": j.c.ComputeDType, "grad_dtype": j.c.GradDType, "master_dtype": j.c.MasterDType, "attention": known(j.attentionWords())}
		if j.set != nil {
			out["rows"] = j.set.Train().Rows()
		}
		return e.Encode(out)
	}
	return j.showText(w, t, d, passing, o)
}

// showText writes in words what show does.
func (j *job) showText(w io.Writer, t plan.Table, d disk, passing string, o outlook) error {
	count := func(n int) string { return humanize.Comma(int64(n)) }
	data, steps := "rows of max_seq_len tokens: "+count(j.rowTokens()), "steps"
	if j.set != nil {
		data = fmt.Sprintf("%s rows of at most %s tokens", count(j.set.Train().Rows()), count(j.rowTokens()))
	}
	if n := j.c.MaxSteps; n > 0 {
		steps = count(n) + " " + steps
	}
	frozen := ""
	if n := t.Params - j.model.TrainedParams(); n > 0 {
		frozen = fmt.Sprintf(", of which %s are frozen", humanize.Comma(n))
	}
	fmt.Fprintf(w, "%s parameters%s, %s\n", humanize.Comma(t.Params), frozen, data)
	master := ""
	if j.bf16Master() {
		master = ", master weights bf16"
	}
	fmt.Fprintf(w, "%s of %s rows, compute %s%s, gradients %s\n", steps, count(j.c.RowsPerStep()), j.c.ComputeDType, master, j.c.GradDType)
	fmt.Fprintf(w, "micro-batches of %s tokens, kept for the backward: %s\n", count(j.c.Pipeline.MicroBatchTokens), j.plan.Spec.Keep)
	if n := j.plan.Spec.Shards(); n > 1 {
		fmt.Fprintf(w, "the head in %d shards of the vocabulary, in two sweeps\n", n)
	}
	if n := j.plan.Ranks; n > 1 {
		own := ", each with a host of its own"
		if _, beside := j.team.neighbours(); j.team != nil && beside > 1 {
			own = fmt.Sprintf(", %d of them on this host", beside)
		}
		fmt.Fprintf(w, "%d ranks%s: rank %d computes %s of the rows and keeps all that streams and its share of the rest\n", n, own, j.plan.Rank, count((j.c.RowsPerStep()+n-1)/n))
	}
	if words := j.attentionWords(); words != "" {
		fmt.Fprintln(w, words)
	}
	if words := j.plan.LaneWords(); words != "" {
		fmt.Fprintln(w, words)
		if passing != "" {
			fmt.Fprintf(w, "what passes between them goes %s\n", passing)
		}
	}
	if x := j.plan.ExpertTraffic(); x != nil {
		fmt.Fprintln(w, x)
	}
	t.Write(w)
	d.write(w)
	if words := j.passWords(o.pass, t); words != "" {
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

// known is v, or nil for what is not known, such as a number that only the data tells.
func known[T int | string](v T) any {
	var none T
	if v <= none {
		return nil
	}
	return v
}
