package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"

	"mt/base/human"
	"mt/data"
	"mt/internal/run/settings"
)

// Line shows progress: on a terminal as one line that is redrawn, elsewhere as plain lines.
type Line struct {
	Out         io.Writer
	Interactive bool
	drawn       int // width of the drawn text
}

// Show writes a progress line. On a terminal it takes the first of texts that fits, since a wrapped line cannot be
// redrawn. Elsewhere it takes texts[0].
func (l *Line) Show(texts ...string) {
	if !l.Interactive {
		fmt.Fprintln(l.Out, texts[0])
		return
	}
	text := fit(columns(l.Out)-1, texts)
	width := len([]rune(text))
	fmt.Fprintf(l.Out, "\r%s%s", text, strings.Repeat(" ", max(0, l.drawn-width)))
	l.drawn = width
}

// fit returns the first of texts that has at most width characters. If none fits, it returns the beginning of the
// last. width < 1 means that the width is unknown, and then the first text is returned.
func fit(width int, texts []string) string {
	if width < 1 {
		return texts[0]
	}
	for _, text := range texts {
		if len([]rune(text)) <= width {
			return text
		}
	}
	return string([]rune(texts[len(texts)-1])[:width])
}

// columns returns the width in characters of the terminal to which w writes; 0 if w is no terminal or the width is
// unknown.
func columns(w io.Writer) int {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// Above writes text that stays, above the progress line, which is redrawn below.
func (l *Line) Above(text string) {
	if l.Interactive && l.drawn > 0 {
		fmt.Fprintf(l.Out, "\r%s\r", strings.Repeat(" ", l.drawn))
		l.drawn = 0
	}
	fmt.Fprintln(l.Out, text)
}

// End ends the progress line, which stays visible.
func (l *Line) End() {
	if l.Interactive && l.drawn > 0 {
		fmt.Fprintln(l.Out)
		l.drawn = 0
	}
}

// Progress prints steps, evaluations and notes.
type Progress struct {
	noopObserver
	Line        *Line
	MaxSteps    int
	lossHistory lossHistory
}

// Step implements Observer.
func (p *Progress) Step(s Step) {
	p.lossHistory.add(s.Report.Loss)
	if s.Logged || p.Line.Interactive {
		p.Line.Show(s.Metrics.texts(p.Line.Interactive, p.lossHistory.spark())...)
	}
}

// Eval implements Observer.
func (p *Progress) Eval(e Eval) {
	if e.Metrics != nil {
		p.Line.Above(e.text(p.MaxSteps))
	}
}

// Note implements Observer.
func (p *Progress) Note(text string) { p.Line.Above("note: " + text) }

// bar draws a bar of 20 cells. The part share of them (0 to 1) is filled.
func bar(share float64) string {
	n := int(share*20 + 0.5)
	return strings.Repeat("█", min(20, n)) + strings.Repeat("░", max(0, 20-n))
}

// text formats a number of a line of metrics.jsonl, which is nil if it is not finite.
func text(number any, format string) string {
	if v, ok := number.(float64); ok {
		return fmt.Sprintf(format, v)
	}
	return "not finite"
}

// texts returns variants of a step's progress line, each shorter than the one before. On a terminal the first begins
// with a bar. Loss and tokens per second cover the steps since the last line of metrics.jsonl. spark is a sparkline
// of the loss for a terminal; it may be empty.
func (m StepMetrics) texts(interactive bool, spark string) []string {
	loss, norm := text(m.Loss, "%.4f"), text(m.GradNorm, "%.3f")
	head := fmt.Sprintf("step %d/%d  loss %s", m.Step, m.MaxSteps, loss)
	if m.AheadLoss != nil {
		head += "  mtp_loss " + text(*m.AheadLoss, "%.4f")
	}
	if m.PairMetrics != nil {
		head += "  " + m.PairMetrics.text()
	}
	more := fmt.Sprintf("  grad_norm %s  lr %.2e", norm, m.LR)
	eta := "  ETA " + human.Duration(time.Duration(m.EtaS*float64(time.Second)))
	rate := fmt.Sprintf("  %s tok/s", humanize.CommafWithDigits(m.TokPerS, 0))
	over := ""
	if m.WindowSteps > 1 {
		over = fmt.Sprintf(" (over %d steps)", m.WindowSteps)
	}
	if m.SkippedUpdate {
		eta += "  (update skipped)"
	}
	whole := head + rate + over + more + eta
	if !interactive {
		return []string{whole}
	}
	var out []string
	bar := bar(float64(m.Step)/float64(m.MaxSteps)) + " "
	if spark != "" {
		drawn := head + " " + spark
		out = []string{bar + drawn + rate + over + more + eta, drawn + rate + over + more + eta, drawn + rate + over + eta, drawn + rate + eta}
	}
	return append(out, bar+whole, whole, head+rate+over+eta, head+rate+eta, head+eta)
}

// quickRead is a size in bytes. Smaller files are read without showing progress, since they take a moment.
const quickRead = 16 << 20

// slowWork is how long checking a token cache or pinning host memory must take before its progress is shown.
const slowWork = 3 * time.Second

// Pinning names the work of pinning host memory for copies.
const Pinning = "pin host memory"

// ShowHang prints at once that work on a device does not end. It does not wait for the next note, because the run
// stands still and shows none.
func ShowHang(o settings.Options, text string) {
	if o.Interactive { // end the progress line, if any
		text = "\nnote: " + text
	} else {
		text = "note: " + text
	}
	fmt.Fprintln(o.Stderr, text)
}

// Reading returns a function that shows the progress of reading data on o.Stderr (see data.Spec.Progress). A terminal
// shows it continuously; elsewhere every tenth is printed. Checking a token cache and pinning are shown only when they
// are slow, and only once if Stderr is no terminal.
func Reading(o settings.Options) func(done, total int64, what string) {
	return progressBy(o, time.Now)
}

func progressBy(o settings.Options, now func() time.Time) func(done, total int64, what string) {
	l := &Line{Out: o.Stderr, Interactive: o.Interactive}
	work, shown, began := "", int64(0), time.Time{}
	return func(done, total int64, what string) {
		if total < quickRead {
			return
		}
		if what != work {
			l.End()
			work, shown, began = what, -1, now()
		}
		tenth := done * 10 / total
		if tenth == shown && (!o.Interactive || done >= total) {
			return
		}
		if (what == data.CheckingCache || what == Pinning) && (now().Sub(began) < slowWork || shown >= 0 && !o.Interactive) {
			return
		}
		shown = tenth
		l.Show(fmt.Sprintf("%s: %s of %s", what, humanize.IBytes(uint64(done)), humanize.IBytes(uint64(total))))
		if done >= total {
			l.End()
		}
	}
}
