package testkit

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// PythonVariable is the environment variable with the Python interpreter.
const PythonVariable = "MT_PYTHON"

// NeedPython returns the interpreter that PythonVariable names. It skips the test if the variable is empty, or if the
// interpreter cannot import the packages. The test fails if the interpreter does not run.
func NeedPython(t *testing.T, packages ...string) string {
	t.Helper()
	name := os.Getenv(PythonVariable)
	if name == "" {
		t.Skip(PythonVariable + " names no Python")
	}
	err := exec.Command(name, "-c", "import "+strings.Join(packages, ", ")).Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		t.Skipf("%s lacks %s", name, strings.Join(packages, " or "))
	case err != nil:
		t.Fatalf("%s is %q, which does not run: %v", PythonVariable, name, err)
	}
	return name
}

// RunPython runs an interpreter that NeedPython returned and returns its standard output. The test fails if the script
// does.
func RunPython(t *testing.T, python string, args ...string) []byte {
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
