package train

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"mt/checkpoint"
	"mt/internal/files"
)

// configHeader begins the config.yaml that a run writes, in its output directory
// and in every checkpoint. It is the mark by which a directory is known as a run's
// (docs/decisions/2026-11-whose-directory.md).
const configHeader = "The configuration of this run, every auto resolved."

// checkOwner refuses an output_dir that no run of mt has written to and in which
// this one would overwrite or remove something.
func (j *opening) checkOwner() error {
	dir := j.c.OutputDir
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		return nil // there is nothing yet
	case err != nil:
		return j.c.Errorf("output_dir", "output_dir: %w", err)
	case j.c.OverwriteOutputDir || isRun(dir, entries):
		return nil
	}
	copied, err := j.copiedNames()
	if err != nil {
		return err
	}
	for _, e := range entries {
		written := slices.ContainsFunc(copied, func(name string) bool { return name == e.Name() || filepath.Dir(name) == e.Name() })
		if !isEmpty(dir, e) && (inTheWay(e) || written) {
			return j.c.Errorf("output_dir", "output_dir %s holds %s, which no run of mt made and this one would replace or remove; "+
				"choose another output_dir, or set overwrite_output_dir: true", dir, e.Name())
		}
	}
	return nil
}

// isRun tells whether a run of mt, of this version or an older one, has written to dir:
// it has the mark, or a checkpoint of ours.
func isRun(dir string, entries []fs.DirEntry) bool {
	if hasMark(dir, configFile) || hasMark(dir, configFile+checkpoint.WholeTemp) { // a run killed at its very start leaves the second
		return true
	}
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		at := filepath.Join(dir, e.Name())
		return checkpoint.IsCheckpoint(e) && (hasMark(at, configFile) || checkpoint.HasManifest(at))
	})
}

func hasMark(dir, name string) bool {
	begin, err := files.Begin(filepath.Join(dir, name), len("# "+configHeader))
	return err == nil && bytes.Equal(begin, []byte("# "+configHeader))
}

// inTheWay tells whether a run replaces or removes files with the name of e.
func inTheWay(e fs.DirEntry) bool {
	switch name := strings.TrimSuffix(e.Name(), checkpoint.WholeTemp); name {
	case configFile, metricsFile, endFile, algorithmsFile, curveFile, samplesFile, boardsFile, averageDir, "config.json":
		return true
	}
	return checkpoint.IsWeights(e.Name()) || checkpoint.IsCheckpoint(e)
}

// copiedNames are the names, or patterns of names, of the files that a run puts beside its model: those of the
// directory that the model was loaded from, or the byte tokenizer's.
func (j *opening) copiedNames() ([]string, error) {
	if j.modelDir != "" {
		names, err := checkpoint.CompanionNames(j.modelDir)
		return append(names, "chat_template.jinja", "additional_chat_templates/*.jinja"), err
	}
	var names []string
	if j.tok != nil {
		for name := range j.tok.Files() {
			names = append(names, name)
		}
	}
	return names, nil
}

// checkCopied refuses a model directory with a file that cannot be copied beside what
// is saved. It comes before anything that takes time.
func (j *opening) checkCopied() error {
	if j.modelDir == "" {
		return nil
	}
	if err := checkpoint.CheckLink(filepath.Join(j.modelDir, "config.json")); err != nil {
		return err
	}
	_, err := checkpoint.CompanionNames(j.modelDir)
	return err
}

// isEmpty tells whether e is an empty file or an empty directory, which nobody would
// miss.
func isEmpty(dir string, e fs.DirEntry) bool {
	if e.IsDir() {
		below, err := os.ReadDir(filepath.Join(dir, e.Name()))
		return err == nil && len(below) == 0
	}
	info, err := e.Info()
	return err == nil && e.Type().IsRegular() && info.Size() == 0
}
