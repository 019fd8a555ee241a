package testkit

import (
	"flag"
	"os"
	"strings"
	"testing"
)

// given is TMPDIR before InMemory runs, and temporary is TMPDIR while the tests run.
var given, temporary string

// TestMain runs this package's tests by InMemory. It fails if InMemory leaves its temporary
// directory behind.
func TestMain(m *testing.M) {
	given = os.Getenv("TMPDIR")
	code := InMemory(m)
	if !flag.Parsed() { // as the first thing that M.Run does
		println("InMemory runs no tests")
		code = 1
	}
	if temporary != given && temporary != "" {
		if _, err := os.Stat(temporary); !os.IsNotExist(err) {
			println(temporary, "is left behind")
			code = 1
		}
	}
	os.Exit(code)
}

// TestInMemory: InMemory gives the tests a temporary directory in memory, unless TMPDIR was set
// before.
func TestInMemory(t *testing.T) {
	temporary = os.Getenv("TMPDIR")
	if temporary == "" {
		t.Skip("there is no memory for files of tests, or no Linux")
	}
	if given != "" && temporary != given {
		t.Errorf("files are in %s, and TMPDIR is %s", temporary, given)
	}
	if dir := t.TempDir(); !strings.HasPrefix(dir, temporary) {
		t.Errorf("files are in %s, want them in %s", dir, temporary)
	}
}
