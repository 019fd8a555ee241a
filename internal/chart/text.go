package chart

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// Text says how a chart is drawn in characters.
type Text struct {
	Columns, Rows int  // of all panels with their labels; 0: 80 and 20
	Color         bool // ANSI colours, for a terminal
}

// marks stand for series where several share a panel and there are no colours.
const marks = "●○■□▲△◆◇"

// ansi are the colours of a terminal, in the order of the palette.
var ansi = [...]int{36, 33, 32, 35, 93, 90, 34, 31}

// WriteText draws c in characters: lines of braille dots, or, where several series
// share a panel and t has no colours, a mark a series, and none for a faint one. A
// legend names them.
func (c Chart) WriteText(w io.Writer, t Text) error {
	if t.Columns <= 0 {
		t.Columns = 80
	}
	if t.Rows <= 0 {
		t.Rows = 20
	}
	var b strings.Builder
	colors := c.colors()
	x, ys := c.scales()
	heights := c.textRows(t.Rows)
	label := 0
	for i, y := range ys {
		for _, tk := range y.ticks(textTicks(heights[i])) {
			label = max(label, utf8.RuneCountInString(tk.label))
		}
	}
	width := max(10, t.Columns-label-2)
	if c.Title != "" {
		fmt.Fprintln(&b, c.Title)
	}
	for i, p := range c.Panels {
		g := newGrid(width, heights[i], t.Color || p.clear() < 2)
		for j, s := range p.Series {
			if s.Style == Faint && !t.Color && p.clear() > 0 {
				continue
			}
			g.series(s, frame{right: float64(g.dotsX() - 1), bottom: float64(g.dotsY() - 1), x: x, y: ys[i]}, j, colors[i][j])
		}
		if p.Y.Title != "" {
			fmt.Fprintf(&b, "%*s %s\n", label, "", p.Y.Title)
		}
		g.write(&b, ys[i], label, t.Color)
	}
	writeX(&b, x, c.X.Title, label, width)
	c.textLegend(&b, colors, label, t.Color)
	_, err := io.WriteString(w, b.String())
	if err != nil {
		return fmt.Errorf("draw %q: %w", c.Title, err)
	}
	return nil
}

// clear is how many series of p are not faint. Without colours a faint one is not
// drawn beside them.
func (p Panel) clear() (n int) {
	for _, s := range p.Series {
		if s.Style != Faint {
			n++
		}
	}
	return n
}

// textRows divides what titles, axis and legend leave of rows between the panels,
// by their heights. A panel has three at least.
func (c Chart) textRows(rows int) []int {
	total, labels, all := 0, 0, make([]int, len(c.Panels))
	rows -= 2 // the horizontal axis and its numbers
	for _, title := range []string{c.Title, c.X.Title} {
		if title != "" {
			rows--
		}
	}
	for i, p := range c.Panels {
		if p.Y.Title != "" {
			rows--
		}
		for _, s := range p.Series {
			if s.Label != "" {
				labels++
			}
		}
		all[i] = p.Height
		if all[i] <= 0 {
			all[i] = panelHeight
		}
		total += all[i]
	}
	if labels > 1 {
		rows--
	}
	for i := range all {
		all[i] = max(3, rows*all[i]/total)
	}
	return all
}

func textTicks(rows int) int { return max(2, rows/3) }

// grid is the cells of a panel. A cell is two dots wide and four high.
type grid struct {
	columns, rows int
	dots          bool   // braille; else a mark a cell
	cells         []rune // braille bits, or marks
	colors        []int
}

func newGrid(columns, rows int, dots bool) *grid {
	return &grid{columns: columns, rows: rows, dots: dots, cells: make([]rune, columns*rows), colors: make([]int, columns*rows)}
}

func (g *grid) dotsX() int {
	if g.dots {
		return 2 * g.columns
	}
	return g.columns
}

func (g *grid) dotsY() int {
	if g.dots {
		return 4 * g.rows
	}
	return g.rows
}

// braille are the bits of a cell's dots, by column and row (Unicode, chapter 21.1).
var braille = [2][4]rune{{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}

// set draws a dot of the n-th series.
func (g *grid) set(x, y, n, color int) {
	if x < 0 || y < 0 || x >= g.dotsX() || y >= g.dotsY() {
		return
	}
	if !g.dots {
		all := []rune(marks)
		g.cells[y*g.columns+x] = all[n%len(all)]
		return
	}
	at := y/4*g.columns + x/2
	g.cells[at] |= braille[x%2][y%4]
	g.colors[at] = color
}

// series draws s, the n-th of its panel, over f, which is in dots.
func (g *grid) series(s Series, f frame, n, color int) {
	for _, run := range s.runs(f.x.Axis, f.y.Axis) {
		var last point
		for i, v := range run {
			at := f.place(v)
			at.x, at.y = math.Round(at.x), math.Round(at.y)
			steps := 0.0
			if i > 0 && s.Style != Points {
				steps = max(math.Abs(at.x-last.x), math.Abs(at.y-last.y))
			}
			for k := range int(steps) {
				part := float64(k) / steps
				g.set(int(math.Round(last.x+part*(at.x-last.x))), int(math.Round(last.y+part*(at.y-last.y))), n, color)
			}
			g.set(int(at.x), int(at.y), n, color)
			last = at
		}
	}
}

// write writes the rows with the labels of y to their left.
func (g *grid) write(b *strings.Builder, y scale, label int, color bool) {
	names := map[int]string{}
	for _, t := range y.ticks(textTicks(g.rows)) {
		names[g.rows-1-int(math.Round(y.at(t.value)*float64(g.rows-1)))] = t.label
	}
	for r := range g.rows {
		side := "│"
		if names[r] != "" {
			side = "┤"
		}
		line := strings.Builder{}
		for i, cell := range g.cells[r*g.columns : (r+1)*g.columns] {
			switch {
			case cell == 0:
				line.WriteByte(' ')
			case !g.dots:
				line.WriteRune(cell)
			case color:
				line.WriteString(paint(string(0x2800+cell), g.colors[r*g.columns+i]))
			default:
				line.WriteRune(0x2800 + cell)
			}
		}
		fmt.Fprintf(b, "%s%s%s%s\n", strings.Repeat(" ", label-utf8.RuneCountInString(names[r])), names[r], side, strings.TrimRight(line.String(), " "))
	}
}

// writeX writes the horizontal axis: its line, the labels that have room, its title.
func writeX(b *strings.Builder, x scale, title string, label, width int) {
	line, names := []rune(strings.Repeat("─", width)), []rune(strings.Repeat(" ", width))
	free := 0
	for _, t := range x.ticks(max(2, width/12)) {
		at := int(math.Round(x.at(t.value) * float64(width-1)))
		line[at] = '┬'
		text := []rune(t.label)
		if from := min(max(0, at-len(text)/2), width-len(text)); from >= free {
			copy(names[from:], text)
			free = from + len(text) + 1
		}
	}
	pad := strings.Repeat(" ", label)
	fmt.Fprintf(b, "%s└%s\n%s %s\n", pad, string(line), pad, strings.TrimRight(string(names), " "))
	if title != "" {
		fmt.Fprintf(b, "%s %*s\n", pad, (width+utf8.RuneCountInString(title))/2, title)
	}
}

// textLegend names the series.
func (c Chart) textLegend(b *strings.Builder, colors [][]int, label int, color bool) {
	var names []string
	all := []rune(marks)
	for i, p := range c.Panels {
		for j, s := range p.Series {
			if s.Label == "" || s.Style == Faint && !color && p.clear() > 0 {
				continue
			}
			sample := "⠤⠤"
			if !color && p.clear() > 1 {
				sample = string(all[j%len(all)])
			}
			if color {
				sample = paint(sample, colors[i][j])
			}
			names = append(names, sample+" "+s.Label)
		}
	}
	if len(names) > 1 {
		fmt.Fprintf(b, "%s %s\n", strings.Repeat(" ", label), strings.Join(names, "   "))
	}
}

func paint(text string, color int) string {
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", ansi[(color-1)%len(ansi)], text)
}

// blocks are the heights of a sparkline.
var blocks = []rune("▁▂▃▄▅▆▇█")

// Sparkline is values in one row of at most width characters, from the least, the
// lowest block, to the greatest. Where there are more values than characters, a
// character is the mean of those that fall there. Values that are not finite are
// left out of means; where there are no others the character is a space.
func Sparkline(values []float64, width int) string {
	n := min(width, len(values))
	if n <= 0 {
		return ""
	}
	means, least, most := make([]float64, n), math.Inf(1), math.Inf(-1)
	for i := range n {
		mean, count := math.NaN(), 0.0
		for _, v := range values[i*len(values)/n : (i+1)*len(values)/n] {
			switch {
			case math.Abs(v) > farthest || math.IsNaN(v):
			case count == 0:
				mean, count = v, 1
			default:
				count++
				mean += (v - mean) / count
			}
		}
		if means[i] = mean; count > 0 {
			least, most = min(least, mean), max(most, mean)
		}
	}
	var b strings.Builder
	for _, m := range means {
		switch {
		case math.IsNaN(m):
			b.WriteByte(' ')
		case most == least:
			b.WriteRune(blocks[len(blocks)/2])
		default:
			b.WriteRune(blocks[int(math.Round((m-least)/(most-least)*float64(len(blocks)-1)))])
		}
	}
	return b.String()
}
