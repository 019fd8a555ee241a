package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"mt/device/cuda"
)

// algorithmsFile is where a run on a GPU records how its matrix products were
// computed: the same bits come from the same algorithms.
const algorithmsFile = "matmul_algorithms.json"

// recorder is a device that can tell how it computed matrix products, and compute them as recorded.
type recorder interface {
	Algorithms() []cuda.Algorithm
	ResumeAlgorithms(recorded map[string][8]uint64)
}

// resumeAlgorithms reads what a run that is resumed has recorded so far, and has its devices compute
// as before. The first run after one in another output directory reads the record there.
func (s *session) resumeAlgorithms() error {
	s.products = map[string][8]uint64{}
	if _, ok := s.devs[0].(recorder); !ok || s.from.state.Step == 0 || s.from.products {
		return nil
	}
	name := filepath.Join(s.c.OutputDir, algorithmsFile)
	raw, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		name = filepath.Join(filepath.Dir(s.from.dir), algorithmsFile)
		raw, err = os.ReadFile(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, &s.before); err != nil {
		return fmt.Errorf("%s: %w; remove it", name, err)
	}
	maps.Copy(s.products, s.before)
	for _, d := range s.recorders() {
		d.ResumeAlgorithms(s.before)
	}
	return nil
}

// recorders are the run's devices whose algorithms are recorded: those of the first one's kind.
func (s *session) recorders() (out []recorder) {
	for _, dev := range s.devs {
		if d, ok := dev.(recorder); ok && dev.Name() == s.devs[0].Name() {
			out = append(out, d)
		}
	}
	return out
}

// recordAlgorithms adds the matrix products of this process to algorithmsFile, if the
// device records them. It says which products a resumed run computes in another way
// than before, since its bits may then differ. A checkpoint comes after it, so that what goes on from
// there computes alike, however this process ends.
func (s *session) recordAlgorithms() error {
	devs := s.recorders()
	if len(devs) == 0 {
		return nil
	}
	for _, d := range devs {
		for _, a := range d.Algorithms() {
			if before, ok := s.before[a.Shape]; ok && before != a.Words {
				s.late.add(fmt.Sprintf("the matrix product %s is computed in another way than before this run was resumed: results may differ in the last bits", a.Shape))
			}
			s.products[a.Shape] = a.Words
		}
	}
	return s.writeWhole(algorithmsFile, algorithmsJSON(s.products))
}

// algorithmsJSON writes words as a JSON object with one line for each shape, sorted by
// shape.
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
