package data

import (
	"bufio"
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
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"mt/base/files"
)

// A cache file has these parts, with little-endian numbers:
//
//	tokens    (Tokens) u16 or u32
//	labels    (Tokens) of the same width, or nothing
//	documents (Docs) of two u64: total tokens up to its end; its line or row in its file, with flags << 48.
//	          A pair counts as one document and has a third u64: the tokens of prompt and chosen answer
//	manifest  JSON
//	trailer   u64 length of the manifest, u32 its CRC32C, u32 version, magic
//
// The file is written under another name and renamed when complete. It never changes after that.
const (
	cacheVersion = 6
	cacheMagic   = "mt-token-cache\r\n"
	trailerBytes = 16 + len(cacheMagic)
	docBytes     = 16     // 8 more for a pair
	flagShift    = 48     // lowest bit of a document's flags
	ignore16     = 0xffff // IgnoreIndex in u16 labels
)

// racy is the age that a file must have had when it was read, so that its size and time prove its content. Two
// changes within one tick of the file system's clock leave the same time, so a younger file may have changed
// unnoticed.
const racy = 2 * time.Second

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// manifest describes the content of a cache file: the tokenizer and settings it was made with, the files read, and
// counts of tokens and documents. It is stored in the cache as JSON.
type manifest struct {
	Tokenizer  string       `json:"tokenizer"`
	Kind       kind         `json:"kind"`
	TokenBytes int64        `json:"token_bytes"` // 2 or 4
	Started    int64        `json:"started"`     // start of reading, nanoseconds since 1970
	Tokens     int64        `json:"tokens"`
	Docs       int64        `json:"docs"`
	HasLabels  bool         `json:"has_labels"`
	Sums       [3]uint32    `json:"sums"` // CRC32C of tokens, labels and documents
	Files      []cachedFile `json:"files"`

	Skipped      int64  `json:"skipped,omitempty"` // bad rows
	Unsupervised int64  `json:"unsupervised,omitempty"`
	FirstSkipped string `json:"first_skipped,omitempty"`
	MissingEOS   int64  `json:"missing_eos,omitempty"` // this and the following fields count documents
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

	// IDSum is the CRC32C of the array of documents, in which each document keeps only its flags in idFlags. It
	// is part of the data set's ID.
	IDSum uint32 `json:"id_sum"`
}

// counts returns the manifest's counters of documents with problems, keyed by the document flag
// that each counts.
func (m *manifest) counts() map[uint64]*int64 {
	return map[uint64]*int64{flagMissingEOS: &m.MissingEOS, flagDoubledBOS: &m.DoubledBOS,
		flagLeftThinking: &m.LeftThinking, flagLeftText: &m.LeftText, flagLeftCalls: &m.LeftCalls, flagPromptCut: &m.PromptCut, flagVerbatim: &m.Verbatim,
		flagJoined: &m.Joined, flagDecoded: &m.Decoded, flagEncoded: &m.Encoded, flagReshaped: &m.Reshaped, flagSameRow: &m.SameRow}
}

// cachedFile records a source file: its size, time and checksum when it was read, and how many documents it gave.
type cachedFile struct {
	Path        string `json:"path"`
	Size        int64  `json:"size"`
	MTime       int64  `json:"mtime"`
	SHA256      string `json:"sha256"` // "": a binary file
	Binary      bool   `json:"binary,omitempty"`
	Unsupported string `json:"alien,omitempty"` // the format of a file with Binary set, if known
	Docs        int64  `json:"docs"`
	// Partial reports that only the first Read bytes of the file were read, since no more documents were needed.
	// SHA256 then covers only these bytes.
	Partial bool  `json:"partial,omitempty"`
	Read    int64 `json:"read,omitempty"`

	Set     int    `json:"set"` // index of its entry in Spec.Paths
	Format  string `json:"format"`
	Unit    string `json:"unit,omitempty"` // "line" or "row"
	Skipped int64  `json:"skipped,omitempty"`
}

// sizes returns the sizes in bytes of the file's three arrays: tokens, labels and documents.
func (m *manifest) sizes() [3]int64 {
	s := [3]int64{m.Tokens * m.TokenBytes, 0, m.Docs * m.docBytes()}
	if m.HasLabels {
		s[1] = s[0]
	}
	return s
}

// docBytes returns the size in bytes of one document's entry in the array of documents.
func (m *manifest) docBytes() int64 {
	if m.Kind == kindPairs {
		return docBytes + 8
	}
	return docBytes
}

// cache is a memory-mapped cache file.
type cache struct {
	manifest
	file         *os.File
	mapped       []byte
	tokens, labs []byte // u16 or u32
	docs         []byte
}

// cacheTokenBytes returns the width of a token or label in the cache. It is 2 bytes if all ids below vocab, and
// IgnoreIndex as 0xffff, fit in 16 bits; otherwise 4.
func cacheTokenBytes(vocab int) int64 {
	if vocab <= ignore16 {
		return 2
	}
	return 4
}

// CacheFolder returns the folder that holds caches: dir, with variables and "~" replaced, or a default in the user's
// cache folder if dir is "".
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

// cachePath returns the path of the cache for these sources. The file's name is a hash of the sources' paths and the
// settings. It does not depend on the files' content; the cache's manifest tells whether the content has changed
// since.
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
	for i, set := range s.sets { // other settings of a set choose documents and change no token
		if most := s.documentLimit(i); most > 0 {
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

// errNoCache is the error of openCache if the cache file does not exist.
var errNoCache = errors.New("no cache")

// openCache maps a cache file into memory and verifies its checksums. The error is errNoCache if the file does not
// exist; otherwise it describes what is wrong with the file.
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

// open maps the cache file, of size bytes, into memory and parses it.
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

// close unmaps and closes the file. The manifest stays readable afterwards.
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

// parse finds the manifest and the arrays (tokens, labels, documents) in the mapped file. It returns an error if a
// checksum or size is wrong, or if the cache was made with other settings than s.
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

// isOf reports whether the cache holds the current content of sources. A file with the recorded size and time counts
// as unchanged, unless it was changed shortly before it was read; isOf then compares checksums.
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

// holds reports whether the source file src still has the content that f recorded when the cache was made.
func (m *manifest) holds(f cachedFile, src source) bool {
	if f.Path != src.path || f.Size != src.size {
		return false
	}
	if m.unchangedSince(f.MTime, src) {
		return true
	}
	most := int64(math.MaxInt64)
	switch {
	case f.Partial && f.Docs == 0: // no row of the file was needed
		return true
	case f.Partial && f.Read == 0: // its rows are not in file order
		return false
	case f.Partial:
		most = f.Read
	}
	sum, err := sumOf(src.path, most)
	return err == nil && sum == f.SHA256
}

// unchangedSince reports whether the times prove that the source file has not changed since the cache read it. mtime
// is the time of last change that the cache recorded. It must be the time that the file has today, and at least racy
// earlier than the reading.
func (m *manifest) unchangedSince(mtime int64, src source) bool {
	return mtime == src.mtime && mtime < m.Started-int64(racy)
}

// sumOf returns the SHA-256 of a file's first most bytes, in hexadecimal. A shorter file is hashed as a whole.
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

// end returns the end of document i, as the number of tokens from the start of the cache.
func (c *cache) end(i int64) int64 { return int64(binary.LittleEndian.Uint64(c.docs[i*c.docBytes():])) }

// line returns the number of document i's line or row in its source file, and the document's flags.
// Both are in one field of the document's entry.
func (c *cache) line(i int64) (n int64, flags uint64) {
	v := binary.LittleEndian.Uint64(c.docs[i*c.docBytes()+8:])
	return int64(v & (1<<flagShift - 1)), v >> flagShift
}

// span returns the range of document i's tokens, [first, end).
func (c *cache) span(i int64) (first, end int64) {
	if i > 0 {
		first = c.end(i - 1)
	}
	return first, c.end(i)
}

// chosen returns the number of tokens in the chosen document of pair i.
func (c *cache) chosen(i int64) int64 {
	return int64(binary.LittleEndian.Uint64(c.docs[i*c.docBytes()+16:]))
}

// fileOf returns the source file that document i was read from.
func (c *cache) fileOf(i int64) (f *cachedFile) {
	for k := range c.Files {
		if f = &c.Files[k]; i < f.Docs {
			break
		}
		i -= f.Docs
	}
	return f
}

// where returns the source file and line of document i, for an error message.
func (c *cache) where(i int64) string {
	f := c.fileOf(i)
	n, _ := c.line(i)
	return place(f.Path, f.Unit, n)
}

// readIDs appends tokens [first, end) to dst.
func (c *cache) readIDs(dst []int32, first, end int64) []int32 {
	return c.read(dst, c.tokens, first, end)
}

// readLabels appends the labels of tokens [first, end) to dst; nil: the data set has no labels.
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

// cacheWriter writes a cache file. The tokens go directly into the file. Labels and documents come after them in the
// file, so both arrays wait in two other files until the end. After a commit, another process can continue from these
// three files.
type cacheWriter struct {
	manifest
	name    string
	parts   [3]*part // tokens, labels, documents
	buf     []byte
	private bool   // another process writes the same cache, so nothing is kept for later
	kept    bool   // a commit was made
	whole   bool   // the cache has its final name; files with names of parts belong to another process
	resumed string // note on work taken over from an earlier process; "": none
}

// part is one of the three arrays of a cache file: tokens, labels or documents. While the cache is being written,
// each array has a file of its own; finish joins them.
type part struct {
	f   *os.File
	w   *bufio.Writer
	sum uint32
}

func (p *part) write(b []byte) error {
	p.sum = crc32.Update(p.sum, castagnoli, b)
	_, err := p.w.Write(b)
	return err
}

// partNames are the suffixes of an unfinished cache's three files.
var partNames = [3]string{".part", ".part-labels", ".part-documents"}

// journalName is the suffix of the file that records a commit. The journal is first written with the further suffix
// newName, then renamed, so it is always complete.
const (
	journalName = ".part.json"
	newName     = ".new"
)

// tempName is part of the names of files that only one process uses. If the process dies, these files are removed; no
// other process continues them.
const tempName = ".tmp-"

// besides are the suffixes of the other files of an unfinished cache, which may lie beside the file
// of its tokens.
var besides = []string{partNames[1], partNames[2], journalName, journalName + newName}

// newCacheWriter opens the unfinished files of the cache name, with whatever an earlier process left in them. resume
// later decides how much of that is used. The caller must call close, also after an error of other methods.
func newCacheWriter(name string, m manifest) (*cacheWriter, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	w := &cacheWriter{manifest: m, name: name}
	removeAbandoned(w.pattern())
	first, err := lockedFile(name + partNames[0])
	if err != nil {
		return nil, err
	}
	w.private = first == nil
	for i := range w.parts {
		f := first
		switch {
		case w.private:
			if f, err = os.CreateTemp(filepath.Dir(name), filepath.Base(w.pattern())+"*"); err == nil && i == 0 {
				err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
			} else if err == nil {
				err = os.Remove(f.Name())
			}
		case i > 0:
			f, err = os.OpenFile(name+partNames[i], os.O_RDWR|os.O_CREATE, 0o644)
		}
		if f != nil {
			w.parts[i] = &part{f: f, w: bufio.NewWriterSize(f, 256<<10)}
		}
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	return w, nil
}

func (w *cacheWriter) pattern() string { return w.name + tempName }

// lockedFile opens a file, creates it if it is missing, and locks it for this process. It returns nil if another
// process holds the lock.
func lockedFile(name string) (*os.File, error) {
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			return nil, f.Close()
		}
		mine, err := f.Stat()
		there, gone := os.Stat(name)
		if err == nil && gone == nil && os.SameFile(mine, there) {
			return f, nil
		}
		f.Close() // the file was finished or removed before the lock was taken
	}
}

// namesIn returns the paths of the files in a folder whose names begin with start and end with end. filepath.Glob
// would not do: it would interpret wildcards in the folder's name.
func namesIn(folder, start, end string) []string {
	entries, _ := os.ReadDir(folder) // files that cannot be listed are not removed
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), start) && strings.HasSuffix(e.Name(), end) {
			names = append(names, filepath.Join(folder, e.Name()))
		}
	}
	return names
}

// removeAbandoned removes files that killed processes left: files whose paths begin with start and that no process
// has locked. It keeps files younger than a minute, since a process may have created but not yet locked them.
func removeAbandoned(start string) {
	for _, name := range namesIn(filepath.Dir(start), filepath.Base(start), "") {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		info, err := f.Stat()
		old := err == nil && time.Since(info.ModTime()) > time.Minute
		if old && unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			os.Remove(name)
		}
		f.Close()
	}
}

// removeBesides removes all files of the unfinished cache called name, except the file of its
// tokens. The caller must hold the lock of that file.
func removeBesides(name string) {
	for _, end := range besides {
		os.Remove(name + end)
	}
}

// sweep removes files that killed processes left in the folder of the finished cache called name.
// It removes unfinished parts of this cache. It also removes parts of other caches whose file of
// tokens is missing, since nobody can continue such a cache. Living processes hold locks on their
// files, and sweep leaves locked files alone.
func sweep(name string) {
	removeAbandoned(name + tempName)
	var left []string
	for _, end := range append([]string{partNames[0]}, besides...) {
		for _, n := range namesIn(filepath.Dir(name), "", end) {
			left = append(left, strings.TrimSuffix(n, end))
		}
	}
	slices.Sort(left)
	for _, n := range slices.Compact(left) {
		if _, err := os.Lstat(n + partNames[0]); n != name && err == nil {
			continue // a process is writing it, or can continue it
		}
		if f, err := lockedFile(n + partNames[0]); err == nil && f != nil {
			removeBesides(n)
			os.Remove(f.Name())
			f.Close()
		}
	}
}

// tokens appends tokens and their labels to the current document. labels nil: each token is its own label.
func (w *cacheWriter) tokens(ids, labels []int32) error {
	w.Tokens += int64(len(ids))
	if labels != nil {
		w.HasLabels = true
	}
	w.buf = appendTokens(w.buf[:0], ids, w.TokenBytes)
	if err := w.parts[0].write(w.buf); err != nil {
		return err
	}
	if w.Kind == kindText {
		return nil
	}
	if labels != nil {
		w.buf = appendTokens(w.buf[:0], labels, w.TokenBytes)
	}
	return w.parts[1].write(w.buf)
}

// endDoc ends the current document. line is its line or row in its source file; 0: the document is the whole file.
// chosen is the number of tokens of a pair's chosen document; other kinds ignore it.
func (w *cacheWriter) endDoc(line int64, flags uint64, chosen int) error {
	w.Docs++
	w.buf = binary.LittleEndian.AppendUint64(w.buf[:0], uint64(w.Tokens))
	w.buf = binary.LittleEndian.AppendUint64(w.buf, uint64(line)|flags&idFlags<<flagShift)
	if w.Kind == kindPairs {
		w.buf = binary.LittleEndian.AppendUint64(w.buf, uint64(chosen))
	}
	w.IDSum = crc32.Update(w.IDSum, castagnoli, w.buf)
	binary.LittleEndian.PutUint64(w.buf[8:], uint64(line)|flags<<flagShift)
	return w.parts[2].write(w.buf)
}

func appendTokens(dst []byte, ids []int32, width int64) []byte {
	for _, id := range ids {
		if width == 4 {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(id))
			continue
		}
		if id == IgnoreIndex {
			id = ignore16
		}
		dst = binary.LittleEndian.AppendUint16(dst, uint16(id))
	}
	return dst
}

// flush hands the buffered bytes of all parts to the operating system, and records the parts' checksums in the
// manifest.
func (w *cacheWriter) flush() error {
	for i, p := range w.parts {
		w.Sums[i] = p.sum
		if err := p.w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// finish joins the parts into one file and renames it to the cache's name. It removes the other parts before the
// rename, so that a process killed in between leaves no parts beside a complete cache.
func (w *cacheWriter) finish() error {
	if err := w.flush(); err != nil {
		return err
	}
	out := w.parts[0].f
	for i, p := range w.parts[1:] {
		if i == 0 && !w.HasLabels {
			w.Sums[1] = 0
			continue
		}
		if _, err := p.f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.Copy(out, p.f); err != nil {
			return err
		}
	}
	text, err := json.Marshal(w.manifest)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	t := binary.LittleEndian.AppendUint64(text, uint64(len(text)))
	t = binary.LittleEndian.AppendUint32(t, crc32.Checksum(text, castagnoli))
	t = binary.LittleEndian.AppendUint32(t, cacheVersion)
	if _, err := out.Write(append(t, cacheMagic...)); err != nil {
		return err
	}
	w.kept = false
	if !w.private {
		removeBesides(w.name)
	}
	err = os.Rename(out.Name(), w.name)
	w.whole = err == nil
	return err
}

// close closes the cache's files. It removes them, except if the cache is finished or a commit lets a later process
// continue them.
func (w *cacheWriter) close() error {
	var errs []error
	for i, p := range w.parts {
		if p == nil {
			continue
		}
		if !w.whole && !w.kept && (i == 0 || !w.private) {
			os.Remove(p.f.Name())
		}
		errs = append(errs, p.f.Close())
	}
	if !w.whole && !w.kept && !w.private {
		os.Remove(w.name + journalName)
	}
	return errors.Join(errs...)
}

// position says how far the sources have been read: the first Source files completely, and Rows rows of the next
// file.
type position struct {
	Source int   `json:"source"`
	Rows   int64 `json:"rows"`
	// File is the path of the current source, the one after the Source sources that are done. Docs and Skipped
	// count documents and bad rows of all sources before it.
	File    string `json:"file"`
	Docs    int64  `json:"docs_before"`
	Skipped int64  `json:"skipped_before"`
	// Size and MTime are the size and time of the current source file, to detect a change before reading
	// continues.
	Size  int64 `json:"size"`
	MTime int64 `json:"mtime"`
}

// journal records how much of an unfinished cache is committed. It is stored in a file of its own, which each commit
// replaces atomically.
type journal struct {
	Manifest manifest `json:"manifest"`
	At       position `json:"at"`
}

// commit makes everything written so far survive the end of this process, so that a later process can continue. `at` is
// how far the sources are read; a document must end there.
func (w *cacheWriter) commit(at position) error {
	if w.private {
		return nil
	}
	if err := w.flush(); err != nil {
		return err
	}
	text, err := json.Marshal(journal{w.manifest, at})
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	name := w.name + journalName
	if err := os.WriteFile(name+newName, text, 0o644); err != nil {
		return err
	}
	w.kept = true
	return os.Rename(name+newName, name)
}

// resume continues from the last commit, if a commit was made for the same sources and settings. It truncates the
// files to their sizes at the commit, or to nothing if there is no usable commit. It returns how far the sources are
// read.
func (w *cacheWriter) resume(sources []source) (position, error) {
	var j journal
	if !w.private {
		text, err := os.ReadFile(w.name + journalName)
		if err != nil || json.Unmarshal(text, &j) != nil || !w.canResume(&j, sources) {
			j = journal{}
		}
	}
	sizes := [3]int64{}
	if j.Manifest.Docs > 0 {
		w.manifest, w.kept = j.Manifest, true
		sizes = w.partSizes()
		w.resumed = fmt.Sprintf("went on with an interrupted tokenisation: %d documents were done", w.Docs)
	}
	for i, p := range w.parts {
		p.sum = w.Sums[i]
		if err := p.f.Truncate(sizes[i]); err != nil {
			return j.At, err
		}
		if _, err := p.f.Seek(sizes[i], io.SeekStart); err != nil {
			return j.At, err
		}
		p.w.Reset(p.f)
	}
	return j.At, nil
}

// partSizes returns the sizes in bytes that the three files of an unfinished cache must have after
// the commit that m describes. Only text has no labels.
func (m *manifest) partSizes() [3]int64 {
	s := m.sizes()
	if s[1] = s[0]; m.Kind == kindText {
		s[1] = 0
	}
	return s
}

// canResume reports whether the commit in journal j can be continued: it was made for these sources and settings, the
// sources have not changed since, and the unfinished files are long enough.
func (w *cacheWriter) canResume(j *journal, sources []source) bool {
	m, at := &j.Manifest, &j.At
	if m.Tokenizer != w.Tokenizer || m.TokenBytes != w.TokenBytes || len(m.Files) != at.Source || at.Source > len(sources) || m.Docs < 1 {
		return false
	}
	for i, f := range m.Files {
		if !m.holds(f, sources[i]) {
			return false
		}
	}
	if at.Source < len(sources) && at.Rows > 0 {
		src := sources[at.Source]
		if at.File != src.path || at.Size != src.size || !m.unchangedSince(at.MTime, src) {
			return false
		}
	}
	for i, size := range m.partSizes() {
		f := w.parts[i].f
		if _, err := f.Seek(0, io.SeekStart); err != nil || size < 0 {
			return false
		}
		sum := crc32.New(castagnoli)
		if n, err := io.CopyN(sum, f, size); err != nil || n != size || sum.Sum32() != m.Sums[i] {
			return false
		}
	}
	return true
}

// Read calls f, which may call methods of d. It returns an error if the token cache was truncated or unreadable
// meanwhile; whatever f has read is then invalid. The cache is memory-mapped: without Read, an access to a missing
// part ends the process with SIGBUS. Sampler.Batch and BigramLoss call Read themselves.
func (d *Dataset) Read(f func()) error { return d.c.reading(f) }

// reading implements Dataset.Read: it calls f and turns a memory fault in the mapped file into an error.
func (c *cache) reading(f func()) (err error) {
	if err := c.unchanged(); err != nil {
		return err
	}
	faulting := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(faulting)
		cause := recover()
		if cause == nil {
			return
		}
		if _, fault := cause.(interface {
			runtime.Error
			Addr() uintptr
		}); !fault {
			panic(cause)
		}
		if err = c.unchanged(); err == nil {
			err = c.lost("its disk does not give what it holds")
		}
	}()
	f()
	return nil
}

// unchanged returns an error if the file's length has changed since it was opened.
func (c *cache) unchanged() error {
	info, err := c.file.Stat()
	if err != nil {
		return fmt.Errorf("token cache: %w", err)
	}
	if was := int64(len(c.mapped)); info.Size() != was {
		return c.lost(fmt.Sprintf("it has %d bytes of %d", info.Size(), was))
	}
	return nil
}

func (c *cache) lost(why string) error {
	return fmt.Errorf("token cache %s was changed while it was in use: %s; run the same again, and it is made anew", c.file.Name(), why)
}

// openRegular opens a regular file for reading. It refuses other files, since a pipe or device could block its
// reader forever.
func openRegular(name string) (*os.File, os.FileInfo, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, nil, notRegular(err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// readSmall returns the content of a file. A file longer than most bytes is an error; a missing file gives nil and no
// error.
func readSmall(name string, most int64) ([]byte, error) {
	text, err := files.Read(name, most)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// notRegular adds a reason to err if err says that the path is no regular file: mt reads data more
// than once and at any position, and a pipe does not allow this. Other errors are returned
// unchanged.
func notRegular(err error) error {
	var is *files.NotAFile
	if errors.As(err, &is) {
		return fmt.Errorf("%s is %s, and data is read more than once and by place; write it to a file and give that", is.Path, is.What)
	}
	return err
}
