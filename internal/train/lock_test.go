package train

import (
	"strings"
	"testing"

	"mt/internal/config"
)

func TestOneRunInADirectory(t *testing.T) {
	c := config.Default()
	c.OutputDir = t.TempDir()
	first, second := &job{c: c}, &job{c: c}
	defer second.close()
	if err := first.lockOutput(); err != nil {
		t.Fatal(err)
	}
	if err := second.lockOutput(); err == nil || !strings.Contains(err.Error(), "another run writes there now") || config.IsUsage(err) {
		t.Errorf("beside another run: %v", err)
	}
	first.close()
	if err := second.lockOutput(); err != nil {
		t.Errorf("after the other run: %v", err)
	}
}
