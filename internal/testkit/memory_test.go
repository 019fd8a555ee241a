package testkit

import (
	"flag"
	"os"
	"strings"
	"testing"
)

// given is where temporary files are to be, and temporary where they are while InMemory runs tests.
var given, temporary string

// TestMain has the package's own tests run by InMemory, and fails if that leaves its directory behind.
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

// TestInMemory: files of tests are in a directory of the run's own, or where they were to be.
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
