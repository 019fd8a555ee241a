package mlflow

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestInsecureTLS: a certificate that nobody vouches for is accepted only where the environment asks for it, and each
// request is bounded in time.
func TestInsecureTLS(t *testing.T) {
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }))
	h.Config.ErrorLog = nil
	h.StartTLS()
	defer h.Close()
	t.Setenv("MLFLOW_TRACKING_URI", h.URL)
	for value, want := range map[string]bool{"": false, "false": false, "true": true} {
		t.Setenv("MLFLOW_TRACKING_INSECURE_TLS", value)
		if err := Check(context.Background()); (err == nil) != want {
			t.Errorf("MLFLOW_TRACKING_INSECURE_TLS=%q: %v", value, err)
		}
	}
	if c, err := newClient(); err != nil || c.http.Timeout <= 0 {
		t.Errorf("%v, a request may take %v", err, c.http.Timeout)
	}
}

// TestLongRefusal: the text of a refusal is cut after 300 bytes, between characters.
func TestLongRefusal(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat("a", 300):        strings.Repeat("a", 300),
		strings.Repeat("a", 301):        strings.Repeat("a", 300) + "…",
		strings.Repeat("a", 299) + "éé": strings.Repeat("a", 299) + "…",
	} {
		got := (&refused{status: http.StatusBadRequest, Text: text}).Error()
		if got != "400 Bad Request: "+want || !utf8.ValidString(got) {
			t.Errorf("%q", got)
		}
	}
}

// TestBrokenAnswer: an answer that ends too early is an error, which names the server.
func TestBrokenAnswer(t *testing.T) {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "{}")
	}))
	defer h.Close()
	t.Setenv("MLFLOW_TRACKING_URI", h.URL)
	if err := Check(context.Background()); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.HasPrefix(err.Error(), h.URL+": ") {
		t.Error(err)
	}
}

// TestOpenRefused: without a server, or without the experiment, no run begins.
func TestOpenRefused(t *testing.T) {
	s := &server{answers: map[string]string{"runs/create": madeRun, "experiments/get-by-name": "403 PERMISSION_DENIED"}}
	serve(t, s)
	t.Setenv("MLFLOW_EXPERIMENT_NAME", "an experiment")
	if _, err := Open(context.Background(), Run{}); err == nil || len(s.asked) != 1 {
		t.Errorf("%v, asked %q", err, s.asked)
	}
	if at := Server(); !strings.HasSuffix(at, "/sub") {
		t.Errorf("the server is %q", at)
	}
	t.Setenv("MLFLOW_TRACKING_URI", "")
	if _, err := Open(context.Background(), Run{}); err == nil || Server() != "" {
		t.Errorf("%v, %q", err, Server())
	}
}
