package save

import (
	"fmt"
	"slices"

	"mt/checkpoint"
	"mt/host/extents"
	"mt/plan"
)

// This file decides whether checkpoints link the states that are in state_dir, or copy them.

// whyCopied says why checkpoints copy states, if that follows from the configuration; empty: it does not.
func (out *Output) whyCopied() string {
	switch o := out.writerOptions(0); {
	case out.Team.Size() > 1 || out.Hosts > 1:
		return "several ranks have parts of each"
	case len(out.Config.StateDir) > 1:
		return "they are striped over several directories"
	case out.Config.Compress != "none":
		return "compress has them in fewer bytes on the disk"
	case out.Config.OptimizerZstd:
		return "optimizer_zstd compresses what is saved"
	case !o.CanLink():
		return "with save_dtype " + out.Config.SaveDType + " no lower halves are saved, which are among them"
	}
	return ""
}

// mayLink says whether checkpoints link states unless files say otherwise, which is known when they are there.
func (out *Output) mayLink() bool {
	return out.Plan.Away != nil && sameDisk(out.Config.StateDir[0], out.Config.OutputDir) && out.Config.SaveStrategy != "no" && !out.Config.SaveOnlyModel && out.whyCopied() == ""
}

// linkable has each state of r in a file that can be linked.
func (out *Output) linkable(o *extents.Options, r *plan.Run) {
	w := out.writerOptions(0)
	for l := range r.Layouts {
		var head []byte
		if r.Away[l] {
			head = w.Head(l)
		}
		o.Heads = append(o.Heads, head)
	}
	o.Apart = func(path string) (why string, err error) {
		return checkpoint.TryLink(out.FS(), out.Config.OutputDir, path)
	}
}

// useLinks has checkpoints link the states in e, or says why they cannot; why is what is known of that already.
func (out *Output) useLinks(e *extents.Files, why string) {
	apart, not := e.IsApart()
	if apart {
		out.Links = e
		return
	}
	if why == "" {
		why = not
	}
	out.Late.Add(fmt.Sprintf("checkpoints copy the states in state_dir, because %s: docs/disks.md says when they link them", why))
}

// linked says, by layer, whether checkpoints link its state; nil: they copy them all.
func (out *Output) linked() []bool {
	if out.Links == nil {
		return nil
	}
	return out.Plan.Away
}

// table is what a checkpoint says of which layer is on which device: nothing where devices are
// alike, since no bit depends on it then and the files are those of any number of devices.
func (out *Output) table() []int {
	if out.DevicesDiffer || slices.Equal(out.Plan.Lane, out.Began) {
		return out.Plan.Lane
	}
	return nil
}
