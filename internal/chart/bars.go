package chart

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
)

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
