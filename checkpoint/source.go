package checkpoint

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// shard is an open safetensors file.
type shard struct {
	name    string // in its directory
	file    *os.File
	tensors map[string]tensor
	header  header
}

// source is the weights of a model directory.
type source struct {
	dir    string
	shards map[string]*shard
	where  map[string]*shard // by tensor
}

// openSource opens the weights in dir: model.safetensors, else the shards of
// model.safetensors.index.json.
func openSource(dir string) (*source, error) {
	s := &source{dir: dir, shards: map[string]*shard{}, where: map[string]*shard{}}
	err := s.openAll()
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *source) openAll() error {
	if _, err := os.Stat(filepath.Join(s.dir, "model.safetensors")); err == nil {
		sh, err := s.open("model.safetensors")
		if err != nil {
			return err
		}
		for name := range sh.tensors {
			s.where[name] = sh
		}
		return nil
	}
	weightMap, err := s.readIndex()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(weightMap)) {
		sh, err := s.open(weightMap[name])
		if err != nil {
			return err
		}
		if _, ok := sh.tensors[name]; !ok {
			return fmt.Errorf("%s: tensor %q: %s says it is in %s, which does not hold it", filepath.Join(s.dir, sh.name), name, indexName, sh.name)
		}
		s.where[name] = sh
	}
	return nil
}

// readIndex reads which tensor is in which shard.
func (s *source) readIndex() (map[string]string, error) {
	file := filepath.Join(s.dir, indexName)
	raw, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, s.noWeights()
	}
	if err != nil {
		return nil, err
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(raw, &index); err != nil {
		if strings.HasPrefix(string(raw), "version https://git-lfs") {
			err = errLFS
		}
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(index.WeightMap) == 0 {
		return nil, fmt.Errorf("%s: weight_map is missing or empty", file)
	}
	for _, name := range slices.Sorted(maps.Keys(index.WeightMap)) {
		shard := index.WeightMap[name]
		if shard == "" || shard == "." || shard == ".." || strings.ContainsAny(shard, `/\`) {
			return nil, fmt.Errorf("%s: tensor %q: the shard %q is not a file of this directory", file, name, shard)
		}
	}
	return index.WeightMap, nil
}

// noWeights is the error for a directory without weights we can read.
func (s *source) noWeights() error {
	for pattern, what := range map[string]string{
		"*.safetensors":      "the index " + indexName + " is missing: fetch the model anew",
		"pytorch_model*.bin": "pickled weights are not read: save the model with save_pretrained(..., safe_serialization=True)",
	} {
		if found, _ := filepath.Glob(filepath.Join(s.dir, pattern)); len(found) > 0 {
			return fmt.Errorf("%s: no model.safetensors, but %s: %s", s.dir, filepath.Base(found[0]), what)
		}
	}
	return fmt.Errorf("%s: no model.safetensors and no %s", s.dir, indexName)
}

// open opens the shard of the given name, once.
func (s *source) open(name string) (*shard, error) {
	if sh, ok := s.shards[name]; ok {
		return sh, nil
	}
	path := filepath.Join(s.dir, name)
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: missing, but %s names it: fetch the model anew", path, indexName)
	}
	if err != nil {
		return nil, err
	}
	sh := &shard{name: name, file: f, tensors: map[string]tensor{}}
	s.shards[name] = sh
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if sh.header, err = readHeader(bufio.NewReaderSize(io.NewSectionReader(f, 0, st.Size()), 1<<16), st.Size()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, t := range sh.header.tensors {
		sh.tensors[t.name] = t
	}
	return sh, nil
}

// Close closes the shards.
func (s *source) Close() {
	for _, sh := range s.shards {
		_ = sh.file.Close() // only read
	}
}
