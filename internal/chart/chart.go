package chart

import "math"

// Chart is one horizontal axis and the panels above it.
type Chart struct {
	Title  string
	X      Axis
	Panels []Panel
}

// Panel is a vertical axis and what is drawn over it.
type Panel struct {
	Y      Axis
	Height int // of the plot in a picture, in CSS pixels; 0: 360.
	Series []Series
}

// Axis is the scale of one direction. Its range is that of the values.
type Axis struct {
	Title string // what is measured, with its unit
	Log   bool   // logarithmic; values that are not above zero (1e-290) are left out
	Zero  bool   // the range has zero in it, unless Log
}

// Series is values in the order they are joined. X and Y have the same length;
// what one has more is not drawn. A value that is not finite, or not within
// ±1e300, is a gap in the line.
type Series struct {
	Label string // in the legend; empty: not there
	X, Y  []float64
	Style Style
	Color int // 1, 2, … of the palette, for series that belong together; 0: the next that is not taken
}

// Style is how a series is drawn.
type Style int

// The styles.
const (
	Line  Style = iota // a line; few values are marked by points too
	Faint              // a thin pale line, for what another series smooths
)

// farthest is the largest magnitude that is drawn, so that differences are finite;
// nearest is the least that a logarithmic axis has, and the least range.
const farthest, nearest = 1e300, 1e-290

// drawable tells whether an axis has a place for v.
func (a Axis) drawable(v float64) bool {
	return math.Abs(v) <= farthest && (!a.Log || v >= nearest) // false for NaN
}

// point is a value, or its place in a picture.
type point struct{ x, y float64 }

// runs are the pieces of s between its gaps.
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

// colors are the palette's colours of all series, from 1, panel by panel.
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

// Smooth is the exponential moving average of ys, each value weighing share
// (0 < share ≤ 1) beside what came before, corrected for having begun with
// nothing (as Adam's moments are: arXiv 1412.6980, section 3). Values that are not
// finite stay as they are and weigh nothing.
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
