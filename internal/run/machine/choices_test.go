package machine

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"mt/cudart"
	"mt/device/cuda"
	"mt/internal/testkit"
)

// TestTimedFiles: algorithms that Keep writes are loaded again, but only for the same platform. A
// file that cannot be read is ignored with a note.
func TestTimedFiles(t *testing.T) {
	files := timedFiles{filepath.Join(t.TempDir(), "made", "when needed")}
	p := cuda.Platform{Device: "GPU X-1", Driver: 12, CuBLASLt: 13}
	if kept, note := files.Load(p); len(kept) > 0 || note != "" {
		t.Errorf("from no file: %v, %q", kept, note)
	}
	for i, shape := range []string{"a", "b"} {
		testkit.NoError(t, files.Keep(p, shape, [8]uint64{uint64(i)}))
	}
	want := map[string][8]uint64{"a": {0}, "b": {1}}
	if kept, note := files.Load(p); !reflect.DeepEqual(kept, want) || note != "" {
		t.Errorf("kept %v, %q", kept, note)
	}
	name := filepath.Join(files.dir, "gpu-x-1-driver-12-cublaslt-13.json")
	text, err := os.ReadFile(name)
	if err != nil || !strings.Contains(string(text), "\n \"shapes\": {") {
		t.Errorf("%s, %v", text, err)
	}
	other := p
	other.Driver = 11
	testkit.NoError(t, os.Rename(name, files.path(other)))
	if kept, note := files.Load(other); kept != nil || !strings.Contains(note, "is of GPU X-1, driver 12, cuBLASLt 13: the file is passed over") {
		t.Errorf("%v, %q", kept, note)
	}
	testkit.NoError(t, os.MkdirAll(files.path(p), 0o755))
	if err := files.Keep(p, "a", [8]uint64{}); err == nil {
		t.Error("a folder is replaced by a file")
	}
	if left, err := filepath.Glob(filepath.Join(files.dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

// TestWhatIsFound: the line about a GPU says why it cannot be used, or what it is.
func TestWhatIsFound(t *testing.T) {
	for want, c := range map[string]CUDA{
		"not usable: no driver answers":                                {Problem: "no driver answers", Device: "X"},
		"X (in this build device: cuda is an emulator)":                {Device: "X", Emulated: true, SM90a: true},
		"X, 8.0 GiB to use; attention by the kernels for sm_90a":       {Device: "X", Memory: 8 << 30, SM90a: true},
		"X, 8.0 GiB to use; attention by the kernels for all GPUs":     {Device: "X", Memory: 8 << 30},
		"not usable: no NVIDIA driver (libcuda.so), no libcublasLt.so": {Device: "X", Libraries: []cudart.FoundLibrary{{Library: cudart.Driver, Required: true}, {Library: cudart.BlasLt, Required: true}}},
	} {
		if got := c.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
