package bench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"mt/base/human"
	"mt/plan/rates"
)

// sides lists the comparisons of mt with peers (other trainers). parts are the parts of bench/gpu.sh that trained mt or
// a peer for the comparison.
var sides = []struct {
	label string
	parts []string
}{
	{"FSDP2 with CPU offload, rows of 1024", []string{"fsdp2-1024", "fsdp2-again"}},
	{"FSDP2 with CPU offload, rows of 8192", []string{"fsdp2-8192"}},
	{"ZeRO-3 with CPU offload, rows of 1024", []string{"zero3-1024", "zero3-again"}},
	{"ZeRO-3 with CPU offload, rows of 8192", []string{"zero3-8192"}},
	{"MegaTrain, rows of 1024", []string{"megatrain-1024"}},
	{"plain PyTorch, 2 blocks, rows of 1024", []string{"torch-1024"}},
}

// page writes Markdown. It keeps the first error of writing.
type page struct {
	w   io.Writer
	err error
}

func (p *page) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// table writes rows as a Markdown table; rows[0] is the table's head.
func (p *page) table(rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	line := func(row []string) {
		for i, cell := range row {
			p.printf("| %s%s ", cell, strings.Repeat(" ", widths[i]-len([]rune(cell))))
		}
		p.printf("|\n")
	}
	line(rows[0])
	for _, width := range widths {
		p.printf("| %s ", strings.Repeat("-", width))
	}
	p.printf("|\n")
	for _, row := range rows[1:] {
		line(row)
	}
	p.printf("\n")
}

// WriteMarkdown writes the report on c: each measured figure beside its prediction for the machine.
func (c *Contact) WriteMarkdown(w io.Writer) error {
	p, m := &page{w: w}, c.Machine
	gpu := cmp.Or(m.GPU, c.Doctor.CUDA.Device)
	if c.SelfTest != nil {
		gpu = cmp.Or(gpu, c.SelfTest.Device)
	}
	gpu = cmp.Or(gpu, "an unknown device")
	p.printf("# mt on %s\n\n", gpu)
	if m.Scale == small {
		p.printf("**A trial of the script at toy sizes: the figures mean nothing.**\n\n")
	}
	p.printf("%s, %s, %d cores of %s, %.0f GiB of host memory free; %d blocks where not said otherwise.\n\n", m.Date, m.Version, m.Cores, m.Processor, m.HostMemory/gib, m.Blocks)
	if state := c.gpuState(); state != "" {
		p.printf("%s\n\n", state)
	}
	if limits := m.limits(); limits != "" {
		p.printf("%s\n\n", limits)
	}
	p.printf("%s A ratio is measured over predicted; where no rate says a figure, both cells are empty.\n\n", c.predictedFor())
	c.selfTest(p)
	c.sanitized(p)
	c.dumps(p)
	p.printf("## Training steps\n\n")
	p.table(c.steps())
	if rows := c.figures(); len(rows) > 1 {
		p.table(rows)
	}
	p.table(c.ratios())
	c.profile(p)
	c.rates(p)
	c.notes(p)
	p.printf("## Parts\n\n")
	for _, part := range c.Parts {
		p.printf("- %s: %s\n", part.Name, part.Outcome)
	}
	for _, err := range c.Unread {
		p.printf("- not read: %v\n", err)
	}
	p.printf("\nThe full configuration of every run is in its JSON file beside this page. `mt doctor --from-report DIR --save rates.json` makes rates for `mt plan --gpu` of it.\n")
	return p.err
}

// predictedFor names the machine whose rates gave the predictions, or says why there are no predictions.
func (c *Contact) predictedFor() string {
	var names, reasons []string
	add := func(name, why string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
		if why != "" && !slices.Contains(reasons, why) {
			reasons = append(reasons, why)
		}
	}
	if c.SelfTest != nil {
		add(c.SelfTest.PredictedFor, "")
	}
	for _, part := range c.trained() {
		if d := c.Train[part].Details; d != nil {
			add(d.PredictedFor, d.Unpredicted)
		}
	}
	for _, w := range c.wheres() {
		add(w.PredictedFor, w.Unpredicted)
	}
	switch {
	case len(names) > 0:
		return "Predicted in virtual time for " + strings.Join(names, "; ") + "."
	case len(reasons) > 0:
		return "Nothing but memory is predicted: " + strings.Join(reasons, "; ") + "."
	}
	return "Nothing is predicted."
}

// wheres returns the machine's description (Where) from each report that has rates.
func (c *Contact) wheres() (out []Where) {
	if c.Copy != nil {
		out = append(out, c.Copy.Where)
	}
	if c.Attention != nil {
		out = append(out, c.Attention.Where)
	}
	if c.MatMul != nil {
		out = append(out, c.MatMul.Where)
	}
	return out
}

// trained returns the names of the parts with training steps, in the order in which they ran.
func (c *Contact) trained() []string {
	var out []string
	for _, p := range c.Parts {
		if c.Train[p.Name] != nil {
			out = append(out, p.Name)
		}
	}
	var others []string
	for part := range c.Train {
		if !slices.Contains(out, part) {
			others = append(others, part)
		}
	}
	slices.Sort(others)
	return append(out, others...)
}

// cells returns the predicted value, the measured value and their ratio as table cells.
func cells(b rates.Beside) []string {
	predicted, ratio := b.Words()
	return []string{predicted, strconv.FormatFloat(rates.Round(b.Measured), 'f', -1, 64), ratio}
}

func (c *Contact) selfTest(p *page) {
	p.printf("## Self test\n\n")
	r := c.SelfTest
	if r == nil {
		p.printf("Not there.\n\n")
		return
	}
	verdict := "passed"
	switch failed := r.Failed(); {
	case failed > 0:
		verdict = fmt.Sprintf("%d checks FAILED", failed)
	case !r.OK:
		verdict = "not finished"
	}
	p.printf("%s: %s, %d checks.\n\n", r.Device, verdict, len(r.Checks))
	if r.Running != "" {
		p.printf("It was cut off while %s ran.\n\n", r.Running)
	}
	if r.Error != "" {
		p.printf("It ended before its end: %s\n\n", r.Error)
	}
	for _, l := range r.Losses {
		p.printf("- lost: %s\n", l)
	}
	for _, check := range r.Checks {
		if !check.OK {
			p.printf("- %s: %s\n", check.Name, strings.Join(check.Errors, "; "))
		}
	}
	if r.Failed() > 0 {
		p.printf("\n")
	}
	if len(r.Rates) == 0 {
		return
	}
	rows := [][]string{{"what", "unit", "predicted", "measured", "ratio", ""}}
	for _, rate := range r.Rates {
		b := rate.Beside
		b.Measured = rate.Value
		rows = append(rows, append(append([]string{rate.Name, rate.Unit}, cells(b)...), rate.Detail))
	}
	p.table(rows)
}

// sanitized writes the findings of NVIDIA's compute-sanitizer, one section for each of its tools.
func (c *Contact) sanitized(p *page) {
	logs, _ := filepath.Glob(filepath.Join(c.Path, "sanitize-*.txt")) // the pattern is valid
	for i, log := range logs {
		if i == 0 {
			p.printf("## compute-sanitizer\n\n")
		}
		raw, err := os.ReadFile(log)
		if err != nil {
			p.printf("%v\n\n", err)
			continue
		}
		summary, found := "it was stopped before its summary", []string{}
		for line := range strings.Lines(strings.ToValidUTF8(string(raw), "?")) {
			line = strings.TrimRight(line, " \r\n")
			switch {
			case strings.Contains(line, "SUMMARY"):
				summary = strings.Trim(line, "= ")
			case strings.HasPrefix(line, "=========") && strings.Trim(line, "= ") != "" && !strings.Contains(line, "COMPUTE-SANITIZER"):
				found = append(found, line)
			}
		}
		p.printf("%s: %s\n\n", strings.TrimPrefix(strings.TrimSuffix(filepath.Base(log), ".txt"), "sanitize-"), summary)
		if len(found) > 40 {
			found = append(found[:40], "…")
		}
		if len(found) > 0 {
			p.printf("```\n%s\n```\n\n", strings.Join(found, "\n"))
		}
	}
}

// gpuState returns the line of mt doctor on the GPU's state, or a note that NVML is missing; "" without a GPU.
func (c *Contact) gpuState() string {
	switch cuda := c.Doctor.CUDA; {
	case cuda.Device == "":
		return ""
	case cuda.State == nil:
		return "NVML (libnvidia-ml) does not describe the GPU: its driver, clocks and link are unknown."
	default:
		return "The GPU: " + cuda.State.String() + "."
	}
}

// limits describes the container's limits; "" if there is none.
func (m *ContactMachine) limits() string {
	var words []string
	if m.CPULimit > 0 {
		words = append(words, fmt.Sprintf("the time of %.4g cores", m.CPULimit))
	}
	if m.Limit > 0 {
		words = append(words, human.Bytes(int64(m.Limit))+" of memory")
	}
	if len(words) == 0 {
		return ""
	}
	return "The container may take " + strings.Join(words, " and ") + "."
}

// dumps writes what cuda-gdb reports about the core dumps that a GPU left.
func (c *Contact) dumps(p *page) {
	files, _ := filepath.Glob(filepath.Join(c.Path, "*.cudacore.txt")) // the pattern is valid
	for i, file := range files {
		if i == 0 {
			p.printf("## Core dumps of the GPU\n\n")
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			p.printf("%v\n\n", err)
			continue
		}
		lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(raw), "?")), "\n")
		if len(lines) > 40 {
			lines = append(lines[:40], "…")
		}
		p.printf("%s:\n\n```\n%s\n```\n\n", strings.TrimSuffix(filepath.Base(file), ".txt"), strings.Join(lines, "\n"))
	}
}

// perSecondOf formats measured rates in tokens a second, as median and range; "not measured" without values.
func perSecondOf(values []float64) string {
	if len(values) == 0 {
		return "not measured"
	}
	s := Summarize(values)
	return fmt.Sprintf("%s [%s–%s]", humanize.Comma(int64(s.Median+0.5)), humanize.Comma(int64(s.Min+0.5)), humanize.Comma(int64(s.Max+0.5)))
}

// steps returns the table of training speed, with one row for each part with training steps.
func (c *Contact) steps() [][]string {
	rows := [][]string{{"part", "tokens a step", "tokens/s", "model TFLOP/s", "compute stalled", "device memory", "host to device", "device to host"}}
	for _, part := range c.trained() {
		r := c.Train[part]
		d := r.Details
		if d == nil || r.Pipeline == nil {
			continue
		}
		tokens := r.Shape.Rows * r.Shape.SeqLen
		var speeds []float64
		for _, s := range r.StepSeconds.Ours {
			speeds = append(speeds, float64(tokens)/s)
		}
		rows = append(rows, []string{part, humanize.Comma(int64(tokens)), perSecondOf(speeds), fmt.Sprintf("%.1f", d.TFLOPS), fmt.Sprintf("%.1f %%", 100*r.Pipeline.Share),
			fmt.Sprintf("%.2f GiB", float64(d.DeviceBytes)/gib), fmt.Sprintf("%.1f GB/s", d.H2DGBps), fmt.Sprintf("%.1f GB/s", d.D2HGBps)})
	}
	return rows
}

// figures returns the table of measured and predicted figures of all parts with training steps.
func (c *Contact) figures() [][]string {
	rows := [][]string{{"part", "figure", "unit", "predicted", "measured", "ratio"}}
	for _, part := range c.trained() {
		if d := c.Train[part].Details; d != nil {
			for _, f := range d.Figures {
				rows = append(rows, append([]string{part, f.Name, f.Unit}, cells(f.Beside)...))
			}
		}
	}
	return rows
}

// ratios returns the table that compares mt with its peers. Model TFLOP/s are counted the same way for both sides. The
// differences of losses and gradient norms show whether both sides run the same training.
func (c *Contact) ratios() [][]string {
	rows := [][]string{{"beside", "mt tokens/s", "peer tokens/s", "model TFLOP/s", "ratio", "losses, norms differ by", "the peer's setting"}}
	for _, side := range sides {
		var ours, peer, ratios []float64
		var last *TrainReport
		early, agreement := "", Agreement{}
		for _, part := range side.parts {
			r := c.Train[part]
			if r == nil {
				continue
			}
			ours = append(ours, r.Ours.Median)
			if r.Ratio == nil || r.Peer == nil {
				continue
			}
			last = r
			peer, ratios = append(peer, r.Peer.Median), append(ratios, r.Ratio.Median)
			if r.Error != "" {
				early = ", ended early"
			}
			if a := r.Agreement; a != nil {
				agreement = Agreement{Steps: agreement.Steps + a.Steps, Loss: max(agreement.Loss, a.Loss), GradNorm: max(agreement.GradNorm, a.GradNorm)}
			}
		}
		row := []string{side.label + early, perSecondOf(ours), perSecondOf(peer), "", "", "", ""}
		if last != nil {
			row[3] = fmt.Sprintf("%.3g and %.3g", last.OursTFLOPS, last.PeerTFLOPS)
			row[4], row[6] = Summarize(ratios).String(), setting(last.About)
		}
		if agreement.Steps > 0 {
			row[5] = fmt.Sprintf("%.1g, %.1g", agreement.Loss, agreement.GradNorm)
		}
		rows = append(rows, row)
	}
	return rows
}

// setting formats the settings of a peer. about is the peer's description of itself (TrainReport.About).
func setting(about map[string]any) string {
	var words []string
	if rows, ok := about["micro_rows"]; ok {
		words = append(words, fmt.Sprintf("%v rows at once", rows))
	}
	if s, ok := about["setting"]; ok {
		if raw, err := json.Marshal(s); err == nil {
			words = append(words, string(raw))
		}
	}
	return strings.Join(words, " ")
}

// profiled returns the first part in which operations were timed, and its report; r is nil if there is none.
func (c *Contact) profiled() (part string, r *TrainReport) {
	for _, part := range c.trained() {
		if r := c.Train[part]; len(r.Profile) > 0 && r.ProfileSteps > 0 {
			return part, r
		}
	}
	return "", nil
}

// profile writes how the time of a step divides among operations.
func (c *Contact) profile(p *page) {
	p.printf("## Where the time of a step goes\n\n")
	_, r := c.profiled()
	if r == nil {
		p.printf("Not measured.\n\n")
		return
	}
	var total float64
	for _, t := range r.Profile {
		total += t.Total.Seconds()
	}
	rows := [][]string{{"operation", "calls", "share", "TFLOP/s", "predicted ms a step", "measured", "ratio"}}
	for _, t := range r.Profile[:min(len(r.Profile), 40)] {
		tflops := ""
		if t.FLOPs > 0 {
			tflops = fmt.Sprintf("%.0f", t.FLOPs/t.Total.Seconds()/1e12)
		}
		rows = append(rows, append([]string{strings.TrimSpace(t.Op + " " + t.Shape), strconv.Itoa(t.Calls), fmt.Sprintf("%.1f %%", 100*t.Total.Seconds()/total), tflops}, cells(t.Beside)...))
	}
	p.table(rows)
	p.printf("Operations together %.3f s a step, over %d steps", total/float64(r.ProfileSteps), r.ProfileSteps)
	if n := len(r.StepSeconds.Ours); r.Pipeline != nil && n > 0 {
		p.printf(", of %.3f s of the compute stream", r.Pipeline.ComputeS/float64(n))
	}
	p.printf("; with events around each, so slower than the runs above.\n\n")
}

// rates writes the measured rates of attention, copies and matrix products.
func (c *Contact) rates(p *page) {
	head := []string{"what", "unit", "predicted", "measured", "ratio", "least to most"}
	spread := func(s Sample) string { return fmt.Sprintf("%.4g to %.4g", s.Min, s.Max) }
	line := func(what, unit string, b rates.Beside, s Sample) []string {
		b.Measured = s.Median
		return append(append([]string{what, unit}, cells(b)...), spread(s))
	}
	if c.Attention != nil {
		rows := [][]string{head}
		for _, r := range c.Attention.Rows {
			rows = append(rows, line(fmt.Sprintf("%s, %s, %d × %s tokens, %d/%d heads of %d", r.Way, r.DType, r.Tokens/max(1, r.Length), humanize.Comma(int64(r.Length)), r.Heads, r.KVHeads, r.Dim),
				"TFLOP/s", r.Beside, r.TFLOPS))
		}
		p.printf("## attention\n\n")
		p.table(rows)
	}
	if c.Copy != nil {
		rows := [][]string{head}
		for _, r := range c.Copy.Rows {
			what := []string{r.What}
			if r.Memory != "" {
				what = append(what, r.Memory)
			}
			rows = append(rows, line(strings.Join(append(what, human.Bytes(r.Bytes)), ", "), "GB/s", r.Beside, r.GBps))
		}
		for _, f := range c.Copy.Figures {
			rows = append(rows, append(append([]string{f.Name, f.Unit}, cells(f.Beside)...), ""))
		}
		p.printf("## copy\n\n")
		p.table(rows)
	}
	if c.MatMul != nil {
		rows := [][]string{head}
		for _, r := range c.MatMul.Rows {
			rows = append(rows, line(fmt.Sprintf("%s, %s, %d×%d×%d, %s", r.Name, r.DType, r.M, r.N, r.K, r.operands()), "TFLOP/s", r.Beside, r.TFLOPS))
		}
		p.printf("## matmul\n\n")
		p.table(rows)
	}
}

// notes writes the notes of the device, such as memory that could not be pinned or matrix products that cuBLASLt
// refused.
func (c *Contact) notes(p *page) {
	var said []string
	where := map[string][]string{}
	add := func(part string, notes []string) {
		for _, n := range notes {
			if where[n] == nil {
				said = append(said, n)
			}
			where[n] = append(where[n], part)
		}
	}
	if c.SelfTest != nil {
		add("selftest", c.SelfTest.Notes)
	}
	for _, part := range c.trained() {
		if d := c.Train[part].Details; d != nil {
			add(part, d.Notes)
		}
	}
	p.printf("## Notes of the device\n\n")
	for _, n := range said {
		p.printf("- %s (%s)\n", n, strings.Join(where[n], ", "))
	}
	if len(said) == 0 {
		p.printf("None.\n")
	}
	p.printf("\n")
}
