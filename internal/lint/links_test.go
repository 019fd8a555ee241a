package lint

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"mt/internal/testkit"
)

func TestCheckLinks(t *testing.T) {
	root := writeFiles(t, map[string]string{
		"docs/a.md": "# A page: `keys` & more\n\n## Twice\n\n## Twice\n\n<a id=\"here\"></a>\n\n```sh\n# no heading\n```\n",
		"b.go":      "package b\n",
	})
	tests := []struct {
		name, text string
		want       []string
	}{
		{"pages, folders and headings", "[a](docs/a.md) [b](docs/a.md#a-page-keys--more) [c](docs/a.md#twice-1) [d](docs/a.md#here) [e](docs) [f](b.go)", nil},
		{"other places", "[a](https://example.com/x.md) `[b](c.md)`\n```\n[d](e.md)\n```\n", nil},
		{"own heading", "# Own one\n[a](#own-one)", nil},
		{"no page", "[a](docs/c.md)", []string{"README.md links to docs/c.md, which does not exist"}},
		{"no heading", "[a](docs/a.md#no-heading)", []string{"README.md links to docs/a.md#no-heading, but docs/a.md has no such heading"}},
		{"no own heading", "[a](#b)", []string{"README.md links to #b, but README.md has no such heading"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			testkit.NoError(t, os.WriteFile(filepath.Join(root, "README.md"), []byte(tt.text), 0o644))
			if got := CheckLinks(root, "README.md", []byte(tt.text)); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

func TestModuleLinks(t *testing.T) {
	root, files := moduleFiles(t)
	for _, name := range files {
		if filepath.Ext(name) == ".md" {
			for _, f := range CheckLinks(root, name, testkit.Must(os.ReadFile(filepath.Join(root, name)))(t)) {
				t.Error(f)
			}
		}
	}
}
