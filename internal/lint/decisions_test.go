package lint

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"mt/internal/testkit"
)

func TestCheckIndex(t *testing.T) {
	const index = "| [a](a.md) | We do. |\n| [b](b.md), see [c](../c.md), [d](a.md#d) | We do not. |\n"
	tests := []struct {
		name  string
		pages []string
		want  []string
	}{
		{"complete", []string{"a.md", "b.md"}, nil},
		{"a page without a line", []string{"a.md", "b.md", "c.md"}, []string{"the index has no line for c.md: add a link and one sentence"}},
		{"a link without a page", []string{"a.md"}, []string{"the index links to b.md, which does not exist"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := CheckIndex(index, tt.pages); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDecisionsAreListed(t *testing.T) {
	const folder, index = "../../docs/decisions", "README.md"
	text := testkit.Must(os.ReadFile(filepath.Join(folder, index)))(t)
	entries := testkit.Must(os.ReadDir(folder))(t)
	var pages []string
	for _, e := range entries {
		if name := e.Name(); name != index && filepath.Ext(name) == ".md" {
			pages = append(pages, name)
		}
	}
	if len(pages) == 0 {
		t.Fatalf("%s has no page", folder)
	}
	for _, f := range CheckIndex(string(text), pages) {
		t.Errorf("%s: %s", filepath.Join(folder, index), f)
	}
}
