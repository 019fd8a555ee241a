package config

import (
	"strings"
	"testing"
)

// TestVarsInPaths: a path's leading ~ is the home folder, and ${NAME} a variable; elsewhere both stay what they are.
func TestVarsInPaths(t *testing.T) {
	t.Setenv("HOME", "/h")
	t.Setenv("DISK", "/d")
	const text = "output_dir: ~/out\nresume_from_checkpoint: ${DISK}/checkpoint-1\nstate_dir: [~/a, b~, ~c, '${DISK}2']\nparam_dir: '~'\nrun_name: ~/${DISK}\nmodel: {vocab_size: 300}\ndataset: d.jsonl\n"
	c, err := Parse("t.yaml", []byte(text), Args{})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(append([]string{c.OutputDir, c.Resume, c.RunName}, append(c.StateDir, c.ParamDir...)...), " ")
	if want := "/h/out /d/checkpoint-1 ~/${DISK} /h/a b~ ~c /d2 /h"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := Parse("t.yaml", []byte("output_dir: '${NO_SUCH_VARIABLE}/x'\n"), Args{}); err == nil || !strings.Contains(err.Error(), "t.yaml:1:13: output_dir: ") {
		t.Error(err)
	}
}
