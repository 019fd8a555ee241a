package histogram

import (
	"bytes"
	"errors"
	"image/png"
	"strings"
	"testing"
)

var lengths = Histogram{Title: "tokens of a document", X: "tokens", Y: "documents",
	Bars: []Bar{{"1", 0}, {"2–3", 1}, {"4–7", 1600}, {"8–15", 800}}}

func TestText(t *testing.T) {
	var b strings.Builder
	if err := lengths.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"     1      0",
		"   2–3      1  ▏",
		"   4–7  1,600  " + strings.Repeat("█", textWidth),
		"  8–15    800  " + strings.Repeat("█", textWidth/2),
		"",
	}, "\n")
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestPNG(t *testing.T) {
	for name, h := range map[string]Histogram{"bars": lengths, "none": {Title: "none"}, "one": {Bars: []Bar{{"1", 3}}}} {
		var a, b bytes.Buffer
		if err := errors.Join(h.WritePNG(&a), h.WritePNG(&b)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Errorf("%s: two pictures of the same differ", name)
		}
		picture, err := png.Decode(&a)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		blue := 0
		for y := range picture.Bounds().Dy() {
			for x := range picture.Bounds().Dx() {
				if r, g, b, _ := picture.At(x, y).RGBA(); r>>8 == 60 && g>>8 == 110 && b>>8 == 180 {
					blue++
				}
			}
		}
		if (blue > 0) != (len(h.Bars) > 0) {
			t.Errorf("%s: %d points of bars", name, blue)
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestErrors(t *testing.T) {
	if lengths.WriteText(full{}) == nil || lengths.WritePNG(full{}) == nil {
		t.Error("a failed write is not reported")
	}
}
