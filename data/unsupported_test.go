package data

import (
	"archive/zip"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"mt/internal/testkit"
)

// zipped returns the bytes of a ZIP archive that holds one text file.
func zipped(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	f := testkit.Must(z.Create("a.txt"))(t)
	testkit.Must(f.Write([]byte("some text")))(t)
	testkit.NoError(t, z.Close())
	return b.String()
}

// TestUnsupported: a file with neither text nor rows is an error that names its format and what to do, for any file
// name. It is never read as prose.
func TestUnsupported(t *testing.T) {
	tar := strings.Repeat("a", 257) + "ustar" + strings.Repeat("b", 250)
	for file, tt := range map[string]struct {
		content string
		want    string
	}{
		"a.zip":      {zipped(t), "it is a ZIP archive; unpack it"},
		"a.txt":      {zipped(t), "it is a ZIP archive; unpack it"},
		"a.jsonl":    {zipped(t), "it is a ZIP archive; unpack it"},
		"a.csv":      {zipped(t), "it is a ZIP archive; unpack it"},
		"a.XLSX":     {zipped(t), "it is an Excel workbook; save it as CSV"},
		"a.docx":     {zipped(t), "it is a Word document; save it as plain text"},
		"a.xls":      {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "it is an Excel workbook; save it as CSV"},
		"a.7z":       {"7z\xbc\xaf\x27\x1c", "it is a 7z archive"},
		"a.tar":      {tar, "it is a tar archive; unpack it"},
		"a.tar.gz":   {squeeze(t, "x.gz", tar), "it is a tar archive; unpack it"},
		"a.tgz":      {squeeze(t, "x.gz", tar), "it is a tar archive; unpack it"},
		"a.lz4":      {"\x04\x22\x4d\x18xxxx", "it is compressed by LZ4; uncompress it; gzip, bzip2, xz and zstd are read"},
		"a.pdf":      {"%PDF-1.7 text", "it is a PDF document; save it as plain text"},
		"a.lz":       {"LZIP\x01", "it is compressed by lzip"},
		"a.orc":      {"ORC\x00", "it is an ORC file; convert it to JSONL, CSV or Parquet"},
		"a.db":       {"SQLite format 3\x00", "it is an SQLite database; convert it"},
		"a.pkl":      {"\x80\x04\x95xyz", "it is a Python pickle"},
		"a.gguf":     {"GGUF\x03\x00", "it is a model in GGUF; leave it out"},
		"utf16.txt":  {"\xff\xfea\x00", "it is text in UTF-16; convert it (iconv"},
		"x.jsonl":    {"ab\x00c", "it is binary (byte 2 is NUL); give rows in JSONL, CSV or Parquet"},
		"x.csv":      {"text\nab\x00c\n", "it is binary (byte 7 is NUL)"},
		"other.blob": {"ab\x00c", "is binary (byte 2 is NUL); give text, or rows in JSONL, CSV or Parquet"},
	} {
		dir := t.TempDir()
		name := write(t, dir, file, tt.content)
		s := textSpec(t, 64, name)
		s.SkipBadRows = true // has no effect on this error
		_, err := Open(s)
		wantError(t, err, name, tt.want)
		if file == "a.jsonl" || file == "a.csv" {
			s.Paths = []string{dir} // in a folder too, a file whose name promises rows is an error
			_, err = Open(s)
			wantError(t, err, name, tt.want)
		}
	}
}

// TestProseIsSupported: a text that begins with the letters of a binary format, such as ORC, is
// read as text.
func TestProseIsSupported(t *testing.T) {
	for _, text := range []string{"ORCHARDS\r\n\tand é", "ORC", "GGUF is a format", "LZIP too"} {
		d := mustOpen(t, textSpec(t, 64, write(t, t.TempDir(), "a.txt", text)))
		if got := texts(d.All()); !slices.Equal(got, []string{text + "$"}) {
			t.Errorf("%q: rows %q", text, got)
		}
	}
}

// TestUnsupportedInADirectory: in a directory, files of unsupported formats are skipped, and a note
// says so.
func TestUnsupportedInADirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.txt", "abc")
	name := write(t, dir, "b.zip", zipped(t))
	write(t, dir, "c.pdf", "%PDF-1.7 text")
	s := textSpec(t, 64, dir)
	for range 2 { // the first time they are read, then they come from the cache
		d := mustOpen(t, s)
		if got := texts(d.All()); !slices.Equal(got, []string{"abc$"}) {
			t.Errorf("rows %q", got)
		}
		if w := d.Warnings(); len(w) != 1 || !strings.Contains(w[0], "skipped 2 file(s) that mt does not read, the first "+name+": it is a ZIP archive") {
			t.Errorf("warnings %q", w)
		}
		if n := d.Stats().Binary; n != 2 {
			t.Errorf("%d binary files, want 2", n)
		}
	}
	_, err := Open(textSpec(t, 64, filepath.Join(dir, "*.zip")))
	wantError(t, err, "empty", name+": it is a ZIP archive; unpack it")
}

// TestCompressedFiles: a file in each compression is read, whether its name shows the compression
// or only its first bytes do.
func TestCompressedFiles(t *testing.T) {
	bz, err := base64.StdEncoding.DecodeString( // printf '{"text":"abc"}\n' | bzip2 | base64
		"QlpoOTFBWSZTWUQguVMAAAbZgAAQEAAAEDoABEogADEA000EJgaeqCoWNqwoI+LuSKcKEgiEFypg")
	testkit.NoError(t, err)
	row := `{"text":"abc"}`
	for codec, content := range map[string]string{".bz2": string(bz), ".xz": squeeze(t, "a.xz", row), ".gz": squeeze(t, "a.gz", row), ".zst": squeeze(t, "a.zst", row)} {
		for _, file := range []string{"a.jsonl" + codec, "A.JSONL" + strings.ToUpper(codec), "a.jsonl"} {
			if got := texts(mustOpen(t, textSpec(t, 64, write(t, t.TempDir(), file, content))).All()); !slices.Equal(got, []string{"abc$"}) {
				t.Errorf("%s in %s: rows %q", codec, file, got)
			}
		}
		_, err := Open(textSpec(t, 64, write(t, t.TempDir(), "a.txt"+codec, content[:len(content)-9])))
		wantError(t, err, "a.txt"+codec+": ")
		_, err = Open(textSpec(t, 64, write(t, t.TempDir(), "a.txt"+codec, "")))
		wantError(t, err, "data set is empty")
	}
	whole := squeeze(t, "a.xz", row) // ends with the index of its blocks and twelve bytes that say how long that is
	index := 4 * (1 + int(binary.LittleEndian.Uint32([]byte(whole[len(whole)-8:]))))
	_, err = Open(textSpec(t, 64, write(t, t.TempDir(), "a.txt.xz", whole[:len(whole)-12-index])))
	wantError(t, err, "a.txt.xz: xz: the file was cut off")
	packed := parquetOf(t, pqText{"abc"})
	if got := texts(mustOpen(t, textSpec(t, 64, write(t, t.TempDir(), "0123abc", packed))).All()); !slices.Equal(got, []string{"abc$"}) {
		t.Errorf("Parquet of another name: rows %q", got)
	}
}

// TestNoRegularFiles: a file that could block its reader forever, such as a pipe, is an error that names it, even
// if it replaces a regular file at the last moment.
func TestNoRegularFiles(t *testing.T) {
	dir := t.TempDir()
	pipe, socket := filepath.Join(dir, "pipe.jsonl"), filepath.Join(dir, "s")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Skip("no pipes here: ", err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Skip("no sockets here: ", err)
	}
	defer l.Close()
	for name, what := range map[string]string{pipe: "a pipe", socket: "a socket", "/dev/zero": "a device", "/dev/null": "a device"} {
		_, err := Open(textSpec(t, 64, name))
		wantError(t, err, name+" is "+what, "write it to a file")
	}
	for _, path := range []string{dir, filepath.Join(dir, "*.jsonl")} {
		_, err := Open(textSpec(t, 64, path))
		wantError(t, err, pipe+" is a pipe, a device or a socket")
	}
	text := write(t, dir, "a.txt", "abc")
	if d := mustOpen(t, textSpec(t, 64, dir)); len(d.Warnings()) != 1 || !strings.Contains(d.Warnings()[0], "passed over 2 that are no files") {
		t.Errorf("warnings %q", d.Warnings())
	}
	testkit.NoError(t, os.Remove(text))
	late := textSpec(t, 64, pipe)
	if late, err = late.resolved(); err != nil {
		t.Fatal(err)
	}
	late.sets = []dataSet{{}}
	_, err = openStream(source{path: pipe, named: true, size: 10}, &late)
	wantError(t, err, pipe+" is a pipe")
	_, err = sumOf(pipe, 1)
	wantError(t, err, pipe+" is a pipe")
	info := filepath.Join(t.TempDir(), infoName)
	testkit.NoError(t, unix.Mkfifo(info, 0o600))
	s := textSpec(t, 64, "x")
	s.Dir = filepath.Dir(info)
	_, err = Open(s)
	wantError(t, err, info+": it is a pipe")
}

// TestFilesWithoutEnd: reading ends even if a file grows meanwhile, or if the system reports no
// size for it, as under /proc.
func TestFilesWithoutEnd(t *testing.T) {
	name := write(t, t.TempDir(), "a.txt", "abc")
	s := textSpec(t, 64, name)
	s, err := s.resolved()
	testkit.NoError(t, err)
	s.sets = []dataSet{{}}
	st, err := openStream(source{path: name, size: 3}, &s)
	testkit.NoError(t, err)
	defer st.close()
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	testkit.NoError(t, err)
	defer f.Close()
	for range 100 {
		if _, err = f.WriteString("more"); err != nil {
			t.Fatal(err)
		}
		if _, err = st.Read(make([]byte, 4)); err != nil {
			break
		}
	}
	wantError(t, err, "grew while it was read", "3 bytes")
	if _, err := os.Stat("/proc/cpuinfo"); err != nil {
		t.Skip("no /proc here: ", err)
	}
	_, err = Open(textSpec(t, 64, "/proc/cpuinfo"))
	wantError(t, err, "/proc/cpuinfo holds no document")
}
