package train

import (
	"fmt"
	"slices"

	"mt/checkpoint"
	"mt/host/extents"
	"mt/plan"
)

// This file decides whether checkpoints link the states that are in state_dir, or copy them.

// whyCopied says why checkpoints copy states, if that follows from the configuration; empty: it does not.
func (j *Output) whyCopied() string {
	switch o := j.writerOptions(0); {
	case j.team.Size() > 1 || j.hosts > 1:
		return "several ranks have parts of each"
	case len(j.c.StateDir) > 1:
		return "they are striped over several directories"
	case j.c.Compress != "none":
		return "compress has them in fewer bytes on the disk"
	case j.c.OptimizerZstd:
		return "optimizer_zstd compresses what is saved"
	case !o.CanLink():
		return "with save_dtype " + j.c.SaveDType + " no lower halves are saved, which are among them"
	}
	return ""
}

// mayLink says whether checkpoints link states unless files say otherwise, which is known when they are there.
func (j *Output) mayLink() bool {
	return j.plan.Away != nil && sameDisk(j.c.StateDir[0], j.c.OutputDir) && j.c.SaveStrategy != "no" && !j.c.SaveOnlyModel && j.whyCopied() == ""
}

// linkable has each state of r in a file that can be linked.
func (j *Output) linkable(o *extents.Options, r *plan.Run) {
	w := j.writerOptions(0)
	for l := range r.Layouts {
		var head []byte
		if r.Away[l] {
			head = w.Head(l)
		}
		o.Heads = append(o.Heads, head)
	}
	o.Apart = func(path string) (why string, err error) { return checkpoint.TryLink(j.fs(), j.c.OutputDir, path) }
}

// useLinks has checkpoints link the states in e, or says why they cannot; why is what is known of that already.
func (j *Output) useLinks(e *extents.Files, why string) {
	apart, not := e.IsApart()
	if apart {
		j.links = e
		return
	}
	if why == "" {
		why = not
	}
	j.late.add(fmt.Sprintf("checkpoints copy the states in state_dir, because %s: docs/disks.md says when they link them", why))
}

// linked says, by layer, whether checkpoints link its state; nil: they copy them all.
func (j *Output) linked() []bool {
	if j.links == nil {
		return nil
	}
	return j.plan.Away
}

// table is what a checkpoint says of which layer is on which device: nothing where devices are
// alike, since no bit depends on it then and the files are those of any number of devices.
func (j *Output) table() []int {
	if j.differ || slices.Equal(j.plan.Lane, j.began) {
		return j.plan.Lane
	}
	return nil
}
