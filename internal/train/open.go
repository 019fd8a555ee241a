package train

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"syscall"

	"mt/checkpoint"
	"mt/data"
	"mt/device"
	"mt/internal/config"
	"mt/internal/throttle"
	"mt/internal/watch"
	"mt/model"
	"mt/plan"
	"mt/plan/rates"
	"mt/tokenizer"
)

// Inputs are what a configuration names, opened: the model, its tokenizer, the data, the
// devices and the ranks. Nothing big is allocated yet.
type Inputs struct {
	c        *config.Config // the settings, with what was settled so far
	hooks    hooks
	team     *team
	opened   *Model
	model    *model.Config      // opened.Config
	modelDir string             // opened.Dir
	source   *checkpoint.Source // of modelDir, open until the end: saves copy from it; nil: from scratch
	tok      tokenizer.Tokenizer
	tokErr   error
	other    *Model // dpo.reference_model; nil: it is the model that training starts from

	set      *data.Dataset
	evalSet  *data.Dataset // nil: held out from set, or none
	all      *data.Sampler // of the training data, from its first row
	epochs   bool          // num_train_epochs decides the number of steps
	eval     *data.Sampler // nil: no evaluation
	evalView data.View
	longest  int // tokens of the longest row

	act     device.DType
	unified bool
	// integrated says that the GPU has no memory of its own: what it takes counts as the host's.
	integrated bool
	devs       []device.Device // the GPUs by lane; nil: the CPU computes, or there is only a plan
	lanes      int             // how many devices the run has
	paces      []plan.Pace     // by lane, what each device reaches; nil: they are alike
	memory     []int64         // by lane, bytes that may be used; nil: they are alike
	differ     bool            // the devices differ in what they reach
	context    int64           // device memory in bytes that is taken before anything is allocated
	budget     int64           // memory of the open device that may be used, in bytes
	slow       throttle.Limits // how much slower the CPU device is than it could be
	profile    *rates.Machine  // that the run is planned for; nil: it is for this machine
	page       net.Listener    // of the dashboard; nil: none
	pageAt     watch.Address

	notes   []string // for the user, once
	closers *closers
}

// Asks say what inputs are opened for.
type Asks struct {
	Team         *team // nil: this process works alone
	Run          bool  // a training run, for which output_dir, boards and the dashboard's port are checked
	Paper        bool  // only a plan is wanted, which may be for a GPU that is not here
	Sketch       bool  // the plan is made from the configuration alone, without data and output_dir
	Trials       bool  // runs over random tokens are wanted, without data and output_dir
	OrCheckpoint bool  // where the model is the output_dir of a run that has written no model yet, its newest checkpoint is taken
	HeldOut      bool  // dataset is for evaluation: of a directory with splits, the held-out one is read
}

// opening is inputs while they are opened.
type opening struct {
	Inputs
	a         Asks
	oneDevice bool // it computes on one device, whatever devices says
}

// begin begins to open what c names. c stays as it is: every auto that is settled is in a copy.
func begin(c *config.Config, o Options, a Asks) *opening {
	if a.Team == nil {
		a.Team = alone(context.Background())
	}
	return &opening{Inputs: Inputs{c: c.Clone(), hooks: o.hooks, team: a.Team, closers: &closers{}}, a: a}
}

func (j *opening) note(format string, args ...any) {
	j.notes = append(j.notes, fmt.Sprintf(format, args...))
}

// Close closes what was opened, the last first.
func (j *Inputs) Close() error { return j.closers.close() }

// with are the inputs under settings of which more is settled.
func (j *Inputs) with(c *config.Config) *Inputs {
	out := *j
	out.c = c
	return &out
}

// closers close what a stage has opened.
type closers struct {
	list []func() error
}

func (c *closers) add(f func()) {
	c.addErr(func() error { f(); return nil })
}

func (c *closers) addErr(f func() error) { c.list = append(c.list, f) }

// close calls the closers, the last one first, and returns what went wrong.
func (c *closers) close() (err error) {
	for i := len(c.list) - 1; i >= 0; i-- {
		err = errors.Join(err, c.list[i]())
	}
	c.list = nil
	return err
}

// closeAfter closes c and, unless *err is set already, sets it to the error of closing.
func closeAfter(c interface{ Close() error }, err *error) {
	if e := c.Close(); *err == nil {
		*err = e
	}
}

// Open checks c and opens what it names. The checks of a run come before the data is read; a
// sketch reads no data, and neither do trials. A team that is asked to stop ends the reading
// with ErrResumable.
func Open(c *config.Config, o Options, a Asks) (_ *Inputs, err error) {
	j := begin(c, o, a)
	defer func() {
		if err != nil {
			closeAfter(j, &err)
		}
	}()
	if j.slow, err = throttle.FromEnv(); err != nil {
		return nil, err
	}
	required := []string{"model", "dataset"}
	if a.Sketch || a.Trials {
		required = required[:1]
	}
	if err := j.c.Require(required...); err != nil {
		return nil, err
	}
	steps := []func() error{j.findModel, j.openModel, func() error { return j.c.CheckGradSlabs(len(j.model.Layers())) }, j.checkRanks,
		func() error { return j.resolveDevice(o) }, j.checkMaster}
	if a.Run && j.team.first() { // the others write nothing there
		steps = append(steps, j.checkOutput, j.checkCopied, func() error { return checkTrace(j.c) }, func() error { return checkBoards(j.c) }, j.listen)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if a.Trials {
		return &j.Inputs, nil
	}
	if err := j.openReference(); err != nil {
		return nil, err
	}
	if a.Sketch {
		return &j.Inputs, nil
	}
	if len(j.c.DPO) > 0 && j.modelDir == "" {
		return nil, j.c.Errorf("dpo", "dpo compares with the model that training starts from, and this one begins at random: give model_name_or_path")
	}
	if err := j.openData(o.Stderr, o.Interactive); err != nil {
		return nil, err
	}
	return &j.Inputs, nil
}

// openModel opens the model, its tokenizer and the files of its weights.
func (j *opening) openModel() error {
	m, err := OpenModel(j.c)
	if err != nil {
		return err
	}
	j.opened, j.model, j.modelDir, j.tok, j.tokErr = m, m.Config, m.Dir, m.Tokenizer, m.Err
	j.notes = append(j.notes, m.Notes...)
	if d := j.model.Dropout; d != "" {
		j.note("config.json asks for dropout (%s), which mt does not have: it trains without", d)
	}
	if class := j.model.Class; class != "" {
		j.note("config.json names the class %s; by its model_type %q the model is read as %s", class, j.model.ModelType, j.model.Arch)
	}
	if j.model.NearExperts > 0 {
		j.note("Transformers draws this model's experts at random in training; mt takes those that an evaluation takes")
	}
	if err := j.model.SetFreeze(model.Freeze{Names: j.c.Freeze, But: j.c.Unfrozen}); err != nil {
		key := "freeze"
		if len(j.c.Freeze) == 0 {
			key = "unfrozen_parameters"
		}
		return j.c.Errorf(key, "%s: %w", key, err)
	}
	if err := j.setGroups(); err != nil {
		return err
	}
	if j.modelDir == "" {
		return nil
	}
	if j.source, err = checkpoint.OpenSource(j.modelDir, m.Stored.Layouts(false)); err != nil {
		return err
	}
	j.closers.add(j.source.Close)
	return nil
}

// open opens and reads a data set of the configuration, for the model at hand.
func (j *opening) open(spec data.Spec, w io.Writer, interactive bool) (*data.Dataset, error) {
	spec.Tokenizer, spec.TokenizerErr, spec.ModelDir, spec.VocabSize = j.tok, j.tokErr, j.modelDir, j.model.VocabSize
	spec.Progress, spec.Stop = Options{Stderr: w, Interactive: interactive}.Progress(), j.team.asked.Done()
	set, err := data.Open(spec)
	if err != nil {
		return nil, err
	}
	j.closers.add(func() { _ = set.Close() })
	if set.IsPairs() && !spec.Pairs {
		return nil, errors.New("the data set holds pairs of answers (chosen and rejected), which are trained on with dpo: give dpo, as in `dpo: {beta: 0.1}`, or other data")
	}
	j.notes = append(j.notes, set.Warnings()...)
	if err := set.Read(func() { j.longest = max(j.longest, set.All().Longest()) }); err != nil {
		return nil, err
	}
	return set, nil
}

// openData opens the data sets and settles the number of steps.
func (j *opening) openData(w io.Writer, interactive bool) (err error) {
	c := j.c
	if f := j.hooks.reading; f != nil {
		f("dataset")
	}
	spec := c.DataSpec()
	spec.Held = j.a.HeldOut
	if j.set, err = j.open(spec, w, interactive); err != nil {
		return j.dataError(c.DataKey(), err)
	}
	if j.set.IsText() && j.opened.withoutTokenizer() {
		j.note("%s has no tokenizer: text is read as bytes", j.modelDir)
	}
	for _, key := range []string{"train_on_prompt", "mask_history", "template", "chat_template_kwargs", "enable_thinking"} {
		if c.Given(key) && !j.set.IsChat() {
			j.note("%s has no effect: the data set holds no chats", key)
		}
	}
	view := j.set.Eval()
	if c.HasEvalData() {
		if j.evalSet, err = j.open(c.EvalSpec(), w, interactive); err != nil {
			return j.dataError(c.EvalDataKey(), err)
		}
		view = j.evalSet.All()
	}
	if j.set.Train().Rows() == 0 {
		return c.Errorf("val_size", "val_size leaves no row to train on of %d: lower it", j.set.Rows())
	}
	j.all, j.evalView = j.set.Sampler(c.RowsPerStep()), view
	if view.Rows() > 0 && c.EvalStrategy != "no" {
		j.eval = data.NewSampler(view, c.RowsPerStep(), c.Seed, false)
	}
	if j.epochs = c.MaxSteps <= 0; j.epochs {
		c.MaxSteps = int(math.Ceil(c.NumTrainEpochs * float64(j.all.StepsPerEpoch())))
		if err := c.CheckAverage(); err != nil {
			return c.Errorf("ema_update_after_step", "%w", err)
		}
	}
	c.Packing = config.Off
	if j.set.Packed() {
		c.Packing = config.On
	}
	return nil
}

// dataError words an error of opening the data set that key names. A mistake in the
// configuration becomes an error of the configuration.
func (j *opening) dataError(key string, err error) error {
	var spec *data.SpecError
	switch {
	case errors.Is(err, data.ErrStopped):
		return ErrResumable
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%s: token cache: %w: free some there, or set cache_dir to a folder on another disk", key, err)
	case errors.As(err, &spec):
		return j.c.Errorf(cmp.Or(spec.Key, key), "%w", err)
	}
	return fmt.Errorf("%s: %w", key, err)
}

// rowTokens is how many tokens the longest row of a batch can have: where no data was read
// max_seq_len, or two answers of that length.
func (j *Inputs) rowTokens() int {
	if j.set == nil {
		return data.RowTokens(j.c.MaxSeqLen, len(j.c.DPO) > 0)
	}
	return j.longest
}

// ropePositions is how many positions the rotary tables are made for where that number
// changes the frequencies (type dynamic). It is then max_seq_len, so that the
// frequencies do not depend on the data. Otherwise it is 0, which leaves it to the
// plan.
func (j *Inputs) ropePositions() int {
	for _, r := range j.model.Ropes() {
		if r.Type == "dynamic" {
			return j.c.MaxSeqLen
		}
	}
	return 0
}

// fs is what the output directory is written through.
func (j *Inputs) fs() checkpoint.FS {
	if j.hooks.fs != nil {
		return j.hooks.fs
	}
	return checkpoint.OS()
}

// dir is the output directory.
func (j *Inputs) dir() outDir { return outDir{j.c.OutputDir, j.fs()} }

// writeWhole writes a small file of the output directory so that it is there
// whole or not at all, whatever happens.
func (j *Inputs) writeWhole(name string, content []byte) error {
	return j.dir().writeWhole(name, content)
}

// digests identify what a resumed run must share beyond its configuration: the
// content of the data, the tokenizer that made it and the architecture.
func (j *Inputs) digests() map[string]string {
	arch := sha256.Sum256(j.model.JSON(""))
	out := map[string]string{"dataset": j.set.ID(), "model": hex.EncodeToString(arch[:8])}
	if j.tok != nil && (j.set.IsText() || j.set.IsChat() || j.set.IsPairs()) {
		out["tokenizer"] = j.tok.ID()
	}
	return out
}

// OpenModelAlone opens the model that c names and one device, and no data. Where the model is the output_dir of a run that has
// written no model yet, its newest checkpoint is taken. check runs before the device is opened, and returns notes.
func OpenModelAlone(c *config.Config, o Options, check func(*Inputs) ([]string, error)) (_ *Inputs, err error) {
	j := begin(c, o, Asks{OrCheckpoint: true})
	defer func() {
		if err != nil {
			closeAfter(j, &err)
		}
	}()
	if err := j.c.Require("model"); err != nil {
		return nil, err
	}
	if err := j.findModel(); err != nil {
		return nil, err
	}
	if err := j.openModel(); err != nil {
		return nil, err
	}
	notes, err := check(&j.Inputs)
	if err != nil {
		return nil, err
	}
	j.notes, j.oneDevice = append(j.notes, notes...), true
	if err := j.resolveDevice(o); err != nil {
		return nil, err
	}
	return &j.Inputs, nil
}
