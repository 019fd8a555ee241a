package data

import (
	"bytes"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// squeeze compresses text in the way that the end of name says.
func squeeze(t testing.TB, name, text string) string {
	t.Helper()
	var b bytes.Buffer
	switch {
	case strings.HasSuffix(name, ".gz"):
		z := gzip.NewWriter(&b)
		if _, err := z.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	case strings.HasSuffix(name, ".zst"):
		z, err := zstd.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := z.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	case strings.HasSuffix(name, ".xz"):
		z, err := xz.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := z.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	default:
		return text
	}
	return b.String()
}
