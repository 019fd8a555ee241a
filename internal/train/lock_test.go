package train

import (
	"strings"
	"testing"

	"mt/internal/config"
)

func TestOneRunInADirectory(t *testing.T) {
	c := config.Default()
	c.OutputDir = t.TempDir()
	out := newOutput(&Resolved{Start: Fresh(&begin(c, Options{}, Asks{}).Inputs)})
	unlock, err := out.lockOutput()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.lockOutput(); err == nil || !strings.Contains(err.Error(), "another run writes there now") || config.IsUsage(err) {
		t.Errorf("beside another run: %v", err)
	}
	unlock()
	if unlock, err = out.lockOutput(); err != nil {
		t.Fatalf("after the other run: %v", err)
	}
	unlock()
}
