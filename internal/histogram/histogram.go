package histogram

import (
	"fmt"
	"image/color"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// Bar is one count and what it counts.
type Bar struct {
	Label string
	Count int64
}

// Histogram is bars with their titles.
type Histogram struct {
	Title, X, Y string
	Bars        []Bar
}

// textWidth is how many characters the longest bar takes in text.
const textWidth = 40

// WriteText draws one line a bar: label, count, and a bar as long as the count
// beside the largest. A count above zero has at least the thinnest bar.
func (h Histogram) WriteText(w io.Writer) error {
	most, label, digits := int64(1), 0, 0
	for _, b := range h.Bars {
		most = max(most, b.Count)
		label = max(label, utf8.RuneCountInString(b.Label))
		digits = max(digits, len(humanize.Comma(b.Count)))
	}
	for _, b := range h.Bars {
		pad := strings.Repeat(" ", label-utf8.RuneCountInString(b.Label))
		line := fmt.Sprintf("  %s%s  %*s  %s", pad, b.Label, digits, humanize.Comma(b.Count), textBar(b.Count, most))
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " ")); err != nil {
			return err
		}
	}
	return nil
}

// textBar is n of most in eighths of a character.
func textBar(n, most int64) string {
	if n <= 0 {
		return ""
	}
	eighths := max(1, int(float64(n)/float64(most)*textWidth*8))
	bar := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		bar += string(rune('█' + 8 - rest)) // from the full block to the thinnest
	}
	return bar
}

// WritePNG draws a picture of 700 by 400 points at 96 dots an inch.
func (h Histogram) WritePNG(w io.Writer) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = h.Title, h.X, h.Y
	values := make(plotter.Values, len(h.Bars))
	labels := make([]string, len(h.Bars))
	for i, b := range h.Bars {
		values[i], labels[i] = float64(b.Count), b.Label
	}
	if len(h.Bars) > 0 {
		width := vg.Points(max(4, 500/float64(len(h.Bars))))
		bars, err := plotter.NewBarChart(values, width)
		if err != nil {
			return fmt.Errorf("draw %q: %w", h.Title, err)
		}
		bars.Color, bars.LineStyle.Width = color.RGBA{R: 60, G: 110, B: 180, A: 255}, 0
		p.Add(plotter.NewGrid(), bars)
		p.NominalX(labels...)
		p.X.Min, p.X.Max = -0.6, float64(len(h.Bars))-0.4
		p.X.Tick.Label.Rotation = 0.6
		p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = -1, -0.5
	}
	p.Y.Min, p.Title.Padding = 0, vg.Points(8)
	picture, err := p.WriterTo(vg.Points(700), vg.Points(400), "png")
	if err != nil {
		return fmt.Errorf("draw %q: %w", h.Title, err)
	}
	_, err = picture.WriteTo(w)
	return err
}
