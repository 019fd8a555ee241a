package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"

	"mt/host/optim"
	"mt/internal/chart"
	"mt/internal/config"
	"mt/internal/human"
	"mt/internal/train"
)

// CompressOptions say which run is looked at, and how. Zero fields take their default.
type CompressOptions struct {
	Config *config.Config // of the run; it writes nothing but into a directory that is removed
	Train  train.Options  // where the run's progress goes
	Steps  int            // that are made; default 60
	Sample int64          // bytes of every kind, of every kind of layer, at most; default 2 MiB
	Block  int64          // bytes that are compressed at a time; default 256 KiB
	Cores  int            // of the host, for the conclusion; default all
}

// CompressReport is how well what a run holds and moves compresses, and what that is worth.
type CompressReport struct {
	Cores  int     `json:"cores"`
	Load   float64 `json:"load_before"`
	Model  string  `json:"model"`  // in words
	Points []int   `json:"points"` // the steps that were sampled
	Block  int64   `json:"block_bytes"`
	// Rows are all kinds, kinds of layers and ways; Sums are the kinds and ways over all
	// kinds of layers.
	Rows []CompressRow `json:"rows"`
	Sums []CompressRow `json:"sums"`
	// Worth is, by kind, what compression would buy where it travels.
	Worth []Worth `json:"worth"`
}

// CompressRow is how one way did on one kind of bytes. Rates are 10⁹ uncompressed bytes a
// second of one core, with what is done before compression and after.
type CompressRow struct {
	Kind       string  `json:"kind"`
	Layer      string  `json:"layer,omitempty"` // embedding, block, …; all of them in Sums
	Transform  string  `json:"transform"`
	Codec      string  `json:"codec"`
	Bytes      int64   `json:"bytes"`
	Ratio      float64 `json:"ratio"`
	Compress   float64 `json:"compress_gb_per_s"`
	Decompress float64 `json:"decompress_gb_per_s"`
	// Entropy is the ratio of the best code that is the same for all blocks and takes every
	// byte of an element by itself.
	Entropy float64 `json:"entropy_ratio"`
}

// Compress trains, samples and compresses.
func Compress(ctx context.Context, o CompressOptions) (*CompressReport, error) {
	if o.Steps == 0 {
		o.Steps = 60
	}
	if o.Sample == 0 {
		o.Sample = 2 << 20
	}
	if o.Block == 0 {
		o.Block = 256 << 10
	}
	if o.Cores == 0 {
		o.Cores = runtime.GOMAXPROCS(0)
	}
	if o.Steps < 2 || o.Sample < 4 || o.Block < 4 || o.Cores < 1 {
		return nil, fmt.Errorf("bench compress: %d steps, samples of %d bytes, blocks of %d, %d cores: want at least 2, 4, 4 and 1", o.Steps, o.Sample, o.Block, o.Cores)
	}
	r := &CompressReport{Cores: o.Cores, Load: loadNow(), Block: o.Block, Points: points(o.Steps)}
	s, err := r.sample(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("bench compress: %w", err)
	}
	if err := r.squeeze(ctx, o, s.materials(int(o.Sample))); err != nil {
		return nil, fmt.Errorf("bench compress: %w", err)
	}
	r.Worth = worth(r.Sums, o.Cores)
	return r, nil
}

// points are the steps that are sampled: early, in the middle and at the end, each the
// second of its kind at least, so that there is a step before it.
func points(steps int) []int {
	return slices.Compact([]int{max(2, steps/10), max(2, steps/2), max(2, steps)})
}

// sample trains until the last point is reached.
func (r *CompressReport) sample(ctx context.Context, o CompressOptions) (*sampler, error) {
	dir, err := os.MkdirTemp("", "mt-bench-compress-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	c := o.Config.Clone()
	c.OutputDir, c.SaveStrategy, c.EvalStrategy, c.ReportTo = dir, "no", "no", nil
	if c.MaxSteps > 0 {
		c.MaxSteps = max(c.MaxSteps, o.Steps+1) // so that it is stopped, and writes no model
	}
	var s *sampler
	running, stop := context.WithCancel(ctx)
	defer stop()
	opts := o.Train
	opts.Stdout = io.Discard
	opts.Watch = func(of optim.Optimizer) optim.Optimizer {
		s = newSampler(of, r.Points, 8, stop)
		return s
	}
	err = train.Train(running, c, opts)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && !errors.Is(err, train.ErrInterrupted):
		return nil, err
	case s.made() < o.Steps:
		return nil, config.Usagef("the run ended after %d of %d steps: give fewer --bench-steps, a larger max_steps (which counts the steps of a checkpoint too) or more data", s.made(), o.Steps)
	}
	r.Model = inWords(c.Model)
	return s, nil
}

// inWords names a model.
func inWords(m config.ModelRef) string {
	switch {
	case m.Path != "":
		return m.Path
	case m.Preset != "":
		return m.Preset
	}
	return fmt.Sprintf("a model of hidden_size %v, num_hidden_layers %v", m.Inline["hidden_size"], m.Inline["num_hidden_layers"])
}

// squeeze compresses all materials in all ways.
func (r *CompressReport) squeeze(ctx context.Context, o CompressOptions, all []*material) error {
	codecs, err := newCodecs()
	if err != nil {
		return err
	}
	type way struct {
		kind, transform, codec string
	}
	var order []way
	sums := map[way]*squeezed{}
	together := map[string][]byte{}
	sizes := map[string]int{}
	for _, m := range all {
		together[m.kind], sizes[m.kind] = append(together[m.kind], m.data...), m.size
		entropy := entropyRatio(m.data, m.size)
		for _, t := range transforms {
			if t.prev && len(m.prev) != len(m.data) {
				continue
			}
			for _, c := range codecs {
				if err := ctx.Err(); err != nil {
					return err
				}
				var q squeezed
				if err := q.squeeze(t, c, m.data, m.prev, m.size, int(o.Block)); err != nil {
					return fmt.Errorf("%s of layers of kind %s: %w", m.kind, m.layer, err)
				}
				r.Rows = append(r.Rows, q.row(m.kind, m.layer.String(), t.name, c.name, entropy))
				w := way{m.kind, t.name, c.name}
				if sums[w] == nil {
					sums[w], order = &squeezed{}, append(order, w)
				}
				sums[w].add(q)
			}
		}
	}
	for _, w := range order {
		r.Sums = append(r.Sums, sums[w].row(w.kind, "", w.transform, w.codec, entropyRatio(together[w.kind], sizes[w.kind])))
	}
	return nil
}

func (s *squeezed) add(q squeezed) {
	s.in, s.out, s.there, s.not = s.in+q.in, s.out+q.out, s.there+q.there, s.not+q.not
}

func (s *squeezed) row(kind, layer, transform, codec string, entropy float64) CompressRow {
	n := float64(s.in)
	return CompressRow{Kind: kind, Layer: layer, Transform: transform, Codec: codec, Bytes: s.in, Ratio: n / float64(s.out),
		Compress: n / max(s.there, 1).Seconds() / 1e9, Decompress: n / max(s.not, 1).Seconds() / 1e9, Entropy: entropy}
}

// WriteTable prints the report for people.
func (r *CompressReport) WriteTable(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "what compresses of a run of %s, sampled at steps %s, in blocks of %s\nratio, and GB/s of one core to compress and to decompress, with the preparation\n%s\n",
		r.Model, commas(r.Points), human.Bytes(r.Block), busy(r.Load)); err != nil {
		return err
	}
	for _, part := range []struct {
		rows  [][]string
		title string
	}{{r.byLayer(), "the best ratio of each way of preparing, by kind of layer (the codec in brackets)"}, {r.speeds(), "all layers together: ratio, then GB/s there/back"},
		{r.verdicts(), fmt.Sprintf("what it would buy, with %d cores of the host doing nothing else", r.Cores)}} {
		if _, err := fmt.Fprintf(w, "%s\n", part.title); err != nil {
			return err
		}
		if err := writeTable(w, part.rows); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(w, worthNote)
	return err
}

func commas(numbers []int) string {
	s := fmt.Sprint(numbers)
	return s[1 : len(s)-1]
}

// byLayer is a row for every kind and kind of layer.
func (r *CompressReport) byLayer() [][]string {
	head := []string{"what", "layers", "sampled"}
	for _, t := range transforms {
		head = append(head, t.name)
	}
	rows := [][]string{append(head, "entropy")}
	for at := 0; at < len(r.Rows); {
		first, end := r.Rows[at], at
		best := map[string]CompressRow{}
		for end < len(r.Rows) && r.Rows[end].Kind == first.Kind && r.Rows[end].Layer == first.Layer {
			if x := r.Rows[end]; x.Ratio > best[x.Transform].Ratio {
				best[x.Transform] = x
			}
			end++
		}
		cells := []string{first.Kind, first.Layer, human.Bytes(first.Bytes)}
		for _, t := range transforms {
			if b, ok := best[t.name]; ok {
				cells = append(cells, fmt.Sprintf("%.2f (%s)", b.Ratio, b.Codec))
			} else {
				cells = append(cells, "")
			}
		}
		rows = append(rows, append(cells, fmt.Sprintf("%.2f", first.Entropy)))
		at = end
	}
	return rows
}

// speeds is a row for every kind and transform, with a column for every codec.
func (r *CompressReport) speeds() [][]string {
	rows := [][]string{{"what", "prepared"}}
	for _, x := range r.Sums {
		if !slices.Contains(rows[0], x.Codec) {
			rows[0] = append(rows[0], x.Codec)
		}
	}
	for _, x := range r.Sums {
		last := rows[len(rows)-1]
		if len(rows) == 1 || last[0] != x.Kind || last[1] != x.Transform {
			rows = append(rows, []string{x.Kind, x.Transform})
		}
		i := len(rows) - 1
		rows[i] = append(rows[i], fmt.Sprintf("%.2f  %.2f/%.2f", x.Ratio, x.Compress, x.Decompress))
	}
	return rows
}

// Chart draws ratios over speeds: a point for every way, a colour for every kind.
func (r *CompressReport) Chart() chart.Chart {
	there, back := newLines(), newLines()
	for _, x := range r.Sums {
		there.add(x.Kind, x.Compress, x.Ratio)
		back.add(x.Kind, x.Decompress, x.Ratio)
	}
	for _, l := range []*lines{there, back} {
		for i := range l.series {
			l.series[i].Style, l.series[i].Color = chart.Points, i+1
		}
	}
	for i := range back.series {
		back.series[i].Label = "" // the colours are those above
	}
	return chart.Chart{Title: "Compression of " + r.Model + ", by codec and preparation", X: chart.Axis{Title: "GB/s of a core", Log: true},
		Panels: []chart.Panel{{Y: chart.Axis{Title: "ratio, compressing", Log: true}, Series: there.series}, {Y: chart.Axis{Title: "ratio, decompressing", Log: true}, Series: back.series}}}
}
