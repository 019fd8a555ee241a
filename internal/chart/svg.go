package chart

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Dimensions of a picture in CSS pixels.
const (
	pictureWidth = 930.0
	panelHeight  = 360
	panelGap     = 22.0
	edge         = 18.0 // margin around everything
	fontSize     = 13.0
	letter       = 7.2 // assumed width of a character; most are narrower
	titleRoom    = 42.0
	legendRow    = 22.0
	legendLine   = 26.0 // width of the line sample beside a label
	axisRoom     = 22.0 // room for an axis title
	tickLength   = 5.0
	yPad         = 0.04 // free fraction of a panel's height above the maximum and below the minimum
	markedUpTo   = 30   // largest series whose values get markers
)

// palette are colours that colour-blind people can distinguish, for light and for dark screens (Okabe and Ito,
// jfly.uni-koeln.de/color, with the light colours darkened on white). Series beyond the palette reuse its colours with
// dashes.
var palette = [...][2]string{
	{"#0072b2", "#56b4e9"}, {"#d55e00", "#ff8c42"}, {"#008f6b", "#2fcf9f"}, {"#b0479a", "#e58fc9"},
	{"#8a6d00", "#e6c229"}, {"#5a5a66", "#b4b4c0"}, {"#6a3fb5", "#b79cff"}, {"#a4262c", "#ff7b72"},
}

// style returns the style sheet of a picture, with light and dark colours. Class names begin with mt-, so that they do
// not clash with those of a page that embeds the picture. A viewer that ignores media queries shows the light colours.
func style() string {
	var light, dark strings.Builder
	for i, c := range palette {
		fmt.Fprintf(&light, ".mt-s%d{stroke:%s}.mt-f%[1]d{fill:%[2]s}", i+1, c[0])
		fmt.Fprintf(&dark, ".mt-s%d{stroke:%s}.mt-f%[1]d{fill:%[2]s}", i+1, c[1])
	}
	return ".mt-paper{fill:#fff}.mt-ink{fill:#1f2328}.mt-soft{fill:#59636e}.mt-grid{stroke:#e4e7eb}.mt-axis{stroke:#8c959f}" +
		".mt-line{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}.mt-faint{stroke-width:1;opacity:.4}" + light.String() +
		"@media (prefers-color-scheme:dark){.mt-paper{fill:#0d1117}.mt-ink{fill:#e6edf3}.mt-soft{fill:#9198a1}.mt-grid{stroke:#262c34}.mt-axis{stroke:#656c76}" +
		dark.String() + "}"
}

// frame is the plot rectangle of a panel with its scales.
type frame struct {
	left, right, top, bottom float64
	x, y                     scale
}

func (f frame) place(p point) point {
	return point{f.left + f.x.at(p.x)*(f.right-f.left), f.bottom - f.y.at(p.y)*(f.bottom-f.top)}
}

// scales returns the scale of the horizontal axis, which all panels share, and the scale of each panel's vertical
// axis.
func (c Chart) scales() (scale, []scale) {
	x := newScale(c.X, 0, func(yield func(float64)) {
		for _, p := range c.Panels {
			for _, s := range p.Series {
				for i, v := range s.X[:min(len(s.X), len(s.Y))] {
					if p.Y.drawable(s.Y[i]) {
						yield(v)
					}
				}
			}
		}
	})
	ys := make([]scale, len(c.Panels))
	for i, p := range c.Panels {
		ys[i] = newScale(p.Y, yPad, func(yield func(float64)) {
			for _, s := range p.Series {
				for i, v := range s.Y[:min(len(s.X), len(s.Y))] {
					if c.X.drawable(s.X[i]) {
						yield(v)
					}
				}
			}
		})
	}
	return x, ys
}

// frames places the panels below each other, the first one at the height top. It returns their rectangles and the
// height of the whole picture.
func (c Chart) frames(top float64) (all []frame, height float64) {
	x, ys := c.scales()
	widest := 0
	for _, y := range ys {
		for _, t := range y.ticks(yTicks(panelHeight)) {
			widest = max(widest, utf8.RuneCountInString(t.label))
		}
	}
	left := edge + axisRoom + float64(widest)*letter + 2*tickLength
	for i, p := range c.Panels {
		h := p.Height
		if h <= 0 {
			h = panelHeight
		}
		all = append(all, frame{left: left, right: pictureWidth - edge - 2*letter, top: top, bottom: top + float64(h), x: x, y: ys[i]})
		top += float64(h) + panelGap
	}
	return all, top - panelGap + tickLength + fontSize + 6 + axisRoom + edge
}

// yTicks returns how many ticks the vertical axis of a panel of the given height gets.
func yTicks(height float64) int { return max(2, int(height/55)) }

// WriteSVG writes a picture of 930 pixels' width: title, legend, panels with axes and round ticks, and a line per
// series. It contains no scripts and loads nothing.
func (c Chart) WriteSVG(w io.Writer) error {
	d := &drawing{}
	colors := c.colors()
	top := edge + titleRoom
	legend, rows := c.legend(colors, top)
	frames, height := c.frames(top + float64(rows)*legendRow + 6)
	d.add(`<svg xmlns="http://www.w3.org/2000/svg" width="%v" height="%v" viewBox="0 0 %[1]v %[2]v" role="img" font-family="system-ui,sans-serif" font-size="%v">`,
		pictureWidth, height, fontSize)
	d.add("<title>%v</title><style>%v</style>", c.Title, style())
	d.add(`<rect class="mt-paper" width="%v" height="%v"/>`, pictureWidth, height)
	d.add(`<text class="mt-ink" x="%v" y="%v" font-size="17">%v</text>`, edge, edge+17, c.Title)
	d.Write(legend)
	left := edge
	for i, f := range frames {
		left = f.left
		d.panel(f, c.Panels[i], colors[i], i == len(frames)-1)
	}
	d.add(`<text class="mt-soft" x="%v" y="%v" text-anchor="middle">%v</text>`, (left+pictureWidth-edge-2*letter)/2, height-edge, c.X.Title)
	d.add("</svg>\n")
	if _, err := w.Write(d.Bytes()); err != nil {
		return fmt.Errorf("draw %q: %w", c.Title, err)
	}
	return nil
}

// legend draws the labels of the series at the height top, in as many rows as they need. It returns the drawing and
// the number of rows. colors has the series' palette indexes.
func (c Chart) legend(colors [][]int, top float64) (svg []byte, rows int) {
	d := &drawing{}
	x, y := edge, top
	for i, p := range c.Panels {
		for j, s := range p.Series {
			if s.Label == "" {
				continue
			}
			width := legendLine + 8 + float64(utf8.RuneCountInString(s.Label))*letter + 16
			if rows == 0 {
				rows = 1
			} else if x+width > pictureWidth-edge {
				x, y, rows = edge, y+legendRow, rows+1
			}
			d.add(`<path class="%v"%v d="M%v %vh%v"/>`, stroke(s.Style, colors[i][j]), dashes(colors[i][j]), x, y-4, legendLine)
			d.add(`<text class="mt-ink mt-label" x="%v" y="%v">%v</text>`, x+legendLine+8, y, s.Label)
			x += width
		}
	}
	return d.Bytes(), rows
}

// panel draws the panel p into the rectangle f. colors has the palette index of each of its series. last says that the
// panel is the lowest one, which also gets the labels of the horizontal axis.
func (d *drawing) panel(f frame, p Panel, colors []int, last bool) {
	for _, t := range f.y.ticks(yTicks(f.bottom - f.top)) {
		y := f.place(point{f.x.lo, t.value}).y
		d.add(`<path class="mt-grid" d="M%v %vH%v"/>`, f.left, y, f.right)
		d.add(`<text class="mt-soft mt-ytick" x="%v" y="%v" dy="0.35em" text-anchor="end">%v</text>`, f.left-2*tickLength, y, t.label)
	}
	for _, t := range f.x.ticks(8) {
		x := f.place(point{t.value, f.y.lo}).x
		d.add(`<path class="mt-grid" d="M%v %vV%v"/>`, x, f.top, f.bottom+tickLength)
		if last {
			d.add(`<text class="mt-soft mt-xtick" x="%v" y="%v" text-anchor="middle">%v</text>`, x, f.bottom+tickLength+fontSize+3, t.label)
		}
	}
	d.add(`<path class="mt-axis" fill="none" d="M%v %vV%vH%v"/>`, f.left, f.top, f.bottom, f.right)
	d.add(`<text class="mt-soft" text-anchor="middle" transform="translate(%v %v) rotate(-90)">%v</text>`, edge+fontSize-4, (f.top+f.bottom)/2, p.Y.Title)
	drawn := 0
	for i, s := range p.Series {
		drawn += d.series(f, s, colors[i])
	}
	if drawn == 0 {
		d.add(`<text class="mt-soft" x="%v" y="%v" text-anchor="middle">no values</text>`, (f.left+f.right)/2, (f.top+f.bottom)/2)
	}
}

// series draws the series s into the rectangle f and returns how many values it has drawn. color is its palette index.
func (d *drawing) series(f frame, s Series, color int) (values int) {
	runs := s.runs(f.x.Axis, f.y.Axis)
	path := &drawing{}
	for _, run := range runs {
		values += len(run)
		places := make([]point, len(run))
		for i, p := range run {
			places[i] = f.place(p)
		}
		for i, p := range thin(places) {
			if i == 0 {
				path.add("M%v %v", p.x, p.y)
			} else {
				path.add("L%v %v", p.x, p.y)
			}
		}
		if len(places) == 1 {
			path.add("h0") // the round line caps draw a dot
		}
	}
	if values > 0 {
		d.add(`<path class="%v"%v d="%v"><title>%v</title></path>`, stroke(s.Style, color), dashes(color), path.String(), s.Label)
	}
	if s.Style == Faint || values > markedUpTo {
		return values
	}
	taken := map[point]bool{} // occupied pixels: only the first value of a pixel gets a marker
	for _, run := range runs {
		for _, p := range run {
			at := f.place(p)
			pixel := point{math.Round(at.x), math.Round(at.y)}
			if taken[pixel] {
				continue
			}
			taken[pixel] = true
			d.add(`<circle class="%v" cx="%v" cy="%v" r="3"><title>%v</title></circle>`, fill(color), at.x, at.y,
				strings.TrimSpace(s.Label+" "+Number(p.x)+": "+Number(p.y)))
		}
	}
	return values
}

// thin drops points whose loss changes no pixel. Of consecutive points in one pixel column it keeps the first, the
// last, the highest and the lowest.
func thin(all []point) []point {
	var out []point
	for i := 0; i < len(all); {
		end, low, high := i+1, i, i
		for end < len(all) && math.Floor(all[end].x) == math.Floor(all[i].x) {
			if all[end].y < all[low].y {
				low = end
			}
			if all[end].y > all[high].y {
				high = end
			}
			end++
		}
		at := -1
		for _, k := range []int{i, min(low, high), max(low, high), end - 1} {
			if k > at {
				out, at = append(out, all[k]), k
			}
		}
		i = end
	}
	return out
}

func stroke(s Style, color int) raw {
	class := "mt-line mt-s" + strconv.Itoa((color-1)%len(palette)+1)
	if s == Faint {
		class += " mt-faint"
	}
	return raw(class)
}

func fill(color int) raw { return raw("mt-f" + strconv.Itoa((color-1)%len(palette)+1)) }

// dashes returns the SVG attribute for a dashed line if the palette index color is beyond the palette, so that the
// colour is used again. Otherwise it returns "".
func dashes(color int) raw {
	if turn := (color - 1) / len(palette); turn > 0 {
		return raw(fmt.Sprintf(` stroke-dasharray="%d 4"`, 2+4*((turn-1)%3)))
	}
	return ""
}

// raw is XML that is written without escaping.
type raw string

// drawing is an XML document under construction.
type drawing struct{ bytes.Buffer }

// add appends XML, formatted as by fmt.Sprintf with %v for float64 and string arguments. It rounds float64 arguments
// to a tenth and escapes strings.
func (d *drawing) add(format string, args ...any) {
	for i, a := range args {
		switch a := a.(type) {
		case float64:
			args[i] = strconv.FormatFloat(math.Round(a*10)/10, 'f', -1, 64)
		case string:
			var text bytes.Buffer
			_ = xml.EscapeText(&text, []byte(a)) // a buffer never fails
			args[i] = text.String()
		}
	}
	fmt.Fprintf(d, format, args...)
}
