package svg

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
)

// Drawing is XML under way. Scale is 10 where numbers are written to a tenth, 100 where
// to a hundredth.
type Drawing struct {
	bytes.Buffer
	Scale float64
}

// Add appends to d. Of args, float64s are rounded and strings escaped, so %v is for both.
func (d *Drawing) Add(format string, args ...any) {
	for i, a := range args {
		switch a := a.(type) {
		case float64:
			args[i] = strconv.FormatFloat(math.Round(a*d.Scale)/d.Scale, 'f', -1, 64)
		case string:
			var text bytes.Buffer
			_ = xml.EscapeText(&text, []byte(a)) // memory takes everything
			args[i] = text.String()
		}
	}
	fmt.Fprintf(d, format, args...)
}
