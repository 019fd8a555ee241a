package open

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"mt/base/files"
	"mt/checkpoint"
	"mt/internal/run/config"
	"mt/internal/run/settings"
)

// checkOutput returns an error if output_dir cannot be written. It runs before any slow work and changes nothing on
// disk.
func (p *opening) checkOutput() error {
	dir := p.Config.OutputDir
	if err := p.checkSources(); err != nil {
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
			return p.Config.Errorf("output_dir", "output_dir %s: %w", dir, err)
		case !st.IsDir():
			return p.Config.Errorf("output_dir", "output_dir %s: %s is a file, not a directory; choose another", dir, at)
		}
		if err := unix.Access(at, unix.W_OK|unix.X_OK); err != nil {
			return p.Config.Errorf("output_dir", "output_dir %s: %s cannot be written (%w); change its permissions or choose another", dir, at, err)
		}
		return p.checkOwner()
	}
}

// checkSources returns an error if the model or the reference model is loaded from a directory that the run itself
// writes.
func (p *opening) checkSources() error {
	reference, _ := config.ModelDir(p.Config.Preference().ReferenceModel) // opening it reports the error
	for _, written := range []string{p.Config.OutputDir, settings.AveragesIn(p.Config)} {
		for _, from := range []struct{ what, dir string }{{"the model", p.ModelDir}, {"dpo.reference_model", reference}} {
			if files.Same(written, from.dir) {
				return p.Config.Errorf("output_dir", "output_dir %s: %s is where %s is loaded from, and would be overwritten; choose another", p.Config.OutputDir, written, from.what)
			}
		}
	}
	return nil
}

// findModel handles a model path that is the output_dir of an unfinished run: it has checkpoints but no final model.
// If the caller has set Asks.OrCheckpoint, findModel takes the newest checkpoint. Otherwise it returns an error that
// names that checkpoint.
func (p *opening) findModel() error {
	if p.Config.Model.Path == "" {
		return nil
	}
	dir, err := config.ModelDir(p.Config.Model.Path)
	if err != nil {
		return nil // openModel reports it
	}
	newest, note, err := NewestModel(dir)
	switch {
	case err != nil || newest == dir:
		return err
	case !p.a.OrCheckpoint:
		return p.Config.Errorf("model_name_or_path", "%s; give that directory, or finish the run first", note)
	}
	p.note("%s, which is taken", note)
	p.Config.Model.Path = newest
	return nil
}

// NewestModel returns the model directory that dir stands for: dir itself, or the newest checkpoint of an unfinished
// run, with a note that names the checkpoint.
func NewestModel(dir string) (model, note string, err error) {
	if _, err := os.Stat(filepath.Join(dir, "config.json")); !errors.Is(err, fs.ErrNotExist) {
		return dir, "", nil // reading it reports what is wrong
	}
	newest, state, err := checkpoint.Newest(dir)
	if err != nil || newest == "" {
		return dir, "", err
	}
	return newest, fmt.Sprintf("%s holds no model yet; its newest checkpoint is %s, of step %d", dir, newest, state.Step), nil
}

// ConfigHeader is the first line of the config.yaml that a run writes in its output directory and in every checkpoint.
// The line marks the directory as one that mt may overwrite (docs/decisions/2026-11-whose-directory.md).
const ConfigHeader = "The configuration of this run, every auto resolved."

// checkOwner returns an error if no run of mt has written to output_dir and this run would overwrite or remove
// something there.
func (p *opening) checkOwner() error {
	dir := p.Config.OutputDir
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		return nil // nothing exists yet
	case err != nil:
		return p.Config.Errorf("output_dir", "output_dir: %w", err)
	case p.Config.OverwriteOutputDir || isRun(dir, entries):
		return nil
	}
	copied, err := p.copiedNames()
	if err != nil {
		return err
	}
	for _, e := range entries {
		written := slices.ContainsFunc(copied, func(name string) bool { return name == e.Name() || filepath.Dir(name) == e.Name() })
		if !isEmpty(dir, e) && (inTheWay(e) || written) {
			return p.Config.Errorf("output_dir", "output_dir %s holds %s, which no run of mt made and this one would replace or remove; "+
				"choose another output_dir, or set overwrite_output_dir: true", dir, e.Name())
		}
	}
	return nil
}

// isRun reports whether a run of any version of mt has written to dir. The directory then has a file with ConfigHeader,
// or one of mt's checkpoints.
func isRun(dir string, entries []fs.DirEntry) bool {
	if hasMark(dir, settings.ConfigFile) || hasMark(dir, settings.ConfigFile+checkpoint.WholeTemp) { // a run killed at its very start leaves the second
		return true
	}
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		at := filepath.Join(dir, e.Name())
		return checkpoint.IsCheckpoint(e) && (hasMark(at, settings.ConfigFile) || checkpoint.HasManifest(at))
	})
}

func hasMark(dir, name string) bool {
	begin, err := files.Begin(filepath.Join(dir, name), len("# "+ConfigHeader))
	return err == nil && bytes.Equal(begin, []byte("# "+ConfigHeader))
}

// inTheWay reports whether a run would replace or remove a file with the name of e.
func inTheWay(e fs.DirEntry) bool {
	switch name := strings.TrimSuffix(e.Name(), checkpoint.WholeTemp); name {
	case settings.ConfigFile, settings.MetricsFile, settings.EndFile, settings.AlgorithmsFile, settings.CurveFile, settings.SamplesFile, settings.BoardsFile, settings.AverageDir, "config.json":
		return true
	}
	return checkpoint.IsWeights(e.Name()) || checkpoint.IsCheckpoint(e)
}

// copiedNames returns the names, or patterns of names, of the files that a run writes beside its model. They come from
// the model's directory, or are the byte tokenizer's.
func (p *opening) copiedNames() ([]string, error) {
	if p.ModelDir != "" {
		names, err := checkpoint.CompanionNames(p.ModelDir)
		return append(names, "chat_template.jinja", "additional_chat_templates/*.jinja"), err
	}
	var names []string
	if p.Tokenizer != nil {
		for name := range p.Tokenizer.Files() {
			names = append(names, name)
		}
	}
	return names, nil
}

// checkCopied returns an error if a file of the model's directory cannot be copied beside saved models. It runs
// before any slow work.
func (p *opening) checkCopied() error {
	if p.ModelDir == "" {
		return nil
	}
	if err := checkpoint.CheckLink(filepath.Join(p.ModelDir, "config.json")); err != nil {
		return err
	}
	_, err := checkpoint.CompanionNames(p.ModelDir)
	return err
}

// isEmpty reports whether e, an entry of dir, is an empty file or an empty directory.
func isEmpty(dir string, e fs.DirEntry) bool {
	if e.IsDir() {
		below, err := os.ReadDir(filepath.Join(dir, e.Name()))
		return err == nil && len(below) == 0
	}
	info, err := e.Info()
	return err == nil && e.Type().IsRegular() && info.Size() == 0
}
