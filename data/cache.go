package data

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// A cache file consists of these, with all numbers little-endian:
//
//	tokens    (Tokens) u16 or u32
//	labels    (Tokens) of the same width, or nothing
//	documents (Docs) of two u64: the number of tokens up to its end; its line
//	          or row in its file, with flags << 48. A pair counts as one document, and has
//	          a third: how many of its tokens are the chosen answer's, with the prompt
//	manifest  JSON
//	trailer   u64 length of the manifest, u32 its CRC32C, u32 version, magic
//
// It is written under another name, renamed when it is complete, and never changed then.
const (
	cacheVersion = 6
	cacheMagic   = "mt-token-cache\r\n"
	trailerBytes = 16 + len(cacheMagic)
	docBytes     = 16     // of a pair 8 more
	flagShift    = 48     // the bit at which a document's flags begin
	ignore16     = 0xffff // how u16 labels write IgnoreIndex
)

// racy is by how much a file must have been older than our reading of it, so that its
// size and time vouch for its content. Two changes within one tick of the file system's
// clock leave the same time, so a younger file may have changed unseen.
const racy = 2 * time.Second

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// manifest describes a cache file.
type manifest struct {
	Tokenizer  string       `json:"tokenizer"`
	Kind       kind         `json:"kind"`
	TokenBytes int64        `json:"token_bytes"` // 2 or 4
	Started    int64        `json:"started"`     // when reading began, nanoseconds since 1970
	Tokens     int64        `json:"tokens"`
	Docs       int64        `json:"docs"`
	HasLabels  bool         `json:"has_labels"`
	Sums       [3]uint32    `json:"sums"` // the CRC32C of the tokens, the labels and the documents
	Files      []cachedFile `json:"files"`

	Skipped      int64  `json:"skipped,omitempty"` // bad rows
	Unsupervised int64  `json:"unsupervised,omitempty"`
	FirstSkipped string `json:"first_skipped,omitempty"`
	MissingEOS   int64  `json:"missing_eos,omitempty"` // this and the following count documents
	DoubledBOS   int64  `json:"doubled_bos,omitempty"`
	LeftThinking int64  `json:"left_thinking,omitempty"`
	LeftText     int64  `json:"left_text,omitempty"`
	LeftCalls    int64  `json:"left_calls,omitempty"`
	PromptCut    int64  `json:"prompt_cut,omitempty"`
	Joined       int64  `json:"joined,omitempty"`
	Decoded      int64  `json:"decoded,omitempty"`
	Encoded      int64  `json:"encoded,omitempty"`
	Reshaped     int64  `json:"reshaped,omitempty"`
	Verbatim     int64  `json:"verbatim,omitempty"`
	SameRow      int64  `json:"same_row,omitempty"`

	// IDSum is the CRC32C of the documents with no flags but those in idFlags.
	IDSum uint32 `json:"id_sum"`
}

// counts are the counters of documents, by the flag that they count.
func (m *manifest) counts() map[uint64]*int64 {
	return map[uint64]*int64{flagMissingEOS: &m.MissingEOS, flagDoubledBOS: &m.DoubledBOS,
		flagLeftThinking: &m.LeftThinking, flagLeftText: &m.LeftText, flagLeftCalls: &m.LeftCalls, flagPromptCut: &m.PromptCut, flagVerbatim: &m.Verbatim,
		flagJoined: &m.Joined, flagDecoded: &m.Decoded, flagEncoded: &m.Encoded, flagReshaped: &m.Reshaped, flagSameRow: &m.SameRow}
}

// cachedFile is a source as it was when it was read.
type cachedFile struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	MTime  int64  `json:"mtime"`
	SHA256 string `json:"sha256"` // empty for a binary file
	Binary bool   `json:"binary,omitempty"`
	Alien  string `json:"alien,omitempty"` // what a file with Binary set is, where that is known
	Docs   int64  `json:"docs"`
	// Partial says that no more was read of it than is needed: its first Read bytes, which SHA256 is of.
	Partial bool  `json:"partial,omitempty"`
	Read    int64 `json:"read,omitempty"`

	Set     int    `json:"set"` // the number of its entry in Spec.Paths
	Format  string `json:"format"`
	Unit    string `json:"unit,omitempty"` // "line" or "row"
	Skipped int64  `json:"skipped,omitempty"`
}

// sizes are the sizes in bytes of the tokens, the labels and the documents.
func (m *manifest) sizes() [3]int64 {
	s := [3]int64{m.Tokens * m.TokenBytes, 0, m.Docs * m.docBytes()}
	if m.HasLabels {
		s[1] = s[0]
	}
	return s
}

// docBytes is how many bytes a document takes among the documents.
func (m *manifest) docBytes() int64 {
	if m.Kind == kindPairs {
		return docBytes + 8
	}
	return docBytes
}

// cache is a cache file that is mapped into memory.
type cache struct {
	manifest
	file         *os.File
	mapped       []byte
	tokens, labs []byte // u16 or u32
	docs         []byte
}

// cacheTokenBytes is how many bytes an id below vocab, or IgnoreIndex, takes: 2 or 4.
func cacheTokenBytes(vocab int) int64 {
	if vocab <= ignore16 {
		return 2
	}
	return 4
}

// CacheFolder is where caches lie: dir, with variables and "~" replaced, or a folder of the user's
// where dir is empty.
func CacheFolder(dir string) (string, error) {
	if dir != "" {
		return ExpandVars(dir)
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder for token caches: %w; set cache_dir", err)
	}
	return filepath.Join(user, "mt"), nil
}

// cachePath is where the cache of sources lies. Its name depends on what is read and how;
// the manifest inside tells whether the content is still the same.
func cachePath(s *Spec, sources []source) (string, error) {
	dir, err := CacheFolder(s.CacheDir)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%d %q %q %v %d %q %v %v %v\n", cacheVersion, s.tokenizerID(), s.Format, s.Pairs, s.VocabSize, s.chat.id(), s.MaskHistory, s.TrainOnPrompt, s.SkipBadRows)
	if len(s.TemplateVars) > 0 && s.chat.tmpl != nil {
		fmt.Fprintf(h, "%s\n", typed(s.TemplateVars))
	}
	if c := s.Columns; c != (Columns{}) {
		fmt.Fprintf(h, "%q\n", c)
	}
	for _, src := range sources {
		fmt.Fprintf(h, "%q %v %d\n", src.path, src.named, src.set)
	}
	for i, set := range s.sets { // what else a set says chooses among documents and changes no token
		if most := s.most(i); most > 0 {
			fmt.Fprintf(h, "the first %d\n", most)
		}
		how, err := json.Marshal(struct {
			Format  format
			Columns *columns
			Names   *columns `json:",omitempty"`
			Kept    string   `json:",omitempty"`
		}{set.Format, set.Columns, set.Names, set.Kept})
		if err != nil {
			return "", fmt.Errorf("columns of %q: %w", set.Name, err)
		}
		fmt.Fprintf(h, "%s\n", how)
	}
	return filepath.Join(dir, hex.EncodeToString(h.Sum(nil)[:16])+".tokens"), nil
}

// errNoCache stands for a cache that is not there.
var errNoCache = errors.New("no cache")

// openCache maps a cache file and checks all of it. The error is errNoCache, or
// says what is wrong with the file.
func openCache(name string, s *Spec) (*cache, error) {
	f, info, err := openRegular(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoCache
	}
	if err != nil {
		return nil, err
	}
	c := &cache{file: f}
	if err := c.open(info.Size(), s); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// open maps the file, of size bytes, and parses it.
func (c *cache) open(size int64, s *Spec) (err error) {
	if size < int64(trailerBytes) {
		return fmt.Errorf("%d bytes are too few", size)
	}
	if c.mapped, err = unix.Mmap(int(c.file.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	if fault := c.reading(func() { err = c.parse(s) }); fault != nil {
		return fault
	}
	return err
}

// close gives the memory and the file back. The manifest can still be read.
func (c *cache) close() error {
	if c.file == nil {
		return nil
	}
	f, b := c.file, c.mapped
	*c = cache{manifest: c.manifest}
	var err error
	if b != nil {
		err = unix.Munmap(b)
	}
	return errors.Join(err, f.Close())
}

// parse finds the sections of the file and checks their sums.
func (c *cache) parse(s *Spec) error {
	body, t := c.mapped[:len(c.mapped)-trailerBytes], c.mapped[len(c.mapped)-trailerBytes:]
	if !bytes.Equal(t[16:], []byte(cacheMagic)) || binary.LittleEndian.Uint32(t[12:]) != cacheVersion {
		return errors.New("no such file, or of another version")
	}
	n := binary.LittleEndian.Uint64(t)
	if n > uint64(len(body)) {
		return fmt.Errorf("a manifest of %d bytes in a file of %d", n, len(c.mapped))
	}
	text := body[uint64(len(body))-n:]
	if crc32.Checksum(text, castagnoli) != binary.LittleEndian.Uint32(t[8:]) {
		return errors.New("checksum of the manifest")
	}
	if err := json.Unmarshal(text, &c.manifest); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	rest := body[:uint64(len(body))-n]
	total := int64(len(rest))
	s.progress(0, total, CheckingCache)
	var done int64
	for i, part := range []*[]byte{&c.tokens, &c.labs, &c.docs} {
		size := c.sizes()[i]
		if size < 0 || size > int64(len(rest)) {
			return fmt.Errorf("part %d has %d bytes, more than are there", i, size)
		}
		*part, rest = rest[:size:size], rest[size:]
		sum := uint32(0)
		for chunk := range slicesOf(*part, 64<<20) {
			sum = crc32.Update(sum, castagnoli, chunk)
			done += int64(len(chunk))
			s.progress(done, total, CheckingCache)
		}
		if sum != c.Sums[i] {
			return fmt.Errorf("checksum of part %d", i)
		}
	}
	if len(rest) != 0 {
		return fmt.Errorf("%d bytes too many", len(rest))
	}
	return nil
}

func slicesOf(b []byte, n int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			chunk := b[:min(n, len(b))]
			if !yield(chunk) {
				return
			}
			b = b[len(chunk):]
		}
	}
}

// isOf tells whether the cache holds what is in sources now. Where a file's time does not
// vouch for its content, the file is read and its checksum compared.
func (c *cache) isOf(sources []source) bool {
	if len(c.Files) != len(sources) {
		return false
	}
	for i, f := range c.Files {
		if !c.holds(f, sources[i]) {
			return false
		}
	}
	return true
}

// holds tells whether src has the same content as when it was read and noted as f.
func (m *manifest) holds(f cachedFile, src source) bool {
	if f.Path != src.path || f.Size != src.size {
		return false
	}
	if m.vouched(f.MTime, src) {
		return true
	}
	most := int64(math.MaxInt64)
	switch {
	case f.Partial && f.Docs == 0: // no row of it was needed
		return true
	case f.Partial && f.Read == 0: // its rows do not follow each other in the file
		return false
	case f.Partial:
		most = f.Read
	}
	sum, err := sumOf(src.path, most)
	return err == nil && sum == f.SHA256
}

// vouched tells whether the file's time suffices to say that it has not changed since it was read.
func (m *manifest) vouched(mtime int64, src source) bool {
	return mtime == src.mtime && mtime < m.Started-int64(racy)
}

// sumOf is the SHA-256 of the first most bytes of a file.
func sumOf(name string, most int64) (string, error) {
	f, _, err := openRegular(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, most)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// end is where document i ends, in tokens from the start of the data set.
func (c *cache) end(i int64) int64 { return int64(binary.LittleEndian.Uint64(c.docs[i*c.docBytes():])) }

// line is the line or row of its file at which document i stands, and its flags.
func (c *cache) line(i int64) (n int64, flags uint64) {
	v := binary.LittleEndian.Uint64(c.docs[i*c.docBytes()+8:])
	return int64(v & (1<<flagShift - 1)), v >> flagShift
}

// span is document i's tokens [first, end).
func (c *cache) span(i int64) (first, end int64) {
	if i > 0 {
		first = c.end(i - 1)
	}
	return first, c.end(i)
}

// chosen is how many tokens of pair i are its chosen document's.
func (c *cache) chosen(i int64) int64 {
	return int64(binary.LittleEndian.Uint64(c.docs[i*c.docBytes()+16:]))
}

// fileOf is the file that document i is in, and the number of the first document in it.
func (c *cache) fileOf(i int64) (f *cachedFile, first int64) {
	for k := range c.Files {
		f = &c.Files[k]
		if i < first+f.Docs {
			break
		}
		first += f.Docs
	}
	return f, first
}

// where says for an error where document i is.
func (c *cache) where(i int64) string {
	f, _ := c.fileOf(i)
	n, _ := c.line(i)
	return place(f.Path, f.Unit, n)
}

// readIDs appends tokens [first, end) to dst.
func (c *cache) readIDs(dst []int32, first, end int64) []int32 {
	return c.read(dst, c.tokens, first, end)
}

// readLabels appends the labels of tokens [first, end) to dst; nil where the
// data set has none.
func (c *cache) readLabels(dst []int32, first, end int64) []int32 {
	if !c.HasLabels {
		return nil
	}
	return c.read(dst, c.labs, first, end)
}

func (c *cache) read(dst []int32, from []byte, first, end int64) []int32 {
	from = from[first*c.TokenBytes : end*c.TokenBytes]
	n := len(dst)
	if need := n + int(end-first); cap(dst) < need {
		dst = append(make([]int32, 0, need), dst...)
	}
	dst = dst[:n+int(end-first)]
	out := dst[n:]
	if c.TokenBytes == 4 {
		for i := range out {
			out[i] = int32(binary.LittleEndian.Uint32(from[4*i:]))
		}
		return dst
	}
	for i := range out {
		v := int32(binary.LittleEndian.Uint16(from[2*i:]))
		if v == ignore16 {
			v = IgnoreIndex
		}
		out[i] = v
	}
	return dst
}
