package jinja

import (
	"fmt"
	"strings"
	"time"
)

// clockCodes are the codes of strftime that a Go layout says.
var clockCodes = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'd': "02", 'e': "_2", 'm': "01", 'y': "06",
	'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'D': "01/02/06", 'F': "2006-01-02", 'T': "15:04:05",
	'R': "15:04", 'r': "03:04:05 PM", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
}

// strftime is the time now in the C locale's format, as Python's strftime writes
// it on Linux for a time without a zone. A - behind the % takes leading zeros
// away.
func (r *run) strftime(now time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		bare := format[i] == '-' && i+1 < len(format)
		if bare {
			i++
		}
		part, ok := clockPart(now, format[i])
		if !ok {
			r.fail("strftime_now: %%%c is not supported", format[i])
		}
		if bare {
			if part = strings.TrimLeft(part, "0 "); part == "" {
				part = "0"
			}
		}
		r.grow(len(part))
		b.WriteString(part)
	}
	return b.String()
}

func clockPart(now time.Time, code byte) (string, bool) {
	if layout, ok := clockCodes[code]; ok {
		return now.Format(layout), true
	}
	isoYear, isoWeek := now.ISOWeek()
	weekday := int(now.Weekday())
	switch code {
	case 'Y':
		return fmt.Sprint(now.Year()), true
	case 'C':
		return fmt.Sprintf("%02d", now.Year()/100), true
	case 'G':
		return fmt.Sprint(isoYear), true
	case 'V':
		return fmt.Sprintf("%02d", isoWeek), true
	case 'j':
		return fmt.Sprintf("%03d", now.YearDay()), true
	case 'U':
		return fmt.Sprintf("%02d", (now.YearDay()+6-weekday)/7), true
	case 'W':
		return fmt.Sprintf("%02d", (now.YearDay()+6-(weekday+6)%7)/7), true
	case 'u':
		return fmt.Sprint((weekday+6)%7 + 1), true
	case 'w':
		return fmt.Sprint(weekday), true
	case 'f':
		return fmt.Sprintf("%06d", now.Nanosecond()/1000), true
	case 's':
		return fmt.Sprint(now.Unix()), true
	case 'k':
		return fmt.Sprintf("%2d", now.Hour()), true
	case 'l':
		return fmt.Sprintf("%2d", (now.Hour()+11)%12+1), true
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	case '%':
		return "%", true
	case 'z', 'Z':
		return "", true
	}
	return "", false
}
