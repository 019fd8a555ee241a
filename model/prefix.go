package model

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxHeader bounds what is read to learn the tensors' names, as the safetensors
// format bounds a header.
const maxHeader = 100 << 20

// findPrefix is the first of ps that a tensor name in dir begins with. Where
// there are no weights, or none with such a name, it is the first: whoever loads
// them says what lacks.
func findPrefix(dir string, ps []prefix) (prefix, error) {
	names, err := weightNames(dir)
	if err != nil {
		return prefix{}, err
	}
	for _, p := range ps {
		for _, n := range names {
			if strings.HasPrefix(n, p.model) {
				return p, nil
			}
		}
	}
	return ps[0], nil
}

// weightNames are the names of the tensors in a model directory: those of the
// index, or of the only file's header.
func weightNames(dir string) ([]string, error) {
	var names []string
	file := filepath.Join(dir, "model.safetensors.index.json")
	raw, err := readSome(file, 0)
	if err == nil {
		var index struct {
			Map map[string]json.RawMessage `json:"weight_map"`
		}
		if err := json.Unmarshal(raw, &index); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for n := range index.Map {
			names = append(names, n)
		}
		return names, nil
	}
	file = filepath.Join(dir, "model.safetensors")
	if raw, err = readSome(file, 8); err != nil {
		return nil, nil // no weights here, or no such file: not for the config to say
	}
	header := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &header); err != nil {
		return nil, fmt.Errorf("%s: the header: %w", file, err)
	}
	for n := range header {
		names = append(names, n)
	}
	return names, nil
}

// readSome reads a file, or, with a skip of 8, as much behind its first 8 bytes
// as they say, little-endian.
func readSome(file string, skip int) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := int64(maxHeader)
	if skip > 0 {
		var n [8]byte
		if _, err := io.ReadFull(f, n[:]); err != nil {
			return nil, err
		}
		if u := binary.LittleEndian.Uint64(n[:]); u < maxHeader {
			size = int64(u)
		} else {
			return nil, fmt.Errorf("%s: a header of %d bytes", file, u)
		}
	}
	return io.ReadAll(io.LimitReader(f, size))
}
