package model

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"mt/internal/files"
)

// maxHeader bounds how many bytes are read to learn the tensors' names; it is the bound that
// the safetensors format sets for a header.
const maxHeader = 100_000_000

// findPrefix is the first of ps with which a tensor name in dir begins. Where there are no
// weights, or none with such a name, it is ps[0]: whoever loads the weights says what is
// missing.
func findPrefix(dir string, ps []prefix) (prefix, error) {
	names, err := weightNames(dir)
	if err != nil {
		return prefix{}, err
	}
	for _, p := range ps {
		for n := range names {
			if strings.HasPrefix(n, p.model) {
				return p, nil
			}
		}
	}
	return ps[0], nil
}

// weightNames are the names of the tensors in a model directory, from the header of its only
// file or, where there is no such file, from the index: the order in which package checkpoint
// looks for them. There are none where neither can be read; loading the config is no place
// for that error.
func weightNames(dir string) (map[string]json.RawMessage, error) {
	file := filepath.Join(dir, "model.safetensors")
	names := map[string]json.RawMessage{}
	raw, err := readHeader(file)
	if err == nil {
		if err := json.Unmarshal(raw, &names); err != nil {
			return nil, fmt.Errorf("%s: the header: %w", file, err)
		}
		return names, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	file = filepath.Join(dir, "model.safetensors.index.json")
	if raw, err = files.Read(file, maxHeader); err != nil || bytes.HasPrefix(raw, []byte("version ")) { // Git LFS
		return nil, nil
	}
	index := struct {
		Map *map[string]json.RawMessage `json:"weight_map"`
	}{&names}
	if err := json.Unmarshal(raw, &index); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return names, nil
}

// readHeader reads the header of a safetensors file. The file's first 8 bytes, little-endian,
// say how long it is.
func readHeader(file string) ([]byte, error) {
	f, err := files.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var n [8]byte
	if _, err := io.ReadFull(f, n[:]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint64(n[:])
	if size > maxHeader {
		return nil, fmt.Errorf("%s: a header of %d bytes", file, size)
	}
	return io.ReadAll(io.LimitReader(f, int64(size)))
}
