package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	pqformat "github.com/parquet-go/parquet-go/format"
)

var errPageGrows = errors.New("it holds more than its header says")

// checkCodec refuses the compressions whose pages could take any amount of memory: the
// library unpacks them without a limit, and there is no cheap way to tell how much is in
// them.
func checkCodec(c pqformat.CompressionCodec) error {
	switch c {
	case pqformat.Uncompressed, pqformat.Snappy, pqformat.Gzip, pqformat.Zstd:
		return nil
	}
	return fmt.Errorf("it is compressed with %s, which mt does not read; write the file with snappy or zstd", c)
}

// checkPacked unpacks a page to see that it holds at most most bytes. It keeps nothing of
// them.
func checkPacked(c pqformat.CompressionCodec, packed io.Reader, most int64) error {
	switch c {
	case pqformat.Snappy: // such a page begins with its unpacked length; source: format_description.txt of Snappy
		var b [binary.MaxVarintLen64]byte
		n, _ := io.ReadFull(packed, b[:])
		if size, k := binary.Uvarint(b[:n]); n > 0 && (k <= 0 || size > uint64(most)) {
			return errPageGrows
		}
		return nil
	case pqformat.Gzip:
		z, err := gzip.NewReader(packed)
		if err != nil {
			return err
		}
		return atMost(z, most)
	case pqformat.Zstd:
		z, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(uint64(max(most, maxWindow))))
		if err != nil {
			return err
		}
		defer z.Close()
		return atMost(z, most)
	}
	return nil
}

// atMost reads r to its end, and is an error where there are more than most bytes.
func atMost(r io.Reader, most int64) error {
	n, err := io.Copy(io.Discard, io.LimitReader(r, most+1))
	if err == nil && n > most {
		err = errPageGrows
	}
	return err
}
