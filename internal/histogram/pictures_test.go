package histogram

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the pictures of testdata anew")

// TestPictures: pictures come out as recorded, with labels side by side and turned.
func TestPictures(t *testing.T) {
	many := Histogram{Title: "labels that have no room", X: "rows of", Y: "documents"}
	for i := range int64(70) {
		many.Bars = append(many.Bars, Bar{fmt.Sprintf("%d to %d tokens", 100*i, 100*i+99), 7 * i * i})
	}
	long := Histogram{Title: "long labels", X: "name", Y: "files", Bars: []Bar{{strings.Repeat("first ", 7), 3}}}
	for i := range int64(9) {
		long.Bars = append(long.Bars, Bar{fmt.Sprint(i), i})
	}
	for name, h := range map[string]Histogram{"testdata/few.svg": lengths, "testdata/many.svg": many, "testdata/long.svg": long} {
		var b bytes.Buffer
		if err := h.WriteSVG(&b); err != nil {
			t.Fatal(err)
		}
		if *rewrite {
			if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Split(b.String(), "<")
		for i, w := range strings.Split(string(want), "<") {
			if i >= len(got) || got[i] != w {
				t.Fatalf("%s: element %d is <%s, want <%s", name, i, got[min(i, len(got)-1)], w)
			}
		}
	}
}

// TestTextOfOnes: the bar of the largest count is full also where that is 1.
func TestTextOfOnes(t *testing.T) {
	var b strings.Builder
	if err := (Histogram{Bars: []Bar{{"1", 1}}}).WriteText(&b); err != nil || b.String() != "  1  1  "+strings.Repeat("█", textWidth)+"\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}
