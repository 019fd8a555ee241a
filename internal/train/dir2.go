package train

import (
	"os"
	"slices"

	"mt/checkpoint"
)

// holdsWeights tells whether there is a file of a model's weights in dir.
func holdsWeights(dir string) bool {
	entries, _ := os.ReadDir(dir) // a directory that cannot be listed fails when it is written to
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return checkpoint.IsWeights(e.Name()) })
}
