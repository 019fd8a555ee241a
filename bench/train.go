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

// TrainShape is the shape of the model and of the batch that both sides train: a
// Llama, or with AttentionBias a Qwen2, untied, of random weights, and Rows
// sequences of SeqLen random tokens without padding, the same on both sides (see
// Handover). The keys are those of config.json.
type TrainShape struct {
	HiddenSize       int `json:"hidden_size"`
	IntermediateSize int `json:"intermediate_size"`
	Layers           int `json:"num_hidden_layers"`
	Heads            int `json:"num_attention_heads"`
	KVHeads          int `json:"num_key_value_heads"`
	VocabSize        int `json:"vocab_size"`
	Rows             int `json:"rows"`
	SeqLen           int `json:"seq_len"`
	// HeadDim of 0 is HiddenSize/Heads. AttentionBias: q, k and v have biases.
	HeadDim       int  `json:"head_dim,omitempty"`
	AttentionBias bool `json:"attention_bias,omitempty"`
}

// TrainShapes are the shapes that have a name: the quickstart's, one where
// matrix products dominate, those of Qwen2.5-7B and 14B (dimensions from their
// config.json, with as many layers as they have), and one for trials.
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

// TrainSetup is what both sides are told.
type TrainSetup struct {
	Shape TrainShape `json:"shape"`
	// DType is "fp32", or "bf16": matrix products of bf16 over fp32 weights. "":
	// "fp32".
	DType   string `json:"dtype"`
	Threads int    `json:"threads"` // 0: runtime.GOMAXPROCS
	Device  string `json:"device"`  // cpu or cuda; "": cpu
	// Given is what both sides start from and train on; Train makes it.
	Given *Handover `json:"-"`
	// Warmup is the number of steps that a runner does before it is ready; 0: 3.
	Warmup int `json:"warmup"`
	// Rates are what our steps are predicted with, as rates.Find takes it; empty: the profile of the GPU.
	Rates string `json:"-"`
}

// TrainRunner is one side of a comparison. RunSteps runs k steps that count, between one
// that comes before and one that follows (see middle), and returns the seconds of each of the
// k, and the tokens of all of them together, without padding. A runner that is an io.Closer is
// closed when the comparison is over.
type TrainRunner interface {
	RunSteps(k int) (seconds []float64, tokens int64, err error)
}

// untimed is how many steps of a turn do not count: the first, into which what the side did
// while it stood still falls, and the last, which has no step after it to overlap with.
const untimed = 2

// middle is what counts of a turn's steps.
func middle[T any](steps []T) []T { return steps[1 : len(steps)-1] }

// NewRunner makes a side that is ready to be timed.
type NewRunner func(ctx context.Context, s TrainSetup) (TrainRunner, error)

// TrainOptions say what to compare and how.
type TrainOptions struct {
	TrainSetup
	Rounds int // how often the sides alternate; 0: 7
	Steps  int // of a side in a round; 0: 5
	// Rest is how long both sides wait before a turn, so that idle threads of the
	// other, which spin for a while, do not take its cores. 0: 300 ms.
	Rest time.Duration
	// Fresh makes and closes a side for every turn, where the memory of the device or of the host
	// does not hold both at once.
	Fresh bool
	// Ours and Peer make the sides; Peer may be nil.
	Ours, Peer NewRunner
	PeerName   string
}

// TrainReport is what `mt bench train` prints. The rates are tokens a second,
// one value a round; Ratio is ours divided by the peer's of the same round.
type TrainReport struct {
	TrainSetup
	Rounds int `json:"rounds"`
	Steps  int `json:"steps"`
	// Load is the load of the machine before the start: how many threads ran or
	// wanted to.
	Load     float64 `json:"load_before"`
	Ours     Sample  `json:"ours_tok_per_s"`
	PeerName string  `json:"peer_name,omitempty"`
	Peer     *Sample `json:"peer_tok_per_s,omitempty"`
	Ratio    *Sample `json:"ratio,omitempty"`
	// FLOPs are the model FLOPs of a token, counted the same for both sides; CommonFLOPs what papers
	// count, 6 for each parameter. TFLOPS of the sides follow from the medians.
	FLOPs       float64 `json:"model_flops_per_token"`
	CommonFLOPs float64 `json:"six_per_parameter_flops_per_token"`
	OursTFLOPS  float64 `json:"ours_model_tflops"`
	PeerTFLOPS  float64 `json:"peer_model_tflops,omitempty"`
	// Agreement is how far losses and norms of the two sides were apart.
	Agreement *Agreement `json:"agreement,omitempty"`
	// Error says why the comparison ended early, such as losses that differ. It is empty if the comparison is whole.
	Error string `json:"error,omitempty"`
	// About is what the peer says of itself, unchanged.
	About map[string]any `json:"peer,omitempty"`
	// Pipeline is how long our compute stream waited and for what; Details has our
	// other figures.
	Pipeline *PipelineSample `json:"pipeline,omitempty"`
	Details  *Details        `json:"details,omitempty"`
	// Profile is the device time of the operations of ProfileSteps steps: those that count, and of
	// each turn the one before and the one after.
	Profile      []OpTime `json:"profile,omitempty"`
	ProfileSteps int      `json:"profile_steps,omitempty"`
	// StepSeconds are the times of all steps in the order they ran.
	StepSeconds struct {
		Ours []float64 `json:"ours"`
		Peer []float64 `json:"peer,omitempty"`
	} `json:"step_seconds"`
}

// OpTime is the device time of one operation in all steps, and that of one step beside what is predicted, in milliseconds.
type OpTime struct {
	wrap.OpTime
	rates.Beside
}

// trainSide is a side and what it has measured.
type trainSide struct {
	name    string
	make    NewRunner
	runner  TrainRunner // nil: closed
	rates   []float64
	seconds []float64
}

// Train runs both sides in turn, the same number of steps each, and compares
// them. The sides live as long as the comparison, unless o.Fresh: nothing is loaded between
// rounds, and who goes first changes from round to round. It is an error where the sides' losses
// are not those of the same training. The report is there with an error too, if ours has done a turn.
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
				err = closing // else a consequence of err
			}
		}
	}()
	if !o.Fresh {
		for _, s := range sides {
			if err := s.start(ctx, o.TrainSetup); err != nil {
				return nil, err
			}
		}
		if err := r.compare(sides); err != nil { // the warm-up
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

// partial is the report of a comparison that err ended: with the turns that both sides have done or, where the peer has
// done none, with ours alone. It is nil where ours has done none.
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

// round gives each side its turn.
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
			last := *s // its records outlive the runner
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

// compare returns an error unless the sides train the same model and compute the same.
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
	if r.Agreement != nil { // of another lifetime
		most.Loss, most.GradNorm = max(most.Loss, r.Agreement.Loss), max(most.GradNorm, r.Agreement.GradNorm)
	}
	r.Agreement = &most
	return nil
}

// take keeps what the runner of a side tells of itself.
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

// sameModel returns an error unless all sides that tell how many parameters they
// train tell the same number.
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

// start makes the runner.
func (s *trainSide) start(ctx context.Context, setup TrainSetup) (err error) {
	if s.runner, err = s.make(ctx, setup); err != nil {
		s.runner = nil
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

// run times steps of one side.
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

// close ends the runner, if there is one that can be ended.
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

// sum works out what the sides measured.
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

// flopsPerToken are the model FLOPs of a token in rows of the given length, as the whole program
// counts them.
func flopsPerToken(c *model.Config, rowTokens int) float64 {
	return c.FLOPs(int64(rowTokens), c.AttendedPairs(rowTokens)) / float64(rowTokens)
}

// WriteTable prints r for a person.
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
