package save

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"mt/device"
	"mt/device/cuda"
	"mt/internal/run/settings"
)

// recorder is a GPU device that reports which algorithm of cuBLASLt computes each shape of matrix
// product. It can also use algorithms that an earlier run has recorded.
type recorder interface {
	Algorithms() []cuda.Algorithm
	ResumeAlgorithms(recorded map[string][8]uint64)
}

// Products tracks with which algorithms a run's devices compute matrix products. The same algorithms give the same
// bits after a resume.
type Products struct {
	devs     []device.Device
	out      *Output
	computed map[string][8]uint64 // algorithm by shape
	before   map[string][8]uint64 // algorithms before this process
}

// ResumeProducts reads the algorithms that a resumed run has recorded for its matrix products, and makes the devices
// use the same. If the output directory has no record yet, it reads the record of the run whose checkpoint is resumed.
func ResumeProducts(out *Output, devs []device.Device) (*Products, error) {
	s := &Products{devs: devs, out: out, computed: map[string][8]uint64{}}
	if _, ok := s.devs[0].(recorder); !ok || out.From.State.Step == 0 || out.From.Products {
		return s, nil
	}
	name := filepath.Join(out.Config.OutputDir, settings.AlgorithmsFile)
	raw, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		name = filepath.Join(filepath.Dir(out.From.Dir), settings.AlgorithmsFile)
		raw, err = os.ReadFile(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &s.before); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it", name, err)
	}
	maps.Copy(s.computed, s.before)
	for _, d := range s.recorders() {
		d.ResumeAlgorithms(s.before)
	}
	return s, nil
}

// recorders returns the devices whose algorithms are recorded: all devices of the same kind as the first device.
func (s *Products) recorders() (out []recorder) {
	for _, dev := range s.devs {
		if d, ok := dev.(recorder); ok && dev.Name() == s.devs[0].Name() {
			out = append(out, d)
		}
	}
	return out
}

// Record adds this process's algorithms of matrix products to AlgorithmsFile, if the device reports them. It notes
// each product that a resumed run computes with another algorithm, since bits may differ. Record runs before a
// checkpoint is committed. So a run that resumes the checkpoint repeats the algorithms, however this process ends.
func (s *Products) Record() error {
	devs := s.recorders()
	if len(devs) == 0 {
		return nil
	}
	for _, d := range devs {
		for _, a := range d.Algorithms() {
			if before, ok := s.before[a.Shape]; ok && before != a.Words {
				s.out.DeferredNotes.Add(fmt.Sprintf("the matrix product %s is computed in another way than before this run was resumed: results may differ in the last bits", a.Shape))
			}
			s.computed[a.Shape] = a.Words
		}
	}
	return s.out.WriteWhole(settings.AlgorithmsFile, algorithmsJSON(s.computed))
}

// algorithmsJSON encodes words, the algorithm of each shape of a matrix product, as a JSON object with one line per
// shape, sorted by shape.
func algorithmsJSON(words map[string][8]uint64) []byte {
	out := []byte("{")
	for i, shape := range slices.Sorted(maps.Keys(words)) {
		if i > 0 {
			out = append(out, ',')
		}
		out = fmt.Appendf(out, "\n %q: [", shape)
		for k, w := range words[shape] {
			if k > 0 {
				out = append(out, ", "...)
			}
			out = fmt.Append(out, w)
		}
		out = append(out, ']')
	}
	return append(out, "\n}\n"...)
}
