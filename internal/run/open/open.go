package open

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
	"mt/data/tokenizer"
	"mt/device"
	"mt/internal/run/config"
	"mt/internal/run/ranks"
	"mt/internal/run/report"
	"mt/internal/run/settings"
	"mt/internal/watch"
	"mt/model"
	"mt/plan"
	"mt/plan/rates"
)

// Inputs holds everything that a configuration names, opened: model, tokenizer, data, devices and ranks. No large
// memory is allocated yet.
type Inputs struct {
	Config         *config.Config // resolved so far
	Hooks          settings.Hooks
	Ranks          *ranks.Group
	Opened         *Model
	Model          *model.Config      // Opened.Config
	ModelDir       string             // Opened.Dir
	Source         *checkpoint.Source // weights in ModelDir, open until the end because saves copy from it; nil: from scratch
	Tokenizer      tokenizer.Tokenizer
	TokenizerErr   error
	OtherReference *Model // dpo.reference_model; nil: the reference is the model that training starts from

	Data     *data.Dataset
	EvalData *data.Dataset // nil: rows held out from Data, or none
	AllRows  *data.Sampler // training rows, from the first row
	Epochs   bool          // num_train_epochs decides the number of steps
	Eval     *data.Sampler // nil: no evaluation
	EvalView data.View
	longest  int // tokens of the longest row

	Act     device.DType
	Unified bool
	// Integrated says that the GPU has no memory of its own. Its memory then counts as the host's.
	Integrated    bool
	Devices       []device.Device   // GPUs by lane; nil: the CPU, or only a plan
	Lanes         int               // number of devices
	Paces         []plan.Pace       // rates by lane; nil: equal
	LaneMemory    []int64           // usable bytes by lane; nil: equal
	DevicesDiffer bool              // the devices' rates differ
	context       int64             // device memory in bytes in use before any allocation
	budget        int64             // usable memory of an open device, in bytes
	Throttle      settings.Throttle // slows the CPU device down
	Profile       *rates.Machine    // the machine planned for; nil: this machine
	Page          net.Listener      // the dashboard's port; nil: none
	PageAt        watch.Address

	Notes   []string // for the user, once
	closers *Closers
}

// Asks says what the caller wants to do, and so what must be opened and checked.
type Asks struct {
	Ranks        *ranks.Group // nil: this process works alone
	Run          bool         // training: check output_dir, boards and the dashboard's port
	Paper        bool         // only a plan: the GPU may be absent from this machine
	Sketch       bool         // plan from the configuration alone, without data and output_dir
	Trials       bool         // runs over random tokens, without data and output_dir
	OrCheckpoint bool         // if the model is a run's output_dir without a final model, take its newest checkpoint
	HeldOut      bool         // dataset is for evaluation: take the held-out split of a directory with splits
}

// opening is an Inputs whose fields are still being set, together with the caller's request (a).
type opening struct {
	Inputs
	a Asks
}

// begin returns an opening for what c names. It works on a copy of c, in which every auto gets resolved.
func begin(c *config.Config, o settings.Options, a Asks) *opening {
	if a.Ranks == nil {
		a.Ranks = ranks.Alone(context.Background())
	}
	return &opening{Inputs: Inputs{Config: c.Clone(), Hooks: o.Hooks, Ranks: a.Ranks, closers: &Closers{}}, a: a}
}

func (p *opening) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// Close closes everything that was opened, in reverse order.
func (in *Inputs) Close() error { return in.closers.Close() }

// With returns a copy of the inputs with settings c.
func (in *Inputs) With(c *config.Config) *Inputs {
	out := *in
	out.Config = c
	return &out
}

// Closers closes what a stage has opened.
type Closers struct {
	list []func() error
}

// Add makes Close call f.
func (c *Closers) Add(f func()) {
	c.AddErr(func() error { f(); return nil })
}

// AddErr makes Close call f and return its error.
func (c *Closers) AddErr(f func() error) { c.list = append(c.list, f) }

// Close calls the closers in reverse order and joins their errors.
func (c *Closers) Close() (err error) {
	for i := len(c.list) - 1; i >= 0; i-- {
		err = errors.Join(err, c.list[i]())
	}
	c.list = nil
	return err
}

// CloseAfter closes c. It sets *err to the error of closing unless *err is already set.
func CloseAfter(c interface{ Close() error }, err *error) {
	if e := c.Close(); *err == nil {
		*err = e
	}
}

// Open checks c and opens what it names. A run's checks come before the data is read. Sketches and trials read no
// data. If this process is asked to stop while it reads data, Open returns ErrResumable.
func Open(c *config.Config, o settings.Options, a Asks) (_ *Inputs, err error) {
	p := begin(c, o, a)
	defer func() {
		if err != nil {
			CloseAfter(p, &err)
		}
	}()
	if p.Throttle, err = settings.ThrottleFromEnv(); err != nil {
		return nil, err
	}
	required := []string{"model", "dataset"}
	if a.Sketch || a.Trials {
		required = required[:1]
	}
	if err := p.Config.Require(required...); err != nil {
		return nil, err
	}
	steps := []func() error{p.findModel, p.openModel, func() error { return p.Config.CheckGradSlabs(len(p.Model.Layers())) }, p.checkRanks,
		func() error { return (&choosing{opening: p}).resolveDevice(o) }, p.checkMaster}
	if a.Run && p.Ranks.First() { // other ranks write nothing there
		steps = append(steps, p.checkOutput, p.checkCopied, func() error { return report.CheckTrace(p.Config) }, func() error { return report.CheckBoards(p.Config) }, p.listen)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if a.Trials {
		return &p.Inputs, nil
	}
	if err := p.openReference(); err != nil {
		return nil, err
	}
	if a.Sketch {
		return &p.Inputs, nil
	}
	if len(p.Config.DPO) > 0 && p.ModelDir == "" {
		return nil, p.Config.Errorf("dpo", "dpo compares with the model that training starts from, and this one begins at random: give model_name_or_path")
	}
	if err := p.openData(o.Stderr, o.Interactive); err != nil {
		return nil, err
	}
	return &p.Inputs, nil
}

// openModel opens the model, its tokenizer and the files of its weights.
func (p *opening) openModel() error {
	m, err := OpenModel(p.Config)
	if err != nil {
		return err
	}
	p.Opened, p.Model, p.ModelDir, p.Tokenizer, p.TokenizerErr = m, m.Config, m.Dir, m.Tokenizer, m.Err
	p.Notes = append(p.Notes, m.Notes...)
	if d := p.Model.Dropout; d != "" {
		p.note("config.json asks for dropout (%s), which mt does not have: it trains without", d)
	}
	if class := p.Model.Class; class != "" {
		p.note("config.json names the class %s; by its model_type %q the model is read as %s", class, p.Model.ModelType, p.Model.Arch)
	}
	if p.Model.SparseMixer > 0 {
		p.note("Transformers draws this model's experts at random in training; mt takes those that an evaluation takes")
	}
	if err := p.Model.SetFreeze(model.Freeze{Names: p.Config.Freeze, But: p.Config.Unfrozen}); err != nil {
		key := "freeze"
		if len(p.Config.Freeze) == 0 {
			key = "unfrozen_parameters"
		}
		return p.Config.Errorf(key, "%s: %w", key, err)
	}
	if err := p.setGroups(); err != nil {
		return err
	}
	const asRead = "save_dtype: as_read saves each tensor in the format that it was read in: "
	saved := checkpoint.DType(p.Config.SaveDType) == checkpoint.AsRead
	if p.ModelDir == "" {
		if saved {
			return p.Config.Errorf("save_dtype", asRead+"this model is made from scratch; choose bf16 or fp32")
		}
		return nil
	}
	if p.Source, err = checkpoint.OpenSource(p.ModelDir, m.Stored.Layouts(false)); err != nil {
		return err
	}
	p.closers.Add(p.Source.Close)
	if saved {
		if err := p.Source.CanSaveAsRead(m.Stored.Layouts(false)); err != nil {
			return p.Config.Errorf("save_dtype", asRead+"%w", err)
		}
	}
	p.noteQuantized(saved)
	return nil
}

// noteQuantized tells the user how quantized weights are read and saved. asRead says that the saved model has the
// format of the read one.
func (p *opening) noteQuantized(asRead bool) {
	n, save := p.Source.Counts(), p.Config.SaveDType
	if n.E4M3+n.MXFP4 > 0 {
		how := fmt.Sprintf("the model is saved in %s, and its config.json has no quantization_config", save)
		if asRead {
			how = "the model is saved in the same format with new scales, checkpoints in bf16"
		}
		what, of := "fp8 (E4M3)", n.E4M3
		if n.E4M3 == 0 {
			what, of = "MXFP4", n.MXFP4
		}
		p.note("%d tensors are in %s: master weights are value × scale, rounded once to fp32; %s", of, what, how)
	}
	if n.Activations > 0 {
		how := "left out of what is saved"
		if asRead {
			how = "saved as they are, although training changes what they scale"
		}
		p.note("%d scales of activations are not used, since activations are not quantized, and %s", n.Activations, how)
	}
}

// open opens and reads the data set that spec describes, with the model's tokenizer and vocabulary. It shows progress
// on w, as redrawn lines if interactive is true.
func (p *opening) open(spec data.Spec, w io.Writer, interactive bool) (*data.Dataset, error) {
	spec.Tokenizer, spec.TokenizerErr, spec.ModelDir, spec.VocabSize = p.Tokenizer, p.TokenizerErr, p.ModelDir, p.Model.VocabSize
	spec.Progress, spec.Stop = report.Reading(settings.Options{Stderr: w, Interactive: interactive}), p.Ranks.Asked.Done()
	set, err := data.Open(spec)
	if err != nil {
		return nil, err
	}
	p.closers.Add(func() { _ = set.Close() })
	if set.IsPairs() && !spec.Pairs {
		return nil, errors.New("the data set holds pairs of answers (chosen and rejected), which are trained on with dpo: give dpo, as in `dpo: {beta: 0.1}`, or other data")
	}
	p.Notes = append(p.Notes, set.Warnings()...)
	if err := set.Read(func() { p.longest = max(p.longest, set.All().Longest()) }); err != nil {
		return nil, err
	}
	return set, nil
}

// openData opens the training data and the evaluation data, and determines the number of steps. It shows progress on
// w, as redrawn lines if interactive is true.
func (p *opening) openData(w io.Writer, interactive bool) (err error) {
	c := p.Config
	if f := p.Hooks.Reading; f != nil {
		f("dataset")
	}
	spec := c.DataSpec()
	spec.Held = p.a.HeldOut
	if p.Data, err = p.open(spec, w, interactive); err != nil {
		return p.dataError(c.DataKey(), err)
	}
	if p.Data.IsText() && p.Opened.withoutTokenizer() {
		p.note("%s has no tokenizer: text is read as bytes", p.ModelDir)
	}
	for _, key := range []string{"train_on_prompt", "mask_history", "template", "chat_template_kwargs", "enable_thinking"} {
		if c.Given(key) && !p.Data.IsChat() {
			p.note("%s has no effect: the data set holds no chats", key)
		}
	}
	view := p.Data.Eval()
	if c.HasEvalData() {
		if p.EvalData, err = p.open(c.EvalSpec(), w, interactive); err != nil {
			return p.dataError(c.EvalDataKey(), err)
		}
		view = p.EvalData.All()
	}
	if p.Data.Train().Rows() == 0 {
		return c.Errorf("val_size", "val_size leaves no row to train on of %d: lower it", p.Data.Rows())
	}
	p.AllRows, p.EvalView = p.Data.Sampler(c.RowsPerStep()), view
	if view.Rows() > 0 && c.EvalStrategy != "no" {
		p.Eval = data.NewSampler(view, c.RowsPerStep(), c.Seed, false)
	}
	if p.Epochs = c.MaxSteps <= 0; p.Epochs {
		c.MaxSteps = int(math.Ceil(c.NumTrainEpochs * float64(p.AllRows.StepsPerEpoch())))
		if err := c.CheckAverage(); err != nil {
			return c.Errorf("ema_update_after_step", "%w", err)
		}
	}
	c.Packing = config.Off
	if p.Data.Packed() {
		c.Packing = config.On
	}
	return nil
}

// dataError adds key, which named the data set, to the error err of opening the data set. A mistake in the
// configuration becomes a UsageError.
func (p *opening) dataError(key string, err error) error {
	var spec *data.SpecError
	switch {
	case errors.Is(err, data.ErrStopped):
		return settings.ErrResumable
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%s: token cache: %w: free some there, or set cache_dir to a folder on another disk", key, err)
	case errors.As(err, &spec):
		return p.Config.Errorf(cmp.Or(spec.Key, key), "%w", err)
	}
	return fmt.Errorf("%s: %w", key, err)
}

// RowTokens returns the largest number of tokens that a row can have. If no data was read, that is max_seq_len, or for
// preference pairs two answers of that length.
func (in *Inputs) RowTokens() int {
	if in.Data == nil {
		return data.RowTokens(in.Config.MaxSeqLen, len(in.Config.DPO) > 0)
	}
	return in.longest
}

// RopePositions returns max_seq_len if the rotary frequencies depend on the number of positions (rope type dynamic).
// So the frequencies do not depend on the data's longest row. It returns 0 for other rope types: the plan then chooses
// the number.
func (in *Inputs) RopePositions() int {
	for _, r := range in.Model.Ropes() {
		if r.Type == "dynamic" {
			return in.Config.MaxSeqLen
		}
	}
	return 0
}

// FS returns the file system for the output directory.
func (in *Inputs) FS() checkpoint.FS {
	if in.Hooks.FS != nil {
		return in.Hooks.FS
	}
	return checkpoint.OS()
}

// Dir returns the output directory.
func (in *Inputs) Dir() settings.Dir { return settings.Dir{Path: in.Config.OutputDir, FS: in.FS()} }

// WriteWhole writes a small file in the output directory atomically: the file is complete or absent.
func (in *Inputs) WriteWhole(name string, content []byte) error {
	return in.Dir().WriteWhole(name, content)
}

// Digests identifies the inputs that a resumed run must share besides its configuration: the data's content, the
// data's tokenizer and the architecture.
func (in *Inputs) Digests() map[string]string {
	arch := sha256.Sum256(in.Model.JSON(""))
	out := map[string]string{"dataset": in.Data.ID(), "model": hex.EncodeToString(arch[:8])}
	if in.Tokenizer != nil && (in.Data.IsText() || in.Data.IsChat() || in.Data.IsPairs()) {
		out["tokenizer"] = in.Tokenizer.ID()
	}
	return out
}

// OpenModelAlone opens the model of c and one device, but no data. If the model is a run's output_dir without a final
// model, it takes the newest checkpoint. check runs before the device is opened and returns notes.
func OpenModelAlone(c *config.Config, o settings.Options, check func(*Inputs) ([]string, error)) (_ *Inputs, err error) {
	p := begin(c, o, Asks{OrCheckpoint: true})
	defer func() {
		if err != nil {
			CloseAfter(p, &err)
		}
	}()
	if err := p.Config.Require("model"); err != nil {
		return nil, err
	}
	if err := p.findModel(); err != nil {
		return nil, err
	}
	if err := p.openModel(); err != nil {
		return nil, err
	}
	notes, err := check(&p.Inputs)
	if err != nil {
		return nil, err
	}
	p.Notes = append(p.Notes, notes...)
	if err := (&choosing{p, true}).resolveDevice(o); err != nil {
		return nil, err
	}
	return &p.Inputs, nil
}

// listen opens the dashboard's port, so that a bad address fails before any slow work. For a plan on paper it only
// parses the address.
func (p *opening) listen() (err error) {
	key := p.Config.Dashboard
	if key == "" {
		return nil
	}
	if key != "auto" {
		if p.PageAt, err = watch.ParseAddress(key); err != nil {
			return p.Config.Errorf("dashboard", "dashboard: %w", err)
		}
	}
	if p.a.Paper {
		return nil
	}
	l, note, err := watch.Listen(p.PageAt)
	if err != nil {
		return p.Config.Errorf("dashboard", "dashboard: %w", err)
	}
	if note != "" {
		p.note("%s", note)
	}
	p.Page = l
	p.closers.Add(func() { _ = l.Close() }) // it may be closed already
	return nil
}

// checkRanks returns an error if several ranks train together and a key asks for something that only one rank can do.
// It also notes that ranks on one host divide its memory and threads.
func (p *opening) checkRanks() error {
	t := p.Ranks
	if t.Size() == 1 {
		return nil
	}
	if settings.NSSteps(p.Config) > 0 {
		return p.Config.Errorf("optim", "optim: %s moves whole matrices, of which %d ranks have parts: train on one host, or with optim: adamw", p.Config.Optim, t.Size())
	}
	if len(p.Config.ParamDir) > 0 {
		return p.Config.Errorf("param_dir", "param_dir: each of %d ranks has all weights in memory: leave it out, or train on one host", t.Size())
	}
	if p.Config.Clip == "layerwise" && p.Model.TieEmbeddings {
		return p.Config.Errorf("clip", "clip: layerwise needs the gradient of the embedding and that of the head together where they share a table, and %d ranks exchange them apart: take clip: global", t.Size())
	}
	if _, n := t.Neighbours(); n > 1 {
		p.note("%d ranks are on this host: each takes 1/%d of its memory budget and of its CPU threads", n, n)
	}
	if rows := p.Config.RowsPerStep(); rows < t.Size() {
		p.note("a step has %d rows and there are %d ranks: some have nothing to compute", rows, t.Size())
	}
	return nil
}
