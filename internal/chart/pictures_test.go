package chart

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the pictures of testdata anew")

// TestPictures: a picture and a coloured text come out as recorded. They have a
// legend of several rows, all styles, a logarithmic axis and a panel without values.
func TestPictures(t *testing.T) {
	c := Chart{Title: "all styles", X: Axis{Title: "step"}, Panels: []Panel{{Y: Axis{Title: "loss", Log: true}}, {Y: Axis{Title: "nothing", Zero: true}, Height: 100}}}
	for k := range 9 {
		xs, ys := upTo(40, func(i int) float64 { return float64((1 + i*(k+1)%17) * (k + 1)) })
		c.Panels[0].Series = append(c.Panels[0].Series, Series{Label: fmt.Sprintf("a series with the number %d", k), X: xs, Y: ys, Style: Style(k % 3)})
	}
	var picture, text bytes.Buffer
	if err := errors.Join(c.WriteSVG(&picture), c.WriteText(&text, Text{Columns: 100, Rows: 40, Color: true})); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]string{"testdata/styles.svg": strings.ReplaceAll(picture.String(), "><", ">\n<"), "testdata/styles.txt": text.String()} {
		if *rewrite {
			if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(got, "\n")
		for i, w := range strings.Split(string(want), "\n") {
			if i >= len(lines) || lines[i] != w {
				t.Fatalf("%s:%d: got %s, want %s", name, i+1, lines[min(i, len(lines)-1)], w)
			}
		}
	}
}
