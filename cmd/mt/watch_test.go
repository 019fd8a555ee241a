package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestWatch: mt watch prints the URL of the page and serves it. Ctrl-C ends it without an error.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte(`{"step":1}`+"\n"), 0o600))
	from, to := io.Pipe()
	var said strings.Builder
	a := &app{stdout: to, stderr: &said}
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() { ended <- a.run(ctx, []string{"watch", dir, "--address", "0"}) }()
	printed := make([]byte, 256)
	n, err := from.Read(printed)
	testkit.NoError(t, err)
	at := strings.TrimSpace(string(printed[:n]))
	resp, err := http.Get(strings.Replace(at, "/?", "/index.html?", 1))
	testkit.NoError(t, err)
	page, err := io.ReadAll(resp.Body)
	if _ = resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(page), "<!doctype html>") {
		t.Errorf("%s: %s %v\n%s", at, resp.Status, err, page)
	}
	interrupt()
	if code := <-ended; code != exitDone || said.Len() > 0 {
		t.Errorf("exit code %d: %s", code, &said)
	}
}
