package model

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"mt/base/files"
)

// maxHeader bounds how many bytes are read to learn tensor names. It is the safetensors format's own bound on a header.
const maxHeader = 100_000_000

// asStored settles by the tensors in dir what config.json leaves open. It finds the prefix of
// tensor names and whether there is a head. It also finds whether one tensor holds all experts of a
// block, and whether expert matrices are transposed.
func (c *Config) asStored(dir string) error {
	names, err := weightNames(dir)
	if err != nil {
		return err
	}
	c.prefix = c.findPrefix(names)
	if c.headTells && len(names) > 0 {
		c.TieEmbeddings = names[c.prefix.head+"weight"] == nil
	}
	if how := c.family.joined[RoleExpertDown]; how.tensor != "" {
		for b := range c.NumLayers {
			c.joined = c.joined || names[blockNames{c, b}.prefix()+how.tensor] != nil
		}
		if a := c.family.ahead; a != nil {
			c.aheadJoined = names[cmp.Or(a.block, blockNames{c, c.NumLayers}.prefix())+how.tensor] != nil
		}
	}
	for _, other := range c.family.others {
		for b := range c.NumLayers {
			c.othersNamed = c.othersNamed || names[blockNames{c, b}.prefix()+other[0]] != nil
		}
	}
	if c.family.eitherWay {
		c.turned = c.storedTurned(dir, names)
	}
	return nil
}

// storedTurned reports whether the directory stores expert matrices transposed compared with the
// family's usual way. It compares a tensor's shape with the sizes in c. names has the directory's
// tensors.
func (c *Config) storedTurned(dir string, names map[string]json.RawMessage) bool {
	for b := range c.NumLayers {
		if !c.HasExperts(b) {
			continue
		}
		for role, engine := range map[Role][2]int{RoleExpertGateUp: {2 * c.MoEIntermediateSize, c.HiddenSize}, RoleExpertDown: {c.HiddenSize, c.MoEIntermediateSize}} {
			how := c.family.places[role]
			rows, cols := engine[0], engine[1]
			if !how.transposed {
				rows, cols = cols, rows
			}
			// A square matrix has the same shape either way and tells nothing. At most one is
			// square of gate_up (2·width, hidden) and down (hidden, width), so the other decides.
			at := storedShape(dir, names, blockNames{c, b}.prefix()+how.tensor)
			if rows != cols && len(at) == 3 && at[1] == rows && at[2] == cols {
				return true
			}
		}
		return false
	}
	return false
}

// storedShape returns the shape of a tensor in dir; nil if the shape cannot be read. Argument names
// is weightNames(dir): for each tensor an entry of a header, or a file name from an index.
func storedShape(dir string, names map[string]json.RawMessage, tensor string) []int {
	raw := names[tensor]
	var file string
	if json.Unmarshal(raw, &file) == nil && filepath.IsLocal(file) { // names come from an index
		header, err := readHeader(filepath.Join(dir, file))
		var in map[string]json.RawMessage
		if err != nil || json.Unmarshal(header, &in) != nil {
			return nil
		}
		raw = in[tensor]
	}
	var t struct{ Shape []int }
	if json.Unmarshal(raw, &t) != nil {
		return nil
	}
	return t.Shape
}

// findPrefix returns the class's prefix with which the directory names the embedding. Files saved
// from a base class lack a prefix's first words, which findPrefix allows for. If names has no
// embedding, it returns the first prefix that begins any name. If there is none, it returns the
// class's first prefix, and the loader reports the missing tensor.
func (c *Config) findPrefix(names map[string]json.RawMessage) prefix {
	all := c.family.prefixes
	if len(all) == 0 {
		all = []prefix{usualPrefix}
	}
	embedding := c.tensorNames(RoleEmbed)[0]
	for _, p := range all {
		if names[p.model+embedding] != nil {
			return p
		}
	}
	for _, p := range all {
		for short := p.model; short != ""; {
			_, short, _ = strings.Cut(short, ".")
			if names[short+embedding] != nil {
				return prefix{short, c.headBeside(names, p.head)}
			}
		}
	}
	for _, p := range all {
		for n := range names {
			if strings.HasPrefix(n, p.model) {
				return p
			}
		}
	}
	return all[0]
}

// headBeside returns the head's prefix in a directory saved from a base class: own, the class's
// prefix, or "lm_head." if only that one is found.
func (c *Config) headBeside(names map[string]json.RawMessage, own string) string {
	if names[own+"weight"] == nil && names[usualPrefix.head+"weight"] != nil {
		return usualPrefix.head
	}
	return own
}

// maxNames is the most tensor names that are read from one safetensors file, and maxIndexed the
// most from an index. Package checkpoint refuses files with more.
const (
	maxNames   = 1 << 18
	maxIndexed = 1 << 19
)

// errManyNames stops membersOf when an object has too many names.
var errManyNames = errors.New("too many names")

// weightNames returns the tensor names in a model directory. It reads the header of
// model.safetensors or, without that file, the index. Package checkpoint looks in the same order.
// If neither can be read, it returns no names and no error: loading the weights reports the error.
func weightNames(dir string) (map[string]json.RawMessage, error) {
	file := filepath.Join(dir, "model.safetensors")
	raw, err := readHeader(file)
	if err == nil {
		names, err := membersOf(raw, maxNames)
		if err != nil {
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
	var names map[string]json.RawMessage
	err = files.Members(files.JSON(raw), func(key string, val []byte) (err error) {
		if key == "weight_map" {
			names, err = membersOf(val, maxIndexed)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return names, nil
}

// membersOf returns the members of a JSON object by name. If there are more than most, it returns none, and no error.
func membersOf(text []byte, most int) (map[string]json.RawMessage, error) {
	names := map[string]json.RawMessage{}
	err := files.Members(text, func(name string, val []byte) error {
		if names[name] = val; len(names) > most {
			return errManyNames
		}
		return nil
	})
	if errors.Is(err, errManyNames) {
		return nil, nil
	}
	return names, err
}

// readHeader reads the header of a safetensors file. The first 8 bytes, little-endian, are its length.
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
