package histogram

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dustin/go-humanize"
)

// element is a part of a picture.
type element struct {
	name  string
	attrs map[string]string
	text  string // within it, and within its title
}

// number is a number of e's, 0 where it has none.
func (e element) number(t *testing.T, name string) float64 {
	t.Helper()
	if e.attrs[name] == "" {
		return 0
	}
	v, err := strconv.ParseFloat(e.attrs[name], 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		t.Errorf("%s: %s=%q", e.name, name, e.attrs[name])
	}
	return v
}

// draw is h as a browser reads it: well-formed, every number one, all of it
// within the picture.
func draw(t *testing.T, h Histogram) []element {
	t.Helper()
	var b, again bytes.Buffer
	if err := h.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	if err := h.WriteSVG(&again); err != nil || !bytes.Equal(b.Bytes(), again.Bytes()) {
		t.Errorf("two pictures of the same differ, %v", err)
	}
	var all []element
	var open []int
	for d := xml.NewDecoder(&b); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := element{name: token.Name.Local, attrs: map[string]string{}}
			for _, a := range token.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			if token.Name.Space != "http://www.w3.org/2000/svg" {
				t.Errorf("%s is in %q", e.name, token.Name.Space)
			}
			open, all = append(open, len(all)), append(all, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			for _, i := range open[min(1, len(open)):] {
				all[i].text += string(token)
			}
		}
	}
	for _, e := range all {
		x, y := e.number(t, "x")+e.number(t, "width"), e.number(t, "y")+e.number(t, "height")
		if x < 0 || x > pictureWidth || y < 0 || y > pictureHeight || e.number(t, "x") < 0 || e.number(t, "y") < 0 {
			t.Errorf("%v lies outside", e)
		}
	}
	return all
}

// class are the elements of a class.
func class(all []element, name string) []element {
	return slices.DeleteFunc(slices.Clone(all), func(e element) bool { return e.attrs["class"] != name })
}

// many has as many bars as there are powers of two, with labels that need to be
// turned.
func many() Histogram {
	h := Histogram{Title: "a < b & \"c\"", X: "x", Y: "y"}
	for i := range 40 {
		h.Bars = append(h.Bars, Bar{fmt.Sprintf("%s–%s", humanize.Comma(1<<i), humanize.Comma(2<<i-1)), int64(i*i*12345 + i%2)})
	}
	return h
}

// TestSVG: bars stand on the line of tick 0, side by side, and are as high as
// their counts; a tick is as high as its number; nothing that was given is left
// out.
func TestSVG(t *testing.T) {
	for name, h := range map[string]Histogram{
		"bars": lengths, "none": {Title: "none"}, "one": {Bars: []Bar{{"1", 3}}}, "nothing counted": {Bars: []Bar{{"1", 0}, {"2", 0}}},
		"escaped": {Title: "<a&b>", X: "]]>", Y: "é\"'", Bars: []Bar{{"</text>", 1}}}, "many": many(),
		"greatest": {Bars: []Bar{{"1", math.MaxInt64}, {"2", math.MaxInt64 / 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			all := draw(t, h)
			var texts []string
			for _, e := range all {
				texts = append(texts, e.text)
			}
			for _, want := range []string{h.Title, h.X, h.Y} {
				if !slices.Contains(texts, want) {
					t.Errorf("%q is not there", want)
				}
			}
			bars, labels, ticks := class(all, "bar"), class(all, "label"), class(all, "tick")
			if len(bars) != len(h.Bars) || len(labels) != len(h.Bars) || len(ticks) < 2 || len(ticks) > maxTicks+1 {
				t.Fatalf("%d bars with %d labels, %d ticks", len(bars), len(labels), len(ticks))
			}
			zero := ticks[0].number(t, "y")
			perCount := (zero - ticks[1].number(t, "y")) / count(t, ticks[1].text)
			if step := strings.TrimRight(ticks[1].text, "0,"); step != "1" && step != "2" && step != "5" {
				t.Errorf("steps of %s", ticks[1].text)
			}
			for i, e := range ticks {
				if d := zero - e.number(t, "y") - count(t, e.text)*perCount; math.Abs(d) > 0.05 { // hundredths, up to 5 times
					t.Errorf("tick %s is off by %g", e.text, d)
				}
				if count(t, e.text) != float64(i)*count(t, ticks[1].text) {
					t.Errorf("tick %d is %s, the first %s", i, e.text, ticks[1].text)
				}
			}
			end := 0.0
			for i, e := range bars {
				x, y, height := e.number(t, "x"), e.number(t, "y"), e.number(t, "height")
				if d := height - float64(h.Bars[i].Count)*perCount; math.Abs(d) > 0.05 || math.Abs(y+height-zero) > 0.02 {
					t.Errorf("bar %d is off by %g; it stands at %g, not %g", i, d, y+height, zero)
				}
				if x < end || e.number(t, "width") <= 0 {
					t.Errorf("bar %d begins at %g, the one before ends at %g", i, x, end)
				}
				end = x + e.number(t, "width")
				if want := h.Bars[i].Label + ": " + humanize.Comma(h.Bars[i].Count); e.text != want || labels[i].text != h.Bars[i].Label {
					t.Errorf("bar %d says %q below %q, want %q", i, e.text, labels[i].text, want)
				}
			}
		})
	}
}

// count is a number as it is printed.
func count(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
	if err != nil {
		t.Error(err)
	}
	return v
}

func TestTickStep(t *testing.T) {
	for most, want := range map[int64]int64{1: 1, 5: 1, 6: 2, 11: 2, 12: 5, 29: 5, 30: 10, 1600: 500, 999: 200, math.MaxInt64: 2e18} {
		if got := tickStep(most); got != want {
			t.Errorf("up to %d: steps of %d, want %d", most, got, want)
		}
	}
}
