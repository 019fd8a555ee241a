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
	Unfinished bool // left by a save that did not end; never a checkpoint
	NonFinite  bool // whole, but marked by MarkNonFinite
}

var (
	checkpointDir = regexp.MustCompile(`^checkpoint-(\d{1,18})$`)
	leftoverName  = regexp.MustCompile(`^((checkpoint-\d+|model)\.tmp-\d+(-\d+)?(-old)?|checkpoint-\d+\.tmp-remove)$`)
)

// IsLeftover reports whether e is a directory left by a killed save. Only saves use such names.
func IsLeftover(e fs.DirEntry) bool { return e.IsDir() && leftoverName.MatchString(e.Name()) }

// IsCheckpoint reports whether e is a directory named checkpoint-N.
func IsCheckpoint(e fs.DirEntry) bool { return e.IsDir() && checkpointDir.MatchString(e.Name()) }

// found is a checkpoint directory that list has found, named checkpoint-N.
type found struct {
	path  string
	step  int
	entry fs.DirEntry
}

// list returns the checkpoints in output, newest first, and the leftovers of unfinished saves. A missing directory
// has none.
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

// Latest returns the newest valid checkpoint in output that MarkNonFinite has not marked, and all it skipped to
// find it. dir is "" if there is none. Latest reads every byte of the checkpoint and compares checksums. It skips
// the directories in unusable (directory to reason) without reading them. If the disk cannot be read, Latest fails
// instead of taking an older checkpoint.
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

// After returns the newest checkpoint in output, valid or not, if its step is later than step; otherwise "".
func After(output string, step int) string {
	checkpoints, _, err := list(output)
	if err != nil || len(checkpoints) == 0 || checkpoints[0].step <= step {
		return ""
	}
	return checkpoints[0].path
}

// Load reads the checkpoint dir into layers: the weights and the optimizer's planes, bit for bit as saved. A weight
// may have been saved as fp32, or as bf16 with its lower half, and may now be held in memory either way. The data are
// compared with the manifest's checksums. progress covers the weights and may be nil.
func Load(dir string, layers []Layer, progress Progress) (TrainerState, error) {
	return load(dir, layers, true, progress)
}

// LoadWeights is Load, but leaves the optimizer's planes unchanged: an optimizer with other planes may have written
// the checkpoint. It still compares all checksums.
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

// wanted selects the parts of a layer's optimizer file. lo: the file must hold lower halves; false: it has none.
// planes: the file must hold the optimizer's planes; false: planes in it are skipped.
type wanted struct{ lo, planes bool }

// loadLayerState reads the optimizer file of layer i into l: the parts that w selects. records are the manifest's
// records by file name.
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

// readState reads one optimizer file from start to end into l. record is the manifest's record of the file. It
// returns the wanted tensors that the file lacks.
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

// readStateTensors reads the tensors of an optimizer file in file order. It returns the wanted tensors that the
// file lacks. It compares checksums if the record has regions.
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

// read reads e from the stream r into l and returns its CRC32C.
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
