package chart

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
)

// blocks are the characters of a sparkline, lowest first.
var blocks = []rune("▁▂▃▄▅▆▇█")

// Sparkline draws values in one row of at most width characters. The minimum is the lowest block, the maximum the
// highest. If there are more values than characters, a character shows the mean of its values. Values that are not
// finite are ignored; a character without finite values is a space.
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

// Bar is a labelled count.
type Bar struct {
	Label string
	Count int64
}

// barWidth is the length of the longest bar in characters.
const barWidth = 40

// WriteBars writes one line per bar: label, count, and a bar in proportion to the largest count. A count above zero
// gets at least the thinnest bar.
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

// oneBar draws the bar for the count n in steps of an eighth of a character. `most` is the largest count, whose bar has
// barWidth characters.
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
