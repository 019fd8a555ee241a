package histogram

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
