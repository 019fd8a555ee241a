package train

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// line is where progress goes: on a terminal one line, redrawn; elsewhere plain
// lines, which the caller thins out.
type line struct {
	w           io.Writer
	interactive bool
	drawn       int // width of what stands there
}

// show writes a progress line.
func (l *line) show(text string) {
	if !l.interactive {
		fmt.Fprintln(l.w, text)
		return
	}
	pad := max(0, l.drawn-len([]rune(text)))
	fmt.Fprintf(l.w, "\r%s%s", text, strings.Repeat(" ", pad))
	l.drawn = len([]rune(text))
}

// above writes text that stays, above the progress line.
func (l *line) above(text string) {
	if l.interactive && l.drawn > 0 {
		fmt.Fprintf(l.w, "\r%s\r", strings.Repeat(" ", l.drawn))
		l.drawn = 0
	}
	fmt.Fprintln(l.w, text)
}

// end leaves the progress line as it stands.
func (l *line) end() {
	if l.interactive && l.drawn > 0 {
		fmt.Fprintln(l.w)
		l.drawn = 0
	}
}

// bar is a bar of 20 cells.
func bar(share float64) string {
	n := int(share*20 + 0.5)
	return strings.Repeat("█", min(20, n)) + strings.Repeat("░", max(0, 20-n))
}

// duration prints d as people read it: 1h02m, 3m20s, 12s.
func duration(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d >= time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return d.String()
}

func (m stepMetrics) text(interactive bool) string {
	loss, norm := "not finite", "not finite"
	if v, ok := m.Loss.(float64); ok {
		loss = fmt.Sprintf("%.4f", v)
	}
	if v, ok := m.GradNorm.(float64); ok {
		norm = fmt.Sprintf("%.3f", v)
	}
	s := fmt.Sprintf("step %d/%d  loss %s  grad_norm %s  lr %.2e  %s tok/s  ETA %s", m.Step, m.MaxSteps, loss, norm, m.LR,
		humanize.CommafWithDigits(m.TokPerS, 0), duration(time.Duration(m.EtaS*float64(time.Second))))
	if m.SkippedUpdate {
		s += "  (update skipped)"
	}
	if interactive {
		return bar(float64(m.Step)/float64(m.MaxSteps)) + " " + s
	}
	return s
}

// progressOf shows the progress of reading data: on a terminal as it goes,
// elsewhere every tenth.
func progressOf(w io.Writer, interactive bool) func(done, total int64, what string) {
	l := &line{w: w, interactive: interactive}
	last := int64(-1)
	return func(done, total int64, what string) {
		if total <= 0 {
			return
		}
		tenth := done * 10 / total
		if interactive || tenth > last {
			last = tenth
			l.show(fmt.Sprintf("%s: %s of %s", what, humanize.IBytes(uint64(done)), humanize.IBytes(uint64(total))))
		}
		if done >= total {
			l.end()
		}
	}
}
