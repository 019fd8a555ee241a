package watch

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mt/internal/testkit"
)

// TestOnlyWithTheToken: nothing can be read without the token. Requests with a foreign host name,
// as from a site whose name resolves to this machine, are refused too.
func TestOnlyWithTheToken(t *testing.T) {
	s := serving(t, true, madeUp(t, filepath.Join(t.TempDir(), "run"), 20, 100, 0))
	base, _, _ := strings.Cut(s.URL(), "?")
	cookie := s.cookie + "=" + s.token
	for _, tc := range []struct {
		name, method, path, host, cookie string
		want                             int
	}{
		{"nothing shown", "GET", "", "", "", 401},
		{"events without it", "GET", "events", "", "", 401},
		{"a script without it", "GET", "main.js", "", "", 401},
		{"another token", "GET", "?token=" + strings.Repeat("0", 32), "", "", 401},
		{"a part of it", "GET", "?token=" + s.token[:8], "", "", 401},
		{"an empty one", "GET", "?token=", "", "", 401},
		{"another cookie", "GET", "", "", s.cookie + "=x", 401},
		{"an empty cookie", "GET", "", "", s.cookie + "=", 401},
		{"the token", "GET", "?token=" + s.token, "", "", 303},
		{"the cookie", "GET", "", "", cookie, 200},
		{"a script with the cookie", "GET", "main.js", "", cookie, 200},
		{"a script with the token", "GET", "main.js?token=" + s.token, "", "", 200},
		{"what there is not", "GET", "nope", "", cookie, 404},
		{"above the page", "GET", "..%2fserver.go", "", cookie, 404},
		{"another host", "GET", "?token=" + s.token, "evil.example", cookie, 403},
		{"localhost", "GET", "", "localhost:1234", cookie, 200},
		{"POST", "POST", "", "", cookie, 405},
		{"DELETE", "DELETE", "events", "", cookie, 405},
		{"HEAD", "HEAD", "", "", cookie, 200},
		{"HEAD of what has no end", "HEAD", "events", "", cookie, 200},
	} {
		r := testkit.Must(http.NewRequestWithContext(t.Context(), tc.method, base+tc.path, nil))(t)
		if r.Host = tc.host; tc.host == "" {
			r.Host = r.URL.Host
		}
		r.Header.Set("Cookie", tc.cookie)
		resp := testkit.Must(http.DefaultTransport.RoundTrip(r))(t)
		var body []byte
		if resp.Header.Get("Content-Type") != "text/event-stream" { // an endless response
			body, _ = io.ReadAll(resp.Body)
		}
		_ = resp.Body.Close()
		h := resp.Header
		if resp.StatusCode != tc.want || resp.StatusCode >= 400 && strings.Contains(string(body), s.token) {
			t.Errorf("%s: %s\n%s", tc.name, resp.Status, body)
		}
		if !strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'") || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers %v", tc.name, h)
		}
		if set := h.Get("Set-Cookie"); (set != "") != (tc.want == 303) || set != "" && (!strings.Contains(set, "HttpOnly") || !strings.Contains(set, "SameSite=Lax") || h.Get("Location") != "/") {
			t.Errorf("%s: sets %q, leads to %q", tc.name, set, h.Get("Location"))
		}
	}
}

// stream is a viewer's event stream.
type stream struct {
	in   *bufio.Reader
	stop func()
}

func (s *Server) connect(t *testing.T) *stream {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	r := testkit.Must(http.NewRequestWithContext(ctx, "GET", strings.Replace(s.URL(), "/?", "/events?", 1), nil))(t)
	resp := testkit.Must(http.DefaultTransport.RoundTrip(r))(t)
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s %v", resp.Status, resp.Header)
	}
	return &stream{bufio.NewReader(resp.Body), stop}
}

// event returns the next event and its data.
func (s *stream) event(t *testing.T) (name string, data map[string]any) {
	t.Helper()
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ends: %v", err)
		}
		switch text := strings.TrimSuffix(line, "\n"); {
		case text == "" && name != "":
			return name, data
		case strings.HasPrefix(text, "event: "):
			name = text[len("event: "):]
		case strings.HasPrefix(text, "data: "):
			testkit.NoError(t, json.Unmarshal([]byte(text[len("data: "):]), &data))
		}
	}
}

// expect skips events until the next one called want, and returns its data.
func (s *stream) expect(t *testing.T, want string) map[string]any {
	t.Helper()
	for {
		if name, data := s.event(t); name == want {
			return data
		}
	}
}

// steps returns the steps of the lines in an event.
func steps(data map[string]any) (out []float64) {
	lines, _ := data["lines"].([]any)
	for _, l := range lines {
		line, _ := l.(map[string]any)
		step, _ := line["step"].(float64)
		out = append(out, step)
	}
	return out
}

// TestEvents: a viewer receives the state of the runs, new lines, the lines that a resumed run
// replaces, and the end.
func TestEvents(t *testing.T) {
	base := t.TempDir()
	first, second := madeUp(t, filepath.Join(base, "a"), 30, 100, 0), filepath.Join(base, "b")
	write(t, second, configFile, "model: tiny\n")
	s := serving(t, false, first, second)
	v := s.connect(t)
	if hello := v.expect(t, "hello"); len(hello["runs"].([]any)) != 2 || hello["within"] != false {
		t.Errorf("hello %v", hello)
	}
	if text := v.expect(t, "config")["text"].(string); !strings.Contains(text, "Qwen3-8B") {
		t.Errorf("config %q", text)
	}
	if data := v.expect(t, "metrics"); !slices.Equal(steps(data), []float64{10, 20, 30}) || data["run"] != 0.0 {
		t.Errorf("first %v", data)
	}
	if got := steps(v.expect(t, "samples")); len(got) != 3 {
		t.Errorf("samples %v", got)
	}
	if data := v.expect(t, "timeline"); data["timeline"].(map[string]any)["step"] != 200.0 {
		t.Errorf("timeline %v", data)
	}
	if state := v.expect(t, "state"); state["done"] != false || state["age_s"].(float64) < 0 {
		t.Errorf("state %v", state)
	}
	if state := v.expect(t, "state"); state["run"] != 1.0 || state["age_s"] != -1.0 {
		t.Errorf("state of a run without numbers %v", state)
	}
	appendTo(t, first, metricsFile, stepLine(40, 100, 0))
	if data := v.expect(t, "metrics"); !slices.Equal(steps(data), []float64{40}) || data["again"] != nil {
		t.Errorf("a step more: %v", data)
	}
	write(t, first, metricsFile, stepLine(10, 100, 0)+stepLine(20, 100, 0))
	if data := v.expect(t, "metrics"); !slices.Equal(steps(data), []float64{10, 20}) || data["again"] != true {
		t.Errorf("resumed from step 20: %v", data)
	}
	write(t, first, endFile, "{}")
	if state := v.expect(t, "state"); state["run"] != 0.0 {
		t.Errorf("state %v", state)
	}
	appendTo(t, second, metricsFile, stepLine(10, 20, 0))
	if data := v.expect(t, "metrics"); data["run"] != 1.0 {
		t.Errorf("of the other run: %v", data)
	}
	appendTo(t, second, metricsFile, stepLine(20, 20, 0))
	s.Close()
	if data := v.expect(t, "metrics"); !slices.Equal(steps(data), []float64{20}) {
		t.Errorf("the last line: %v", data)
	}
	v.expect(t, "end")
	if _, err := v.in.ReadByte(); err != io.EOF {
		t.Errorf("behind the end: %v", err)
	}
}

// TestViewersComeAndGo: a viewer that leaves makes room for another, a viewer above the limit is
// rejected, and a viewer that does not read delays nobody.
func TestViewersComeAndGo(t *testing.T) {
	dir := madeUp(t, filepath.Join(t.TempDir(), "run"), 30, 100, 0)
	s := serving(t, true, dir)
	var all []*stream
	for range maxViewers {
		v := s.connect(t)
		v.expect(t, "hello")
		all = append(all, v)
	}
	refused := testkit.Must(http.Get(strings.Replace(s.URL(), "/?", "/events?", 1)))(t)
	_ = refused.Body.Close()
	if refused.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one too many: %s", refused.Status)
	}
	for _, v := range all[1:] {
		v.stop()
	}
	appendTo(t, dir, metricsFile, stepLine(40, 100, 0))
	for !slices.Equal(steps(all[0].expect(t, "metrics")), []float64{40}) {
	}
	for s.count() > 1 { // a leaving viewer is detected at the next line or tick
		appendTo(t, dir, metricsFile, stepLine(50, 100, 0))
		time.Sleep(10 * time.Millisecond)
	}
	s.connect(t).expect(t, "hello")
}

func (s *Server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watching
}

// TestCloseDoesNotWait: if a viewer does not read, Close waits as long as documented and then drops
// the viewer.
func TestCloseDoesNotWait(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	write(t, dir, metricsFile, strings.Repeat(`{"step":1,"eval_loss":1,"text":"`+strings.Repeat("x", 1000)+"\"}\n", 20000))
	s := serving(t, true, dir)
	c := testkit.Must(net.Dial("tcp", strings.TrimPrefix(strings.Split(s.URL(), "/?")[0], "http://")))(t)
	defer c.Close()
	testkit.Must(io.WriteString(c, "GET /events?token="+s.token+" HTTP/1.1\r\nHost: localhost\r\n\r\n"))(t)
	one := make([]byte, 1)
	if _, err := c.Read(one); err != nil { // the server serves it
		t.Fatal(err)
	}
	s.closes = time.Millisecond
	s.Close()
	s.Close() // a second Close has no effect
	if _, err := net.DialTimeout("tcp", c.RemoteAddr().String(), time.Second); err == nil {
		t.Error("somebody still listens")
	}
}

// flushed is a response writer that records the data sent before the first flush.
type flushed struct {
	strings.Builder
	header http.Header
	first  string
}

func (f *flushed) Header() http.Header              { return f.header }
func (f *flushed) WriteHeader(int)                  {}
func (f *flushed) SetWriteDeadline(time.Time) error { return nil }
func (f *flushed) Flush() {
	if f.first == "" {
		f.first = f.String()
	}
}

// TestAnswersBeforeItReads: the names and configurations of runs are sent to a new viewer before
// the metrics, which may be large, are read.
func TestAnswersBeforeItReads(t *testing.T) {
	s := serving(t, true, madeUp(t, filepath.Join(t.TempDir(), "run"), 20, 100, 0))
	left, leave := context.WithCancel(t.Context())
	leave() // leave after the first round
	r := testkit.Must(http.NewRequestWithContext(left, "GET", "/events", nil))(t)
	w := &flushed{header: http.Header{}}
	s.events(w, r)
	for event, want := range map[string]bool{"hello": true, "config": true, "metrics": false, "timeline": false, "state": false} {
		if got := strings.Contains(w.first, "event: "+event+"\n"); got != want || !strings.Contains(w.String(), "event: "+event+"\n") {
			t.Errorf("%s is sent first: %t, want %t; in all:\n%.300s", event, got, want, w.String())
		}
	}
}
