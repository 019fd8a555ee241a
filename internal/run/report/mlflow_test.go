package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"mt/internal/testkit"
)

// server is a fake MLflow server. It records the requests (asked) and answers with the texts in
// answers.
type server struct {
	asked   []string
	answers map[string]string // by path; "404 CODE" and the like are errors
	auth    string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	path := strings.TrimPrefix(r.URL.Path, "/sub/api/2.0/mlflow/")
	s.asked = append(s.asked, strings.TrimSpace(r.Method+" "+path+" "+r.URL.RawQuery+string(body)))
	s.auth = r.Header.Get("Authorization")
	answer, ok := s.answers[path]
	if path == "experiments/create" && ok {
		s.answers["experiments/get-by-name"] = `{"experiment":{"experiment_id":"5"}}`
	}
	var status int
	var code string
	if n, _ := fmt.Sscanf(answer, "%d %s", &status, &code); n == 2 {
		w.WriteHeader(status)
		answer = fmt.Sprintf(`{"error_code":%q,"message":"why"}`, code)
	} else if !ok {
		answer = "{}"
	}
	_, _ = io.WriteString(w, answer)
}

// serve starts s and sets MLFLOW_TRACKING_URI to its address. It clears MLflow's other environment
// variables.
func serve(t *testing.T, s *server) {
	t.Helper()
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	for _, v := range []string{"TRACKING_TOKEN", "TRACKING_USERNAME", "TRACKING_PASSWORD", "EXPERIMENT_NAME", "EXPERIMENT_ID", "RUN_ID"} {
		t.Setenv("MLFLOW_"+v, "")
	}
	t.Setenv("MLFLOW_TRACKING_URI", h.URL+"/sub/")
}

const madeRun = `{"run":{"info":{"run_id":"r1"}}}`

// TestMLflowRun: a new run is created in its experiment, and the server gets its configuration, its
// numbers and its end.
func TestMLflowRun(t *testing.T) {
	s := &server{answers: map[string]string{"runs/create": madeRun, "experiments/get-by-name": "404 RESOURCE_DOES_NOT_EXIST", "experiments/create": "{}"}}
	serve(t, s)
	t.Setenv("MLFLOW_EXPERIMENT_NAME", "an experiment")
	ctx := context.Background()
	run, err := OpenMLflow(ctx, MLflowRun{Name: "n", Config: map[string]string{"seed": "7", "long": strings.Repeat("é", 600)}})
	testkit.NoError(t, err)
	err = run.Send(ctx, []Point{{Time: time.UnixMilli(17), Step: 3, Values: []Scalar{{Name: "train/loss", Value: 0.5}, {Name: "x", Value: math.NaN()}, {Name: "y", Value: math.Inf(-1)}, {Name: "z", Value: math.Inf(1)}, {Name: "eval/loss", Value: 2}}}})
	if err == nil {
		err = run.Close(ctx, EndKilled)
	}
	testkit.NoError(t, err)
	want := []string{"GET experiments/get-by-name experiment_name=an+experiment", `POST experiments/create {"name":"an experiment"}`, "GET experiments/get-by-name experiment_name=an+experiment",
		`POST runs/create {"experiment_id":"5","run_name":"n",`, `POST runs/log-batch {"params":[{"key":"long","value":"` + strings.Repeat("é", 499) + `…"},{"key":"seed","value":"7"}],"run_id":"r1"}`,
		`POST runs/log-batch {"metrics":[{"key":"loss","value":0.5,"timestamp":17,"step":3},{"key":"eval_loss","value":2,"timestamp":17,"step":3}],"run_id":"r1"}`,
		`POST runs/update {"end_time":`}
	if len(s.asked) != len(want) {
		t.Fatalf("asked\n%s", strings.Join(s.asked, "\n"))
	}
	for i, w := range want {
		if !strings.HasPrefix(s.asked[i], w) {
			t.Errorf("request %d is %s, want %s", i, s.asked[i], w)
		}
	}
	if !strings.Contains(s.asked[6], `"status":"KILLED"`) {
		t.Error(s.asked[6])
	}
}

// TestMLflowResumedRun: a run that the server knows is continued. If the server no longer has it, a
// new run begins with a note.
func TestMLflowResumedRun(t *testing.T) {
	s := &server{answers: map[string]string{"runs/create": madeRun}}
	serve(t, s)
	run, err := OpenMLflow(context.Background(), MLflowRun{ID: "old", Config: map[string]string{"a": "b"}})
	if err != nil || run.ID() != "old" || len(s.asked) != 1 || !strings.Contains(s.asked[0], `"status":"RUNNING"`) {
		t.Errorf("%v, %q", err, s.asked)
	}
	s.answers["runs/update"] = "404 RESOURCE_DOES_NOT_EXIST"
	run, err = OpenMLflow(context.Background(), MLflowRun{ID: "old"})
	if err != nil || run.ID() != "r1" || len(run.Notes) != 1 {
		t.Errorf("%v, %+v", err, run)
	}
	s.answers["runs/update"] = "403 PERMISSION_DENIED"
	if _, err = OpenMLflow(context.Background(), MLflowRun{ID: "old"}); err == nil || !strings.Contains(err.Error(), "PERMISSION_DENIED") {
		t.Error(err)
	}
}

// TestMLflowLimits: no request has more metrics than the server accepts at once.
func TestMLflowLimits(t *testing.T) {
	s := &server{answers: map[string]string{"runs/create": madeRun}}
	serve(t, s)
	run := testkit.Must(OpenMLflow(context.Background(), MLflowRun{}))(t)
	s.asked = nil
	var points []Point
	for i := range 300 {
		p := Point{Step: i}
		for k := range 7 {
			p.Values = append(p.Values, Scalar{Name: fmt.Sprint("m", k), Value: float64(k)})
		}
		points = append(points, p)
	}
	testkit.NoError(t, run.Send(context.Background(), points))
	total := 0
	for _, a := range s.asked {
		var in struct{ Metrics []mlflowMetric }
		if err := json.Unmarshal([]byte(strings.TrimPrefix(a, "POST runs/log-batch ")), &in); err != nil || len(in.Metrics) > 1000 {
			t.Errorf("%d metrics, %v", len(in.Metrics), err)
		}
		total += len(in.Metrics)
	}
	if total != 2100 {
		t.Errorf("%d metrics arrive", total)
	}
}

// TestMLflowWays: errors of the server are told apart: some are a Refusal, which is permanent, and
// after others the queue sends again.
func TestMLflowWays(t *testing.T) {
	s := &server{answers: map[string]string{"runs/create": madeRun}}
	serve(t, s)
	run := testkit.Must(OpenMLflow(context.Background(), MLflowRun{}))(t)
	for answer, final := range map[string]bool{"400 INVALID_PARAMETER_VALUE": true, "404 X": true, "429 X": false, "408 X": false, "500 INTERNAL_ERROR": false, "503 X": false} {
		s.answers["runs/log-batch"] = answer
		err := run.Send(context.Background(), []Point{{Values: []Scalar{{Name: "a"}}}})
		var no *Refusal
		if err == nil || errors.As(err, &no) != final {
			t.Errorf("%s: %v", answer, err)
		}
	}
}

// TestMLflowCheck: CheckMLflow's error says what is wrong with the server or the connection,
// without any password or token.
func TestMLflowCheck(t *testing.T) {
	s := &server{answers: map[string]string{}}
	serve(t, s)
	if err := CheckMLflow(context.Background()); err != nil {
		t.Error(err)
	}
	t.Setenv("MLFLOW_TRACKING_TOKEN", "secret")
	if err := CheckMLflow(context.Background()); err != nil || s.auth != "Bearer secret" {
		t.Errorf("%v, %q", err, s.auth)
	}
	t.Setenv("MLFLOW_TRACKING_USERNAME", "me")
	t.Setenv("MLFLOW_TRACKING_PASSWORD", "secret")
	s.answers["experiments/search"] = "401 UNAUTHENTICATED"
	if err := CheckMLflow(context.Background()); err == nil || !strings.Contains(err.Error(), "MLFLOW_TRACKING_TOKEN") || s.auth != "Basic bWU6c2VjcmV0" {
		t.Errorf("%v, %q", err, s.auth)
	}
	s.answers["experiments/search"] = "<html>"
	if err := CheckMLflow(context.Background()); err == nil || !strings.Contains(err.Error(), "this is no MLflow server") {
		t.Error(err)
	}
	for uri, want := range map[string]string{"": "names no server", "sqlite:///x.db": "talks to a server only", "./mlruns": "talks to a server only", "ftp://me:secret@x": "talks to a server only",
		"http://me:secret@127.0.0.1:1": "connection refused"} {
		t.Setenv("MLFLOW_TRACKING_URI", uri)
		if err := CheckMLflow(context.Background()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "/api/") {
			t.Errorf("%s: %v", uri, err)
		}
	}
}

// TestMLflowInsecureTLS: a self-signed certificate is accepted only with
// MLFLOW_TRACKING_INSECURE_TLS. Each request has a time limit.
func TestMLflowInsecureTLS(t *testing.T) {
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }))
	h.Config.ErrorLog = nil
	h.StartTLS()
	defer h.Close()
	t.Setenv("MLFLOW_TRACKING_URI", h.URL)
	for value, want := range map[string]bool{"": false, "false": false, "true": true} {
		t.Setenv("MLFLOW_TRACKING_INSECURE_TLS", value)
		if err := CheckMLflow(context.Background()); (err == nil) != want {
			t.Errorf("MLFLOW_TRACKING_INSECURE_TLS=%q: %v", value, err)
		}
	}
	if c, err := newMLflowClient(); err != nil || c.http.Timeout <= 0 {
		t.Errorf("%v, a request may take %v", err, c.http.Timeout)
	}
}

// TestMLflowLongRefusal: the text of a server's error is cut after 300 bytes, at a character
// boundary.
func TestMLflowLongRefusal(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat("a", 300):        strings.Repeat("a", 300),
		strings.Repeat("a", 301):        strings.Repeat("a", 300) + "…",
		strings.Repeat("a", 299) + "éé": strings.Repeat("a", 299) + "…",
	} {
		got := (&mlflowRefused{status: http.StatusBadRequest, Text: text}).Error()
		if got != "400 Bad Request: "+want || !utf8.ValidString(got) {
			t.Errorf("%q", got)
		}
	}
}

// TestMLflowBrokenAnswer: an answer that is shorter than its declared length gives an error that
// names the server.
func TestMLflowBrokenAnswer(t *testing.T) {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "{}")
	}))
	defer h.Close()
	t.Setenv("MLFLOW_TRACKING_URI", h.URL)
	if err := CheckMLflow(context.Background()); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.HasPrefix(err.Error(), h.URL+": ") {
		t.Error(err)
	}
}

// TestMLflowOpenRefused: without a server, or if the experiment cannot be read, OpenMLflow returns
// an error and creates no run.
func TestMLflowOpenRefused(t *testing.T) {
	s := &server{answers: map[string]string{"runs/create": madeRun, "experiments/get-by-name": "403 PERMISSION_DENIED"}}
	serve(t, s)
	t.Setenv("MLFLOW_EXPERIMENT_NAME", "an experiment")
	if _, err := OpenMLflow(context.Background(), MLflowRun{}); err == nil || len(s.asked) != 1 {
		t.Errorf("%v, asked %q", err, s.asked)
	}
	if at := MLflowServer(); !strings.HasSuffix(at, "/sub") {
		t.Errorf("the server is %q", at)
	}
	t.Setenv("MLFLOW_TRACKING_URI", "")
	if _, err := OpenMLflow(context.Background(), MLflowRun{}); err == nil || MLflowServer() != "" {
		t.Errorf("%v, %q", err, MLflowServer())
	}
}
