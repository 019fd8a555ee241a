package human

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Bytes is n bytes as "2.0 GiB"; less than none is none.
func Bytes(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// screen is how many bytes of a message are shown: what a terminal of 40 lines has room for.
const screen = 3000

// Screen is a message that fits on a screen: what is in the middle of a longer one is left out.
func Screen(text string) string {
	if len(text) <= screen {
		return text
	}
	const head, tail = screen * 3 / 4, screen / 5
	left := len(text) - head - tail
	return strings.ToValidUTF8(text[:head], "") + "… (" + humanize.Comma(int64(left)) + " bytes left out) …" + strings.ToValidUTF8(text[len(text)-tail:], "")
}

// Duration prints d as people read it: 1h02m, 3m20s, 12s.
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
