package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestBuild: ranks distinguish development builds by their files, and releases by their versions only.
func TestBuild(t *testing.T) {
	dir := t.TempDir()
	one, other := filepath.Join(dir, "one"), filepath.Join(dir, "other")
	for _, name := range []string{one, other} {
		testkit.NoError(t, os.WriteFile(name, []byte(name), 0o600))
	}
	for _, c := range []struct {
		v      version
		differ bool
	}{{version{Version: "(devel)"}, true}, {version{Version: "v1.2.3", Modified: true}, true}, {version{Version: "v1.2.3", Revision: "abc"}, false}} {
		if a, b := c.v.build(one), c.v.build(other); (a != b) != c.differ || !strings.HasPrefix(a, c.v.String()) {
			t.Errorf("%s: %q and %q, want them to differ: %t", c.v, a, b, c.differ)
		}
		if a, again := c.v.build(one), c.v.build(one); a != again {
			t.Errorf("%s: %q, then %q", c.v, a, again)
		}
	}
	if got, want := (version{Version: "(devel)"}).build(filepath.Join(dir, "none")), (version{Version: "(devel)"}).String(); got != want {
		t.Errorf("without the file: %q, want %q", got, want)
	}
}

// TestVersionLine: the line names the build and says whether files were modified.
func TestVersionLine(t *testing.T) {
	for want, v := range map[string]version{
		", revision abc with changes": {Version: "v1", Revision: "abc", Modified: true}, ", revision abc": {Version: "v1", Revision: "abc"}, "": {Version: "v1", Modified: true},
	} {
		if got := v.String(); !strings.Contains(got, want) || strings.Contains(got, "with changes") != strings.Contains(want, "with changes") {
			t.Errorf("%+v is %q, want %q in it", v, got, want)
		}
	}
}
