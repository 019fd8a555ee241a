package save

import (
	"errors"
	"fmt"
	"path/filepath"

	"mt/checkpoint"
	"mt/host"
	"mt/host/extents"
	"mt/plan"
)

// This file opens the files in state_dir and param_dir.

// File names per rank in each directory: the first two in state_dir, the last in param_dir.
const (
	stateFile = "mt-state-%d.bin"
	gradFile  = "mt-grads-%d.bin"
	paramFile = "mt-params-%d.bin"
)

// OpenTier creates the files in state_dir and param_dir for the data that the plan r keeps on disks. saves says that
// the run saves checkpoints, which may hard-link these files. OpenTier passes closing the functions that remove the
// files. links has the files that checkpoints link; nil means that checkpoints copy states.
func (out *Output) OpenTier(r *plan.Run, saves bool, closing func(end func() error)) (_ host.Tier, links *extents.Files, err error) {
	f := &tierFiles{out, r, closing}
	if saves { // a trial has no files of the run
		if err := f.sweepUnused(); err != nil {
			return host.Tier{}, nil, err
		}
	}
	if r.StateOnDisk == nil {
		return host.Tier{}, nil, nil
	}
	tier := host.Tier{StateOnDisk: r.StateOnDisk, Slots: r.Depths.StateSlots, TileOnDisk: r.WeightsOnDisk}
	saves = saves && out.Config.SaveStrategy != "no" && !out.Config.SaveOnlyModel
	if tier.Extents, links, err = f.openStates(saves); err == nil && r.GradOnDisk != nil {
		for l := range r.Layouts {
			tier.Grads = append(tier.Grads, r.GradExtentBytes(l))
		}
		tier.GradExtents, err = f.openExtents(gradFile, "the gradient of layer ", r.GradExtentBytes, nothingMore)
	}
	if err == nil && r.WeightsOnDisk != nil {
		tier.TileExtents, err = f.openExtents(paramFile, "the weights of layer ", r.ParamBytes, nothingMore)
	}
	return tier, links, err
}

// tierFiles opens the files in state_dir and param_dir that the plan r needs.
type tierFiles struct {
	*Output
	r       *plan.Run
	closing func(end func() error)
}

// openStates creates the files for states. saves says that the run saves checkpoints. links has the files that
// checkpoints hard-link; nil if checkpoints copy states.
func (f *tierFiles) openStates(saves bool) (e, links *extents.Files, err error) {
	r := f.r
	why, size := (&Content{Output: f.Output}).whyCopied(), func(l int) int64 {
		if !r.StateOnDisk[l] {
			return 0
		}
		return r.ExtentBytes(l)
	}
	e, err = f.openExtents(stateFile, "the state of layer ", size, func(o *extents.Options) {
		if saves && why == "" {
			f.linkable(o)
		}
	})
	if err == nil && saves {
		links = f.useLinks(e, why)
	}
	return e, links, err
}

// linkable sets the options o so that each layer's state has a file of its own, which checkpoints can hard-link.
func (f *tierFiles) linkable(o *extents.Options) {
	w, r := (&Content{Output: f.Output}).writerOptions(0), f.r
	for l := range r.Layouts {
		var head []byte
		if r.StateOnDisk[l] {
			head = w.Head(l)
		}
		o.Heads = append(o.Heads, head)
	}
	o.Apart = func(path string) (why string, err error) {
		return checkpoint.TryLink(f.FS(), f.Config.OutputDir, path)
	}
}

// useLinks returns e if the file system lets checkpoints hard-link its files. Otherwise it returns nil and adds a note
// with the reason. `why` is a reason in the configuration that is already known; "" means none.
func (f *tierFiles) useLinks(e *extents.Files, why string) *extents.Files {
	apart, not := e.IsApart()
	if apart {
		return e
	}
	if why == "" {
		why = not
	}
	f.DeferredNotes.Add(fmt.Sprintf("checkpoints copy the states in state_dir, because %s: docs/disks.md says when they link them", why))
	return nil
}

// nothingMore is the last argument of openExtents for files that need no further options.
func nothingMore(*extents.Options) {}

// openExtents creates files with one extent (a range of bytes) for each layer. file is the pattern of their names, and
// size returns an extent's size. Errors name an extent by the text `what` and the layer's number. asks sets further
// options.
func (f *tierFiles) openExtents(file, what string, size func(layer int) int64, asks func(*extents.Options)) (*extents.Files, error) {
	key := keyOf(file)
	o, err := f.extents(file)
	if err != nil {
		return nil, err
	}
	asks(&o)
	for _, dir := range o.Dirs {
		if err := checkpoint.MakeDirs(f.FS(), dir); err != nil {
			return nil, f.Config.Errorf(key, "%s: %w", key, err)
		}
	}
	for l := range f.r.Layouts {
		o.Bytes, o.Names = append(o.Bytes, size(l)), append(o.Names, what+fmt.Sprint(l))
	}
	e, err := extents.Open(o)
	if err != nil {
		return nil, f.Config.Errorf(key, "%s: %w", key, err)
	}
	for _, note := range e.Notes() {
		f.DeferredNotes.Add(note)
	}
	f.closing(e.Close)
	return e, nil
}

// keyOf returns the configuration key that names the directory of the files with the name pattern file: state_dir or
// param_dir.
func keyOf(file string) string {
	if file == paramFile {
		return "param_dir"
	}
	return "state_dir"
}

// extents returns the options for the files of this rank with the name pattern file.
func (f *tierFiles) extents(file string) (o extents.Options, err error) {
	o = extents.Options{Dirs: f.Config.StateDir, Name: fmt.Sprintf(file, f.Ranks.Rank())}
	if file == paramFile {
		o.Dirs, o.Chunk = f.Config.ParamDir, f.r.ChunkBytes()
	}
	if o.Compress = file != gradFile && f.Config.Compress == "byteplane"; o.Compress {
		o.Chunk = f.r.ChunkBytes() // the plan has memory for chunks of this size
	}
	if o.Run, err = filepath.Abs(f.Config.OutputDir); err != nil {
		return o, f.Config.Errorf("output_dir", "output_dir: %w", err)
	}
	return o, nil
}

// SweepStates removes state files that an earlier process of the run has left, because it was killed at its very end.
func (out *Output) SweepStates() error {
	f := &tierFiles{Output: out, r: out.Plan}
	for _, file := range []string{stateFile, gradFile, paramFile} {
		if err := f.sweepFiles(file); err != nil {
			return err
		}
	}
	return nil
}

// sweepUnused removes files in state_dir and param_dir that a killed process left and that the current plan does not
// use.
func (f *tierFiles) sweepUnused() error {
	for _, left := range []struct {
		file   string
		unused bool
	}{{stateFile, f.r.StateOnDisk == nil}, {gradFile, f.r.GradOnDisk == nil}, {paramFile, f.r.WeightsOnDisk == nil}} {
		if !left.unused {
			continue
		}
		if err := f.sweepFiles(left.file); err != nil {
			return err
		}
	}
	return nil
}

// sweepFiles removes this rank's files with the name pattern file that an earlier process has left.
func (f *tierFiles) sweepFiles(file string) error {
	o, err := f.extents(file)
	if err != nil {
		return err
	}
	if err := o.Sweep(); err != nil {
		key := keyOf(file)
		return f.Config.Errorf(key, "%s: %w", key, err)
	}
	return nil
}

// DamagedState adds advice to err if the run ended because data in state_dir or param_dir was damaged. It returns
// other errors as they are.
func DamagedState(err error) error {
	var bad *extents.Damaged
	if !errors.As(err, &bad) {
		return err
	}
	return fmt.Errorf("%w; run the same command again to go on from the last checkpoint, with another state_dir or param_dir if it happens again", err)
}
