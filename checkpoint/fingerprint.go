package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
)

// sampled is how many bytes Fingerprint reads at either end of a tensor.
const sampled = 4 << 10

// Fingerprint tells models apart without reading all of them: it is a digest of the names, types and shapes of the tensors in
// the model directory dir, and of the first and last 4 KiB of each. Whatever trains a tensor changes some of these.
func Fingerprint(dir string) (string, error) {
	s, err := openSource(dir)
	if err != nil {
		return "", fmt.Errorf("model weights: %w", err)
	}
	defer s.Close()
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(s.where)) {
		sh := s.where[name]
		t := sh.tensors[name]
		fmt.Fprintf(h, "%q %s %d\n", name, t.dtype, t.shape)
		n := min(t.bytes, sampled)
		for _, at := range []int64{t.off, t.off + t.bytes - n} {
			if _, err := io.Copy(h, io.NewSectionReader(sh.file, at, n)); err != nil {
				return "", fmt.Errorf("model weights: %s: %w", sh.path, err)
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
