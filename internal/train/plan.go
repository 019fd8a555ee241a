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
	if m := o.Forecast.Machine; m != nil && !c.PeerCopies {
		o.Forecast.Machine = m.WithoutPeers()
	}
	return printPlan(c, o, func(o Options) (*Output, error) {
		in, err := Open(c, o, Asks{Sketch: true, Paper: true})
		if err != nil {
			return nil, err
		}
		r, err := Sketch(in, o.Forecast.Hosts)
		if err != nil {
			err = withSmallest(r, err, o.Forecast)
			closeAfter(in, &err)
			return nil, err
		}
		return newOutput(r), nil
	})
}

// printPlan prints the plan of the run that open opens.
func printPlan(c *config.Config, o Options, open func(o Options) (*Output, error)) (err error) {
	r, err := open(o)
	if err != nil {
		return err
	}
	defer closeAfter(r, &err)
	news := newsOf(r.devs)
	showAll(o.Stderr, r.allNotes(), news.take())
	if o.Forecast.Machine == nil {
		showAll(o.Stderr, nodeNotes(host.Nodes()))
	}
	if from := r.from; from.dir != "" {
		fmt.Fprintf(o.Stderr, "note: the run goes on from %s, step %d of %d\n", from.dir, from.state.Step, r.c.MaxSteps)
	}
	f, err := forecast(r.Resolved, o.Forecast)
	if err != nil {
		return err
	}
	if err := show(r, o.Stdout, o.JSON, f); err != nil {
		return err
	}
	showAll(o.Stderr, news.take()) // devices are asked then whether they copy to each other
	return nil
}

func showAll(w io.Writer, notes ...[]string) {
	for _, s := range slices.Concat(notes...) {
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
func forecast(j *Resolved, f Forecast) (o outlook, err error) {
	m := f.Machine
	if m == nil {
		if o.bound, err = boundHere(j); o.bound != nil && err == nil {
			o.pass, err = timePass(j, o.bound.Rates)
		}
		return o, err
	}
	p, err := predictTraced(j, m)
	if err != nil {
		return o, err
	}
	o.prediction, o.source = describe(m, p), m.Source
	if o.pass, err = timePass(j, passRates(j, m)); err != nil {
		return o, err
	}
	if o.recommended, err = recommend(j.asked, m, o.prediction); err != nil {
		return o, err
	}
	s, err := smallestOf(j)
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

// show prints how much memory and disk space a run takes, and how long its steps take.
func show(j *Output, w io.Writer, asJSON bool, o outlook) error {
	t := memoryTable(j.Resolved)
	d, err := j.disk()
	if err != nil {
		return err
	}
	passing, err := passing(j.Inputs)
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
	return showText(j, w, t, d, passing, o)
}

// showText writes in words what show does.
func showText(j *Output, w io.Writer, t plan.Table, d disk, passing string, o outlook) error {
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
		if _, beside := j.team.neighbours(); beside > 1 {
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
	if words := passWords(j.Resolved, o.pass, t); words != "" {
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
