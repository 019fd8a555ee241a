package chart

import "math"

// Chart is one horizontal axis and the panels above it.
type Chart struct {
	Title  string
	X      Axis
	Panels []Panel
}

// Panel is a vertical axis and the series drawn over it.
type Panel struct {
	Y      Axis
	Height int // height of the plot in a picture, in CSS pixels; 0: 360
	Series []Series
}

// Axis is the scale of one direction. Its range is the range of the values.
type Axis struct {
	Title string // quantity and unit
	Log   bool   // logarithmic; values below 1e-290 are left out
	Zero  bool   // include zero in the range, unless Log
}

// Series is a list of values in drawing order. X and Y should have the same length; the excess of one is ignored. A
// value that is not finite, or outside ±1e300, is a gap in the line.
type Series struct {
	Label string // legend label; "": not in the legend
	X, Y  []float64
	Style Style
	Color int // palette index from 1: series with the same Color belong together; 0: the next free index
}

// Style is the drawing style of a series.
type Style int

// The styles.
const (
	Line  Style = iota // a line; short series also get a marker per value
	Faint              // a thin pale line, for the raw values behind a smoothed series
)

// farthest is the largest magnitude that is drawn, small enough for differences to stay finite. nearest is the
// smallest value on a logarithmic axis, and also the smallest extent of an axis.
const farthest, nearest = 1e300, 1e-290

// drawable reports whether the axis can show v.
func (a Axis) drawable(v float64) bool {
	return math.Abs(v) <= farthest && (!a.Log || v >= nearest) // false for NaN
}

// point is a value pair, or its position in a picture.
type point struct{ x, y float64 }

// runs splits s at the values that the axes x and y cannot show, such as NaN. Each list of points
// between two of them is drawn as one line.
func (s Series) runs(x, y Axis) [][]point {
	var all [][]point
	open := false
	for i := range min(len(s.X), len(s.Y)) {
		if !x.drawable(s.X[i]) || !y.drawable(s.Y[i]) {
			open = false
			continue
		}
		if !open {
			all, open = append(all, nil), true
		}
		last := len(all) - 1
		all[last] = append(all[last], point{s.X[i], s.Y[i]})
	}
	return all
}

// colors returns a colour for every series of every panel: its index in the palette, counted from 1.
func (c Chart) colors() [][]int {
	taken := map[int]bool{}
	for _, p := range c.Panels {
		for _, s := range p.Series {
			taken[s.Color] = true
		}
	}
	next := 1
	all := make([][]int, len(c.Panels))
	for i, p := range c.Panels {
		for _, s := range p.Series {
			color := s.Color
			if color <= 0 {
				for taken[next] {
					next++
				}
				color, taken[next] = next, true
			}
			all[i] = append(all[i], color)
		}
	}
	return all
}

// Smooth returns the exponential moving average of ys. Each value has weight share (0 < share ≤ 1), with bias
// correction as in Adam (arXiv 1412.6980, section 3). Values that are not finite are kept and do not affect the
// average.
func Smooth(ys []float64, share float64) []float64 {
	out := make([]float64, len(ys))
	sum, weight := 0.0, 0.0
	for i, y := range ys {
		if math.IsNaN(y) || math.IsInf(y, 0) {
			out[i] = y
			continue
		}
		sum += share * (y - sum)
		weight += share * (1 - weight)
		out[i] = sum / weight
	}
	return out
}
