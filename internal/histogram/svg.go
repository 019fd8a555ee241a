package histogram

import (
	"fmt"
	"io"
	"math"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"mt/internal/svg"
)

// What a picture measures, in CSS pixels.
const (
	pictureWidth, pictureHeight = 930.0, 530.0

	edge       = 16.0 // around everything
	fontSize   = 13.0
	letter     = 7.2 // the width of a character, for room: most are narrower
	titleRoom  = 40.0
	axisRoom   = 24.0 // of an axis' title
	tickLength = 5.0
	headroom   = 1.05 // the axis of counts beside the largest
	maxTicks   = 5    // above zero
)

// slant is the least angle, in radians, by which labels are turned that have no room side by
// side.
const slant = 35 * math.Pi / 180

// plot is the rectangle that bars are drawn in, and its scale.
type plot struct {
	left, right, top, bottom float64
	slot                     float64 // the width that a bar has with what is beside it
	perCount                 float64 // height
	slant                    float64 // of labels, in radians
}

// layout makes room for the labels.
func (h Histogram) layout() plot {
	most, label, n := h.most(), 0, float64(max(1, len(h.Bars)))
	for _, b := range h.Bars {
		label = max(label, utf8.RuneCountInString(b.Label))
	}
	length := float64(label) * letter
	p := plot{right: pictureWidth - edge, top: edge + titleRoom}
	p.left = edge + axisRoom + float64(len(humanize.Comma(most)))*letter + 2*tickLength
	below := fontSize
	if slot := (p.right - p.left) / n; length+letter > slot {
		p.slant = max(slant, math.Asin(min(1, (fontSize+2)/slot))) // as steep as it takes to pass each other
		sin, cos := math.Sincos(p.slant)
		below = length*sin + fontSize
		p.left = max(p.left, edge+length*cos) // the first label reaches to the left of its bar
	}
	p.bottom = pictureHeight - edge - axisRoom - below - tickLength
	p.slot = (p.right - p.left) / n
	p.perCount = (p.bottom - p.top) / (float64(most) * headroom)
	return p
}

// most is the largest count, at least 1.
func (h Histogram) most() int64 {
	n := int64(1)
	for _, b := range h.Bars {
		n = max(n, b.Count)
	}
	return n
}

// tickStep is the least of 1, 2, 5, 10, 20, … by which maxTicks steps or fewer reach most.
func tickStep(most int64) int64 {
	for ten := int64(1); ; ten *= 10 {
		for _, n := range []int64{1, 2, 5} {
			if most/(n*ten) <= maxTicks {
				return n * ten
			}
		}
	}
}

// WriteSVG draws a picture of 930 by 530 pixels: bars from zero, an axis of counts
// with round ticks, every bar's label, and its count as what a browser shows under
// the pointer.
func (h Histogram) WriteSVG(w io.Writer) error {
	d := svg.Drawing{Scale: 100}
	p := h.layout()
	d.Add(`<svg xmlns="http://www.w3.org/2000/svg" width="%v" height="%v" viewBox="0 0 %[1]v %[2]v" role="img" font-family="sans-serif" font-size="%v">`,
		pictureWidth, pictureHeight, fontSize)
	d.Add(`<title>%v</title>`, h.Title)
	d.Add(`<rect width="%v" height="%v" fill="white"/>`, pictureWidth, pictureHeight)
	d.Add(`<text x="%v" y="%v" text-anchor="middle" font-size="17">%v</text>`, pictureWidth/2, edge+17, h.Title)
	step := tickStep(h.most())
	for i := range h.most()/step + 1 {
		y := p.bottom - float64(i*step)*p.perCount
		d.Add(`<line class="grid" x1="%v" y1="%v" x2="%v" y2="%[2]v" stroke="#ddd"/>`, p.left-tickLength, y, p.right)
		d.Add(`<text class="tick" x="%v" y="%v" dy="0.35em" text-anchor="end">%v</text>`, p.left-2*tickLength, y, humanize.Comma(i*step))
	}
	for i, b := range h.Bars {
		middle, height := p.left+(float64(i)+0.5)*p.slot, float64(max(0, b.Count))*p.perCount
		d.Add(`<rect class="bar" x="%v" y="%v" width="%v" height="%v" fill="#3c6eb4"><title>%v: %v</title></rect>`,
			middle-0.4*p.slot, p.bottom-height, 0.8*p.slot, height, b.Label, humanize.Comma(b.Count))
		place := svg.Drawing{Scale: 100}
		if y := p.bottom + tickLength + fontSize; p.slant > 0 {
			place.Add(`text-anchor="end" transform="translate(%v %v) rotate(-%v)"`, middle+fontSize/2, y, p.slant*180/math.Pi)
		} else {
			place.Add(`text-anchor="middle" x="%v" y="%v"`, middle, y)
		}
		d.Add(`<text class="label" `+place.String()+`>%v</text>`, b.Label)
	}
	d.Add(`<path d="M%v %vV%vH%v" fill="none" stroke="black"/>`, p.left, p.top, p.bottom, p.right)
	d.Add(`<text x="%v" y="%v" text-anchor="middle">%v</text>`, (p.left+p.right)/2, pictureHeight-edge, h.X)
	d.Add(`<text text-anchor="middle" transform="translate(%v %v) rotate(-90)">%v</text>`, edge+fontSize, (p.top+p.bottom)/2, h.Y)
	d.Add("</svg>\n")
	if _, err := w.Write(d.Bytes()); err != nil {
		return fmt.Errorf("draw %q: %w", h.Title, err)
	}
	return nil
}
