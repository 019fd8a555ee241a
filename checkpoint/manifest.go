package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"mt/base/files"
)

const (
	manifestName    = "manifest.json"
	manifestFormat  = "mt checkpoint"
	manifestVersion = 2
	unsealedVersion = 1  // version of manifests without a checksum of their own
	wholeFile       = "" // name of a region that is a whole file
	headerRegion    = "__header__"
)

// manifest lists every other file of a checkpoint with its checksums. It is written last, so a directory with a
// valid manifest is complete.
type manifest struct {
	Format  string       `json:"format"`
	Version int          `json:"version"`
	Files   []fileRecord `json:"files"`
}

// fileRecord describes a file. Its regions cover the file without gaps.
type fileRecord struct {
	Name    string   `json:"name"`
	Bytes   int64    `json:"bytes"`
	Regions []region `json:"regions"`
}

// region is a tensor of a file, the file's header, or the whole file.
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

// sumRecord returns the manifest's record of a file without tensors, whose whole content is one region.
func sumRecord(name string, data []byte) fileRecord {
	n := int64(len(data))
	return fileRecord{Name: name, Bytes: n, Regions: []region{{Name: wholeFile, Bytes: n, CRC32C: crc(crc32.Checksum(data, castagnoli))}}}
}

// recordOf returns the manifest's record of a finished, uncompressed tensor file: a region for the header and one
// for each tensor.
func (f *outFile) recordOf() fileRecord {
	r := fileRecord{Name: f.name, Bytes: f.bytes}
	r.Regions = append(r.Regions, region{Name: headerRegion, Bytes: int64(len(f.header)), CRC32C: crc(crc32.Checksum(f.header, castagnoli))})
	for _, e := range f.entries {
		r.Regions = append(r.Regions, region{Name: e.name, Bytes: e.bytes, CRC32C: crc(f.sums[e])})
	}
	return r
}

// region returns the record of the file's region with this name. If there is none, it returns a record of 0 bytes
// and checksum 0, which only empty data match.
func (f fileRecord) region(name string) region {
	for _, r := range f.Regions {
		if r.Name == name {
			return r
		}
	}
	return region{Name: name}
}

// sealed returns the text of m, which ends with a checksum of all bytes before it.
func (m manifest) sealed() ([]byte, error) {
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", manifestName, err)
	}
	text = bytes.TrimSuffix(text, []byte(manifestEnd))
	return append(text, seal(text)...), nil
}

const manifestEnd = "\n}"

// seal returns the last lines of a manifest that begins with text. They hold the checksum of text.
func seal(text []byte) string {
	return fmt.Sprintf(",\n \"crc32c\": %q%s\n", crc(crc32.Checksum(text, castagnoli)), manifestEnd)
}

// isSealed reports whether raw, a manifest, matches its own checksum.
func isSealed(raw []byte) bool {
	text := raw[:max(0, len(raw)-len(seal(nil)))]
	return string(raw[len(text):]) == seal(text)
}

// readManifest reads and checks dir's manifest. It returns the records by file name.
func readManifest(dir string, open opening) (map[string]fileRecord, error) {
	raw, err := readSmall(filepath.Join(dir, manifestName), open)
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
	if m.Format != manifestFormat || m.Version < unsealedVersion || m.Version > manifestVersion {
		return nil, fmt.Errorf("%s: format %q version %d; this program reads %q up to version %d", manifestName, m.Format, m.Version, manifestFormat, manifestVersion)
	}
	if m.Version > unsealedVersion && !isSealed(raw) {
		return nil, fmt.Errorf("%s: damaged: its own checksum is wrong", manifestName)
	}
	files := map[string]fileRecord{}
	for _, f := range m.Files {
		if _, twice := files[f.Name]; twice || !f.makesSense() {
			return nil, fmt.Errorf("%s: damaged: the entry of %q makes no sense", manifestName, f.Name)
		}
		files[f.Name] = f
	}
	if _, ok := files[stateName]; !ok {
		return nil, fmt.Errorf("%s: damaged: it does not list %s", manifestName, stateName)
	}
	return files, nil
}

// makesSense reports whether f is consistent: its regions fill the file, its name lies inside the checkpoint, and
// exactly tensor files have a header.
func (f fileRecord) makesSense() bool {
	left := f.Bytes
	for _, r := range f.Regions {
		if r.Bytes < 0 || r.Bytes > left {
			return false
		}
		left -= r.Bytes
	}
	return left == 0 && filepath.IsLocal(filepath.FromSlash(f.Name)) &&
		f.isTensors() == (len(f.Regions) > 0 && f.Regions[0].Name == headerRegion)
}

// isTensors reports whether f is an uncompressed tensor file.
func (f fileRecord) isTensors() bool { return strings.HasSuffix(f.Name, ".safetensors") }

// maxSmall bounds the bytes of a checkpoint's file without tensors. The manifest of a model with a million tensors
// takes half of it.
const maxSmall = 1 << 30

// readSmall returns the content of a checkpoint's file without tensors, opened with open.
func readSmall(path string, open opening) ([]byte, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return files.ReadAll(path, f, maxSmall)
}

// HasManifest reports whether dir has a manifest of mt, valid or not.
func HasManifest(dir string) bool {
	begin, err := files.Begin(filepath.Join(dir, manifestName), 100)
	return err == nil && bytes.Contains(begin, []byte(manifestFormat))
}

// Verify reads the whole checkpoint in dir and compares it with its manifest. If they differ, the
// error names the file and the tensor.
func Verify(dir string) error { return verify(dir, openFile) }

func verify(dir string, open opening) error {
	files, err := readManifest(dir, open)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	var list []fileRecord
	for _, f := range files {
		list = append(list, f)
	}
	err = each(len(list), func(i int) error { return list[i].verify(dir, open) })
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// verify reads the file of the record f in dir and compares its size and checksums with the record.
func (f fileRecord) verify(dir string, open opening) error {
	in, err := open(filepath.Join(dir, filepath.FromSlash(f.Name)))
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
	var head bytes.Buffer
	buf := make([]byte, min(1<<20, max(f.Bytes, 1)))
	for _, r := range f.Regions {
		sum := crc32.New(castagnoli)
		to := io.Writer(onlyWriter{sum})
		if r.Name == headerRegion && r.Bytes <= maxHeader {
			to = io.MultiWriter(sum, &head)
		}
		if _, err := io.CopyBuffer(to, io.LimitReader(onlyReader{in}, r.Bytes), buf); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		if err := r.check(f.Name, sum.Sum32()); err != nil {
			return err
		}
	}
	if !f.isTensors() {
		return nil
	}
	return f.matches(&head)
}

// matches compares the names and sizes of the regions with the file's header; head holds the header's bytes.
func (f fileRecord) matches(head *bytes.Buffer) error {
	h, err := readHeader(head, -1)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	same := len(h.tensors) == len(f.Regions)-1
	for i, t := range h.tensors {
		same = same && f.Regions[i+1].Name == t.name && f.Regions[i+1].Bytes == t.bytes
	}
	if !same {
		return fmt.Errorf("%s: damaged: %s lists other tensors than it holds", f.Name, manifestName)
	}
	return nil
}

// check returns an error if sum, the checksum of the data read, differs from the region's. file names the file in
// the error.
func (r region) check(file string, sum uint32) error {
	if crc(sum) == r.CRC32C {
		return nil
	}
	what := file
	switch r.Name {
	case wholeFile:
	case headerRegion:
		what += ": its header"
	default:
		what += fmt.Sprintf(": tensor %q", r.Name)
	}
	return fmt.Errorf("%s: damaged: checksum %v, not %v", what, crc(sum), r.CRC32C)
}

// onlyReader and onlyWriter hide other methods, so that io.CopyBuffer uses the given buffer.
type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)

// sampled is the number of bytes that Fingerprint reads at each end of a tensor.
const sampled = 4 << 10

// Fingerprint returns a digest that tells models apart without reading all their weights. It covers the name, dtype
// and shape of each tensor in the model directory dir, and the first and last 4 KiB of its data. Training changes
// some of these bytes.
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
