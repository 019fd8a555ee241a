package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

	"golang.org/x/sys/unix"

	"mt/checkpoint"
)

// checkOutput refuses an output_dir that cannot become one, before anything
// that takes time. It changes nothing on disk.
func (j *job) checkOutput() error {
	dir := j.c.OutputDir
	if out, err := os.Stat(dir); err == nil && j.modelDir != "" {
		if from, err := os.Stat(j.modelDir); err == nil && os.SameFile(out, from) {
			return j.c.Errorf("output_dir", "output_dir %s is where the model is loaded from, and would be overwritten; choose another", dir)
		}
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
		case unix.Access(at, unix.W_OK|unix.X_OK) != nil:
			return j.c.Errorf("output_dir", "output_dir %s: %s cannot be written; change its permissions or choose another", dir, at)
		}
		return nil
	}
}

// lockOutput makes the output directory this run's until it ends, so that two
// runs do not write one set of checkpoints. A file system without locks lets
// everybody in.
func (j *job) lockOutput() error {
	d, err := os.Open(j.c.OutputDir)
	if err != nil {
		return err
	}
	j.closers = append(j.closers, func() { _ = d.Close() })
	if errors.Is(unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return fmt.Errorf("output_dir %s: another run writes there now; wait for its end, or choose another", j.c.OutputDir)
	}
	return nil
}

// endFile is written into an output directory when everything is done: the
// state of the checkpoint whose model is there.
const endFile = "trainer_state.json"

// finished tells whether the output directory holds the model of the checkpoint
// in dir already.
func (j *job) finished(from resume) bool {
	raw, err := os.ReadFile(filepath.Join(j.c.OutputDir, endFile))
	if err != nil {
		return false
	}
	var end checkpoint.TrainerState
	return json.Unmarshal(raw, &end) == nil && reflect.DeepEqual(end, from.state) &&
		checkpoint.CheckModel(j.c.OutputDir, j.model.Layouts(false)) == nil
}

// markUnfinished takes the mark away: the model is about to be another.
func (j *job) markUnfinished() error {
	err := os.Remove(filepath.Join(j.c.OutputDir, endFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// markFinished says that the model in the output directory is that of state.
func (j *job) markFinished(state checkpoint.TrainerState) error {
	raw, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return err
	}
	return writeWhole(filepath.Join(j.c.OutputDir, endFile), append(raw, '\n'))
}

// writeWhole writes a small file so that it is there whole or not at all.
func writeWhole(name string, content []byte) error {
	tmp := name + ".tmp"
	if err := os.WriteFile(tmp, content, 0o644); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return os.Rename(tmp, name)
}
