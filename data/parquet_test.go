package data

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"mt/internal/testkit"
)

// parquetOf returns a Parquet file of rows, with two rows per row group and few values per page.
func parquetOf[T any](t testing.TB, rows ...T) string {
	t.Helper()
	return parquetIn(t, 2, 64, rows...)
}

// parquetIn returns a Parquet file of rows, with group rows per row group and page bytes per page.
func parquetIn[T any](t testing.TB, group int64, page int, rows ...T) string {
	t.Helper()
	return parquetWith(t, []parquet.WriterOption{parquet.MaxRowsPerRowGroup(group), parquet.PageBufferSize(page)}, rows...)
}

// parquetWith returns a Parquet file of rows, written with these options.
func parquetWith[T any](t testing.TB, options []parquet.WriterOption, rows ...T) string {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[T](&b, options...)
	testkit.Must(w.Write(rows))(t)
	testkit.NoError(t, w.Close())
	return b.String()
}

type (
	pqText struct {
		Text string `parquet:"text"`
	}
	pqTextNull struct {
		Other int64   `parquet:"other"`
		Text  *string `parquet:"text,optional"`
	}
	pqIDs struct {
		IDs    []int32 `parquet:"input_ids,list"`
		Labels []int64 `parquet:"labels,list"`
	}
	pqAlpaca struct {
		Instruction string     `parquet:"instruction,zstd"`
		Input       *string    `parquet:"input,optional"`
		Output      string     `parquet:"output,snappy"`
		History     [][]string `parquet:"-"`
	}
	pqTurn struct {
		From  string `parquet:"from,dict"`
		Value string `parquet:"value"`
	}
	pqShareGPT struct {
		System        *string  `parquet:"system,optional"`
		Conversations []pqTurn `parquet:"conversations,list"`
	}
	pqFunction struct {
		Name      string `parquet:"name"`
		Arguments string `parquet:"arguments"`
	}
	pqCall struct {
		Function pqFunction `parquet:"function"`
	}
	pqMessage struct {
		Role    string   `parquet:"role"`
		Content *string  `parquet:"content,optional"`
		Calls   []pqCall `parquet:"tool_calls,list,optional"`
	}
	pqMessages struct {
		Tools    string      `parquet:"tools"`
		Messages []pqMessage `parquet:"messages"` // a repeated field that is in no LIST
	}
)

func ptr[T any](v T) *T { return &v }

// TestParquet: nested columns become the JSON objects and lists that the rows were written from.
func TestParquet(t *testing.T) {
	call := []pqCall{{pqFunction{"f", `{"k":1}`}}}
	tests := []struct {
		name, file string
		want       []string
	}{
		{"text", parquetOf(t, pqText{"abc"}, pqText{"d\"e\\\n\x01"}, pqText{"é"}), []string{"[abc$]", "[d\"e\\\n\x01$]", "[\xc3\xa9$]"}},
		{"ids", parquetOf(t, pqIDs{[]int32{97, 98}, []int64{-100, 98}}, pqIDs{[]int32{99, 100, 101}, []int64{-100, -100, 101}}, pqIDs{[]int32{97, 97}, []int64{97, 97}}), []string{"a[b]", "cd[e]", "[aa]"}},
		{"alpaca", parquetOf(t, pqAlpaca{Instruction: "i", Output: "o"}, pqAlpaca{Instruction: "i", Input: ptr("j"), Output: "p"}), []string{"u:i|a:[o|]", "u:i\nj|a:[p|]"}},
		{"sharegpt", parquetOf(t, pqShareGPT{nil, []pqTurn{{"human", "h"}, {"gpt", "g"}}}, pqShareGPT{ptr("s"), []pqTurn{{"human", "h"}, {"gpt", "g"}, {"human", "x"}, {"gpt", "y"}}},
			pqShareGPT{nil, []pqTurn{{"human", "h"}, {"gpt", "g"}}}), []string{"u:h|a:[g|]", "s:s|u:h|a:[g|]u:x|a:[y|]", "u:h|a:[g|]"}},
		{"messages", parquetOf(t, pqMessages{"", []pqMessage{{"user", ptr("h"), nil}, {"assistant", ptr("g"), nil}}},
			pqMessages{`[{"name":"f"}]`, []pqMessage{{"user", ptr("h"), nil}, {"assistant", ptr(""), call}, {"tool", ptr("r"), nil}, {"assistant", ptr("g"), nil}}}),
			[]string{"u:h|a:[g|]", "u:h|a:[!f{\"k\": 1}|]t:r|a:[g|]T1f"}},
	}
	for _, tt := range tests {
		for _, format := range []string{"auto", "parquet"} {
			name := write(t, t.TempDir(), map[string]string{"auto": "a.parquet", "parquet": "a.bin"}[format], tt.file)
			s := chatSpec(t, small, name)
			s.Format = format
			d := mustOpen(t, s)
			if got := maskedRows(d.All()); !slices.Equal(got, tt.want) {
				t.Errorf("%s: rows %q, want %q", tt.name, got, tt.want)
			}
			if again, cached := reopen(t, s); !cached || again.ID() != d.ID() {
				t.Errorf("%s: read again without the cache", tt.name)
			}
		}
	}
}

// noRows is the file, in Base64, that pyarrow 26 writes for a table with one column of strings and
// no rows. Its row group has no rows, and the column has an offset but no page.
//
//	pq.write_table(pa.table({"text": pa.array([], pa.string())}), "a.parquet", store_schema=False, compression="none")
const noRows = "UEFSMRUEFQAVAEwVABUAEgAAFQQZLDUAGAZzY2hlbWEVAgAVDCUCGAR0ZXh0JQBMHAAAABYAGRwZHCYAHBUMGSUABhkYBHRleHQVABYAFhwWHCYAJggpHBUE" +
	"FQAVAgAAABYcFgAmCBYcACggcGFycXVldC1jcHAtYXJyb3cgdmVyc2lvbiAyNi4wLjEZHBwAAACAAAAAUEFSMQ=="

func TestParquetErrors(t *testing.T) {
	whole := parquetOf(t, pqText{"abc"}, pqText{"def"}, pqText{"ghi"})
	empty := testkit.Must(base64.StdEncoding.DecodeString(noRows))(t)
	tests := []struct {
		name, file, content string
		want                []string
	}{
		{"images", "a.parquet", parquetOf(t, struct {
			Images   []byte `parquet:"images"`
			Messages string `parquet:"messages"`
		}{[]byte("x"), "[]"}), []string{`a column "images" beside the column "messages"`, "text alone"}},
		{"no such column", "a.parquet", parquetOf(t, struct{ Body string }{"x"}), []string{"a.parquet: parquet: no column", "Body", "dataset_info.json"}},
		{"null", "a.parquet", parquetOf(t, pqTextNull{1, ptr("ab")}, pqTextNull{2, nil}), []string{"a.parquet: row 2: text is null"}},
		{"no rows", "a.parquet", parquetOf[pqText](t), []string{"is empty", "a.parquet"}},
		{"a group of no rows", "a.parquet", string(empty), []string{"is empty", "a.parquet"}},
		{"LZ4", "a.parquet", parquetWith(t, []parquet.WriterOption{parquet.Compression(&parquet.Lz4Raw)}, pqText{"abc"}), []string{`row 1: column "text": it is compressed with LZ4_RAW`, "zstd"}},
		{"cut off", "a.parquet", whole[:len(whole)/2], []string{"a.parquet: parquet: "}},
		{"no Parquet", "a.parquet", strings.Repeat("x", 100), []string{"a.parquet: parquet: "}},
		{"empty", "a.parquet", "", []string{"a.parquet: parquet: "}},
		{"compressed", "a.parquet.gz", squeeze(t, "x.gz", whole), []string{"a.parquet.gz: a compressed Parquet file", "uncompress"}},
		{"id over vocabulary", "a.parquet", parquetOf(t, pqIDs{[]int32{1, 2}, []int64{1, 2}}, pqIDs{[]int32{1, 300}, []int64{1, 2}}), []string{"a.parquet: row 2: input_ids[1] is 300"}},
	}
	for _, tt := range tests {
		_, err := Open(chatSpec(t, small, write(t, t.TempDir(), tt.file, tt.content)))
		if err == nil {
			t.Errorf("%s: no error", tt.name)
			continue
		}
		wantError(t, err, tt.want...)
	}
}

// TestParquetClaims: if a file's or a page's header claims more data than the file holds, reading
// is an error that allocates no memory for the claim.
func TestParquetClaims(t *testing.T) {
	for claim, want := range map[string]string{
		"PAR1xxxx\xff\xff\xff\xffPAR1":                     "a footer of 4294967295 bytes in a file of 16",
		"PAR1xxxx\x05\x00\x00\x00PAR1":                     "a footer of 5 bytes in a file of 16",
		"PAR1\x19\xfc\xff\xff\xff\x0f\x06\x00\x00\x00PAR1": "its footer is damaged", // a list of 2^32 structs
		"PAR1xxxx\x04\x00\x00\x00PARE":                     "encrypted",
		"PAR1xxxx\x04\x00\x00\x00PAR2":                     "does not end with PAR1",
	} {
		wantError(t, checkFooter(strings.NewReader(claim), int64(len(claim))), want)
	}
	// A page header in Thrift's compact protocol. Fields 1 to 3, as zigzag numbers, are the page's
	// kind and its two sizes. Field 5 is the header of a data page, whose field 1 is the number of
	// values.
	header := []byte{0x15, 0, 0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0x15, 4, 0x2c, 0x15, 0x80, 0x80, 0x80, 0x80, 0x08, 0x15, 0, 0, 0, 'x'}
	h, err := readPageHeader(bytes.NewReader(header), 0, int64(len(header)))
	if want := (pageHeader{size: 21, unpacked: 1<<31 - 1, packed: 2, values: 1 << 30}); err != nil || h != want {
		t.Errorf("page header %+v, %v, want %+v", h, err, want)
	}
	for n := range 20 {
		if h, err := readPageHeader(bytes.NewReader(header[:n]), 0, int64(n)); err == nil {
			t.Errorf("cut to %d bytes it passes as %+v", n, h)
		}
	}
}

// TestParquetPagesUnpackToWhatTheySay: if a page would decompress to more than its header claims,
// it is refused before the library decompresses it. A page with a correct header is read, in every
// compression.
func TestParquetPagesUnpackToWhatTheySay(t *testing.T) {
	const size = 1 << 20
	for _, codec := range []compress.Codec{&parquet.Snappy, &parquet.Gzip, &parquet.Zstd} {
		for version := 1; version <= 2; version++ {
			var rows []pqText
			for i := range 100 {
				rows = append(rows, pqText{strings.Repeat(fmt.Sprint(i), 50)})
			}
			file := parquetWith(t, []parquet.WriterOption{parquet.Compression(codec), parquet.DataPageVersion(version), parquet.PageBufferSize(1000)}, rows...)
			if d := mustOpen(t, textSpec(t, 4096, write(t, t.TempDir(), "a.parquet", file))); d.Stats().Documents != 100 {
				t.Errorf("%s, version %d: %d documents", codec, version, d.Stats().Documents)
			}
		}
		body := testkit.Must(codec.Encode(nil, make([]byte, size)))(t)
		n := int64(len(body))
		whole, second := append([]byte("head"), body...), append([]byte("headlevels"), body...)
		for _, tt := range []struct {
			name string
			h    pageHeader
			page []byte
			want error
		}{
			{"as it says", pageHeader{size: 4, packed: n, unpacked: size}, whole, nil},
			{"a byte more", pageHeader{size: 4, packed: n, unpacked: size - 1}, whole, errPageGrows},
			{"with levels", pageHeader{size: 4, packed: n + 6, unpacked: size + 6, kind: dataPageV2, def: 2, rep: 4}, second, nil},
			{"with levels, a byte more", pageHeader{size: 4, packed: n + 6, unpacked: size + 5, kind: dataPageV2, def: 2, rep: 4}, second, errPageGrows},
			{"stored", pageHeader{size: 4, packed: n, unpacked: 1, kind: dataPageV2, stored: true}, whole, nil},
			{"stored, of version 1", pageHeader{size: 4, packed: n, unpacked: 1, stored: true}, whole, errPageGrows},
			{"levels alone", pageHeader{size: 4, packed: 6, unpacked: 6, kind: dataPageV2, def: 6}, second, nil},
		} {
			if err := tt.h.checkBody(codec.CompressionCodec(), bytes.NewReader(tt.page), 0); !errors.Is(err, tt.want) {
				t.Errorf("%s, %s: %v, want %v", codec, tt.name, err, tt.want)
			}
		}
		levels := pageHeader{size: 4, packed: 6, unpacked: 6, kind: dataPageV2, def: 5, rep: 1<<63 - 3}
		wantError(t, levels.checkBody(codec.CompressionCodec(), bytes.NewReader(second), 0), "its levels have")
	}
}
