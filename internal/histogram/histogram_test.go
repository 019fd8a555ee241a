package histogram

import (
	"errors"
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

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestErrors(t *testing.T) {
	if lengths.WriteText(full{}) == nil || lengths.WriteSVG(full{}) == nil {
		t.Error("a failed write is not reported")
	}
}
