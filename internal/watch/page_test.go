package watch

import (
	"flag"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"mt/internal/testkit"
)

var (
	shots = flag.String("shots", "", "write pictures of the page into this folder")
	of    = flag.String("of", "", "with -shots: of the runs in these output directories too, separated by commas")
)

// serving serves the dashboard of the runs in dirs. The server looks at the files more often than
// usual, so that tests are fast.
func serving(t *testing.T, within bool, dirs ...string) *Server {
	t.Helper()
	at, err := ParseAddress("0")
	testkit.NoError(t, err)
	l, _, err := Listen(at)
	testkit.NoError(t, err)
	s := Serve(l, Options{Dirs: dirs, Within: within, Address: at, Every: 5 * time.Millisecond, Warn: func(err error) { t.Error(err) }})
	t.Cleanup(s.Close)
	return s
}

// fits is true if the page has no horizontal scroll bar.
const fits = `document.documentElement.scrollWidth <= document.documentElement.clientWidth`

// TestPage opens the page in a browser and runs all tests of the page there, since Chromium takes
// long to start.
func TestPage(t *testing.T) {
	testkit.NotShort(t)
	b := openBrowser(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *browser)
	}{{"looks", looks}, {"lives", lives}, {"nothing yet", nothingYet}} {
		t.Run(test.name, func(t *testing.T) { test.run(t, b) })
	}
	if *of != "" {
		t.Run("pictures", func(t *testing.T) { pictures(t, b) })
	}
}

// looks tests that the page of a running run, and of several runs, fits and has no errors on a
// phone and on a desktop, in light and dark.
func looks(t *testing.T, b *browser) {
	base := t.TempDir()
	running := madeUp(t, filepath.Join(base, "running"), 400, 1000, 0)
	done := madeUp(t, filepath.Join(base, "done"), 1000, 1000, 0.3)
	write(t, done, endFile, "{}")
	short := madeUp(t, filepath.Join(base, "short"), 600, 600, 0.7)
	scenes := map[string]struct {
		within bool
		dirs   []string
		holds  string
	}{
		"one":   {true, []string{running}, `document.getElementById("choice").hidden`},
		"three": {false, []string{running, done, short}, `document.querySelectorAll(".run").length === 3 && document.getElementById("config").innerText.includes("learning_rate")`},
	}
	for name, scene := range scenes {
		s := serving(t, scene.within, scene.dirs...)
		b.as(t, 390, "light")
		b.open(t, s.URL())
		for _, panel := range []string{"loss", "grad_norm", "lr", "tok_per_s", "stall", "causes", "memory", "timeline", "samples"} {
			b.until(t, fmt.Sprintf("Number(document.getElementById(%q).dataset.points) > 2", panel))
		}
		for _, width := range []int{390, 1440} {
			for _, scheme := range []string{"light", "dark"} {
				b.as(t, width, scheme)
				b.until(t, `[...document.querySelectorAll("canvas")].every((c) => c.width === c.clientWidth && c.height === c.clientHeight)`)
				name := fmt.Sprintf("%s-%d-%s", name, width, scheme)
				check(t, b, name, fits, "location.search === ''", scene.holds)
				b.shoot(t, name)
			}
		}
	}
}

// pictures takes pictures of the runs in the flag -of: the whole page, and small ones for the documentation, cropped
// at a panel's end.
func pictures(t *testing.T, b *browser) {
	s := serving(t, false, strings.Split(*of, ",")...)
	for width, panel := range map[int]string{390: "grad_norm", 1280: "timeline"} {
		for _, scheme := range []string{"light", "dark"} {
			b.as(t, width, scheme)
			b.open(t, s.URL())
			b.until(t, `Number(document.getElementById("loss").dataset.points) > 0`)
			name := fmt.Sprintf("runs-%d-%s", width, scheme)
			check(t, b, name, fits)
			b.shoot(t, name)
			b.shootSmall(t, name+"-small", width, eval[int](t, b, fmt.Sprintf(`Math.ceil(document.getElementById(%q).getBoundingClientRect().bottom + scrollY) + 12`, panel)))
		}
	}
}

// check fails if a condition does not hold in the page, or if the page had an error.
func check(t *testing.T, b *browser, name string, conditions ...string) {
	t.Helper()
	for _, condition := range conditions {
		if !eval[bool](t, b, condition) {
			t.Errorf("%s: it does not hold that %s", name, condition)
		}
	}
	if heard := b.errors(); len(heard) > 0 {
		t.Errorf("%s: %v", name, heard)
	}
}

// lives tests that the page follows a run: new lines, lines that a resume replaces, and the end. It
// also reacts to the pointer and to keys.
func lives(t *testing.T, b *browser) {
	base := t.TempDir()
	run := madeUp(t, filepath.Join(base, "run"), 400, 1000, 0)
	s := serving(t, false, run, madeUp(t, filepath.Join(base, "other"), 300, 1000, 0.5))
	b.as(t, 1000, "light")
	b.open(t, s.URL())
	points := func(panel string, n int) string {
		return fmt.Sprintf("document.getElementById(%q).dataset.points === %q", panel, strconv.Itoa(n))
	}
	b.until(t, points("lr", 70))
	appendTo(t, run, metricsFile, stepLine(410, 1000, 0)+stepLine(420, 1000, 0))
	b.until(t, points("lr", 72))
	check(t, b, "two lines more", `document.querySelector(".run").innerText.includes("step 420 of 1,000")`)
	write(t, run, timelineFile, `{"step":420,"seconds":2,"tracks":[{"name":"h2d","kind":"stream","spans":[{"name":"a","start":0,"end":1}]}]}`)
	b.until(t, points("timeline", 1))
	place := eval[[]float64](t, b, `(() => { const c = document.querySelector("#timeline canvas"); c.scrollIntoView({block: "center"}); const r = c.getBoundingClientRect(); return [r.left, r.top]; })()`)
	b.call(t, "Input.dispatchMouseEvent", map[string]any{"type": "mouseMoved", "x": place[0] + 200, "y": place[1] + 32}, nil)
	b.until(t, `document.querySelector("#timeline .said").innerText === "h2d · a · 0 s to 1.00 s · 1.00 s"`)
	eval[bool](t, b, `(scrollTo(0, 0), true)`)
	write(t, run, timelineFile, `{"step":430,"seconds":2}`)
	b.until(t, `document.getElementById("timeline").hidden`)
	appendTo(t, run, samplesFile, `{"step":420,"prompt":"<img src=x>","text":"<script>alert(1)</script>"}`+"\n")
	b.until(t, `document.getElementById("samples").innerText.includes("<script>alert(1)</script>")`)
	write(t, run, metricsFile, stepLine(10, 1000, 0))
	b.until(t, points("lr", 31))
	check(t, b, "resumed from step 10", `document.querySelector(".run").innerText.includes("step 10 of 1,000")`)
	write(t, run, endFile, "{}")
	b.until(t, `document.querySelector(".run .badge").innerText === "done"`)

	mouse := func(kind string, x int) {
		b.call(t, "Input.dispatchMouseEvent", map[string]any{"type": kind, "x": x, "y": eval[int](t, b, `Math.round(document.querySelector("#loss canvas").getBoundingClientRect().top + 80)`),
			"button": "left", "clickCount": 1}, nil)
	}
	key := func(name string) {
		for _, kind := range []string{"keyDown", "keyUp"} {
			b.call(t, "Input.dispatchKeyEvent", map[string]any{"type": kind, "key": name, "code": name}, nil)
		}
	}
	at := `document.querySelector("#lr .at").innerText`
	mouse("mouseMoved", 500)
	b.until(t, at+`.startsWith("step ")`)
	mouse("mousePressed", 300)
	mouse("mouseMoved", 500)
	mouse("mouseReleased", 500)
	b.until(t, `!document.getElementById("unzoom").hidden`)
	b.until(t, `document.querySelector('[data-range="1"]').getAttribute("aria-pressed") === "false"`)
	eval[bool](t, b, `document.getElementById("unzoom").click() ?? true`)
	b.until(t, `document.getElementById("unzoom").hidden`)
	mouse("mouseMoved", 5)
	eval[bool](t, b, `document.querySelector("#lr canvas").focus() ?? true`)
	key("ArrowLeft")
	b.until(t, at+` === "step 10"`) // the only point of the first run
	for _, press := range []string{`document.querySelector(".run input").click()`, `document.querySelector('[data-range="0.1"]').click()`, `document.getElementById("log").click()`} {
		eval[bool](t, b, press+" ?? true")
	}
	b.until(t, points("lr", 30))
	for id, value := range map[string]string{"axis": "tokens", "smoothing": "0", "focus": "1"} {
		eval[bool](t, b, fmt.Sprintf(`{ const e = document.getElementById(%q); e.value = %q; e.dispatchEvent(new Event("input")); e.dispatchEvent(new Event("change")); } true`, id, value))
	}
	b.until(t, `document.querySelector("#config summary").innerText === "Configuration of other"`)
	s.Close()
	b.until(t, `document.getElementById("link").innerText === "closed" && !document.getElementById("notice").hidden`)
	check(t, b, "at the end", fits)
}

// nothingYet tests that a run without any output has a page, and that its numbers appear once they
// exist.
func nothingYet(t *testing.T, b *browser) {
	dir := filepath.Join(t.TempDir(), "run")
	write(t, dir, configFile, "")
	s := serving(t, true, dir)
	b.as(t, 390, "dark")
	b.open(t, s.URL())
	b.until(t, `document.querySelector(".where").innerText === "waiting for the first numbers"`)
	check(t, b, "nothing", fits)
	check(t, b, "numbers on an axis", `import("./format.js").then((m) => m.shorts([0, 5e-4, 1e-3, 1.5e-3]).join(" ") === "0 5e-4 1e-3 1.5e-3")`,
		`import("./format.js").then((m) => m.shorts([0, 0.5, 1e-4, 2500, 1e4]).join(" ") === "0 0.5 1e-4 2,500 10k")`)
	appendTo(t, dir, metricsFile, `{"step":1,"max_steps":1,"loss":null,"grad_norm":null,"lr":0}`+"\n")
	b.until(t, `document.querySelector(".run").innerText.includes("step 1 of 1")`)
	appendTo(t, dir, metricsFile, "7\nnull\n[]\n{\"step\":\"x\"}\n"+stepLine(10, 10, 0)+evalLine(10, 2))
	b.until(t, `Number(document.getElementById("loss").dataset.points) === 2`)
	check(t, b, "odd lines", fits)
}
