package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

const (
	manifestName    = "manifest.json"
	manifestFormat  = "mt checkpoint"
	manifestVersion = 1
	wholeFile       = "" // the name of a region that is a whole file
	headerRegion    = "__header__"
)

// manifest lists every other file of a checkpoint with its checksums. It is
// written last: a directory whose manifest holds is complete.
type manifest struct {
	Format  string       `json:"format"`
	Version int          `json:"version"`
	Files   []fileRecord `json:"files"`
}

// fileRecord says what a file contains. Its regions cover it without gaps.
type fileRecord struct {
	Name    string   `json:"name"`
	Bytes   int64    `json:"bytes"`
	Regions []region `json:"regions"`
}

// region is a tensor of a file, its header, or all of it.
type region struct {
	Name   string `json:"name,omitempty"`
	Bytes  int64  `json:"bytes"`
	CRC32C crc    `json:"crc32c"`
}

// crc is a CRC32C that prints as 8 hexadecimal digits.
type crc uint32

func (c crc) String() string { return fmt.Sprintf("%08x", uint32(c)) }

// MarshalJSON writes c as a string.
func (c crc) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

// UnmarshalJSON reads what MarshalJSON writes.
func (c *crc) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	v, err := strconv.ParseUint(s, 16, 32)
	*c = crc(v)
	return err
}

// sumRecord is the record of a small file.
func sumRecord(name string, data []byte) fileRecord {
	n := int64(len(data))
	return fileRecord{Name: name, Bytes: n, Regions: []region{{Name: wholeFile, Bytes: n, CRC32C: crc(crc32.Checksum(data, castagnoli))}}}
}

// recordOf is the record of a finished, uncompressed file of tensors.
func (f *outFile) recordOf() fileRecord {
	r := fileRecord{Name: f.name, Bytes: f.bytes}
	r.Regions = append(r.Regions, region{Name: headerRegion, Bytes: int64(len(f.header)), CRC32C: crc(crc32.Checksum(f.header, castagnoli))})
	for _, e := range f.entries {
		r.Regions = append(r.Regions, region{Name: e.name, Bytes: e.bytes, CRC32C: crc(f.sums[e])})
	}
	return r
}

// region is the record of a region of the file. One that is not recorded gets
// a record that only an empty region passes.
func (f fileRecord) region(name string) region {
	for _, r := range f.Regions {
		if r.Name == name {
			return r
		}
	}
	return region{Name: name}
}

// readManifest reads dir's manifest and checks that it makes sense.
func readManifest(dir string) (map[string]fileRecord, error) {
	raw, err := os.ReadFile(filepath.Join(dir, manifestName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("no %s: the save was not finished", manifestName)
	}
	if err != nil {
		return nil, err
	}
	var m manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("%s: damaged: %w", manifestName, err)
	}
	if m.Format != manifestFormat || m.Version != manifestVersion {
		return nil, fmt.Errorf("%s: format %q version %d; this program reads %q version %d", manifestName, m.Format, m.Version, manifestFormat, manifestVersion)
	}
	files := map[string]fileRecord{}
	for _, f := range m.Files {
		left := f.Bytes
		for _, r := range f.Regions {
			if r.Bytes < 0 || r.Bytes > left {
				left = -1
				break
			}
			left -= r.Bytes
		}
		if left != 0 || !filepath.IsLocal(filepath.FromSlash(f.Name)) {
			return nil, fmt.Errorf("%s: damaged: the entry of %q makes no sense", manifestName, f.Name)
		}
		files[f.Name] = f
	}
	if _, ok := files[stateName]; !ok {
		return nil, fmt.Errorf("%s: damaged: it does not list %s", manifestName, stateName)
	}
	return files, nil
}

// Verify reads all of the checkpoint in dir and compares it with its manifest.
// The error names the file and the tensor that differ.
func Verify(dir string) error {
	files, err := readManifest(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	var list []fileRecord
	for _, f := range files {
		list = append(list, f)
	}
	err = each(len(list), func(i int) error { return list[i].verify(dir) })
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// verify compares a file with its record.
func (f fileRecord) verify(dir string) error {
	in, err := os.Open(filepath.Join(dir, filepath.FromSlash(f.Name)))
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: missing", f.Name)
	}
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	if st.Size() != f.Bytes {
		return fmt.Errorf("%s: %d bytes long, not %d", f.Name, st.Size(), f.Bytes)
	}
	buf := make([]byte, min(1<<20, max(f.Bytes, 1)))
	for _, r := range f.Regions {
		sum := crc32.New(castagnoli)
		if _, err := io.CopyBuffer(onlyWriter{sum}, io.LimitReader(onlyReader{in}, r.Bytes), buf); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		if err := r.check(f.Name, sum.Sum32()); err != nil {
			return err
		}
	}
	return nil
}

// check compares the checksum of what was read with that of what was written.
func (r region) check(file string, sum uint32) error {
	if crc(sum) == r.CRC32C {
		return nil
	}
	what := file
	if r.Name != wholeFile {
		what = fmt.Sprintf("%s: tensor %q", file, r.Name)
	}
	return fmt.Errorf("%s: damaged: checksum %v, not %v", what, crc(sum), r.CRC32C)
}

// onlyReader and onlyWriter hide the other methods, so that io.CopyBuffer uses
// the buffer it is given.
type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)
