package cuda

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"mt/cudart"
	"mt/device"
	"mt/device/cuda/kernels"
)

// The values of UseAttention: which kernels compute attention. Their results differ in the last
// bits. Portable runs on every GPU. SM90a runs on GPUs of compute capability 9.0 only. Fused and
// SM90aFused are the same, except that one kernel computes DQ, DK and DV in the backward, with the
// memory for partial sums that the caller gives it (op.AttentionBackward).
const (
	Portable   = "portable"
	Fused      = "fused"
	SM90a      = "sm90a"
	SM90aFused = "sm90a_fused"
)

// AttentionChoices are the values of UseAttention.
var AttentionChoices = []string{Fused, Portable, SM90a, SM90aFused}

// NeedsSums reports whether the backward of these kernels (a value of UseAttention) needs memory for partial sums.
func NeedsSums(kernels string) bool { return kernels == Fused || kernels == SM90aFused }

// IsSM90a reports whether these kernels (a value of UseAttention) are for sm_90a.
func IsSM90a(kernels string) bool { return kernels == SM90a || kernels == SM90aFused }

// capabilitySM90a is compute capability 9.0. Only GPUs of this capability run kernels for sm_90a; later GPUs do not.
const capabilitySM90a = 90

// RunsSM90a reports whether the device runs kernels for sm_90a. If so, attention uses them where they exist, unless
// UseAttention says otherwise.
func (d *dev) RunsSM90a() bool { return d.lacksSM90a() == "" }

// lacksSM90a returns the reason why the device does not run kernels for sm_90a (compute capability 9.0); "" if it does.
func (d *dev) lacksSM90a() string {
	switch {
	case d.capability != capabilitySM90a:
		return fmt.Sprintf("the %s, of compute capability %d.%d, does not run kernels for sm_90a: H100, H200 and GH200 do", d.name, d.capability/10, d.capability%10)
	case !d.cuda.HasTensorMaps():
		return "libcuda has no cuTensorMapEncodeTiled, which kernels for sm_90a need: update the driver"
	case d.driver < kernels.SM90aDriver:
		return fmt.Sprintf("the driver of the %s serves CUDA %s, whose compiler is not safe for kernels for sm_90a: update it to one for CUDA %s (550) or newer",
			d.name, cudaVersion(d.driver), cudaVersion(kernels.SM90aDriver))
	}
	return ""
}

// noteSM90a adds a note for the user if the GPU could run kernels for sm_90a, and only the driver is too old for them.
func (d *dev) noteSM90a() {
	if lacks := d.lacksSM90a(); d.capability == capabilitySM90a && lacks != "" {
		d.note(lacks + "; attention runs on the kernels for all GPUs, slower")
	}
}

// UseAttention makes attention use the kernels with a name of AttentionChoices. It returns an error
// if the device cannot run them. It must be called before the first operation.
func (d *dev) UseAttention(kernels string) error {
	switch {
	case !slices.Contains(AttentionChoices, kernels):
		return fmt.Errorf("there are no kernels %q for attention, but %s", kernels, strings.Join(AttentionChoices, ", "))
	case IsSM90a(kernels) && !d.RunsSM90a():
		return errors.New(d.lacksSM90a())
	}
	d.sm90a = IsSM90a(kernels)
	return nil
}

// SM90a reports whether attention uses kernels for sm_90a.
func (l *launcher) SM90a() bool { return l.stream.dev.sm90a }

// TensorMap returns a tensor map (CUtensorMap) of the bf16 rows in t. The GPU's copy hardware needs
// it to copy tiles of t to shared memory. See kernels.Launcher.
func (l *launcher) TensorMap(t device.Tensor, columns, rows, stride, boxRows int) kernels.TensorMap {
	d := l.stream.dev
	m, err := d.cuda.TensorMap(d.context, cudart.TensorRows{Addr: cudart.DevicePtr(t.Addr), Columns: columns, Rows: rows,
		StrideBytes: int64(stride) * device.BF16.Size(), BoxColumns: kernels.BoxColumns, BoxRows: boxRows})
	if l.err == nil {
		l.err = err
	}
	return kernels.TensorMap(m)
}

// slower identifies one note for the user: "attention with heads of dim elements runs on a slower
// kernel, because what". The device keeps the identities of its notes, so that each note appears
// once.
type slower struct {
	what kernels.Lacking
	dim  int
}

// Slower adds a note for the user that attention runs on a slower kernel than it could. Each pair
// of reason (what) and head size (dim) is noted once.
func (l *launcher) Slower(what kernels.Lacking, dim int) {
	d := l.stream.dev
	d.mu.Lock()
	told := d.slower[slower{what, dim}]
	d.slower[slower{what, dim}] = true
	d.mu.Unlock()
	if !told {
		d.note(what.Of(dim))
	}
}
