package checkpoint

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"

	"mt/base/files"
	"mt/host/optim"
)

// Skipped is a checkpoint that cannot be resumed from.
type Skipped struct {
	Dir        string
	Why        string
	Unfinished bool // what a save that did not end has left; never a checkpoint
	NonFinite  bool // whole, but MarkNonFinite has marked it
}

var (
	checkpointDir = regexp.MustCompile(`^checkpoint-(\d{1,18})$`)
	leftoverName  = regexp.MustCompile(`^((checkpoint-\d+|model)\.tmp-\d+(-\d+)?(-old)?|checkpoint-\d+\.tmp-remove)$`)
)

// IsLeftover says whether e is a directory that a killed save has left: its name
// is one that only a save gives.
func IsLeftover(e fs.DirEntry) bool { return e.IsDir() && leftoverName.MatchString(e.Name()) }

// IsCheckpoint says whether e is a directory named checkpoint-N.
func IsCheckpoint(e fs.DirEntry) bool { return e.IsDir() && checkpointDir.MatchString(e.Name()) }

// found is a directory named checkpoint-N.
type found struct {
	path  string
	step  int
	entry fs.DirEntry
}

// list finds the checkpoints in output, newest first, and what unfinished saves
// have left. A directory that does not exist has none.
func list(output string) (checkpoints []found, leftovers []string, err error) {
	entries, err := os.ReadDir(output)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		path := filepath.Join(output, e.Name())
		if IsLeftover(e) {
			leftovers = append(leftovers, path)
		}
		if !IsCheckpoint(e) {
			continue
		}
		step, err := strconv.Atoi(checkpointDir.FindStringSubmatch(e.Name())[1])
		if err != nil {
			continue
		}
		checkpoints = append(checkpoints, found{path, step, e})
	}
	slices.SortFunc(checkpoints, func(a, b found) int { return b.step - a.step })
	return checkpoints, leftovers, nil
}

// Latest is the newest checkpoint in output whose manifest holds and that
// MarkNonFinite has not marked, with all it had to skip to find it: dir is
// empty where there is none. Every byte of the checkpoint is read and checked.
// Those of unusable, by directory and reason, are skipped without a look. Where
// the disk cannot be read that is the error, and no older checkpoint is taken.
func Latest(output string, unusable map[string]string) (dir string, state TrainerState, skipped []Skipped, err error) {
	return latest(output, unusable, openFile)
}

func latest(output string, unusable map[string]string, open opening) (dir string, state TrainerState, skipped []Skipped, err error) {
	checkpoints, leftovers, err := list(output)
	if err != nil {
		return "", state, nil, fmt.Errorf("look for checkpoints: %w", err)
	}
	for _, path := range leftovers {
		skipped = append(skipped, Skipped{Dir: path, Why: "the save was not finished", Unfinished: true})
	}
	for _, c := range checkpoints {
		if why, ok := unusable[c.path]; ok {
			skipped = append(skipped, Skipped{Dir: c.path, Why: why})
			continue
		}
		why, err := nonFinite(c.path, open)
		if why != "" {
			skipped = append(skipped, Skipped{Dir: c.path, Why: why, NonFinite: true})
			continue
		}
		if err == nil {
			err = verify(c.path, open)
		}
		if err == nil {
			state, err = readTrainerState(c.path, open)
		}
		if err == nil {
			return c.path, state, skipped, nil
		}
		if IsDiskError(err) {
			return "", TrainerState{}, nil, fmt.Errorf("read checkpoint %w; it may be whole: try again, or move %s away to go on from an older one", err, c.path)
		}
		skipped = append(skipped, Skipped{Dir: c.path, Why: err.Error()})
	}
	return "", TrainerState{}, skipped, nil
}

// After is the newest checkpoint in output if it is of a later step than step,
// valid or not; else it is empty.
func After(output string, step int) string {
	checkpoints, _, err := list(output)
	if err != nil || len(checkpoints) == 0 || checkpoints[0].step <= step {
		return ""
	}
	return checkpoints[0].path
}

// Load reads the checkpoint dir into layers: weights and the planes beside
// them, bit for bit as they were saved. Weights may have lain in one plane or
// in two when they were saved, and may lie in either now. What is read is
// compared with the manifest's checksums. progress may be nil; it is told about
// the weights.
func Load(dir string, layers []Layer, progress Progress) (TrainerState, error) {
	return load(dir, layers, true, progress)
}

// LoadWeights is Load without the planes beside the weights, which stay as they are: an optimizer
// that keeps others may have written the checkpoint. Checksums of all that is there are compared.
func LoadWeights(dir string, layers []Layer, progress Progress) (TrainerState, error) {
	return load(dir, layers, false, progress)
}

func load(dir string, layers []Layer, planes bool, progress Progress) (TrainerState, error) {
	state, err := loadState(dir, layers, planes, progress)
	if err != nil {
		return state, fmt.Errorf("resume from %s: %w", dir, err)
	}
	return state, nil
}

func loadState(dir string, layers []Layer, planes bool, progress Progress) (TrainerState, error) {
	r, err := openReader(dir, layoutsOf(layers))
	if err != nil {
		return TrainerState{}, err
	}
	defer r.Close()
	if err := r.src.read(here(r.targets, layers), layers, r.records, progress); err != nil {
		return TrainerState{}, err
	}
	err = each(len(layers), func(i int) error {
		if layers[i].Lend != nil {
			return nil
		}
		return loadLayerState(dir, i, layers[i], wanted{r.rounded[i], planes}, r.records)
	})
	if err != nil {
		return TrainerState{}, err
	}
	beside := LowerHalves
	if planes {
		beside = Everything
	}
	for i, l := range layers {
		if l.Lend == nil {
			continue
		}
		if err := l.Lend(func(l Layer) error { return r.layer(i, l, beside) }); err != nil {
			return TrainerState{}, err
		}
	}
	return ReadState(dir)
}

// wanted is what must be in a layer's optimizer file: the weights' lower halves, the planes beside
// the weights. Lower halves that are not wanted are not there; planes are passed over.
type wanted struct{ lo, planes bool }

// loadLayerState reads a layer's optimizer file.
func loadLayerState(dir string, i int, l Layer, w wanted, records map[string]fileRecord) error {
	for _, compressed := range []bool{false, true} {
		name := optimizerName(i, compressed)
		record, ok := records[name]
		if !ok {
			continue
		}
		lacks, err := readState(dir, name, record, compressed, i, l, w)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		left, err := readLower(dir, lacks, l, records)
		if err != nil {
			return err
		}
		for _, tensor := range slices.Sorted(maps.Keys(left)) {
			return fmt.Errorf("%s: tensor %q: missing", name, tensor)
		}
		return nil
	}
	return fmt.Errorf("%s: missing", optimizerName(i, false))
}

// readState reads one optimizer file from its start to its end, and returns what it lacks of what is wanted.
func readState(dir, name string, record fileRecord, compressed bool, layer int, l Layer, w wanted) (lacks map[string]*entry, err error) {
	f, err := files.Open(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() != record.Bytes {
		return nil, fmt.Errorf("%d bytes long, not %d", st.Size(), record.Bytes)
	}
	if !compressed {
		return readStateTensors(bufio.NewReaderSize(f, 1<<16), record.Bytes, record, layer, l, w)
	}
	sum := crc32.New(castagnoli)
	all := io.TeeReader(f, sum)
	dec, err := zstd.NewReader(all, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	defer dec.Close()
	if lacks, err = readStateTensors(dec, -1, fileRecord{}, layer, l, w); err != nil {
		return nil, err
	}
	if n, err := io.Copy(io.Discard, dec); err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	} else if n > 0 {
		return nil, fmt.Errorf("%d bytes after the last tensor", n)
	}
	if _, err := io.Copy(io.Discard, all); err != nil {
		return nil, err
	}
	return lacks, record.Regions[0].check(name, sum.Sum32())
}

// readStateTensors reads the tensors of an optimizer file in the order they
// have there, and returns what it lacks of what is wanted. Checksums are compared where the record has regions.
func readStateTensors(r io.Reader, size int64, record fileRecord, layer int, l Layer, w wanted) (lacks map[string]*entry, err error) {
	h, err := readHeader(r, size)
	if err != nil {
		return nil, err
	}
	want := map[string]*entry{}
	var planes []optim.Placed
	for _, s := range l.Planes {
		if w.planes {
			planes = append(planes, s.Placed)
		}
	}
	for _, e := range optimizerFile(layer, l.Layout, planes, BF16, false).entries {
		if w.lo || e.plane != planeLo {
			want[e.name] = e
		}
	}
	var buf []byte
	for _, t := range h.tensors {
		e := want[t.name]
		if isPadding(t.name) || e == nil && !w.planes && !strings.HasPrefix(t.name, planeLo.prefix) {
			e = &entry{tensor: t, layer: passedOver}
		} else if e == nil {
			return nil, fmt.Errorf("tensor %q: belongs to no parameter of the layer", t.name)
		}
		if err := t.fits(e); err != nil {
			return nil, err
		}
		delete(want, t.name)
		if n := min(pieceBytes, e.bytes); int64(len(buf)) < n {
			buf = make([]byte, n)
		}
		sum, err := e.read(r, l, buf)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.name, err)
		}
		if record.Regions == nil {
			continue
		}
		if err := record.region(t.name).check(record.Name, sum); err != nil {
			return nil, err
		}
	}
	return want, nil
}

// read reads e from the stream r into l.
func (e *entry) read(r io.Reader, l Layer, buf []byte) (sum uint32, err error) {
	for at := int64(0); at < e.bytes; at += int64(len(buf)) {
		p := buf[:min(int64(len(buf)), e.bytes-at)]
		if _, err := io.ReadFull(r, p); err != nil {
			return 0, truncated(err, "the tensor's data")
		}
		sum = crc32.Update(sum, castagnoli, p)
		switch {
		case e.layer == passedOver:
		case e.plane.state != "":
			l.setState(e.plane.state, e.elem+at, p)
		default:
			l.decode(e.layout, e.plane, e.elem+at/e.plane.size(), p)
		}
	}
	return sum, nil
}
