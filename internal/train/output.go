package train

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"mt/checkpoint"
	"mt/internal/config"
	"mt/internal/files"
)

// checkOutput refuses an output_dir that cannot be written to. It comes before anything
// that takes time, and changes nothing on disk.
func (j *opening) checkOutput() error {
	dir := j.c.OutputDir
	if err := j.checkSources(); err != nil {
		return err
	}
	for at := dir; ; at = filepath.Dir(at) {
		st, err := os.Stat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at):
			continue
		case errors.Is(err, unix.ENOTDIR):
			continue
		case err != nil:
			return j.c.Errorf("output_dir", "output_dir %s: %w", dir, err)
		case !st.IsDir():
			return j.c.Errorf("output_dir", "output_dir %s: %s is a file, not a directory; choose another", dir, at)
		}
		if err := unix.Access(at, unix.W_OK|unix.X_OK); err != nil {
			return j.c.Errorf("output_dir", "output_dir %s: %s cannot be written (%w); change its permissions or choose another", dir, at, err)
		}
		return j.checkOwner()
	}
}

// checkSources refuses to load a model from where the run's own, or that of the averages, is replaced or removed.
func (j *opening) checkSources() error {
	reference, _ := config.ModelDir(j.c.Preference().ReferenceModel) // an error is reported when it is opened
	for _, written := range []string{j.c.OutputDir, averagesIn(j.c)} {
		for _, from := range []struct{ what, dir string }{{"the model", j.modelDir}, {"dpo.reference_model", reference}} {
			if files.Same(written, from.dir) {
				return j.c.Errorf("output_dir", "output_dir %s: %s is where %s is loaded from, and would be overwritten; choose another", j.c.OutputDir, written, from.what)
			}
		}
	}
	return nil
}

// findModel looks whether the model to load is a run's output_dir that has checkpoints
// and no model yet. The newest of them is then taken, or named in an error.
func (j *opening) findModel() error {
	if j.c.Model.Path == "" {
		return nil
	}
	dir, err := config.ModelDir(j.c.Model.Path)
	if err != nil {
		return nil // openModel reports it
	}
	newest, note, err := NewestModel(dir)
	switch {
	case err != nil || newest == dir:
		return err
	case !j.a.OrCheckpoint:
		return j.c.Errorf("model_name_or_path", "%s; give that directory, or finish the run first", note)
	}
	j.note("%s, which is taken", note)
	j.c.Model.Path = newest
	return nil
}

// NewestModel is the model directory that dir stands for: itself, or, where it is
// the output_dir of a run that has not ended, its newest checkpoint, with a note that
// names it.
func NewestModel(dir string) (model, note string, err error) {
	if _, err := os.Stat(filepath.Join(dir, "config.json")); !errors.Is(err, fs.ErrNotExist) {
		return dir, "", nil // what is wrong with it shows when it is read
	}
	newest, state, err := checkpoint.Newest(dir)
	if err != nil || newest == "" {
		return dir, "", err
	}
	return newest, fmt.Sprintf("%s holds no model yet; its newest checkpoint is %s, of step %d", dir, newest, state.Step), nil
}
