package report

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"
)

// Events writes TensorBoard events to a file. It is not safe for concurrent use.
type Events struct {
	f     *os.File
	to    io.Writer // ends in f
	whole int64     // bytes of f in whole records
}

const newFile = os.O_CREATE | os.O_EXCL | os.O_APPEND | os.O_WRONLY

// CreateEvents creates an event file in dir and dir itself if needed. A resumed run creates another file: TensorBoard
// reads all files of a directory as one run. through, which may be nil, wraps the file.
func CreateEvents(dir string, now time.Time, through func(io.Writer) io.Writer) (*Events, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	// TensorBoard reads files in the order of their names.
	name := filepath.Join(dir, fmt.Sprintf("events.out.tfevents.%d.%s.%d", now.Unix(), host, os.Getpid()))
	f, err := os.OpenFile(name, newFile, 0o644)
	for n := 1; errors.Is(err, fs.ErrExist); n++ { // another run started in the same second
		f, err = os.OpenFile(fmt.Sprintf("%s.%d", name, n), newFile, 0o644)
	}
	if err != nil {
		return nil, err
	}
	w := &Events{f: f, to: f}
	if through != nil {
		w.to = through(f)
	}
	// Event.file_version, field 3.
	if err := w.record(appendBytes(wallTime(now), 3, []byte("brain.Event:2"))); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return w, nil
}

// Scalars writes one event with the values at a step. Values that are not finite are written too: TensorBoard marks
// them. After a failure the file is as before.
func (w *Events) Scalars(now time.Time, step int, values []Scalar) error {
	var summary []byte
	for _, v := range values {
		// Summary.Value: tag is field 1, simple_value field 2 (float).
		one := appendBytes(nil, 1, []byte(v.Name))
		one = append(one, 2<<3|5)
		one = binary.LittleEndian.AppendUint32(one, math.Float32bits(float32(v.Value)))
		summary = appendBytes(summary, 1, one) // Summary.value
	}
	// Event: step is field 2, summary field 5.
	event := append(wallTime(now), 2<<3)
	event = binary.AppendUvarint(event, uint64(step))
	return w.record(appendBytes(event, 5, summary))
}

// Close closes the file.
func (w *Events) Close() error { return w.f.Close() }

// wallTime returns the beginning of an encoded Event: its field 1, wall_time (double, seconds).
func wallTime(now time.Time) []byte {
	return binary.LittleEndian.AppendUint64([]byte{1<<3 | 1}, math.Float64bits(float64(now.UnixNano())/1e9))
}

// appendBytes appends to b a protobuf field with the number field whose value is the bytes v, preceded by their
// length.
func appendBytes(b []byte, field byte, v []byte) []byte {
	b = append(b, field<<3|2)
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns the checksum that the TFRecord format uses for b: its CRC32C, rotated, plus a constant. Source:
// tensorflow.org/tutorials/load_data/tfrecord.
func masked(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// record appends one TFRecord to the file: the length of data, the length's checksum, data, and its checksum.
func (w *Events) record(data []byte) error {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, masked(b))
	b = append(b, data...)
	b = binary.LittleEndian.AppendUint32(b, masked(data))
	if _, err := w.to.Write(b); err != nil {
		// A partial record would be an error for TensorBoard. If it cannot be truncated, the first error is returned.
		_ = w.f.Truncate(w.whole)
		return fmt.Errorf("tensorboard: %w", err)
	}
	w.whole += int64(len(b))
	return nil
}
