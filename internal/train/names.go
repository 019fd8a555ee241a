package train

import (
	"path/filepath"

	"mt/checkpoint"
)

// endFile marks the output directory of a run that is done. It holds the state of the
// run whose model is there.
const endFile = "trainer_state.json"

// outDir is a run's output directory.
type outDir struct {
	path string
	fs   checkpoint.FS
}

// writeWhole writes a small file of the directory so that it is there
// whole or not at all, whatever happens.
func (d outDir) writeWhole(name string, content []byte) error {
	return checkpoint.WriteFile(d.fs, filepath.Join(d.path, name), content)
}
