package chart

import (
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// scale is an axis with its range.
type scale struct {
	Axis
	lo, hi float64
	pad    float64 // margin at each end, as a fraction of the axis length
}

// newScale returns the scale of the axis a over all values that the axis can show. pad is the margin at each end, as a
// fraction of the axis length. values calls its argument with each value.
func newScale(a Axis, pad float64, values func(yield func(float64))) scale {
	s := scale{Axis: a, lo: math.Inf(1), hi: math.Inf(-1), pad: pad}
	values(func(v float64) {
		if a.drawable(v) {
			s.lo, s.hi = min(s.lo, v), max(s.hi, v)
		}
	})
	switch {
	case s.lo > s.hi && a.Log:
		s.lo, s.hi = 1, 10
	case s.lo > s.hi:
		s.lo, s.hi = 0, 1
	}
	if a.Zero && !a.Log {
		s.lo, s.hi = min(s.lo, 0), max(s.hi, 0)
	}
	if a.Log {
		if s.hi/s.lo < 1+1e-9 {
			s.lo, s.hi = s.lo/1.5, s.hi*1.5
		}
	} else if widest := max(math.Abs(s.lo), math.Abs(s.hi)); s.hi-s.lo <= max(widest*1e-9, nearest) {
		half := widest / 10
		if half < nearest {
			half = 1
		}
		s.lo, s.hi = s.lo-half, s.hi+half
	}
	return s
}

// at returns where v lies on the axis, as a fraction of the axis length: 0 at its start, 1 at its end.
func (s scale) at(v float64) float64 {
	var part float64
	if s.Log {
		lo := math.Log10(s.lo)
		part = (math.Log10(v) - lo) / (math.Log10(s.hi) - lo)
	} else {
		part = (v - s.lo) / (s.hi - s.lo)
	}
	return s.pad + part*(1-2*s.pad)
}

// tick is a value that an axis marks, with its label.
type tick struct {
	value float64
	label string
}

// ticks returns about n round values within the range of the axis; at least two, if the range contains two.
func (s scale) ticks(n int) []tick {
	if s.Log && s.hi/s.lo >= 10 {
		return s.decades(n)
	}
	step := roundStep((s.hi - s.lo) / float64(max(1, n)))
	first, last := math.Ceil(s.lo/step-1e-9), math.Floor(s.hi/step+1e-9)
	var all []tick
	for k := first; k <= last && len(all) <= 2*n+2; k++ {
		all = append(all, tick{k * step, s.text(k*step, step)})
	}
	return all
}

// decades returns ticks at powers of ten for a logarithmic axis, about n of them. For a large range it skips powers.
// For a small range it adds the values 2 and 5 times each power.
func (s scale) decades(n int) []tick {
	lo, hi := math.Floor(math.Log10(s.lo)), math.Ceil(math.Log10(s.hi))
	within := []float64{1}
	if (hi-lo)*3 <= float64(2*n) {
		within = []float64{1, 2, 5}
	}
	every := max(1, math.Ceil((hi-lo)/float64(max(1, n))))
	var all []tick
	for e := math.Ceil(lo/every) * every; e <= hi; e += every {
		for _, m := range within {
			v := m * math.Pow(10, e)
			if v >= s.lo*(1-1e-9) && v <= s.hi*(1+1e-9) {
				all = append(all, tick{v, s.text(v, math.Pow(10, e))})
			}
		}
	}
	return all
}

// roundStep returns the smallest number that is at least x and is 1, 2 or 5 times a power of ten.
func roundStep(x float64) float64 {
	ten := math.Pow(10, math.Floor(math.Log10(x)))
	for _, m := range []float64{1, 2, 5} {
		if m*ten >= x*(1-1e-9) {
			return m * ten
		}
	}
	return 10 * ten
}

// text formats v for a tick, with enough digits to tell it from the next tick, which is step away. It uses commas, a
// suffix k, M, G or T, or an exponent.
func (s scale) text(v, step float64) string {
	if v == 0 || math.Abs(v) < step*1e-6 {
		return "0"
	}
	size, big := max(math.Abs(s.lo), math.Abs(s.hi)), 1e5
	if s.Log {
		size, big = math.Abs(v), 1e4
	}
	switch {
	case size >= 1e15 || size < 1e-3:
		digits := max(0, int(math.Floor(math.Log10(math.Abs(v))+1e-9)-math.Floor(math.Log10(step)+1e-9)))
		return shortExponent(strconv.FormatFloat(v, 'e', min(digits, 15), 64))
	case size >= big:
		for _, u := range []struct {
			size float64
			name string
		}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
			if size >= u.size {
				return plain(v/u.size, step/u.size) + u.name
			}
		}
	}
	return plain(v, step)
}

// plain formats v with commas and with as many decimals as ticks that are step apart need.
func plain(v, step float64) string {
	decimals := max(0, int(-math.Floor(math.Log10(step)+1e-9)))
	text := strconv.FormatFloat(v, 'f', min(decimals, 15), 64)
	whole, rest, _ := strings.Cut(text, ".")
	if n, err := strconv.ParseInt(whole, 10, 64); err == nil && (n >= 1000 || n <= -1000) {
		whole = humanize.Comma(n)
	}
	if rest == "" {
		return whole
	}
	return whole + "." + rest
}

// shortExponent removes leading zeros from the exponent of an 'e' formatted number.
func shortExponent(text string) string {
	m, e, _ := strings.Cut(text, "e")
	n, err := strconv.Atoi(e)
	if err != nil {
		return text
	}
	return m + "e" + strconv.Itoa(n)
}

// Number formats v for people with four significant digits, in the notation of ticks.
func Number(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	if a := math.Abs(v); a != 0 && (a < 1e-3 || a >= 1e15) {
		rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'e', 3, 64), 64)
		return shortExponent(strconv.FormatFloat(rounded, 'e', -1, 64))
	}
	decimals := 0
	if v != 0 {
		decimals = max(0, 3-int(math.Floor(math.Log10(math.Abs(v)))))
	}
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	whole, rest, point := strings.Cut(text, ".")
	if n, err := strconv.ParseInt(whole, 10, 64); err == nil && (n >= 1000 || n <= -1000) {
		whole = humanize.Comma(n)
	}
	if point {
		return whole + "." + rest
	}
	return whole
}
