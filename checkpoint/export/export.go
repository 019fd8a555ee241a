package export

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"mt/base/files"
	"mt/checkpoint"
	"mt/checkpoint/gguf"
)

// Format is a form of output.
type Format string

// The formats there are.
const (
	GGUF        Format = "gguf"
	Safetensors Format = "safetensors"
)

// Type is what matrices are stored as, in llama.cpp's words.
type Type string

// The types there are; a Q8 has GGUF alone.
const (
	F32  Type = "f32"
	F16  Type = "f16"
	BF16 Type = "bf16"
	Q8   Type = "q8_0"
)

// Types lists the types that a format has.
func (f Format) Types() []Type {
	if f == GGUF {
		return []Type{F32, F16, BF16, Q8}
	}
	return []Type{F32, BF16}
}

// Options says what Run does.
type Options struct {
	Format Format
	Model  string // a model directory
	Out    string // the file of GGUF, the directory of safetensors
	// Type of the matrices. Empty: with GGUF bf16 where the weights are, else f16;
	// with safetensors each tensor as it is.
	Type          Type
	MaxShardBytes int64 // of safetensors; 5 GB unless given
	Overwrite     bool  // take the place of what is there
	// Progress is told how many of total bytes are written; may be nil.
	Progress func(done, total int64)

	fs checkpoint.FS // the operating system's unless a test gives another
}

// Summary is what Run wrote.
type Summary struct {
	Format       Format         `json:"format"`
	Architecture string         `json:"architecture,omitempty"` // llama.cpp's name
	Out          string         `json:"out"`
	Files        []string       `json:"files"` // with weights
	Tensors      int            `json:"tensors"`
	Bytes        int64          `json:"bytes"`           // of those files
	Types        map[string]int `json:"types,omitempty"` // tensors by type
	Notes        []string       `json:"notes,omitempty"` // what the user should know
}

// ErrExists is part of the error where the output is there already.
var ErrExists = errors.New("exists")

// Run writes a model directory in another form. Closing ctx ends it, with the
// cause; whatever ends it early, nothing is left of the output.
func Run(ctx context.Context, o Options) (Summary, error) {
	if o.fs == nil {
		o.fs = checkpoint.OS()
	}
	if err := o.checkOut(); err != nil {
		return Summary{}, err
	}
	run := toSafetensors
	if o.Format == GGUF {
		run = toGGUF
	}
	s, err := run(ctx, o, o.fs)
	if err != nil {
		return Summary{}, fmt.Errorf("export: %w", err)
	}
	return s, nil
}

// checkOut refuses an output that would overwrite something.
func (o Options) checkOut() error {
	st, err := os.Stat(o.Out)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if o.Format == GGUF {
			return o.checkParent()
		}
		return nil
	case err != nil:
		return err
	case o.Format == GGUF && st.IsDir():
		return fmt.Errorf("%s is a directory; give the name of the file, such as %s", o.Out, filepath.Join(o.Out, "model.gguf"))
	case !st.IsDir() && !st.Mode().IsRegular():
		return fmt.Errorf("%s is a device, a pipe or a socket, which is not replaced; give another name", o.Out)
	case o.Format == Safetensors && !st.IsDir():
		return fmt.Errorf("%s is a file; give a directory", o.Out)
	}
	switch {
	case o.Format == Safetensors && files.Same(o.Out, o.Model):
		return fmt.Errorf("%s is the model itself; choose another directory", o.Out)
	case o.Format == GGUF && files.Same(filepath.Dir(o.Out), o.Model) && !strings.EqualFold(filepath.Ext(o.Out), ".gguf"):
		return fmt.Errorf("%s is a file of the model; choose another name", o.Out)
	}
	if o.Format == Safetensors {
		entries, err := os.ReadDir(o.Out)
		if err != nil || !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return !checkpoint.IsLeftover(e) }) {
			return err
		}
	}
	if !o.Overwrite {
		return fmt.Errorf("%s %w; choose another name, or overwrite it with --overwrite", o.Out, ErrExists)
	}
	return nil
}

func (o Options) checkParent() error {
	dir := filepath.Dir(o.Out)
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("%s: no such directory; make it first", dir)
	}
	return nil
}

// gguf is the type's number in the file.
func (t Type) gguf() gguf.Type {
	return map[Type]gguf.Type{F32: gguf.F32, F16: gguf.F16, BF16: gguf.BF16, Q8: gguf.Q8_0}[t]
}
