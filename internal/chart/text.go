package chart

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
)

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

// Bar is one count and what it counts.
type Bar struct {
	Label string
	Count int64
}

// barWidth is how many characters the longest bar takes in text.
const barWidth = 40

// WriteBars draws one line a bar: label, count, and a bar as long as the count
// beside the largest. A count above zero has at least the thinnest bar.
func WriteBars(w io.Writer, bars []Bar) error {
	most, label, digits := int64(1), 0, 0
	for _, b := range bars {
		most = max(most, b.Count)
		label = max(label, utf8.RuneCountInString(b.Label))
		digits = max(digits, len(humanize.Comma(b.Count)))
	}
	for _, b := range bars {
		pad := strings.Repeat(" ", label-utf8.RuneCountInString(b.Label))
		line := fmt.Sprintf("  %s%s  %*s  %s", pad, b.Label, digits, humanize.Comma(b.Count), oneBar(b.Count, most))
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " ")); err != nil {
			return err
		}
	}
	return nil
}

// oneBar is n of most in eighths of a character.
func oneBar(n, most int64) string {
	if n <= 0 {
		return ""
	}
	eighths := max(1, int(float64(n)/float64(most)*barWidth*8))
	bar := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		bar += string(rune('█' + 8 - rest)) // from the full block to the thinnest
	}
	return bar
}
