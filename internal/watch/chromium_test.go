package watch

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mt/internal/testkit"
)

// browser is a headless Chromium, controlled over a pipe with the DevTools protocol:
// https://chromedevtools.github.io/devtools-protocol/. Messages end with a zero byte.
type browser struct {
	to      *os.File
	mu      sync.Mutex
	next    int
	waiting map[int]chan reply
	session string
	heard   []string // errors in the page
	gone    chan struct{}
}

// reply is a message of the browser: the answer to a command with that ID, or an event.
type reply struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// patienceWithBrowser is the time after which a test gives up on an unresponsive browser.
const patienceWithBrowser = time.Minute

// openBrowser starts Chromium with an empty page. It skips the test if Chromium is missing.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	name := ""
	for _, n := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if at, err := exec.LookPath(n); err == nil {
			name = at
			break
		}
	}
	if name == "" {
		t.Skip("no Chromium in PATH")
	}
	theirs, to, err := os.Pipe()
	testkit.NoError(t, err)
	from, back, err := os.Pipe()
	testkit.NoError(t, err)
	profile := t.TempDir()
	cmd := exec.Command(name, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run", "--hide-scrollbars",
		"--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--user-data-dir="+profile, "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+profile)
	cmd.ExtraFiles = []*os.File{theirs, back} // descriptors 3 and 4
	testkit.NoError(t, cmd.Start())
	_, _ = theirs.Close(), back.Close()
	b := &browser{to: to, waiting: map[int]chan reply{}, gone: make(chan struct{})}
	go b.listen(from)
	t.Cleanup(func() {
		b.call(t, "Browser.close", nil, nil)
		_ = cmd.Wait()
		_, _ = to.Close(), from.Close()
	})
	var target struct{ TargetID string }
	b.call(t, "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call(t, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(t, domain+".enable", nil, nil)
	}
	return b
}

// listen reads the browser's messages from the pipe. It passes each answer to the call that waits
// for it, and collects errors of the page.
func (b *browser) listen(from *os.File) {
	defer close(b.gone)
	in := bufio.NewReader(from)
	for {
		raw, err := in.ReadBytes(0)
		if err != nil {
			return
		}
		var r reply
		if json.Unmarshal(bytes.TrimSuffix(raw, []byte{0}), &r) != nil {
			continue
		}
		b.mu.Lock()
		if to := b.waiting[r.ID]; r.ID != 0 && to != nil {
			delete(b.waiting, r.ID)
			to <- r
		}
		if text := string(r.Params); r.Method == "Runtime.exceptionThrown" || r.Method == "Log.entryAdded" && strings.Contains(text, `"level":"error"`) ||
			r.Method == "Runtime.consoleAPICalled" && strings.Contains(text, `"type":"error"`) {
			b.heard = append(b.heard, r.Method+" "+text)
		}
		b.mu.Unlock()
	}
}

// call sends a command and stores its result in out, unless out is nil.
func (b *browser) call(t *testing.T, method string, params, out any) {
	t.Helper()
	answer := make(chan reply, 1)
	b.mu.Lock()
	b.next++
	id := b.next
	b.waiting[id] = answer
	b.mu.Unlock()
	message := map[string]any{"id": id, "method": method}
	if params != nil {
		message["params"] = params
	}
	if b.session != "" && !strings.HasPrefix(method, "Browser.") {
		message["sessionId"] = b.session
	}
	raw := testkit.Must(json.Marshal(message))(t)
	if _, err := b.to.Write(append(raw, 0)); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	select {
	case r := <-answer:
		if r.Error != nil {
			t.Fatalf("%s: %s", method, r.Error.Message)
		}
		if out != nil {
			if err := json.Unmarshal(r.Result, out); err != nil {
				t.Fatalf("%s: %v", method, err)
			}
		}
	case <-b.gone:
		if method != "Browser.close" {
			t.Fatalf("%s: the browser is gone", method)
		}
	case <-time.After(patienceWithBrowser):
		t.Fatalf("%s: the browser does not answer", method)
	}
}

// eval returns the value of an expression in the page; of a promise, its result.
func eval[T any](t *testing.T, b *browser, expression string) (out T) {
	t.Helper()
	var r struct {
		Result struct{ Value json.RawMessage }
		Thrown *struct {
			Text      string
			Exception struct{ Description string }
		} `json:"exceptionDetails"`
	}
	b.call(t, "Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &r)
	if r.Thrown != nil {
		t.Fatalf("%s: %s %s", expression, r.Thrown.Text, r.Thrown.Exception.Description)
	}
	if err := json.Unmarshal(r.Result.Value, &out); err != nil {
		t.Fatalf("%s is %s: %v", expression, r.Result.Value, err)
	}
	return out
}

// until waits until an expression of the page is true.
func (b *browser) until(t *testing.T, expression string) {
	t.Helper()
	met := eval[bool](t, b, fmt.Sprintf(`new Promise((done) => {
		const end = performance.now() + 30000;
		const look = () => { let v = false; try { v = %s; } catch (e) {} if (v) done(true); else if (performance.now() > end) done(false); else requestAnimationFrame(look); };
		look();
	})`, expression))
	if !met {
		t.Fatalf("never true: %s\n%v\n%s", expression, b.errors(), eval[string](t, b, "document.body.innerText"))
	}
}

// errors returns the errors in the page since the last call.
func (b *browser) errors() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.heard
	b.heard = nil
	return out
}

// as sets the width of the browser window in pixels, and the colour scheme: light or dark.
func (b *browser) as(t *testing.T, width int, scheme string) {
	t.Helper()
	b.call(t, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	b.call(t, "Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// open opens an address and waits until the page is drawn.
func (b *browser) open(t *testing.T, address string) {
	t.Helper()
	b.call(t, "Page.navigate", map[string]any{"url": address}, nil)
	b.until(t, `document.documentElement.dataset.ready === "yes"`)
}

// shoot writes a picture of the whole page to the folder -shots, if the flag is given.
func (b *browser) shoot(t *testing.T, name string) {
	t.Helper()
	if *shots == "" {
		return
	}
	b.capture(t, name, map[string]any{"captureBeyondViewport": true})
}

// capture writes a picture as the browser returns it.
func (b *browser) capture(t *testing.T, name string, how map[string]any) []byte {
	t.Helper()
	var picture struct{ Data string }
	b.call(t, "Page.captureScreenshot", how, &picture)
	raw, err := base64.StdEncoding.DecodeString(picture.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(*shots, name+".png"), raw, 0o644)
	}
	testkit.NoError(t, err)
	return raw
}

// shootSmall writes a picture of the top of the page with 256 colours.
func (b *browser) shootSmall(t *testing.T, name string, width, height int) {
	t.Helper()
	if *shots == "" {
		return
	}
	raw := b.capture(t, name, map[string]any{"captureBeyondViewport": true, "clip": map[string]any{"x": 0, "y": 0, "width": width, "height": height, "scale": 1}})
	full := testkit.Must(png.Decode(bytes.NewReader(raw)))(t)
	var out bytes.Buffer
	testkit.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, few(full)))
	testkit.NoError(t, os.WriteFile(filepath.Join(*shots, name+".png"), out.Bytes(), 0o644))
}

// few returns the picture reduced to its 256 most frequent colours, which makes a small file.
func few(from image.Image) *image.Paletted {
	counts := map[color.Color]int{}
	box := from.Bounds()
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			counts[from.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return cmp.Compare(counts[b], counts[a]) })
	out := image.NewPaletted(box, colours[:min(len(colours), 256)])
	draw.Draw(out, box, from, box.Min, draw.Src)
	return out
}
