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
	"mt/internal/config"
	"mt/internal/files"
)

// checkOutput refuses an output_dir that cannot be written to. It comes before anything
// that takes time, and changes nothing on disk.
func (j *job) checkOutput() error {
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
func (j *job) checkSources() error {
	reference, _ := config.ModelDir(j.c.Preference().ReferenceModel) // an error is reported when it is opened
	for _, written := range []string{j.c.OutputDir, j.averageDir()} {
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
func (j *job) findModel() error {
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
	case !j.orCheckpoint:
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

// lockOutput makes the output directory this run's until it ends, so that two runs do
// not write one set of checkpoints. On a file system without locks another run is not
// kept out.
func (j *job) lockOutput() error {
	unlock, err := checkpoint.Lock(j.c.OutputDir)
	if errors.Is(err, checkpoint.ErrLocked) {
		return fmt.Errorf("output_dir %s: another run writes there now; wait for its end, or choose another", j.c.OutputDir)
	}
	if err == nil {
		j.closers = append(j.closers, unlock)
	}
	return err
}

// sweep removes what killed runs have left unfinished, which takes room.
func (j *job) sweep() {
	for _, name := range []string{configFile, metricsFile, endFile, algorithmsFile, timelineFile, curveFile, samplesFile, boardsFile} {
		_ = j.fs().RemoveAll(filepath.Join(j.c.OutputDir, name+checkpoint.WholeTemp)) // what stays is overwritten
	}
	j.prune(0, 0, 0, 0)
	if j.c.EMADecay > 0 {
		_ = checkpoint.Prune(j.fs(), j.averageDir(), 0, 0, 0, 0) // what stays takes room
	}
}

// prune removes surplus checkpoints, as checkpoint.Prune says. A failure does not end
// the run: what it saves is safe, and only takes more room.
func (j *job) prune(keep, finite, current, best int) {
	if !j.team.first() {
		return
	}
	if err := checkpoint.Prune(j.fs(), j.c.OutputDir, keep, finite, current, best); err != nil {
		j.late.add(fmt.Sprintf("%v; the run goes on, and what could not be removed takes room", err))
	}
}

// endFile marks the output directory of a run that is done. It holds the state of the
// run whose model is there.
const endFile = "trainer_state.json"

// finished tells whether the output directory already holds the model of the checkpoint
// that the run goes on from, and that of the averages.
func (j *job) finished(from resume) bool {
	if !j.team.first() {
		return j.done
	}
	raw, err := os.ReadFile(filepath.Join(j.c.OutputDir, endFile))
	if err != nil {
		return false
	}
	var end checkpoint.TrainerState
	if json.Unmarshal(raw, &end) != nil {
		return false
	}
	end.Ended = checkpoint.Ended{} // no checkpoint has it
	whole := func(dir string) bool { return checkpoint.CheckModel(dir, j.model.Layouts(false)) == nil }
	return reflect.DeepEqual(end, from.state) && whole(j.c.OutputDir) && (j.c.EMADecay == 0 || whole(j.averageDir()))
}

// markUnfinished removes endFile, since the model is about to be replaced.
func (j *job) markUnfinished() error {
	err := os.Remove(filepath.Join(j.c.OutputDir, endFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// markFinished writes endFile: the model in the output directory is that of state.
func (j *job) markFinished(state checkpoint.TrainerState) error {
	raw, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return err
	}
	return j.writeWhole(endFile, append(raw, '\n'))
}

// fs is what the output directory is written through.
func (j *job) fs() checkpoint.FS {
	if j.hooks.fs != nil {
		return j.hooks.fs
	}
	return checkpoint.OS()
}

// writeWhole writes a small file of the output directory so that it is there
// whole or not at all, whatever happens.
func (j *job) writeWhole(name string, content []byte) error {
	return checkpoint.WriteFile(j.fs(), filepath.Join(j.c.OutputDir, name), content)
}
