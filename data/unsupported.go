package data

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// headBytes is the number of bytes at a file's start that identify its format.
const headBytes = 512

// unsupportedFormat is a format of files from which mt can read neither text nor rows: the bytes with which it
// begins, its name, and advice for the user.
type unsupportedFormat struct {
	at     int // offset in the file at which start stands
	start  string
	name   string
	remedy string
}

func (a unsupportedFormat) String() string { return "it is " + a.name + "; " + a.remedy }

const (
	toUnpack  = "unpack it and give the files inside"
	toRows    = "convert it to JSONL, CSV or Parquet"
	toText    = "save it as plain text"
	toCSV     = "save it as CSV"
	toAnother = "uncompress it; gzip, bzip2, xz and zstd are read as they are"
	noData    = "leave it out"
	toUTF8    = "convert it (iconv -f UTF-16 -t UTF-8)"
)

// unsupportedFormats are the formats that mt recognises by their first bytes, as file(1) does, in order to refuse
// them. Text may begin with the same bytes as some of them; see words.
var unsupportedFormats = []unsupportedFormat{
	{0, "PK\x03\x04", "a ZIP archive", toUnpack},
	{0, "PK\x05\x06", "an empty ZIP archive", noData},
	{0, "7z\xbc\xaf\x27\x1c", "a 7z archive", toUnpack},
	{0, "Rar!\x1a\x07", "a RAR archive", toUnpack},
	{257, "ustar", "a tar archive", toUnpack},
	{0, "\x04\x22\x4d\x18", "compressed by LZ4", toAnother},
	{0, "\xff\x06\x00\x00sNaPpY", "compressed by Snappy", toAnother},
	{0, "LZIP", "compressed by lzip", toAnother},
	{0, "\x1f\x9d", "compressed by compress", toAnother},
	{0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a document of an old Microsoft Office", toCSV},
	{0, "%PDF-", "a PDF document", toText},
	{0, `{\rtf`, "an RTF document", toText},
	{0, "ORC", "an ORC file", toRows},
	{0, "Obj\x01", "an Avro file", toRows},
	{0, "SQLite format 3\x00", "an SQLite database", toRows},
	{0, "\x89HDF\r\n\x1a\n", "an HDF5 file", toRows},
	{0, "\x93NUMPY", "a NumPy array", toRows},
	{0, "GGUF", "a model in GGUF", noData},
	{0, "\x7fELF", "a program", noData},
	{0, "\x89PNG\r\n", "a PNG image", noData},
	{0, "\xff\xd8\xff", "a JPEG image", noData},
	{0, "GIF8", "a GIF image", noData},
	{0, "\xff\xfe", "text in UTF-16", toUTF8},
	{0, "\xfe\xff", "text in UTF-16", toUTF8},
}

// words lists the first bytes of those unsupported formats that begin with letters. A text may
// begin with the same letters, so isProse then looks at more of the file.
var words = []string{"LZIP", "ORC", "GGUF"}

// isProse reports whether head, the start of a file, has only characters that occur in text, and no control
// characters.
func isProse(head []byte) bool {
	return !bytes.ContainsFunc(head, func(r rune) bool { return r < ' ' && !unicode.IsSpace(r) })
}

// inZIP lists formats whose files are ZIP archives, by file extension. They all begin with the same
// bytes.
var inZIP = map[string]unsupportedFormat{
	".xlsx": {name: "an Excel workbook", remedy: toCSV}, ".xlsm": {name: "an Excel workbook", remedy: toCSV}, ".ods": {name: "a spreadsheet", remedy: toCSV},
	".docx": {name: "a Word document", remedy: toText}, ".odt": {name: "a text document", remedy: toText}, ".epub": {name: "an EPUB book", remedy: toText},
	".npz": {name: "an archive of NumPy arrays", remedy: toRows},
	".pt":  {name: "a file of PyTorch", remedy: toRows}, ".pth": {name: "a file of PyTorch", remedy: toRows},
}

// olderOffice lists the formats of old Microsoft Office versions, by file extension. They all begin
// with the same bytes.
var olderOffice = map[string]unsupportedFormat{
	".xls": {name: "an Excel workbook", remedy: toCSV}, ".doc": {name: "a Word document", remedy: toText},
}

// unsupportedOf returns the unsupported format of a file, by its name and start; false: none is known.
func unsupportedOf(name string, head []byte) (unsupportedFormat, bool) {
	end := strings.ToLower(filepath.Ext(name))
	for _, a := range unsupportedFormats {
		if len(head) < a.at+len(a.start) || string(head[a.at:a.at+len(a.start)]) != a.start {
			continue
		}
		if slices.Contains(words, a.start) && isProse(head) {
			continue
		}
		better := olderOffice
		if strings.HasPrefix(a.start, "PK") {
			better = inZIP
		}
		if b, ok := better[end]; ok {
			return b, true
		}
		return a, true
	}
	if (end == ".pkl" || end == ".pickle") && len(head) > 1 && head[0] == 0x80 {
		return unsupportedFormat{name: "a Python pickle, which runs what it holds", remedy: toRows}, true
	}
	return unsupportedFormat{}, false
}

// codecStarts are the first bytes of compressed files. "?" is any byte, since bzip2 has a digit for its level
// there.
var codecStarts = []struct{ start, codec string }{
	{"\x1f\x8b\x08", "gzip"}, {"\x28\xb5\x2f\xfd", "zstd"}, {"\xfd7zXZ\x00", "xz"}, {"BZh?1AY&SY", "bzip2"}, {"BZh?\x17\x72\x45\x38\x50\x90", "bzip2"},
}

// codecOf returns the compression of a file that begins with head; "": none.
func codecOf(head []byte) string {
	for _, c := range codecStarts {
		same := len(head) >= len(c.start)
		for i := 0; same && i < len(c.start); i++ {
			same = head[i] == c.start[i] || c.start[i] == '?'
		}
		if same {
			return c.codec
		}
	}
	return ""
}

// rowsIn returns the container (Parquet or Arrow) that a file's first bytes identify; asText: neither.
func rowsIn(head []byte) container {
	switch {
	case strings.HasPrefix(string(head), "PAR1"):
		return asParquet
	case strings.HasPrefix(string(head), arrowFileStart):
		return asArrow
	case len(head) >= 8 && strings.HasPrefix(string(head), arrowStreamStart):
		if n := binary.LittleEndian.Uint32(head[4:]); n > 0 && n <= maxArrowSchema {
			return asArrow
		}
	}
	return asText
}
