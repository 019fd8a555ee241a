package checkpoint

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/model"
)

// layout is a model directory without values; tools/layouts.py writes them.
type layout struct {
	Name, DType, Folder, Fails string
	Config                     json.RawMessage
	Tensors                    map[string]json.RawMessage // a shape, or a type and a shape
	Absent                     []string                   // what the index lists beside
}

// dir makes a directory of the layout. The data of its file are a hole.
func (l layout) dir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "config.json"), l.Config)
	header, index, off := map[string]any{}, map[string]string{}, int64(0)
	all := map[string]fakeTensor{}
	for name, raw := range l.Tensors {
		f := fakeTensor{DType: l.DType}
		if f.DType == "" {
			f.DType = "BF16"
		}
		if json.Unmarshal(raw, &f.Shape) != nil {
			if err := json.Unmarshal(raw, &[]any{&f.DType, &f.Shape}); err != nil {
				t.Fatal(err)
			}
		}
		all[name] = f
	}
	names := slices.Sorted(maps.Keys(all))
	slices.SortStableFunc(names, func(a, b string) int { return int(dtypeSize[all[b].DType] - dtypeSize[all[a].DType]) })
	shard := l.Folder + "model-00001-of-00001.safetensors"
	for _, name := range names {
		f := all[name]
		n := dtypeSize[f.DType]
		for _, d := range f.Shape {
			n *= d
		}
		f.Offsets = []int{int(off), int(off + n)}
		header[name], index[name], off = f, shard, off+n
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	if l.Folder == "" && l.Absent == nil {
		shard = singleName
	} else {
		for _, name := range l.Absent {
			index[name] = shard
		}
		writeIndex(t, dir, index)
	}
	file := filepath.Join(dir, shard)
	write(t, file, safetensors(string(text), nil))
	if err := os.Truncate(file, int64(8+len(text))+off); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestLayouts: directories as they are published open, and what cannot be trained says why.
func TestLayouts(t *testing.T) {
	var all []layout
	if err := json.Unmarshal(read(t, "../model/testdata/layouts.json"), &all); err != nil {
		t.Fatal(err)
	}
	if len(all) < 40 {
		t.Errorf("%d layouts", len(all))
	}
	for _, l := range all {
		t.Run(strings.ReplaceAll(l.Name, " ", "_"), func(t *testing.T) {
			dir := l.dir(t)
			c, err := model.LoadDir(dir)
			if err == nil {
				err = CheckModel(dir, c.Layouts(true))
			}
			if (err == nil) != (l.Fails == "") || err != nil && !strings.Contains(err.Error(), l.Fails) {
				t.Error(fmt.Sprint(err), "want", l.Fails)
			}
		})
	}
}
