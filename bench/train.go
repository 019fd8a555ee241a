package bench

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"time"

	"mt/device/wrap"
	"mt/model"
	"mt/plan/rates"
)

// TrainShape is the shape of the model and the batch that both sides train. The model is a Llama or, with
// AttentionBias, a Qwen2, with an output projection of its own and random weights. The batch has Rows sequences of
// SeqLen random tokens without padding. Both sides get the same weights and tokens (see Handover). JSON keys are as in
// config.json.
type TrainShape struct {
	HiddenSize       int `json:"hidden_size"`
	IntermediateSize int `json:"intermediate_size"`
	Layers           int `json:"num_hidden_layers"`
	Heads            int `json:"num_attention_heads"`
	KVHeads          int `json:"num_key_value_heads"`
	VocabSize        int `json:"vocab_size"`
	Rows             int `json:"rows"`
	SeqLen           int `json:"seq_len"`
	// HeadDim 0 means HiddenSize/Heads. AttentionBias: the projections of q, k and v have biases.
	HeadDim       int  `json:"head_dim,omitempty"`
	AttentionBias bool `json:"attention_bias,omitempty"`
}

// TrainShapes returns the named shapes: the quickstart's, a shape dominated by matrix products, the shapes of
// Qwen2.5-7B and 14B from their config.json, and a tiny shape for trials.
func TrainShapes() map[string]TrainShape {
	return map[string]TrainShape{
		"quickstart": {
			HiddenSize: 256, IntermediateSize: 704, Layers: 6, Heads: 8, KVHeads: 4,
			VocabSize: 256, Rows: 8, SeqLen: 256,
		},
		"hidden1024": {
			HiddenSize: 1024, IntermediateSize: 2816, Layers: 4, Heads: 16, KVHeads: 8,
			VocabSize: 4096, Rows: 4, SeqLen: 512,
		},
		"qwen2.5-7b": {
			HiddenSize: 3584, IntermediateSize: 18944, Layers: 28, Heads: 28, KVHeads: 4,
			VocabSize: 152064, Rows: 128, SeqLen: 1024, AttentionBias: true,
		},
		"qwen2.5-14b": {
			HiddenSize: 5120, IntermediateSize: 13824, Layers: 48, Heads: 40, KVHeads: 8,
			VocabSize: 152064, Rows: 16, SeqLen: 1024, AttentionBias: true,
		},
		"tiny": {
			HiddenSize: 64, IntermediateSize: 160, Layers: 2, Heads: 4, KVHeads: 2,
			VocabSize: 256, Rows: 4, SeqLen: 64, AttentionBias: true,
		},
	}
}

// TrainSetup is the configuration that both sides receive.
type TrainSetup struct {
	Shape TrainShape `json:"shape"`
	// DType is "fp32", or "bf16": bf16 matrix products over fp32 weights. "": "fp32".
	DType   string `json:"dtype"`
	Threads int    `json:"threads"` // 0: runtime.GOMAXPROCS
	Device  string `json:"device"`  // cpu or cuda; "": cpu
	// Given has the weights and batches of both sides; Train sets the field.
	Given *Handover `json:"-"`
	// Warmup is the number of steps that a side runs before it counts as ready; 0: 3.
	Warmup int `json:"warmup"`
	// Rates selects the rates that predict our steps, in the syntax of rates.Find; "": the profile of the GPU.
	Rates string `json:"-"`
}

// TrainRunner is one side of a comparison: a loaded model that can run training steps. RunSteps runs k counted steps,
// with one uncounted step before and one after them (see middle). It returns the seconds of each counted step, and the
// number of tokens in all counted steps together, without padding. A runner that implements io.Closer is closed after
// the comparison.
type TrainRunner interface {
	RunSteps(k int) (seconds []float64, tokens int64, err error)
}

// untimed is the number of uncounted steps in a round. The first step includes work that the side did during its pause.
// The last step has no next step to overlap with.
const untimed = 2

// middle returns the counted steps of a round: all but the first and the last.
func middle[T any](steps []T) []T { return steps[1 : len(steps)-1] }

// NewRunner makes one side of a comparison. The side has finished its warm-up steps when NewRunner returns.
type NewRunner func(ctx context.Context, s TrainSetup) (TrainRunner, error)

// TrainOptions configures Train.
type TrainOptions struct {
	TrainSetup
	Rounds int // rounds; in each, both sides run once; 0: 7
	Steps  int // counted steps of a side in a round; 0: 5
	// Rest is the pause before each side runs. During the pause the idle threads of the side that ran before stop
	// spinning and free the cores. 0 means 300 ms.
	Rest time.Duration
	// Fresh makes a side before each round and closes it after the round. This serves sides that do not fit in memory
	// at the same time.
	Fresh bool
	// Ours and Peer make the two sides. If Peer is nil, only our side runs.
	Ours, Peer NewRunner
	PeerName   string
}

// TrainReport is the output of `mt bench train`. Rates are in tokens a second, with one value for each round. Ratio
// divides our rate by the peer's rate of the same round.
type TrainReport struct {
	TrainSetup
	Rounds int `json:"rounds"`
	Steps  int `json:"steps"`
	// Load is the machine's load average before the start.
	Load     float64 `json:"load_before"`
	Ours     Sample  `json:"ours_tok_per_s"`
	PeerName string  `json:"peer_name,omitempty"`
	Peer     *Sample `json:"peer_tok_per_s,omitempty"`
	Ratio    *Sample `json:"ratio,omitempty"`
	// FLOPs is the number of model FLOPs for a token, counted the same way for both sides. CommonFLOPs counts 6 for
	// each parameter, as papers do. The sides' TFLOPS fields are FLOPs times the median rates.
	FLOPs       float64 `json:"model_flops_per_token"`
	CommonFLOPs float64 `json:"six_per_parameter_flops_per_token"`
	OursTFLOPS  float64 `json:"ours_model_tflops"`
	PeerTFLOPS  float64 `json:"peer_model_tflops,omitempty"`
	// Agreement has the differences between the sides' losses and gradient norms.
	Agreement *Agreement `json:"agreement,omitempty"`
	// Error says why the comparison ended early, for example because of different losses; "": the comparison is
	// complete.
	Error string `json:"error,omitempty"`
	// About is the peer's description of itself, unchanged.
	About map[string]any `json:"peer,omitempty"`
	// Pipeline has the stalls of our compute stream by cause. Details has our other figures. Both are nil if our side
	// does not report them.
	Pipeline *PipelineSample `json:"pipeline,omitempty"`
	Details  *Details        `json:"details,omitempty"`
	// Profile has the device time of our operations over ProfileSteps steps: all steps of all rounds, including the
	// uncounted ones.
	Profile      []OpTime `json:"profile,omitempty"`
	ProfileSteps int      `json:"profile_steps,omitempty"`
	// StepSeconds has the times of all counted steps in order.
	StepSeconds struct {
		Ours []float64 `json:"ours"`
		Peer []float64 `json:"peer,omitempty"`
	} `json:"step_seconds"`
}

// OpTime is the device time of one operation: the sum over all steps, and its time in one step, measured and predicted
// in milliseconds.
type OpTime struct {
	wrap.OpTime
	rates.Beside
}

// trainSide is a side and its measurements.
type trainSide struct {
	name    string
	make    NewRunner
	runner  TrainRunner // nil: closed
	rates   []float64
	seconds []float64
}

// Train runs both sides in turns, with the same number of steps, and compares them. Unless o.Fresh is set, both sides
// stay loaded during the whole comparison. The sides take turns in beginning a round. Losses or gradient norms that
// differ too much are an error. If our side has completed a round, Train returns the report even with an error.
func Train(ctx context.Context, o TrainOptions) (r *TrainReport, err error) {
	o.setDefaults()
	r = &TrainReport{TrainSetup: o.TrainSetup, Rounds: o.Rounds, Steps: o.Steps, Load: loadNow()}
	sides, report := []*trainSide{{name: "mt", make: o.Ours}}, r
	defer func() {
		if err != nil {
			err = fmt.Errorf("bench train: %w", err)
			r = report.partial(sides, err)
		}
	}()
	if o.Peer != nil {
		r.PeerName = o.PeerName
		sides = append(sides, &trainSide{name: o.PeerName, make: o.Peer})
	}
	defer func() {
		for _, s := range sides {
			if closing := s.close(); err == nil {
				err = closing // only if nothing failed before: after err, closing may fail because of err
			}
		}
	}()
	if !o.Fresh {
		for _, s := range sides {
			if err := s.start(ctx, o.TrainSetup); err != nil {
				return nil, err
			}
		}
		if err := r.compare(sides); err != nil { // the results of the warm-up steps
			return nil, err
		}
	}
	for round := range o.Rounds {
		if err := o.round(ctx, r, sides, round); err != nil {
			return nil, err
		}
	}
	if err := r.sum(sides); err != nil {
		return nil, err
	}
	for _, s := range sides {
		if err := r.take(s); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// partial returns the report of a comparison that ended early with err. It has the rounds that both sides completed. If
// the peer completed none, it has our rounds only; if our side completed none, partial returns nil.
func (r *TrainReport) partial(sides []*trainSide, err error) *TrainReport {
	ours := *sides[0]
	if len(ours.rates) == 0 {
		return nil
	}
	done := []*trainSide{&ours}
	if len(sides) == 2 && len(sides[1].rates) > 0 {
		peer := *sides[1]
		n := min(len(ours.rates), len(peer.rates))
		ours.rates, peer.rates = ours.rates[:n], peer.rates[:n]
		done = append(done, &peer)
	}
	r.Error = err.Error()
	if r.sum(done) != nil {
		return nil
	}
	return r
}

// round runs each side once, and then compares their results.
func (o *TrainOptions) round(ctx context.Context, r *TrainReport, sides []*trainSide, round int) error {
	var done []*trainSide
	for i := range sides {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		time.Sleep(o.Rest)
		s := sides[(i+round)%len(sides)]
		if o.Fresh {
			if err := s.start(ctx, o.TrainSetup); err != nil {
				return err
			}
		}
		if err := s.run(o.Steps); err != nil {
			return err
		}
		if o.Fresh {
			if err := r.take(s); err != nil {
				return err
			}
			last := *s // a copy, because its records are compared after the runner is closed
			if err := s.close(); err != nil {
				return err
			}
			done = append(done, &last)
		}
	}
	if !o.Fresh {
		done = sides
	} else if round%2 == 1 && len(done) == 2 {
		done[0], done[1] = done[1], done[0]
	}
	return r.compare(done)
}

// compare compares the two sides' models and the results of all steps so far. It returns an error if they differ more
// than rounding explains.
func (r *TrainReport) compare(sides []*trainSide) error {
	if err := sameModel(sides); err != nil || len(sides) < 2 {
		return err
	}
	a, ok := sides[0].runner.(recorder)
	b, both := sides[1].runner.(recorder)
	if !ok || !both {
		return nil
	}
	most, err := compare(sides[0].name, sides[1].name, r.DType, a.Records(), b.Records())
	if err != nil {
		return err
	}
	if r.Agreement != nil { // the differences of an earlier runner (Fresh)
		most.Loss, most.GradNorm = max(most.Loss, r.Agreement.Loss), max(most.GradNorm, r.Agreement.GradNorm)
	}
	r.Agreement = &most
	return nil
}

// take stores what the runner reports about itself in r.
func (r *TrainReport) take(s *trainSide) (err error) {
	if a, ok := s.runner.(interface{ About() map[string]any }); ok {
		r.About = a.About()
	}
	if a, ok := s.runner.(*ours); ok {
		p := a.timed
		r.Pipeline = &p
		if r.Details, err = a.details(); err != nil {
			return err
		}
		r.ProfileSteps = len(a.records) - a.warmup
		r.Profile, err = a.operations(r.ProfileSteps)
	}
	if len(r.Profile) == 0 {
		r.ProfileSteps = 0
	}
	return err
}

func (o *TrainOptions) setDefaults() {
	if o.Rounds <= 0 {
		o.Rounds = 7
	}
	if o.Steps <= 0 {
		o.Steps = 5
	}
	if o.Rest <= 0 {
		o.Rest = 300 * time.Millisecond
	}
	if o.Threads <= 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	if o.Warmup <= 0 {
		o.Warmup = 3
	}
	if o.DType == "" {
		o.DType = "fp32"
	}
	if o.Device == "" {
		o.Device = "cpu"
	}
	if o.Given == nil && o.Shape.VocabSize > 0 {
		o.Given = newHandover(o.Shape)
	}
}

// sameModel returns an error if sides report different numbers of parameters.
func sameModel(sides []*trainSide) error {
	var first *trainSide
	var want int64
	for _, s := range sides {
		r, ok := s.runner.(interface{ Parameters() int64 })
		if !ok {
			continue
		}
		n := r.Parameters()
		if first == nil {
			first, want = s, n
		}
		if n != want {
			return fmt.Errorf("%s trains %d parameters and %s %d: not the same model", first.name, want, s.name, n)
		}
	}
	return nil
}

// start makes the side's runner.
func (s *trainSide) start(ctx context.Context, setup TrainSetup) (err error) {
	if s.runner, err = s.make(ctx, setup); err != nil {
		s.runner = nil
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

// run runs the counted steps of one round and adds their times and rate to s.
func (s *trainSide) run(steps int) error {
	seconds, tokens, err := s.runner.RunSteps(steps)
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	var total float64
	for _, t := range seconds {
		total += t
	}
	if len(seconds) != steps || tokens <= 0 || total <= 0 {
		return fmt.Errorf("%s: asked for %d steps, it reports %d of %d tokens in %g s", s.name, steps, len(seconds), tokens, total)
	}
	s.rates = append(s.rates, float64(tokens)/total)
	s.seconds = append(s.seconds, seconds...)
	return nil
}

// close closes the runner if it implements io.Closer, and forgets it.
func (s *trainSide) close() error {
	c, ok := s.runner.(io.Closer)
	s.runner = nil
	if ok {
		if err := c.Close(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// sum computes the report's rates and ratios from the measurements of the sides.
func (r *TrainReport) sum(sides []*trainSide) error {
	r.Ours, r.StepSeconds.Ours = Summarize(sides[0].rates), sides[0].seconds
	if len(sides) == 2 {
		r.Peer, r.Ratio = beside(sides[0].rates, sides[1].rates)
		r.StepSeconds.Peer = sides[1].seconds
	}
	if r.Shape.VocabSize == 0 {
		return nil
	}
	c, err := r.Shape.Config()
	if err != nil {
		return err
	}
	r.FLOPs, r.CommonFLOPs = flopsPerToken(c, r.Shape.SeqLen), 6*float64(c.Params())
	r.OursTFLOPS = r.Ours.Median * r.FLOPs / 1e12
	if r.Peer != nil {
		r.PeerTFLOPS = r.Peer.Median * r.FLOPs / 1e12
	}
	return nil
}

// flopsPerToken returns the mean model FLOPs of a token in rows of rowTokens tokens, counted as everywhere in mt.
func flopsPerToken(c *model.Config, rowTokens int) float64 {
	return c.FLOPs(int64(rowTokens), c.AttendedPairs(rowTokens)) / float64(rowTokens)
}

// WriteTable prints r as a table.
func (r *TrainReport) WriteTable(w io.Writer) error {
	s := r.Shape
	if _, err := fmt.Fprintf(w, "training, %s, %d threads: hidden %d, ffn %d, %d layers, heads %d/%d, vocabulary %d, %d rows of %d tokens\n"+
		"median [range] of %d rounds of %d steps, alternating\n%s",
		r.DType, r.Threads, s.HiddenSize, s.IntermediateSize, s.Layers, s.Heads, s.KVHeads, s.VocabSize, s.Rows, s.SeqLen,
		r.Rounds, r.Steps, busy(r.Load)); err != nil {
		return err
	}
	rows := [][]string{{"", "tokens/s"}, {"mt", whole(r.Ours)}}
	if r.Peer != nil {
		rows = append(rows, []string{r.PeerName, whole(*r.Peer)}, []string{"ratio", r.Ratio.String()})
		if r.PeerTFLOPS > 0 {
			rows = append(rows, []string{"model TFLOP/s of both", fmt.Sprintf("%.3g and %.3g", r.OursTFLOPS, r.PeerTFLOPS)})
		}
		if a := r.Agreement; a != nil {
			rows = append(rows, []string{"losses, norms differ by", fmt.Sprintf("%.1g, %.1g in %d steps", a.Loss, a.GradNorm, a.Steps)})
		}
	}
	if r.Pipeline != nil {
		rows = append(rows, []string{"compute stalled", fmt.Sprintf("%.2f %% of the step", 100*r.Pipeline.Share)})
	}
	if d := r.Details; d != nil {
		rows = append(rows, []string{"model TFLOP/s", fmt.Sprintf("%.3g, executed %.3g", d.TFLOPS, d.TFLOPSExecuted)},
			[]string{"device memory", fmt.Sprintf("%.3f GiB of %s", float64(d.DeviceBytes)/(1<<30), d.Device)},
			[]string{"host to device", fmt.Sprintf("%.2f GB/s", d.H2DGBps)}, []string{"device to host", fmt.Sprintf("%.2f GB/s", d.D2HGBps)})
	}
	if r.Details != nil {
		for _, n := range r.Details.Notes {
			rows = append(rows, []string{"note", n})
		}
	}
	for _, t := range r.Profile {
		rows = append(rows, []string{t.Op + " " + t.Shape, fmt.Sprintf("%d calls, %.3f ms", t.Calls, t.Total.Seconds()*1e3)})
	}
	if err := writeTable(w, rows); err != nil || r.Details == nil || r.Details.PredictedFor == "" {
		return err
	}
	if _, err := fmt.Fprintf(w, "\npredicted for %s\n", r.Details.PredictedFor); err != nil {
		return err
	}
	return writeFigures(w, r.Details.Figures)
}
