package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRunner tries every verdict on a module of one function.
func TestRunner(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":     "module small\n\ngo 1.26\n",
		"add/add.go": "package add\n\n// Add adds.\nfunc Add(a, b int) int {\n\tfor a < -100 {\n\t\ta++\n\t}\n\treturn a + b\n}\n",
		"add/add_test.go": "package add\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) {\n\tif Add(2, 2) != 4 {\n\t\tt.Error(\"wrong\")\n\t}\n}\n\n" +
			"func TestSkipped(t *testing.T) { t.Skip(\"nothing to add\") }\n\nfunc TestAddMore(t *testing.T) {\n\tif Add(2, 3) != 5 {\n\t\tt.Error(\"wrong\")\n\t}\n}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(filepath.Join(dir, "add/add.go"))
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{root: dir, scratch: t.TempDir(), timeout: time.Second}
	for _, c := range []struct {
		way
		want verdict
	}{
		{way{from: "a + b", to: "a * b", test: "TestAddMore"}, noticed},
		{way{from: "a + b", to: "a * b", test: "TestAdd"}, survived}, // and not TestAddMore, whose name begins alike
		{way{from: "a + b", to: "a +", test: "TestAdd"}, invalid},
		{way{from: "a < -100", to: "a < 100 || true", test: "TestAdd"}, hung},
	} {
		c.in = "add"
		v, line, output, err := r.try(t.Context(), mutation{"add/add.go", c.way})
		if err != nil || v != c.want || line == 0 {
			t.Errorf("%q to %q: %s at line %d, %v; want %s\n%s", c.from, c.to, v, line, err, c.want, output)
		}
	}
	now, err := os.ReadFile(filepath.Join(dir, "add/add.go"))
	if err != nil || string(now) != string(whole) {
		t.Errorf("the file has changed: %v\n%s", err, now)
	}

	cancelled, stop := context.WithCancel(t.Context())
	stop()
	for what, c := range map[string]struct {
		ctx  context.Context
		m    mutation
		says string
	}{
		"a text that is not there":  {t.Context(), mutation{"add/add.go", way{from: "a - b", in: "add", test: "TestAdd"}}, `has "a - b" 0 times`},
		"a file that is not there":  {t.Context(), mutation{"add/sub.go", way{from: "a", in: "add", test: "TestAdd"}}, "sub.go"},
		"an interrupt":              {cancelled, mutation{"add/add.go", way{from: "a + b", to: "a", in: "add", test: "TestAdd"}}, "interrupted"},
		"a test that is skipped":    {t.Context(), mutation{"add/add.go", way{from: "a + b", to: "a", in: "add", test: "TestAdd|TestSkipped"}}, "TestSkipped in add skips itself"},
		"a test that fails already": {t.Context(), mutation{"add/add.go", way{from: "a + b", to: "a", in: "broken", test: "TestAdd"}}, "fail without any mutation"},
	} {
		err := r.wholeProgramPasses(c.ctx, []mutation{c.m})
		if err == nil {
			_, _, _, err = r.try(c.ctx, c.m)
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %q", what, err, c.says)
		}
	}
}
