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

// This file opens the files of state_dir and param_dir.

// The names of the files in each directory of state_dir, the first two, and of param_dir, for each rank its own.
const (
	stateFile = "mt-state-%d.bin"
	gradFile  = "mt-grads-%d.bin"
	paramFile = "mt-params-%d.bin"
)

// OpenTier makes the files for what r has on disks; with saves in such a way that checkpoints can link states, where that can be. closing is told how
// to remove them. links are the files whose states checkpoints link; nil: they copy them.
func (out *Output) OpenTier(r *plan.Run, saves bool, closing func(end func() error)) (_ host.Tier, links *extents.Files, err error) {
	f := &tierFiles{out, r, closing}
	if saves { // else it is a trial, which has nothing of the run's
		if err := f.sweepUnused(); err != nil {
			return host.Tier{}, nil, err
		}
	}
	if r.Away == nil {
		return host.Tier{}, nil, nil
	}
	tier := host.Tier{Away: r.Away, Slots: r.Depths.StateSlots, Tiles: r.ParamAway}
	saves = saves && out.Config.SaveStrategy != "no" && !out.Config.SaveOnlyModel
	if tier.Extents, links, err = f.openStates(saves); err == nil && r.GradAway != nil {
		for l := range r.Layouts {
			tier.Grads = append(tier.Grads, r.GradExtentBytes(l))
		}
		tier.GradExtents, err = f.openExtents(gradFile, "the gradient of layer ", r.GradExtentBytes, nothingMore)
	}
	if err == nil && r.ParamAway != nil {
		tier.TileExtents, err = f.openExtents(paramFile, "the weights of layer ", r.ParamBytes, nothingMore)
	}
	return tier, links, err
}

// tierFiles are the files of a plan.
type tierFiles struct {
	*Output
	r       *plan.Run
	closing func(end func() error)
}

// openStates makes the files of states; saves as for OpenTier.
func (f *tierFiles) openStates(saves bool) (e, links *extents.Files, err error) {
	r := f.r
	why, size := (&Content{Output: f.Output}).whyCopied(), func(l int) int64 {
		if !r.Away[l] {
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

// linkable has each state in a file that can be linked.
func (f *tierFiles) linkable(o *extents.Options) {
	w, r := (&Content{Output: f.Output}).writerOptions(0), f.r
	for l := range r.Layouts {
		var head []byte
		if r.Away[l] {
			head = w.Head(l)
		}
		o.Heads = append(o.Heads, head)
	}
	o.Apart = func(path string) (why string, err error) {
		return checkpoint.TryLink(f.FS(), f.Config.OutputDir, path)
	}
}

// useLinks returns e where checkpoints can link its states, and otherwise nil with a note that says why they cannot; why is what is known of
// that already.
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

// nothingMore is for files that nothing else is asked of.
func nothingMore(*extents.Options) {}

// openExtents makes the files of a name, for an extent of each layer, what and its number by name; asks adds what else
// is asked of them.
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

// keyOf is the key that says where the files of a name are.
func keyOf(file string) string {
	if file == paramFile {
		return "param_dir"
	}
	return "state_dir"
}

// extents says which files those of a name are.
func (f *tierFiles) extents(file string) (o extents.Options, err error) {
	o = extents.Options{Dirs: f.Config.StateDir, Name: fmt.Sprintf(file, f.Ranks.Rank())}
	if file == paramFile {
		o.Dirs, o.Chunk = f.Config.ParamDir, f.r.ChunkBytes()
	}
	if o.Compress = file != gradFile && f.Config.Compress == "byteplane"; o.Compress {
		o.Chunk = f.r.ChunkBytes() // there is memory for some chunks
	}
	if o.Run, err = filepath.Abs(f.Config.OutputDir); err != nil {
		return o, f.Config.Errorf("output_dir", "output_dir: %w", err)
	}
	return o, nil
}

// SweepStates removes the files that the run has left when it was killed at its very end.
func (out *Output) SweepStates() error {
	f := &tierFiles{Output: out, r: out.Plan}
	for _, file := range []string{stateFile, gradFile, paramFile} {
		if err := f.sweepFiles(file); err != nil {
			return err
		}
	}
	return nil
}

// sweepUnused removes the files that the run has left when it was killed, and that it has no use for as it is planned.
func (f *tierFiles) sweepUnused() error {
	for _, left := range []struct {
		file   string
		unused bool
	}{{stateFile, f.r.Away == nil}, {gradFile, f.r.GradAway == nil}, {paramFile, f.r.ParamAway == nil}} {
		if !left.unused {
			continue
		}
		if err := f.sweepFiles(left.file); err != nil {
			return err
		}
	}
	return nil
}

// sweepFiles removes the files of a name that the run has left.
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

// DamagedState is what to tell of a run that ends because a state, a gradient or weights did not come back from their disk.
func DamagedState(err error) error {
	var bad *extents.Damaged
	if !errors.As(err, &bad) {
		return err
	}
	return fmt.Errorf("%w; run the same command again to go on from the last checkpoint, with another state_dir or param_dir if it happens again", err)
}
