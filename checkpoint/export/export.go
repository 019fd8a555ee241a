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

// Format is an output format.
type Format string

// The supported output formats.
const (
	GGUF        Format = "gguf"
	Safetensors Format = "safetensors"
)

// Type is the type that matrices are stored in, with llama.cpp's names.
type Type string

// The supported types. Only GGUF has Q8.
const (
	F32  Type = "f32"
	F16  Type = "f16"
	BF16 Type = "bf16"
	Q8   Type = "q8_0"
)

// Types lists the types that the format supports.
func (f Format) Types() []Type {
	if f == GGUF {
		return []Type{F32, F16, BF16, Q8}
	}
	return []Type{F32, BF16}
}

// Options controls Run.
type Options struct {
	Format Format
	Model  string // a model directory
	Out    string // a file for GGUF, a directory for safetensors
	// Type is the type of the matrices. "": for GGUF, bf16 if the weights are bf16, otherwise f16; for safetensors,
	// each tensor keeps its type.
	Type          Type
	MaxShardBytes int64 // of safetensors; 0: 5 GB
	Overwrite     bool  // replace an existing output
	// Progress is called with the bytes written and the bytes in total; may be nil.
	Progress func(done, total int64)

	fs checkpoint.FS // nil: the operating system's
}

// Summary describes the output of Run.
type Summary struct {
	Format       Format         `json:"format"`
	Architecture string         `json:"architecture,omitempty"` // llama.cpp's name
	Out          string         `json:"out"`
	Files        []string       `json:"files"` // names of the files with weights
	Tensors      int            `json:"tensors"`
	Bytes        int64          `json:"bytes"`           // of these files
	Types        map[string]int `json:"types,omitempty"` // number of tensors by type
	Notes        []string       `json:"notes,omitempty"` // what the user should know
}

// ErrExists is wrapped by the error for an output that already exists.
var ErrExists = errors.New("exists")

// Run writes a model directory in another form. If ctx is cancelled, Run returns its cause. After any error no
// output is left.
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

// checkOut returns an error if the output is not writable or would overwrite something.
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

// gguf returns the type's number in GGUF.
func (t Type) gguf() gguf.Type {
	return map[Type]gguf.Type{F32: gguf.F32, F16: gguf.F16, BF16: gguf.BF16, Q8: gguf.Q8_0}[t]
}
