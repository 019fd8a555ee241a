package machine

import (
	"fmt"
	"io"
	"strings"

	"mt/cudart"
	"mt/device"
	"mt/internal/run/config"
)

// CUDA describes what a run with the key device: cuda finds on this machine.
type CUDA struct {
	Device    string                `json:"device,omitempty"` // the GPU's name, if it is usable
	Memory    config.Bytes          `json:"memory_bytes,omitempty"`
	SM90a     bool                  `json:"sm90a,omitempty"`   // it runs the kernels for sm_90a
	Problem   string                `json:"problem,omitempty"` // why it is not usable
	State     *GPUState             `json:"state,omitempty"`
	Notes     []string              `json:"notes,omitempty"`
	Emulated  bool                  `json:"emulated,omitempty"`
	Libraries []cudart.FoundLibrary `json:"libraries,omitempty"`

	found cudart.Found
}

// triedProduct is the number of rows and columns of the matrices that FindCUDA multiplies as a test.
const triedProduct = 64

// FindCUDA opens the first GPU, reads its state, tries matrix products on it and closes it.
func FindCUDA() CUDA {
	g := FindGPU(nil)
	out := CUDA{Emulated: Emulated(), Libraries: g.found.Libraries, found: g.found}
	dev, err := g.Open(First, 0)
	if err != nil {
		out.Problem = err.Error()
		return out
	}
	out.Device, out.Memory = dev.Name(), config.Bytes(dev.Usage().Limit)
	if c, err := cudart.New(g.symbols); err == nil {
		out.State = gpuState(c, First)
	}
	if _, err := MatMulRate(dev, device.BF16, triedProduct); err != nil { // the device notes products that cuBLASLt refuses
		out.Problem = err.Error()
	}
	if d, ok := dev.(gpuDevice); ok {
		out.Notes, out.SM90a = d.Notes(), d.RunsSM90a()
	}
	if err := dev.Close(); err != nil {
		out.Problem = err.Error()
	}
	return out
}

// String describes c in one line. WriteLibraries has details about missing libraries.
func (c CUDA) String() string {
	var missing []string
	for _, l := range c.Libraries {
		switch {
		case !l.Required || l.Path != "":
		case l.Library == cudart.Driver:
			missing = append(missing, "NVIDIA driver ("+l.Library.File()+")")
		default:
			missing = append(missing, l.Library.File())
		}
	}
	switch {
	case len(missing) > 0:
		return "not usable: no " + strings.Join(missing, ", no ")
	case c.Problem != "":
		return "not usable: " + c.Problem
	case c.Emulated:
		return fmt.Sprintf("%s (in this build device: cuda is an emulator)", c.Device)
	case c.SM90a:
		return fmt.Sprintf("%s, %s to use; attention by the kernels for sm_90a", c.Device, c.Memory)
	}
	return fmt.Sprintf("%s, %s to use; attention by the kernels for all GPUs", c.Device, c.Memory)
}

// WriteLibraries prints the paths of CUDA's libraries. For a missing library it prints where it looked and how to get
// the library.
func (c CUDA) WriteLibraries(w io.Writer) error {
	if len(c.found.Libraries) == 0 {
		return nil
	}
	_, err := fmt.Fprint(w, c.found)
	return err
}
