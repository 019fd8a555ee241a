package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// element is an element of a picture: its attributes and its text.
type element struct {
	name, text string
	attrs      map[string]string
}

func (e element) number(t *testing.T, name string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(e.attrs[name], 64)
	if err != nil {
		t.Fatalf("%v: %s=%q", e, name, e.attrs[name])
	}
	return v
}

var pathNumber = regexp.MustCompile(`([MLVHvh])?(-?[0-9.]+)`)

// draw parses c as a browser would. It fails unless the picture is well-formed and within its bounds.
func draw(t *testing.T, c Chart) []element {
	t.Helper()
	var b bytes.Buffer
	testkit.NoError(t, c.WriteSVG(&b))
	if text := b.String(); strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Errorf("not a number in %s", text)
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
			open, all = append(open, len(all)), append(all, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				all[open[len(open)-1]].text += string(token)
			}
		}
	}
	height := all[0].number(t, "height")
	for _, e := range all[1:] {
		for _, p := range e.points() {
			if p.x < 0 || p.x > pictureWidth || p.y < 0 || p.y > height {
				t.Errorf("%v lies outside: %v", e, p)
			}
		}
	}
	return all
}

// points returns the points through which the line of a path element goes. For any other element,
// such as a text or a circle, points returns the element's position.
func (e element) points() (all []point) {
	if e.name != "path" {
		x, _ := strconv.ParseFloat(e.attrs["x"]+e.attrs["cx"], 64)
		y, _ := strconv.ParseFloat(e.attrs["y"]+e.attrs["cy"], 64)
		return []point{{x, y}}
	}
	var at point
	second := false
	for _, m := range pathNumber.FindAllStringSubmatch(e.attrs["d"], -1) {
		v, _ := strconv.ParseFloat(m[2], 64)
		switch {
		case m[1] == "V":
			at.y = v
		case m[1] == "H":
			at.x = v
		case m[1] == "h":
			at.x += v
		case second:
			at.y, second = v, false
		default:
			at.x, second = v, true
			continue
		}
		all = append(all, at)
	}
	return all
}

func class(all []element, name string) []element {
	return slices.DeleteFunc(slices.Clone(all), func(e element) bool { return !slices.Contains(strings.Fields(e.attrs["class"]), name) })
}

func upTo(n int, f func(i int) float64) (xs, ys []float64) {
	for i := range n {
		xs, ys = append(xs, float64(i)), append(ys, f(i))
	}
	return xs, ys
}

// TestSVG: the points of a line lie where the ticks of both axes say, by the ticks' labels and
// positions.
func TestSVG(t *testing.T) {
	xs, ys := upTo(30, func(i int) float64 { return 3 + 2*float64(i) })
	all := draw(t, Chart{Title: "a < b", X: Axis{Title: "step"}, Panels: []Panel{{Y: Axis{Title: "loss & more"}, Series: []Series{{Label: "train", X: xs, Y: ys}}}}})
	for _, want := range []string{"a < b", "step", "loss & more", "train"} {
		if !slices.ContainsFunc(all, func(e element) bool { return e.text == want }) {
			t.Errorf("%q is not there", want)
		}
	}
	yt, xt := class(all, "mt-ytick"), class(all, "mt-xtick")
	if len(yt) < 3 || len(xt) < 3 {
		t.Fatalf("%d and %d ticks", len(xt), len(yt))
	}
	value := func(e element) float64 { v, _ := strconv.ParseFloat(e.text, 64); return v }
	along := func(ticks []element, axis string, at float64) float64 {
		a, b := ticks[0], ticks[len(ticks)-1]
		return value(a) + (at-a.number(t, axis))/(b.number(t, axis)-a.number(t, axis))*(value(b)-value(a))
	}
	places := class(all, "mt-s1")[1].points() // the first belongs to the legend
	if len(places) != len(xs) {
		t.Fatalf("%d points of %d", len(places), len(xs))
	}
	if first, last := places[0], places[len(places)-1]; first.x >= last.x || first.y <= last.y {
		t.Errorf("a line that rises goes from %v to %v", first, last)
	}
	for i, p := range places {
		if x, y := along(xt, "x", p.x), along(yt, "y", p.y); math.Abs(x-xs[i]) > 0.02 || math.Abs(y-ys[i]) > 0.05 { // tenths of a pixel
			t.Errorf("value %d is at %g, %g, not at %g, %g", i, x, y, xs[i], ys[i])
		}
	}
	if marked := class(all, "mt-f1"); len(marked) != len(xs) || marked[2-1].name != "circle" {
		t.Errorf("%d values are marked", len(marked))
	}
}

// TestAnything: for any numbers, the pictures are well-formed (draw checks this).
func TestAnything(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	hostile := []float64{0, math.NaN(), math.Inf(1), math.Inf(-1), 1e300, -1e300, math.MaxFloat64, 5e-324, 1, 1 + 1e-15, -1, 1e-9, 123456789}
	for range 400 {
		c := Chart{Title: "t", X: Axis{Log: r.IntN(2) == 0, Zero: r.IntN(2) == 0}}
		for range r.IntN(3) {
			p := Panel{Y: Axis{Title: "y", Log: r.IntN(2) == 0, Zero: r.IntN(2) == 0}, Height: r.IntN(3) * 100}
			for range r.IntN(12) {
				s := Series{Label: "s", Style: Style(r.IntN(2)), Color: r.IntN(3)}
				for range r.IntN(5) {
					s.X = append(s.X, hostile[r.IntN(len(hostile))])
					s.Y = append(s.Y, hostile[r.IntN(len(hostile))])
				}
				p.Series = append(p.Series, s)
			}
			c.Panels = append(c.Panels, p)
		}
		draw(t, c)
	}
}

// TestThin: many values become few points, including the highest and the lowest.
func TestThin(t *testing.T) {
	xs, ys := upTo(100_000, func(i int) float64 { return math.Sin(float64(i) / 1000) })
	ys[55_555], ys[77_777] = 9, -9
	all := draw(t, Chart{Panels: []Panel{{Series: []Series{{X: xs, Y: ys}}}}})
	places := class(all, "mt-s1")[0].points()
	grid := class(all, "mt-axis")[0].points()
	top, bottom := grid[0].y, grid[1].y
	least, most := math.Inf(1), math.Inf(-1)
	for _, p := range places {
		least, most = min(least, p.y), max(most, p.y)
	}
	if room := (bottom - top) * yPad; len(places) > 4*pictureWidth || math.Abs(least-top-room) > 0.1 || math.Abs(bottom-room-most) > 0.1 {
		t.Errorf("%d points from %g to %g, on a panel from %g to %g", len(places), least, most, top, bottom)
	}
}

// TestGaps: a value that cannot be drawn breaks the line and gets no marker.
func TestGaps(t *testing.T) {
	s := Series{X: []float64{0, 1, 2, 3, 4}, Y: []float64{1, 2, math.NaN(), 4, 0}}
	for log, want := range map[bool]string{false: "[[{0 1} {1 2}] [{3 4} {4 0}]]", true: "[[{0 1} {1 2}] [{3 4}]]"} {
		if got := fmt.Sprint(s.runs(Axis{}, Axis{Log: log})); got != want {
			t.Errorf("log %v: %s, want %s", log, got, want)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		log    bool
		want   string
	}{
		{0, 10, false, "0 2 4 6 8 10"}, {1, 7, false, "2 4 6"}, {0.31, 0.36, false, "0.31 0.32 0.33 0.34 0.35 0.36"},
		{0, 2e6, false, "0 0.5M 1.0M 1.5M 2.0M"}, {0, 5000, false, "0 1,000 2,000 3,000 4,000 5,000"},
		{0, 5e-5, false, "0 1e-5 2e-5 3e-5 4e-5 5e-5"}, {-4, 4, false, "-4 -2 0 2 4"}, {0, 500_000, false, "0 100k 200k 300k 400k 500k"},
		{1, 1000, true, "1 2 5 10 20 50 100 200 500 1,000"}, {1000, 100_000, true, "1,000 2,000 5,000 10k 20k 50k 100k"}, {1e-8, 1, true, "1e-8 1e-6 1e-4 0.01 1"}, {2, 8, true, "2 4 6 8"},
	} {
		s := newScale(Axis{Log: c.log}, 0, func(yield func(float64)) { yield(c.lo); yield(c.hi) })
		var got []string
		for _, k := range s.ticks(5) {
			got = append(got, k.label)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%g to %g: %s, want %s", c.lo, c.hi, strings.Join(got, " "), c.want)
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 1: "1", 2.34567: "2.346", 12345.6: "12,346", 0.00012: "1.2e-4", 1e20: "1e20", -1500: "-1,500", 0.05: "0.05", 9.9996: "10"} {
		if got := Number(v); got != want {
			t.Errorf("%g is %s, want %s", v, got, want)
		}
	}
}

// TestColors: series without a colour get unused ones, across all panels.
func TestColors(t *testing.T) {
	c := Chart{Panels: []Panel{{Series: []Series{{}, {Color: 2}, {}}}, {Series: []Series{{Color: 1}, {}}}}}
	if got := fmt.Sprint(c.colors()); got != "[[3 2 4] [1 5]]" {
		t.Error(got)
	}
	if dashes(len(palette)) != "" || dashes(len(palette)+1) == "" {
		t.Error("a colour that comes again has no dashes, or the first has")
	}
}

func TestSmooth(t *testing.T) {
	got := Smooth([]float64{4, math.NaN(), 8, 8}, 0.5)
	want := []float64{4, math.NaN(), 4 + 4*(0.5/0.75), (4*0.125 + 8*0.25 + 8*0.5) / 0.875}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-12 || math.IsNaN(got[i]) != math.IsNaN(want[i]) {
			t.Errorf("value %d is %g, want %g", i, got[i], want[i])
		}
	}
}

func TestSparkline(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		values []float64
		width  int
		want   string
	}{
		{nil, 5, ""}, {[]float64{1, 2}, 0, ""}, {[]float64{3}, 5, "▅"}, {[]float64{8, 4.5, 1}, 5, "█▅▁"},
		{[]float64{9, 7, 0, 2}, 2, "█▁"}, {[]float64{1, nan, math.Inf(1), 2}, 4, "▁  █"}, {[]float64{nan}, 1, " "},
	} {
		if got := Sparkline(c.values, c.width); got != c.want {
			t.Errorf("%v in %d: %q, want %q", c.values, c.width, got, c.want)
		}
	}
}

// TestBars: the length of a bar is in proportion to its count. The largest bar is full, even for a count of 1, and any
// count above zero has a visible bar.
func TestBars(t *testing.T) {
	full := strings.Repeat("█", barWidth)
	for want, bars := range map[string][]Bar{
		"     1      0\n   2–3      1  ▏\n   4–7  1,600  " + full + "\n  8–15    800  " + full[:len(full)/2] + "\n": {{"1", 0}, {"2–3", 1}, {"4–7", 1600}, {"8–15", 800}},
		"  1  1  " + full + "\n": {{"1", 1}},
	} {
		var b strings.Builder
		if err := WriteBars(&b, bars); err != nil || b.String() != want {
			t.Errorf("%v, got\n%s\nwant\n%s", err, b.String(), want)
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestErrors(t *testing.T) {
	if (Chart{}).WriteSVG(full{}) == nil || WriteBars(full{}, []Bar{{}}) == nil {
		t.Error("a failed write is not reported")
	}
}

var rewrite = flag.Bool("rewrite", false, "write the pictures of testdata anew")

// TestPicture: a picture equals the recorded one. It has a legend of several rows, all styles, a logarithmic axis and
// a panel without values.
func TestPicture(t *testing.T) {
	c := Chart{Title: "all styles", X: Axis{Title: "step"}, Panels: []Panel{{Y: Axis{Title: "loss", Log: true}}, {Y: Axis{Title: "nothing", Zero: true}, Height: 100}}}
	for k := range 9 {
		xs, ys := upTo(40, func(i int) float64 { return float64((1 + i*(k+1)%17) * (k + 1)) })
		c.Panels[0].Series = append(c.Panels[0].Series, Series{Label: fmt.Sprintf("a series with the number %d", k), X: xs, Y: ys, Style: Style(k % 2)})
	}
	var picture bytes.Buffer
	testkit.NoError(t, c.WriteSVG(&picture))
	const name = "testdata/styles.svg"
	got := strings.ReplaceAll(picture.String(), "><", ">\n<")
	if *rewrite {
		testkit.NoError(t, os.WriteFile(name, []byte(got), 0o644))
	}
	want := testkit.Must(os.ReadFile(name))(t)
	lines := strings.Split(got, "\n")
	for i, w := range strings.Split(string(want), "\n") {
		if i >= len(lines) || lines[i] != w {
			t.Fatalf("%s:%d: got %s, want %s", name, i+1, lines[min(i, len(lines)-1)], w)
		}
	}
}
