package model

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"mt/internal/testkit"
)

// TestPrefixOfTwo: if a directory has model.safetensors and an index, the names come from
// model.safetensors, as in package checkpoint. An index that is a Git LFS pointer gives no names,
// and package checkpoint refuses it.
func TestPrefixOfTwo(t *testing.T) {
	c := &Config{family: &family{prefixes: []prefix{{model: "a."}, {model: "b."}}}}
	header := `{"__metadata__": {}, "b.x": {}}`
	single := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	for name, tc := range map[string]struct {
		single []byte
		index  string
		want   string
	}{
		"both":    {single, `{"weight_map": {"a.x": "y"}}`, "b."},
		"index":   {nil, `{"weight_map": {"b.x": "y"}}`, "b."},
		"Git LFS": {nil, "version https://git-lfs.github.com/spec/v1\n", "a."},
	} {
		dir := t.TempDir()
		if tc.single != nil {
			testkit.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), tc.single, 0o600))
		}
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), []byte(tc.index), 0o600))
		names, err := weightNames(dir)
		if p := c.findPrefix(names); err != nil || p.model != tc.want {
			t.Errorf("%s: %+v, %v; want %s", name, p, err, tc.want)
		}
	}
}

// TestTooManyNames: a file with too many tensor names counts as one without names here. Package
// checkpoint refuses it.
func TestTooManyNames(t *testing.T) {
	for most, want := range map[int]int{1: 0, 2: 2, 3: 2} {
		if names, err := membersOf([]byte(`{"a": {}, "b": 1}`), most); err != nil || len(names) != want {
			t.Errorf("%d at most: %v, %v", most, names, err)
		}
	}
	for _, text := range []string{"", "[]", `{"a": `} {
		if _, err := membersOf([]byte(text), 2); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}
