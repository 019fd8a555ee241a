package pytest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Variable names the environment variable with the interpreter.
const Variable = "MT_PYTHON"

// Need is the interpreter that Variable names. The test is skipped where it
// names none or one that cannot import the packages.
func Need(t *testing.T, packages ...string) string {
	t.Helper()
	name := os.Getenv(Variable)
	if name == "" {
		t.Skip(Variable + " names no Python")
	}
	if err := exec.Command(name, "-c", "import "+strings.Join(packages, ", ")).Run(); err != nil {
		t.Skipf("%s lacks %s", name, strings.Join(packages, " or "))
	}
	return name
}

// Run runs the interpreter that Need finds and returns its standard output. The
// test fails where the script does.
func Run(t *testing.T, python string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(python, args...)
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		text := problem.String()
		t.Fatalf("%v: %v\n%s%s", args, err, out, text[max(0, len(text)-2000):])
	}
	return out
}
