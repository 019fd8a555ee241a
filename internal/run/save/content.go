package save

import (
	"maps"

	"mt/checkpoint"
	"mt/data/jinja"
	"mt/host/extents"
	"mt/internal/run/resolve"
)

// Content is what checkpoints and models contain.
type Content struct {
	*Output
	beside map[string][]byte // files beside the weights
	links  *extents.Files    // files of states on disk that checkpoints hard-link; nil: checkpoints copy the states
}

// contentWith returns the content that checkpoints and models get. links has the state files on disk that checkpoints
// hard-link; nil means that checkpoints copy the states.
func (out *Output) contentWith(links *extents.Files) (*Content, error) {
	beside, err := companions(out.Resolved)
	return &Content{out, beside, links}, err
}

// writerOptions returns the options with which package checkpoint writes the checkpoint after step.
func (c *Content) writerOptions(step int) checkpoint.WriterOptions {
	var extra int64
	for _, data := range c.beside {
		extra += int64(len(data))
	}
	dtype := checkpoint.DType(c.Config.SaveDType)
	if dtype == checkpoint.AsRead {
		dtype = checkpoint.BF16 // with lower halves, so that a resume is exact
	}
	return checkpoint.WriterOptions{Step: step, Extra: extra, Config: c.Model, Layouts: c.Plan.Layouts, Planes: c.Plan.Planes, SaveDType: dtype, Zstd: c.Config.OptimizerZstd,
		ModelOnly: c.Config.SaveOnlyModel, Linked: c.linked(),
		FS: c.FS(), Source: c.Source}
}

// modelOptions returns the options with which package checkpoint writes the finished model, whose weights are those
// after step.
func (c *Content) modelOptions(step int) checkpoint.WriterOptions {
	o := c.writerOptions(step)
	o.SaveDType = checkpoint.DType(c.Config.SaveDType)
	return o
}

// companions returns the files to save beside weights:
//   - the tokenizer's and generation's files from the model's directory, or the byte tokenizer's
//   - the tokenizer's files with added tokens
//   - the chat templates that the data used, in place of the model's
func companions(o *resolve.Resolved) (_ map[string][]byte, err error) {
	out := map[string][]byte{}
	if o.ModelDir != "" {
		if out, err = checkpoint.Companions(o.ModelDir); err != nil {
			return nil, err
		}
	}
	if o.ModelDir == "" && o.Tokenizer != nil {
		maps.Copy(out, o.Tokenizer.Files())
	}
	maps.Copy(out, o.Opened.Files)
	if o.Data != nil {
		if chat := o.Data.ChatTemplates(); chat != nil {
			maps.DeleteFunc(out, func(name string, _ []byte) bool { return jinja.IsFile(name) })
			for name, text := range chat {
				out[name] = []byte(text)
			}
		}
	}
	return out, nil
}

// whyCopied returns the reason in the configuration why checkpoints copy states instead of hard-linking their files;
// "": there is none.
func (c *Content) whyCopied() string {
	switch o := c.writerOptions(0); {
	case c.Ranks.Size() > 1 || c.Hosts > 1:
		return "several ranks have parts of each"
	case len(c.Config.StateDir) > 1:
		return "they are striped over several directories"
	case c.Config.Compress != "none":
		return "compress has them in fewer bytes on the disk"
	case c.Config.OptimizerZstd:
		return "optimizer_zstd compresses what is saved"
	case !o.CanLink():
		return "with save_dtype " + c.Config.SaveDType + " no lower halves are saved, which are among them"
	}
	return ""
}

// mayLink reports whether the configuration lets checkpoints hard-link the state files. The file system may still
// prevent it.
func (c *Content) mayLink() bool {
	return c.Plan.StateOnDisk != nil && sameDisk(c.Config.StateDir[0], c.Config.OutputDir) && c.Config.SaveStrategy != "no" && !c.Config.SaveOnlyModel && c.whyCopied() == ""
}

// linked returns by layer whether checkpoints hard-link the file of its state. nil means that checkpoints copy all
// states.
func (c *Content) linked() []bool {
	if c.links == nil {
		return nil
	}
	return c.Plan.StateOnDisk
}
