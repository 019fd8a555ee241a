package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	pqformat "github.com/parquet-go/parquet-go/format"
)

// Limits of a page of a Parquet file. Writers make pages of about 1 MB, with some ten
// thousand values at most. A header of a few bytes can claim any number of either, and the
// library would take memory for it.
const (
	maxPageBytes  = 1 << 30
	maxPageValues = 1 << 24
)

// checkPages checks the headers of all pages of a column of the current row group before
// memory is taken for what they claim.
func (r *parquetRows) checkPages(column int) error {
	groups := r.file.Metadata().RowGroups
	if r.group < 1 || r.group > len(groups) || column >= len(groups[r.group-1].Columns) {
		return errors.New("its data is missing")
	}
	m := &groups[r.group-1].Columns[column].MetaData
	if err := checkCodec(m.Codec); err != nil {
		return err
	}
	at := m.DataPageOffset
	if d := m.DictionaryPageOffset; d > 0 && d < at {
		at = d
	}
	end := at + m.TotalCompressedSize
	if at < 0 || m.TotalCompressedSize < 0 || end > r.size {
		return fmt.Errorf("its data, %d bytes at %d, lies outside the file", m.TotalCompressedSize, at)
	}
	for at < end {
		h, err := readPageHeader(r.src, at, end)
		if err != nil {
			return fmt.Errorf("page at %d: %w", at, err)
		}
		if h.packed < 0 || h.packed > r.size || h.unpacked < 0 || h.unpacked > maxPageBytes || at+h.size+h.packed > end {
			return fmt.Errorf("page at %d has %d bytes, %d uncompressed, of %d there are", at, h.packed, h.unpacked, end-at-h.size)
		}
		if h.values > maxPageValues {
			return fmt.Errorf("page at %d has %d values, more than %d", at, h.values, maxPageValues)
		}
		if err := h.checkBody(m.Codec, r.src, at); err != nil {
			return fmt.Errorf("page at %d: %w", at, err)
		}
		at += h.size + h.packed
	}
	return nil
}

// pageHeader is what a page's header says of the page; size is the header's own length in
// bytes. In a data page of version 2 the first def + rep bytes, its levels, are never
// compressed; where stored is set, nothing is.
type pageHeader struct {
	size, unpacked, packed, values int64
	kind, def, rep                 int64
	stored                         bool
}

const dataPageV2 = 3 // a pageHeader's kind

// checkBody checks that a page unpacks to the size that its header says. The header is at
// place at of r, and the page's content behind it.
func (h *pageHeader) checkBody(c pqformat.CompressionCodec, r io.ReaderAt, at int64) error {
	plain := int64(0)
	if h.kind == dataPageV2 {
		least := min(h.packed, h.unpacked)
		if h.def < 0 || h.rep < 0 || h.def > least || h.rep > least-h.def {
			return fmt.Errorf("its levels have %d and %d bytes of %d", h.rep, h.def, least)
		}
		plain = h.def + h.rep
	}
	if h.packed == plain || h.kind == dataPageV2 && h.stored {
		return nil
	}
	return checkPacked(c, io.NewSectionReader(r, at+h.size+plain, h.packed-plain), h.unpacked-plain)
}

// maxFooter is the largest footer that is read, in bytes.
const maxFooter = 1 << 28

// checkFooter checks the footer before memory is taken for what it claims.
func checkFooter(r io.ReaderAt, size int64) error {
	var tail [8]byte
	if size < 12 {
		return fmt.Errorf("%d bytes are no Parquet file", size)
	}
	if _, err := r.ReadAt(tail[:], size-8); err != nil {
		return err
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	switch {
	case string(tail[4:]) == "PARE":
		return errors.New("the file is encrypted; write it without encryption")
	case string(tail[4:]) != "PAR1":
		return errors.New("it does not end with PAR1: it was cut off, or is no Parquet file")
	case n > size-12 || n > maxFooter:
		return fmt.Errorf("a footer of %d bytes in a file of %d: it was cut off, or is damaged", n, size)
	}
	footer := make([]byte, n)
	if _, err := r.ReadAt(footer, size-8-n); err != nil {
		return err
	}
	t := compact{b: footer}
	if t.skip(thriftStruct, 0); t.failed() {
		return errors.New("its footer is damaged")
	}
	return nil
}

// readPageHeader reads the header that is at place at of r, and ends before end.
func readPageHeader(r io.ReaderAt, at, end int64) (pageHeader, error) {
	for n := int64(1 << 9); ; n <<= 4 {
		buf := make([]byte, min(n, end-at))
		if _, err := r.ReadAt(buf, at); err != nil && err != io.EOF {
			return pageHeader{}, err
		}
		t := compact{b: buf}
		h := t.pageHeader()
		if !t.short || n > 1<<24 || n >= end-at {
			if t.bad || t.short {
				return h, errors.New("its header is damaged")
			}
			h.size = int64(t.at)
			return h, nil
		}
	}
}

// compact reads values in Thrift's compact protocol. Source: thrift-compact-protocol.md of
// Apache Thrift.
type compact struct {
	b          []byte
	at         int
	short, bad bool // b ends too early; b is not in this protocol
}

// Types of values in the compact protocol.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
)

func (t *compact) failed() bool { return t.short || t.bad }

func (t *compact) byte() byte {
	if t.at >= len(t.b) {
		t.short = true
		return 0
	}
	t.at++
	return t.b[t.at-1]
}

func (t *compact) uvarint() uint64 {
	if t.failed() {
		return 0
	}
	v, n := binary.Uvarint(t.b[t.at:])
	switch {
	case n == 0:
		t.short = true
	case n < 0:
		t.bad = true
	default:
		t.at += n
	}
	return v
}

func (t *compact) int() int64 {
	v := t.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// fields calls f for every field of a struct. f must read or skip the field's value.
func (t *compact) fields(f func(id int64, kind byte)) {
	for id := int64(0); !t.failed(); {
		b := t.byte()
		if b == 0 {
			return
		}
		if step := int64(b >> 4); step > 0 {
			id += step
		} else {
			id = t.int()
		}
		f(id, b&15)
	}
}

// skip passes over a value of the given type.
func (t *compact) skip(kind byte, depth int) {
	if depth > 16 {
		t.bad = true
	}
	if t.failed() {
		return
	}
	switch kind {
	case thriftTrue, thriftFalse:
	case thriftByte:
		t.byte()
	case thriftDouble:
		t.pass(8)
	case thriftBinary:
		t.pass(t.uvarint())
	case thriftStruct:
		t.fields(func(_ int64, k byte) { t.skip(k, depth+1) })
	case thriftList, thriftSet:
		b := t.byte()
		n := uint64(b >> 4)
		if n == 15 {
			n = t.uvarint()
		}
		for ; n > 0 && !t.failed(); n-- {
			if k := b & 15; k == thriftTrue || k == thriftFalse {
				t.byte() // in a list a boolean takes a byte
			} else {
				t.skip(k, depth+1)
			}
		}
	case thriftMap:
		t.bad = true // page headers have no maps
	default:
		if kind > thriftI64 {
			t.bad = true
		}
		t.uvarint()
	}
}

func (t *compact) pass(n uint64) {
	if n > uint64(len(t.b)-t.at) {
		t.short = true
		return
	}
	t.at += int(n)
}

// pageHeader reads a PageHeader. Source: parquet.thrift of Apache Parquet.
func (t *compact) pageHeader() (h pageHeader) {
	values := func(id int64, k byte) {
		if id == 1 && k > thriftByte && k <= thriftI64 {
			h.values = t.int()
			return
		}
		t.skip(k, 1)
	}
	second := func(id int64, k byte) { // a DataPageHeaderV2
		switch whole := k > thriftByte && k <= thriftI64; {
		case id == 5 && whole:
			h.def = t.int()
		case id == 6 && whole:
			h.rep = t.int()
		case id == 7 && (k == thriftTrue || k == thriftFalse):
			h.stored = k == thriftFalse
		default:
			values(id, k)
		}
	}
	t.fields(func(id int64, k byte) {
		switch whole := k > thriftByte && k <= thriftI64; {
		case id == 1 && whole:
			h.kind = t.int()
		case id == 2 && whole:
			h.unpacked = t.int()
		case id == 3 && whole:
			h.packed = t.int()
		case (id == 5 || id == 7) && k == thriftStruct:
			t.fields(values)
		case id == 8 && k == thriftStruct:
			h.def, h.rep, h.stored = 0, 0, false
			t.fields(second)
		default:
			t.skip(k, 0)
		}
	})
	return h
}
