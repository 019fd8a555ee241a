package report

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"mt/internal/testkit"
)

// TestFileIsAsTensorBoardReadsIt: an event file consists of the records that TensorBoard's reader
// expects: first the file version, then one scalar.
func TestFileIsAsTensorBoardReadsIt(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(1700000000, 0)
	w, err := CreateEvents(filepath.Join(dir, "runs"), now, nil)
	testkit.NoError(t, err)
	testkit.NoError(t, w.Scalars(now, 300, []Scalar{{"train/loss", 1.5}}))
	testkit.NoError(t, w.Close())
	files, err := filepath.Glob(filepath.Join(dir, "runs", "events.out.tfevents.1700000000.*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, %v", files, err)
	}
	raw, err := os.ReadFile(files[0])
	testkit.NoError(t, err)
	var records [][]byte
	for len(raw) > 0 {
		n := binary.LittleEndian.Uint64(raw)
		if got, want := binary.LittleEndian.Uint32(raw[8:]), masked(raw[:8]); got != want {
			t.Fatalf("checksum of the length %x, want %x", got, want)
		}
		data := raw[12 : 12+n]
		if got, want := binary.LittleEndian.Uint32(raw[12+n:]), masked(data); got != want {
			t.Fatalf("checksum of the data %x, want %x", got, want)
		}
		records = append(records, data)
		raw = raw[16+n:]
	}
	wall := hex.EncodeToString(binary.LittleEndian.AppendUint64(nil, math.Float64bits(1.7e9)))
	want := []string{
		"09" + wall + "1a0d" + hex.EncodeToString([]byte("brain.Event:2")),
		"09" + wall + "10ac02" + "2a13" + "0a11" + "0a0a" + hex.EncodeToString([]byte("train/loss")) + "15" + "0000c03f",
	}
	if len(records) != 2 {
		t.Fatalf("%d records", len(records))
	}
	for i, r := range records {
		if got := hex.EncodeToString(r); got != want[i] {
			t.Errorf("record %d:\n got %s\nwant %s", i, got, want[i])
		}
	}
	// RFC 3720, B.4, gives 8a9136aa as the CRC32C of 32 zero bytes. masked rotates it and adds a
	// constant.
	c := uint32(0x8a9136aa)
	if got, want := masked(bytes.Repeat([]byte{0}, 32)), (c>>15|c<<17)+0xa282ead8; got != want {
		t.Errorf("masked checksum %x, want %x", got, want)
	}
}

// TestRunsOfOneSecond: a run that is resumed within the second in which it started gets an event
// file of its own, whose name sorts behind the first.
func TestRunsOfOneSecond(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		w, err := CreateEvents(dir, time.Unix(1700000000, 0), nil)
		testkit.NoError(t, err)
		testkit.NoError(t, w.Scalars(time.Unix(1700000000, 0), i, nil))
		testkit.NoError(t, w.Close())
		files, err := os.ReadDir(dir)
		if err != nil || len(files) != i+1 || filepath.Join(dir, files[i].Name()) != w.f.Name() {
			t.Fatalf("%v, %v: the last is not %s", files, err, w.f.Name())
		}
	}
}

// brittle is a file that accepts at most room bytes. A longer write is cut there and fails.
type brittle struct {
	io.Writer
	room int
}

var errFull = errors.New("no space left on device")

func (b *brittle) Write(p []byte) (int, error) {
	n := min(len(p), b.room)
	b.room -= n
	if _, err := b.Writer.Write(p[:n]); err != nil || n == len(p) {
		return n, err
	}
	return n, errFull
}

// TestFullDiskOfEvents: if the disk has no room for a record, no part of it stays in the event
// file. If not even the first record fits, no file stays.
func TestFullDiskOfEvents(t *testing.T) {
	dir, now := t.TempDir(), time.Unix(1700000000, 0)
	disk := &brittle{}
	through := func(w io.Writer) io.Writer { disk.Writer = w; return disk }
	if _, err := CreateEvents(dir, now, through); !errors.Is(err, errFull) {
		t.Errorf("without any room: %v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("a file without a record stays: %v, %v", files, err)
	}
	disk.room = 1 << 20
	w := testkit.Must(CreateEvents(dir, now, through))(t)
	defer w.Close()
	testkit.NoError(t, w.Scalars(now, 1, []Scalar{{"train/loss", 1}}))
	before := testkit.Must(os.ReadFile(w.f.Name()))(t)
	disk.room = 20
	if err := w.Scalars(now, 2, []Scalar{{"train/loss", 1}}); !errors.Is(err, errFull) {
		t.Errorf("with room for a part of a record: %v", err)
	}
	if after, err := os.ReadFile(w.f.Name()); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the file has %d bytes, %v; want the %d from before", len(after), err, len(before))
	}
}
