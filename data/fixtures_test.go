package data

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"mt/internal/recordings"
)

// TestFixtures reads the rows of recorded training runs and expects them unchanged, in
// file order, and as many rows a step as were recorded.
func TestFixtures(t *testing.T) {
	for _, dir := range recordings.Cases(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			name := filepath.Join(dir, "train.jsonl")
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			d := mustOpen(t, idsSpec(t, 2048, 1<<20, name))
			n := 0
			for lines := bufio.NewScanner(f); lines.Scan(); n++ {
				var want struct {
					IDs    []int32 `json:"input_ids"`
					Labels []int32
				}
				if err := json.Unmarshal(lines.Bytes(), &want); err != nil {
					t.Fatal(err)
				}
				got := d.Row(n)
				if !slices.Equal(got.IDs, want.IDs) || !slices.Equal(got.Labels, want.Labels) || got.Docs != nil {
					t.Errorf("row %d is %+v, want %+v", n, got, want)
				}
			}
			if d.Rows() != n || n == 0 || len(d.Warnings()) != 0 {
				t.Errorf("%d rows of %d lines, warnings %q", d.Rows(), n, d.Warnings())
			}
		})
	}
}
