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

// recorder is a device that can tell how it computed matrix products.
type recorder interface{ Algorithms() []cuda.Algorithm }

// readAlgorithms reads what a run that is resumed has recorded so far.
func (s *session) readAlgorithms() error {
	s.products = map[string][8]uint64{}
	if _, ok := s.dev.(recorder); !ok || s.resumed == 0 {
		return nil
	}
	name := filepath.Join(s.c.OutputDir, algorithmsFile)
	raw, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var before map[string][8]uint64
	if err := json.Unmarshal(raw, &before); err != nil {
		return fmt.Errorf("%s: %w; remove it", name, err)
	}
	maps.Copy(s.products, before)
	return nil
}

// recordAlgorithms adds the matrix products of this process to algorithmsFile, if the
// device records them. It says which products a resumed run computes in another way
// than before, since its bits may then differ.
func (s *session) recordAlgorithms() error {
	d, ok := s.dev.(recorder)
	if !ok {
		return nil
	}
	for _, a := range d.Algorithms() {
		if before, ok := s.products[a.Shape]; ok && before != a.Words {
			s.line.above(fmt.Sprintf("note: the matrix product %s is computed in another way than before this run was resumed: results may differ in the last bits", a.Shape))
		}
		s.products[a.Shape] = a.Words
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
