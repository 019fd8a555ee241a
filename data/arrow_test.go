package data

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// arrowCase is a file that testdata/arrow.py wrote, and its rows.
type arrowCase struct {
	Name string
	File []byte
	Rows []map[string]any
}

// arrowCases reads the cases of a file that testdata/arrow.py wrote.
func arrowCases(t testing.TB, name string) []arrowCase {
	t.Helper()
	text := testkit.Must(os.ReadFile(name))(t)
	var cases []arrowCase
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	testkit.NoError(t, d.Decode(&cases))
	return cases
}

const arrowRecorded = "testdata/arrow.json"

// arrowNamed returns the case with this name from the recorded file testdata/arrow.json.
func arrowNamed(t testing.TB, name string) arrowCase {
	t.Helper()
	cases := arrowCases(t, arrowRecorded)
	i := slices.IndexFunc(cases, func(c arrowCase) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no recorded file %q", name)
	}
	return cases[i]
}

// checkArrow reads each case's file with openArrow. The rows must equal those that Python recorded
// for the file.
func checkArrow(t *testing.T, cases []arrowCase) {
	for _, c := range cases {
		var rows rowReader
		var err error
		wanted := func(name string) bool { _, ok := c.Rows[0][name]; return ok }
		if bytes.HasPrefix(c.File, []byte("PAR1")) {
			rows, err = openParquet(bytes.NewReader(c.File), int64(len(c.File)), wanted)
		} else {
			rows, err = openArrow(bytes.NewReader(c.File), wanted, nil)
		}
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		for i := 0; ; i++ {
			row, n, err := rows.next(nil)
			if err == io.EOF && i == len(c.Rows) {
				break
			}
			if err != nil || i == len(c.Rows) {
				t.Errorf("%s: row %d of %d: %v", c.Name, i+1, len(c.Rows), err)
				break
			}
			var got map[string]any
			d := json.NewDecoder(bytes.NewReader(row))
			d.UseNumber()
			if err := d.Decode(&got); err != nil {
				t.Fatalf("%s: %s: %v", c.Name, row, err)
			}
			want := c.Rows[i]
			delete(want, "nothing") // a column that has nothing but nulls is not read
			if !reflect.DeepEqual(sameNumbers(got), sameNumbers(want)) || n != int64(i+1) {
				t.Errorf("%s: row %d is %v, want %v", c.Name, n, got, want)
			}
		}
	}
}

// sameNumbers returns v, a decoded JSON value, with numbers such as 1.0 written as 1, so that equal
// numbers compare equal.
func sameNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		return json.Number(strings.TrimSuffix(string(v), ".0"))
	case map[string]any:
		for k := range v {
			v[k] = sameNumbers(v[k])
		}
	case []any:
		for i := range v {
			v[i] = sameNumbers(v[i])
		}
	}
	return v
}

// TestArrow: mt reads every Arrow type as Python does. PyArrow, and save_to_disk of datasets, wrote
// the recorded files.
func TestArrow(t *testing.T) { checkArrow(t, arrowCases(t, arrowRecorded)) }

// TestArrowOfTheDay: like TestArrow, but the installed PyArrow and datasets write the files during
// the test, with other random values.
func TestArrowOfTheDay(t *testing.T) {
	python := testkit.NeedPython(t, "pyarrow", "datasets")
	for seed := range 10 {
		name := filepath.Join(t.TempDir(), "arrow.json")
		testkit.RunPython(t, python, "testdata/arrow.py", name, fmt.Sprint(seed+100))
		checkArrow(t, arrowCases(t, name))
	}
}

// TestArrowDataSet: an Arrow file opens as a data set, recognised by the file's name or by its
// first bytes. Both kinds of Arrow file work: streams and the random access format.
func TestArrowDataSet(t *testing.T) {
	saved := arrowNamed(t, "save_to_disk")
	want := []string{"u:h0|a:[g|]", "u:h1|a:[g|]", "u:h2|a:[g|]", "u:h3|a:[g|]", "u:h4|a:[g|]"}
	for file, content := range map[string]string{"a.arrow": string(saved.File), "file.arrow": arrowFileStart + string(saved.File) + "the footer", "b": string(saved.File), "c.arrow.gz": squeeze(t, "c.gz", string(saved.File))} {
		d := mustOpen(t, chatSpec(t, small, write(t, t.TempDir(), file, content)))
		if got := maskedRows(d.All()); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
		if p := d.Pieces(1)[0]; !strings.HasSuffix(p.Where, file+": row 2") {
			t.Errorf("%s: the second row is at %s", file, p.Where)
		}
	}
}

// TestArrowErrors: opening a damaged Arrow stream as a data set gives an error that names the file.
func TestArrowErrors(t *testing.T) {
	saved := string(arrowNamed(t, "save_to_disk").File)
	schema := 8 + int(binary.LittleEndian.Uint32([]byte(saved[4:]))) // the schema message has no body, so this is its end
	for _, tt := range []struct {
		name, content string
		want          []string
	}{
		{"cut off in a batch", saved[:len(saved)-40], []string{"a.arrow: arrow: behind row 0: unexpected EOF"}},
		{"cut off in the schema", saved[:100], []string{"a.arrow: arrow: unexpected EOF"}},
		{"cut off before it", saved[:8], []string{"a.arrow: arrow: unexpected EOF"}},
		{"no Arrow", "some text", []string{"a.arrow: arrow: a message does not begin as it must since Arrow 0.15", "as Parquet"}},
		{"two schemas", saved[:schema] + saved, []string{"a.arrow: arrow: behind row 0: a message of kind 1, where rows are due; write the file as Parquet"}},
		{"nothing to train on", string(arrowNamed(t, "numbers").File), []string{"a.arrow: arrow: no column", `"double"`, "text_column"}},
		{"null", string(arrowNamed(t, "text").File), []string{"a.arrow: row 2: text is null"}},
		{"a message beyond all memory", "\xff\xff\xff\xff\xff\xff\xff\x7f" + saved[8:], []string{"a.arrow: arrow: a message of 2147483647 bytes"}},
	} {
		_, err := Open(chatSpec(t, small, write(t, t.TempDir(), "a.arrow", tt.content)))
		if err == nil {
			t.Errorf("%s: no error", tt.name)
			continue
		}
		wantError(t, err, tt.want...)
	}
}

// TestArrowLimits: a file can claim sizes that its bytes cannot hold. The reader returns an error
// instead of spending memory or time on them.
func TestArrowLimits(t *testing.T) {
	saved := arrowNamed(t, "save_to_disk").File
	schema := 8 + int(binary.LittleEndian.Uint32(saved[4:])) // the schema message has no body, so this is its end
	message := flatRoot(saved[schema+8:])
	batch, _ := message.table(2)
	for what, tt := range map[string]struct {
		at    int // offset in the message
		value uint64
		says  string
	}{
		"body": {message.field(3), 1 << 40, "a batch of 1099511627776 bytes"},
		"rows": {batch.field(0), 1 << 40, "1099511627776"},
	} {
		b := slices.Clone(saved)
		binary.LittleEndian.PutUint64(b[schema+8+tt.at:], tt.value)
		rows, err := openArrow(bytes.NewReader(b), func(string) bool { return true }, nil)
		if err == nil {
			_, _, err = rows.next(nil)
		}
		if wantError(t, err, tt.says); err == nil {
			t.Errorf("%s passes", what)
		}
	}
	nulls := &arrowColumn{arrowField: &arrowField{kind: arrowNull}, n: 3}
	list := &arrowColumn{arrowField: &arrowField{kind: arrowList}, n: 1, offsets: []byte{0, 0, 0, 0, 0, 0, 0, 0x7f}, children: []*arrowColumn{nulls}}
	_, err := list.append(nil, 0, maxRow)
	wantError(t, err, "a list from 0 to 2130706432 of 3 values")
	b := &arrowBatch{rows: 1 << 40}
	wantError(t, b.check(100), "a batch of 1099511627776 rows in 100 bytes")
	_, err = (&arrowTypes{}).fields(nested(60, 1), 5, 0)
	wantError(t, err, "nested deeper than 32 levels")
	_, err = (&arrowTypes{}).fields(nested(30, 2), 5, 0)
	wantError(t, err, "more than 65536 columns")
}

// nested returns the flatbuffer table of a field that has wide children, each of which has wide
// children again, for the given number of levels.
func nested(levels, wide int) flat {
	b := []byte{16, 0, 12, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8, 0} // a vtable: the type is at 4, the children at 8
	first := len(b)
	for range levels {
		at := len(b)
		b = binary.LittleEndian.AppendUint32(b, uint32(at)) // back to the vtable
		b = binary.LittleEndian.AppendUint32(b, arrowStruct)
		b = binary.LittleEndian.AppendUint32(b, 4)
		b = binary.LittleEndian.AppendUint32(b, uint32(wide))
		for i := range wide {
			b = binary.LittleEndian.AppendUint32(b, uint32(4*(wide-i))) // to the next level
		}
	}
	last := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(last))
	b = binary.LittleEndian.AppendUint32(b, arrowStruct)
	return flat{append(b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), first}
}

// TestUnionBuffers: a union column has a buffer of types and, if its mode is dense, a buffer of
// offsets too. The mode is stored in two bytes.
func TestUnionBuffers(t *testing.T) {
	for mode, want := range []int{1, 2} {
		table := flat{[]byte{6, 0, 12, 0, 4, 0, 6, 0, 0, 0, byte(mode), 0, 9, 9, 9, 9, 9, 9}, 6} // the mode follows the offset to the vtable
		f := &arrowField{kind: arrowUnion}
		if err := f.shape(table); err != nil || f.buffers != want {
			t.Errorf("mode %d: %d buffers, want %d: %v", mode, f.buffers, want, err)
		}
	}
}

// TestArrowDamage changes every byte of a stream, one at a time. Reading must yield rows, perhaps changed, or an
// error, in little time and memory.
func TestArrowDamage(t *testing.T) {
	testkit.NotShort(t)
	for _, c := range arrowCases(t, arrowRecorded) {
		if bytes.HasPrefix(c.File, []byte("PAR1")) {
			continue
		}
		for at := range c.File {
			b := slices.Clone(c.File)
			b[at] ^= []byte{0x01, 0x80, 0xff}[at%3]
			readArrow(t, b)
		}
	}
}

// readArrow reads all rows of a stream, up to its end or the first error. It fails the test if more
// rows come than the stream's bytes can hold.
func readArrow(t *testing.T, content []byte) {
	rows, err := openArrow(bytes.NewReader(content), func(string) bool { return true }, nil)
	for n := 0; err == nil; n++ {
		var row []byte
		if row, _, err = rows.next(nil); n > 8*len(content) {
			t.Fatal("more rows than a file of that size can have")
		}
		if err == nil && !bytes.HasPrefix(row, []byte("{")) {
			t.Fatalf("a row is %q", row)
		}
	}
	if _, bad := err.(*badRow); err != io.EOF && !bad && !strings.HasPrefix(err.Error(), "arrow: ") {
		t.Errorf("an error of another kind: %v", err)
	}
}

// FuzzArrow: openArrow must not panic, whatever bytes the stream holds.
func FuzzArrow(f *testing.F) {
	for _, c := range arrowCases(f, arrowRecorded) {
		f.Add(c.File)
	}
	f.Fuzz(readArrow)
}
