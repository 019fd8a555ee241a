package export

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"mt/base/human"
	"mt/checkpoint"
	"mt/model"
)

// dtypes are the types that safetensors can be written in. name is the type's name in config.json,
// and d its name in package checkpoint.
var dtypes = map[Type]struct {
	name string
	d    checkpoint.DType
}{F32: {"float32", checkpoint.F32}, BF16: {"bfloat16", checkpoint.BF16}}

// toSafetensors writes a copy of the model directory, with its weights in new shards.
func toSafetensors(ctx context.Context, o Options, fs checkpoint.FS) (Summary, error) {
	w, err := checkpoint.OpenWeights(o.Model)
	if err != nil {
		return Summary{}, err
	}
	defer w.Close()
	files, keep, err := companions(o)
	if err != nil {
		return Summary{}, err
	}
	if err := checkpoint.Sweep(fs, o.Out); err != nil {
		return Summary{}, err
	}
	if err := room(fs, o.Out, size(w, o.Type)+filesSize(files)); err != nil {
		return Summary{}, err
	}
	done, err := checkpoint.CopyModel(ctx, o.Out, w, checkpoint.CopyOptions{DType: dtypes[o.Type].d, F32: keep, MaxShardBytes: o.MaxShardBytes, Files: files, FS: fs,
		Progress: o.Progress})
	if err != nil {
		return Summary{}, err
	}
	return Summary{Format: Safetensors, Out: o.Out, Files: done.Files, Tensors: done.Tensors, Bytes: done.Bytes}, nil
}

// companions returns files, the files to write beside the weights, and keep, the tensors that stay fp32 whatever
// o.Type is. If o.Type sets another dtype, config.json names that dtype; all else is copied unchanged.
func companions(o Options) (files map[string][]byte, keep map[string]bool, err error) {
	files, err = checkpoint.Companions(o.Model)
	config := filepath.Join(o.Model, "config.json")
	if err == nil {
		err = checkpoint.CheckLink(config)
	}
	if err != nil {
		return nil, nil, err
	}
	if o.Type == "" {
		files["config.json"], err = checkpoint.ReadCompanion(config)
		return files, nil, err
	}
	c, err := model.LoadDir(o.Model)
	if err != nil {
		return nil, nil, err
	}
	if c.Quantized != nil {
		return nil, nil, fmt.Errorf("%s: weights are quantized, and safetensors are written tensor by tensor as they are; leave --outtype out, or write GGUF", config)
	}
	files["config.json"] = c.JSON(dtypes[o.Type].name)
	return files, savedF32(c), nil
}

// savedF32 returns the names of the tensors that are saved in fp32 whatever type is requested.
func savedF32(c *model.Config) map[string]bool {
	keep := map[string]bool{}
	for _, l := range c.Layers() {
		for _, p := range l.Params {
			for _, t := range p.Stored {
				if p.SavedF32 {
					keep[t.Name] = true
				}
			}
		}
	}
	return keep
}

// size estimates the bytes of the weights of w if they are written in type t.
func size(w *checkpoint.Weights, t Type) int64 {
	var n int64
	for _, x := range w.Tensors() {
		switch t {
		case F32:
			n += 4 * x.Elems()
		case BF16:
			n += 2 * x.Elems()
		default:
			n += x.Bytes
		}
	}
	return n
}

func filesSize(files map[string][]byte) int64 {
	var n int64
	for content := range maps.Values(files) {
		n += int64(len(content))
	}
	return n
}

// room returns an error if path has less free space than need, in bytes.
func room(fs checkpoint.FS, path string, need int64) error {
	dir := path
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	free, err := fs.Free(dir)
	if err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	if need > free {
		return fmt.Errorf("%s has %s free and the output takes %s: free some, choose another place or a smaller type", dir,
			human.Bytes(free), human.Bytes(need))
	}
	return nil
}
