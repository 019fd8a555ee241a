package save

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/dustin/go-humanize"

	"mt/base/human"
	"mt/checkpoint"
	"mt/internal/run/settings"
	"mt/plan"
)

// Disk is the disk space that a run takes in its output directory, in bytes.
type Disk struct {
	Dir         string `json:"dir"`
	Checkpoint  int64  `json:"checkpoint_bytes"`        // one checkpoint
	Checkpoints *int   `json:"checkpoints"`             // still to write; null: depends on the data
	Limit       int    `json:"save_total_limit"`        // checkpoints kept; 0: all
	Model       int64  `json:"model_bytes"`             // the final model
	Average     int64  `json:"average_bytes,omitempty"` // averaged model
	Log         int64  `json:"log_bytes"`               // metrics and events
	AtMost      *int64 `json:"at_most_bytes"`           // beyond the current use; null as above
	Free        *int64 `json:"free_bytes,omitempty"`    // free space, counting what leftovers of unfinished saves occupy
	Cache       string `json:"token_cache,omitempty"`   // a file that already exists
	CacheBytes  int64  `json:"token_cache_bytes,omitempty"`
	what        string // what a checkpoint contains, in words
}

// Bounds in bytes on a line of metrics.jsonl, on the same numbers as TensorBoard events, and on all files that are
// written once.
const (
	logLineBytes = 1 << 10
	eventBytes   = 2 << 10
	onceBytes    = 64 << 10
)

// space computes how much disk space a run's checkpoints, models and logs take at each point of the run.
type space struct{ *Content }

// Writes returns what the run writes into output_dir.
func (out *Output) Writes() (plan.Writes, error) {
	c, err := out.contentWith(nil)
	if err != nil {
		return plan.Writes{}, err
	}
	return space{c}.writes(), nil
}

// writes returns what the run writes into output_dir.
func (out space) writes() plan.Writes {
	c, every, done := out.Config, settings.CadenceOf(out.Config), out.From.State.Step
	o := out.writerOptions(0)
	if o.Linked == nil && out.mayLink() {
		o.Linked = out.Plan.StateOnDisk
	}
	w := plan.Writes{Limit: out.staying(c.SaveTotalLimit), Model: out.modelOptions(0).ModelBytes(), Log: onceBytes}
	if c.EMADecay > 0 {
		w.Average = w.Model
	}
	if c.SaveStrategy != "no" {
		w.Checkpoint, w.Saves = o.CheckpointBytes(), out.saves(done)
	}
	if c.MaxSteps > 0 {
		line := int64(logLineBytes)
		if len(c.ReportTo) > 0 {
			line += eventBytes
		}
		left := max(0, c.MaxSteps-done)
		w.Log += line * int64(left/max(1, every.Log))
		switch {
		case every.Eval > 0:
			w.Log += line * int64(left/every.Eval)
		case every.EvalEpochs && out.Train != nil:
			w.Log += line * int64(out.EpochsAfter(c.MaxSteps)-out.EpochsAfter(done))
		}
	}
	return w
}

// staying returns how many checkpoints are on the disk while the next one is written, if save_total_limit is limit. A
// limit of 1 keeps 2 if saves are at most two steps apart. The next save may then begin before a later step with a
// finite loss has shown that the last checkpoint is good.
func (out space) staying(limit int) int {
	every := settings.CadenceOf(out.Config)
	gap := every.Save
	if every.SaveEvals && every.Eval > 0 && (gap == 0 || every.Eval < gap) {
		gap = every.Eval
	}
	if every.SaveEpochs && out.Train != nil {
		gap = out.Train.StepsPerEpoch()
	}
	if limit != 1 || gap == 0 {
		return limit
	}
	if left := out.Config.MaxSteps % gap; left > 0 { // the last save may come sooner after the save before
		gap = min(gap, left)
	}
	if gap <= 2 {
		return 2
	}
	return 1
}

// saves returns the number of checkpoints that a run at step done has still to write; plan.Unknown if it depends on
// the data. Before the end it is at least 1, so that there is room for the checkpoint that Ctrl-C saves.
func (out space) saves(done int) int {
	c, every := out.Config, settings.CadenceOf(out.Config)
	var n int
	var last bool // n includes the save after the last step
	switch {
	case c.MaxSteps > 0 && done >= c.MaxSteps:
		return 0
	case every.SaveEvals && (c.MaxSteps <= 0 || out.Train == nil):
		return plan.Unknown
	case every.SaveEvals:
		for step := done + 1; step <= c.MaxSteps; step++ {
			if last = out.savedAt(every, step) || step == c.MaxSteps; last { // the last step is evaluated
				n++
			}
		}
	case every.SaveEpochs && c.MaxSteps <= 0:
		return max(1, int(math.Ceil(c.NumTrainEpochs)))
	case every.SaveEpochs && out.Train == nil:
		return plan.Unknown
	case every.SaveEpochs:
		n, last = out.EpochsAfter(c.MaxSteps)-out.EpochsAfter(done), out.EndsEpoch(c.MaxSteps)
	case c.SaveSteps == 0:
		return 1
	case c.MaxSteps <= 0 && c.SaveSteps < 1:
		return int(math.Ceil(1 / float64(c.SaveSteps)))
	case c.MaxSteps <= 0:
		return plan.Unknown
	default:
		n, last = c.MaxSteps/every.Save-done/every.Save, c.MaxSteps%every.Save == 0
	}
	switch ends := !c.SaveOnlyModel && c.KeepCheckpoints; {
	case ends && !last:
		n++
	case !ends && last:
		n--
	}
	return max(n, 1)
}

// savedAt reports whether a run with the cadence every saves a checkpoint after step, which is not its last.
func (out space) savedAt(every settings.Cadence, step int) bool {
	due := func(n int, epochs bool) bool { return n > 0 && step%n == 0 || epochs && out.EndsEpoch(step) }
	return due(every.Save, every.SaveEpochs) || every.SaveEvals && due(every.Eval, every.EvalEpochs)
}

// Disk returns the run's disk use. It includes the free space unless the run is a sketch.
func (o *Output) Disk() (Disk, error) {
	content, err := o.contentWith(nil)
	if err != nil {
		return Disk{}, err
	}
	out, c := space{content}, o.Config
	w := out.writes()
	d := Disk{Dir: c.OutputDir, Checkpoint: w.Checkpoint, Limit: c.SaveTotalLimit, Model: w.Model, Average: w.Average, Log: w.Log, what: "weights " + string(out.writerOptions(0).SaveDType) + " and the optimizer's state"}
	switch {
	case c.SaveOnlyModel:
		d.what = "weights " + string(out.writerOptions(0).SaveDType)
	case out.mayLink():
		d.what += ", states on disks not written again but linked"
	}
	if out.Data != nil {
		if w.Kept, d.Free, err = out.held(); err != nil {
			return d, err
		}
		d.Cache, d.CacheBytes = out.Data.Cache()
	}
	if w.Saves != plan.Unknown {
		d.Checkpoints = &w.Saves
	}
	if n := w.AtMost(); n < math.MaxInt64 {
		d.AtMost = &n
	}
	return d, nil
}

// held returns what is in output_dir before the run: the sizes of the checkpoints, and the free space, both in bytes.
// Leftover files that the run removes at its start count as free space. free is nil if unknown.
func (out space) held() (kept []int64, free *int64, err error) {
	dir := out.Config.OutputDir
	kept, leftovers, err := checkpoint.Held(dir)
	if err != nil {
		return nil, nil, out.Config.Errorf("output_dir", "output_dir: %w", err)
	}
	at, _, err := nearest(dir)
	var n int64
	if err == nil {
		n, err = out.FS().Free(at)
	}
	if err != nil {
		return nil, nil, out.Config.Errorf("output_dir", "output_dir %s: how much room %s has: %w", dir, at, err)
	}
	if n < math.MaxInt64 {
		n += leftovers
		free = &n
	}
	return kept, free, nil
}

// nearest returns dir if it exists, or else the nearest directory above it that exists. info describes the returned
// directory.
func nearest(dir string) (at string, info fs.FileInfo, err error) {
	at = dir
	info, err = os.Stat(at)
	for errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) {
		at = filepath.Dir(at)
		info, err = os.Stat(at)
	}
	return at, info, err
}

// sameDisk reports whether the directories a and b are, or will be once created, on the same file system. If this
// cannot be found out, it returns false.
func sameDisk(a, b string) bool {
	_, of, err := nearest(a)
	_, with, other := nearest(b)
	if err != nil || other != nil {
		return false
	}
	x, ok := of.Sys().(*syscall.Stat_t)
	y, both := with.Sys().(*syscall.Stat_t)
	return ok && both && x.Dev == y.Dev
}

// CheckDisk returns an error if the run's checkpoints and model do not fit on the disk. If all checkpoints are kept
// and the first one fits, it returns a note about when the disk will be full instead.
func (o *Output) CheckDisk() (note string, err error) {
	content, err := o.contentWith(nil)
	if err != nil {
		return "", err
	}
	return space{content}.check()
}

// check does what CheckDisk describes, for content that is already known.
func (out space) check() (note string, err error) {
	w := out.writes()
	kept, free, err := out.held()
	if err != nil || free == nil {
		return "", err
	}
	w.Kept = kept
	need := w.AtMost()
	if need <= *free {
		return "", nil
	}
	first := w
	first.Saves = min(w.Saves, 1)
	if w.Limit == 0 && w.Saves > 1 && first.AtMost() <= *free {
		fit := int((*free - w.Log) / w.Checkpoint)
		fails := "the final model, written last, may fail"
		if fit < w.Saves {
			fails = fmt.Sprintf("saves from step %d on may fail", out.saveAfter(out.From.State.Step, fit))
		}
		return fmt.Sprintf("output_dir %s has %s free and the run writes %s: there is room for %d of the %d checkpoints of %s, and %s; %s",
			out.Config.OutputDir, human.Bytes(*free), human.Bytes(need), min(fit, w.Saves), w.Saves, human.Bytes(w.Checkpoint), fails, out.lessDisk(w, *free)), nil
	}
	return "", out.Config.Errorf("output_dir", "output_dir %s has %s free and the run takes %s there (%s): %s",
		out.Config.OutputDir, human.Bytes(*free), human.Bytes(need), breakdown(w), out.lessDisk(w, *free))
}

// saveAfter returns the step of the checkpoint that comes after the next n checkpoints, for a run at step done.
func (out space) saveAfter(done, n int) int {
	every := settings.CadenceOf(out.Config)
	if every.SaveEvals {
		for step := done + 1; step < out.Config.MaxSteps; step++ {
			if out.savedAt(every, step) {
				n--
			}
			if n < 0 {
				return step
			}
		}
		return out.Config.MaxSteps
	}
	if every.SaveEpochs {
		return min(out.Config.MaxSteps, out.Train.StepAt(int64(out.EpochsAfter(done)+n+1)*int64(out.Data.Train().Rows())))
	}
	return min(out.Config.MaxSteps, (done/every.Save+n+1)*every.Save)
}

// breakdown says in words what is on the disk at the moment when the run's files w take the most space.
func breakdown(w plan.Writes) string {
	model := "the final model of " + human.Bytes(w.Model)
	if w.Average > 0 {
		model += fmt.Sprintf(", that of the averages of %s", human.Bytes(w.Average))
	}
	n := w.Saves
	if w.Limit > 0 && n > w.Limit {
		n = w.Limit + 1
	}
	switch {
	case n == 0 || w.Checkpoint == 0:
		return model
	case n == 1:
		return fmt.Sprintf("a checkpoint of %s, %s", human.Bytes(w.Checkpoint), model)
	case n == w.Saves:
		return fmt.Sprintf("%d checkpoints of %s, %s", n, human.Bytes(w.Checkpoint), model)
	}
	return fmt.Sprintf("%d checkpoints of %s, of which the oldest goes when the next is whole, %s", n, human.Bytes(w.Checkpoint), model)
}

// lessDisk lists changes, such as a lower save_total_limit, with each of which the run's files w would fit into free
// bytes.
func (out space) lessDisk(w plan.Writes, free int64) string {
	ways := []string{fmt.Sprintf("free %s", human.Bytes(w.AtMost()-free)), "choose another output_dir"}
	try := func(text string, w plan.Writes) bool {
		fits := w.AtMost() <= free
		if fits {
			ways = append(ways, text)
		}
		return fits
	}
	if w.Checkpoint > 0 && w.Saves > 1 {
		most := w.Saves
		if set := out.Config.SaveTotalLimit; set > 0 {
			most = min(most, set)
		}
		for limit := min(most-1, int(free/w.Checkpoint)); limit > 0; limit-- {
			fewer := w
			fewer.Limit = out.staying(limit)
			if try(fmt.Sprintf("set save_total_limit: %d", limit), fewer) {
				break
			}
		}
	}
	if w.Checkpoint > w.Model && w.Saves > 0 {
		light := w
		light.Checkpoint = w.Model
		if out.Config.KeepCheckpoints {
			light.Saves = max(1, w.Saves-1) // no checkpoint after the last step
		}
		try("set save_only_model: true (nothing can be resumed then)", light)
	}
	if w.Checkpoint > 0 && w.Saves > 0 {
		none := w
		none.Checkpoint = 0
		try("set save_strategy: no (an interrupted run is lost then)", none)
	}
	last := len(ways) - 1
	return strings.Join(ways[:last], ", ") + " or " + ways[last]
}

// Write prints d as a table.
func (d Disk) Write(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(what string, bytes int64, detail string, args ...any) {
		fmt.Fprintf(tw, "  disk\t%s\t%s\t%s\n", what, human.Bytes(bytes), fmt.Sprintf(detail, args...))
	}
	if d.Checkpoint > 0 {
		often := "as many as the data has steps for"
		if d.Checkpoints != nil {
			often = humanize.Comma(int64(*d.Checkpoints)) + " to write"
		}
		if d.Limit > 0 {
			often += fmt.Sprintf(", the last %d stay", d.Limit)
		}
		row("one checkpoint", d.Checkpoint, "%s; %s", d.what, often)
	}
	row("final model", d.Model, "in output_dir")
	if d.Average > 0 {
		row("averages", d.Average, "as a model, in %s in output_dir", settings.AverageDir)
	}
	row("log", d.Log, "metrics and events")
	if d.AtMost != nil {
		free := "more than now"
		if d.Free != nil {
			free = fmt.Sprintf("of %s free in %s", human.Bytes(*d.Free), d.Dir)
		}
		row("at most", *d.AtMost, "%s", free)
	}
	if d.Cache != "" {
		row("token cache", d.CacheBytes, "written: %s", d.Cache)
	}
	_ = tw.Flush() // a failure to print the table is not an error
}
