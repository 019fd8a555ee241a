package human

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Bytes formats n bytes, for example as "2.0 GiB". A negative n counts as 0.
func Bytes(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// screen is the size in bytes above which a message is shortened: about what fits on a terminal of 40 lines.
const screen = 3000

// Screen shortens text to fit a screen by cutting out the middle. Shorter text is returned unchanged.
func Screen(text string) string {
	if len(text) <= screen {
		return text
	}
	const head, tail = screen * 3 / 4, screen / 5
	left := len(text) - head - tail
	return strings.ToValidUTF8(text[:head], "") + "… (" + humanize.Comma(int64(left)) + " bytes left out) …" + strings.ToValidUTF8(text[len(text)-tail:], "")
}

// Duration formats d, rounded to seconds: 1h02m, 3m20s, 12s.
func Duration(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d >= time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return d.String()
}
