package config

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// TestHostileYAML: a short file does not take memory with the square of its length,
// whatever is in it.
func TestHostileYAML(t *testing.T) {
	const size, most = 30_000, 40 << 20
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	for _, tc := range []struct{ text, says string }{
		{"model: " + fill("["), "c.yaml:1:24: nested more than 16 deep"},
		{"model: " + fill("{"), "c.yaml:1:24: nested more than 16 deep"},
		{"model: " + fill("{a: "), "nested more than 16 deep"},
		{"model: " + fill("[a,"), "nested more than 16 deep"},
		{"model: " + fill("[\n "), "c.yaml:17:2: nested more than 16 deep"},
		{"model: " + fill("]") + fill("["), "nested more than 16 deep"},
		{"model: " + strings.Repeat("[", size/2) + strings.Repeat("]", size/2), "nested more than 16 deep"},
		{fill("- ") + "x", "c.yaml:1:33: nested more than 16 deep"},
		{fill("a: b\n"), "c.yaml:2001:2: more than 2000 keys: not a config file"},
		{"model: {" + fill("a: b, ") + "}", "more than 2000 keys"},
		{fill("a: ") + "x", "more than 2000 keys"},
		{"dataset: [" + strings.Repeat("a,", 50_001) + "]", "more than 50000 items of lists: give a folder or a pattern"},
		{fill("? ") + "x", "YAML: "},
		{"model: " + fill("&a ") + "x", "YAML: "},
		{"model: " + fill("!!str ") + "x", "anchors, aliases, merge keys and tags are not supported"},
		{"model: " + fill("*a ") + "x", "YAML: "},
		{fill("---\n"), ""},
		{fill("# a\n"), ""},
		{"dataset: [" + fill("a, ") + "]", ""}, // many files are all right
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse("c.yaml", []byte(tc.text), Args{})
		runtime.ReadMemStats(&after)
		if bytes := after.TotalAlloc - before.TotalAlloc; bytes > most {
			t.Errorf("%.20q: %d MiB for %d bytes", tc.text, bytes>>20, len(tc.text))
		}
		if (err == nil) != (tc.says == "") || err != nil && (!strings.Contains(err.Error(), tc.says) || !IsUsage(err)) {
			t.Errorf("%.20q: %v, want %q", tc.text, err, tc.says)
		}
	}
}

// TestLoadWhatIsNoFile: a config may come through a pipe. A device without end, a
// directory, or a pipe that nobody writes to, does not keep Load waiting.
func TestLoadWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skipf("no pipe can be made in %s: %v", dir, err)
	}
	if c, err := Load(pipe, Args{}); err != nil || c.Seed != Default().Seed { // nobody writes to it
		t.Errorf("an empty pipe: %v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("seed: 5\n"); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if c, err := Load(fmt.Sprintf("/dev/fd/%d", r.Fd()), Args{}); err != nil || c.Seed != 5 { // as the shell's <(...) gives it
		t.Errorf("a pipe: %v", err)
	}
	for name, says := range map[string]string{"/dev/zero": "/dev/zero goes on behind 1.0 MiB: not a config file", dir: "is a directory; give the YAML file"} {
		if _, err := Load(name, Args{}); err == nil || !strings.Contains(err.Error(), says) || !IsUsage(err) {
			t.Errorf("%s: %v, want %q", name, err, says)
		}
	}
}
