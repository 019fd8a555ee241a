package bench

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"time"

	"mt/device/wrap/profile"
)

// TrainShape is the shape of the model and of the batch that both sides train: a
// Llama, or with AttentionBias a Qwen2, untied, of random weights, and Rows
// sequences of SeqLen random tokens without padding. Each side draws its own.
// The keys are those of config.json and of peers/torch_cpu.py.
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
	// Warmup is the number of steps that a runner does before it is ready; 0: 3.
	Warmup int `json:"warmup"`
}

// TrainRunner is one side of a comparison. RunSteps runs k steps and returns the
// seconds of each, and the tokens of all of them together, without padding. A
// runner that is an io.Closer is closed when the comparison is over.
type TrainRunner interface {
	RunSteps(k int) (seconds []float64, tokens int64, err error)
}

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
	// About is what the peer says of itself, unchanged.
	About map[string]any `json:"peer,omitempty"`
	// Pipeline is how long our compute stream waited and for what; Details has our
	// other figures.
	Pipeline *PipelineSample `json:"pipeline,omitempty"`
	Details  *Details        `json:"details,omitempty"`
	// Profile is the device time of the operations of the timed steps.
	Profile []profile.Time `json:"profile,omitempty"`
	// StepSeconds are the times of all steps in the order they ran.
	StepSeconds struct {
		Ours []float64 `json:"ours"`
		Peer []float64 `json:"peer,omitempty"`
	} `json:"step_seconds"`
}

// trainSide is a runner and what it has measured.
type trainSide struct {
	name    string
	runner  TrainRunner
	rates   []float64
	seconds []float64
}

// Train runs both sides in turn, the same number of steps each, and compares
// them. The sides live as long as the comparison: nothing is loaded between
// rounds, and who goes first changes from round to round.
func Train(ctx context.Context, o TrainOptions) (r *TrainReport, err error) {
	defer func() {
		if err != nil {
			r, err = nil, fmt.Errorf("bench train: %w", err)
		}
	}()
	o.setDefaults()
	load := loadNow()
	var sides []*trainSide
	defer func() {
		for _, s := range sides {
			if closing := s.close(); err == nil {
				err = closing // else a consequence of err
			}
		}
	}()
	start := func(name string, make NewRunner) error {
		runner, err := make(ctx, o.TrainSetup)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		sides = append(sides, &trainSide{name: name, runner: runner})
		return nil
	}
	if err := start("mt", o.Ours); err != nil {
		return nil, err
	}
	if o.Peer != nil {
		if err := start(o.PeerName, o.Peer); err != nil {
			return nil, err
		}
	}
	if err := sameModel(sides); err != nil {
		return nil, err
	}
	for round := range o.Rounds {
		for i := range sides {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			time.Sleep(o.Rest)
			if err := sides[(i+round)%len(sides)].run(o.Steps); err != nil {
				return nil, err
			}
		}
	}
	r = o.report(sides)
	if a, ok := sides[0].runner.(*ours); ok {
		r.Details = a.details()
		if r.Profile, err = a.run.Times(); err != nil {
			return nil, err
		}
	}
	r.Load = load
	return r, nil
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

// close ends the runner, if it can be ended.
func (s *trainSide) close() error {
	if c, ok := s.runner.(io.Closer); ok {
		if err := c.Close(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// report sums up what the sides measured.
func (o *TrainOptions) report(sides []*trainSide) *TrainReport {
	r := &TrainReport{TrainSetup: o.TrainSetup, Rounds: o.Rounds, Steps: o.Steps, Ours: Summarize(sides[0].rates)}
	r.StepSeconds.Ours = sides[0].seconds
	if a, ok := sides[0].runner.(interface{ Pipeline() PipelineSample }); ok {
		p := a.Pipeline()
		r.Pipeline = &p
	}
	if len(sides) == 1 {
		return r
	}
	r.PeerName = o.PeerName
	r.Peer, r.Ratio = beside(sides[0].rates, sides[1].rates)
	r.StepSeconds.Peer = sides[1].seconds
	if a, ok := sides[1].runner.(interface{ About() map[string]any }); ok {
		r.About = a.About()
	}
	return r
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
	}
	if r.Pipeline != nil {
		rows = append(rows, []string{"compute stalled", fmt.Sprintf("%.2f %% of the step", 100*r.Pipeline.Share)})
	}
	if d := r.Details; d != nil {
		rows = append(rows, []string{"model TFLOP/s", fmt.Sprintf("%.3g, executed %.3g", d.TFLOPS, d.TFLOPSExecuted)},
			[]string{"device memory", fmt.Sprintf("%.3f GiB of %s", float64(d.DeviceBytes)/(1<<30), d.Device)},
			[]string{"host to device", fmt.Sprintf("%.2f GB/s", d.H2DGBps)}, []string{"device to host", fmt.Sprintf("%.2f GB/s", d.D2HGBps)})
	}
	for _, t := range r.Profile {
		rows = append(rows, []string{t.Op + " " + t.Shape, fmt.Sprintf("%d calls, %.3f ms", t.Calls, t.Total.Seconds()*1e3)})
	}
	return writeTable(w, rows)
}
