package open

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"mt/checkpoint"
	"mt/data/tokenizer"
	"mt/internal/run/config"
	"mt/model"
)

// Model is a configuration's model without weights.
type Model struct {
	Config    *model.Config       // with rows for added tokens
	Stored    *model.Config       // as stored in Dir
	Dir       string              // directory of the weights; empty: from scratch
	Tokenizer tokenizer.Tokenizer // with added tokens; nil: Err says why
	Err       error
	Notes     []string // for the user, once

	Files map[string][]byte // the tokenizer's files with added tokens; nil: the files in Dir
	known int               // rows of Stored whose tokens the tokenizer in Dir knows
	fresh []int             // ids of added tokens
}

// OpenModel reads or creates the architecture of c's model, loads the tokenizer, and adds the tokens that c names.
func OpenModel(c *config.Config) (*Model, error) {
	m, err := readModel(c)
	if err != nil {
		return nil, err
	}
	m.Tokenizer, m.Err = tokenizer.Load(m.Dir, m.Config.VocabSize)
	if err := m.addTokens(c); err != nil {
		return nil, err
	}
	return m, nil
}

// readModel reads the model's architecture from its directory, or creates it from a preset or an inline config.
func readModel(c *config.Config) (m *Model, err error) {
	m = &Model{}
	switch ref := c.Model; {
	case ref.Path != "":
		if m.Dir, err = config.ModelDir(ref.Path); err != nil {
			return nil, c.Errorf(ModelKey, "%w", err)
		}
		m.Config, err = model.LoadDir(m.Dir)
	case ref.Preset != "":
		m.Config, err = model.Preset(ref.Preset)
	default:
		m.Config, err = model.FromInline(ref.Inline, "model")
	}
	if err != nil && c.Model.Path == "" {
		return nil, c.Errorf("model", "%v", err)
	}
	if err == nil && c.TrainMTP {
		if err := m.Config.PredictAhead(); err != nil {
			return nil, c.Errorf("train_mtp", "train_mtp: %w", err)
		}
	}
	m.Stored = m.Config
	return m, err
}

// withoutTokenizer reports whether Dir has a model but no tokenizer.json. Dir "": false.
func (m *Model) withoutTokenizer() bool {
	if m.Dir == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(m.Dir, "tokenizer.json"))
	return errors.Is(err, fs.ErrNotExist)
}

// Keys of the model and of added tokens.
const (
	ModelKey      = "model_name_or_path"
	addTokensKey  = "add_tokens"
	newSpecialKey = "new_special_tokens"
	specialKey    = "special_tokens"
)

// addTokens adds the tokens that c names to the tokenizer. If the vocabulary outgrows the embedding, it adds rows to
// the model.
func (m *Model) addTokens(c *config.Config) error {
	m.known = m.Stored.VocabSize
	if m.Tokenizer != nil {
		m.known = min(m.known, m.Tokenizer.VocabSize())
	}
	asked, err := m.extend(c)
	if err != nil {
		return err
	}
	m.noteTokens(asked)
	rows := m.Config.VocabSize
	for _, t := range asked {
		if int(t.ID) < rows || c.ResizeVocab {
			continue
		}
		key := addTokensKey
		switch {
		case slices.Contains(c.NewSpecialTokens, t.Content):
			key = newSpecialKey
		case slices.Contains(c.MoreSpecialTokens(), t.Content):
			key = specialKey
		}
		return c.Errorf(key, "%q gets the id %d, and the model has rows for %d tokens (vocab_size): set resize_vocab: true, "+
			"which gives it more", t.Content, t.ID, rows)
	}
	if c.ResizeVocab && m.Tokenizer != nil && m.Tokenizer.VocabSize() > rows {
		n := c.ResizeVocabMultiple
		m.Config = m.Config.Resized((m.Tokenizer.VocabSize() + n - 1) / n * n)
		m.note("the vocabulary has %d rows in place of %d", m.Config.VocabSize, rows)
	}
	return nil
}

// extend adds c's tokens to the tokenizer and returns them with their ids. It leaves out a token that only
// special_tokens names and that the tokenizer already knew.
func (m *Model) extend(c *config.Config) ([]tokenizer.NewToken, error) {
	for _, of := range []struct {
		key  string
		list []string
	}{{addTokensKey, c.AddTokens}, {newSpecialKey, c.NewSpecialTokens}, {specialKey, c.MoreSpecialTokens()}} {
		if err := m.checkTokens(of.list); err != nil {
			return nil, c.Errorf(of.key, "%w", err)
		}
	}
	special := slices.Concat(c.NewSpecialTokens, c.MoreSpecialTokens())
	for _, s := range c.AddTokens {
		if slices.Contains(special, s) {
			return nil, c.Errorf(addTokensKey, "%q is in new_special_tokens or special_tokens too; leave it in one of them", s)
		}
	}
	if len(c.AddTokens)+len(special) == 0 {
		return nil, nil
	}
	t, asked, err := tokenizer.Extend(m.Tokenizer, c.AddTokens, special)
	if names := c.NamedTokens(); err == nil && len(names) > 0 {
		if t, err = tokenizer.Name(t, names); err == nil {
			err = m.endGeneration(t, names)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.where(), err)
	}
	if t != m.Tokenizer {
		m.Tokenizer = t
		m.save(t.Files())
	}
	return slices.DeleteFunc(asked, func(t tokenizer.NewToken) bool { // a named token that was known is not news
		return t.Known && !slices.Contains(c.AddTokens, t.Content) && !slices.Contains(c.NewSpecialTokens, t.Content)
	}), nil
}

// save records files, content by name, that will be written beside the weights of the saved model.
func (m *Model) save(files map[string][]byte) {
	if m.Files == nil {
		m.Files = map[string][]byte{}
	}
	maps.Copy(m.Files, files)
}

// endGeneration makes the saved generation_config.json end texts at the new eos_token, if names has one and the model
// has such a file. t is the tokenizer with the new tokens.
func (m *Model) endGeneration(t tokenizer.Tokenizer, names map[string]string) error {
	id, ok := t.EOS()
	if names["eos_token"] == "" || !ok || m.Dir == "" {
		return nil
	}
	const name = "generation_config.json"
	text, err := os.ReadFile(filepath.Join(m.Dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		text, err = tokenizer.EndsWith(text, id)
	}
	if err == nil {
		m.save(map[string][]byte{name: text})
	}
	return err
}

// checkTokens returns an error if the tokens in list cannot be added to the model's tokenizer.
func (m *Model) checkTokens(list []string) error {
	switch {
	case len(list) == 0:
		return nil
	case m.withoutTokenizer():
		return fmt.Errorf("%s has no tokenizer.json, so there is nothing to add tokens to", m.Dir)
	case m.Tokenizer == nil:
		return fmt.Errorf("there is no tokenizer to add tokens to: %w", m.Err)
	}
	for _, s := range list {
		if err := tokenizer.CheckToken(s); err != nil {
			return err
		}
	}
	return nil
}

// where returns the model's name for messages.
func (m *Model) where() string {
	if m.Dir == "" {
		return "the byte vocabulary"
	}
	return m.Dir
}

// newRows returns the rows of the embedding and of the output projection that get new values: the rows of new tokens,
// and rows beyond the stored model's. Rows of new tokens count even if the stored model has them, because nothing has
// trained them.
func (m *Model) newRows() []int {
	var rows []int
	for _, id := range m.fresh {
		if id < m.Stored.VocabSize {
			rows = append(rows, id)
		}
	}
	for row := m.Stored.VocabSize; row < m.Config.VocabSize; row++ {
		rows = append(rows, row)
	}
	return rows
}

// StartsRows reports whether new rows of the embedding and the head start at the mean of the other rows. If so, an
// evaluation reads the lower halves too, which it needs for nothing else.
func (in *Inputs) StartsRows() bool { return len(in.Opened.newRows()) > 0 }

// noteTokens adds two notes for the user: the tokens in asked that existed before, and the ids of the new ones.
func (m *Model) noteTokens(asked []tokenizer.NewToken) {
	var fresh []tokenizer.NewToken
	for _, t := range asked {
		if t.Known {
			m.note("the token %q is in the vocabulary already: it keeps its id %d", t.Content, t.ID)
			continue
		}
		fresh, m.fresh = append(fresh, t), append(m.fresh, int(t.ID))
	}
	how := ""
	if m.Dir != "" {
		how = ", and start at the mean of the others"
	}
	switch n := len(fresh); n {
	case 0:
	case 1:
		m.note("1 token is new: %q has the id %d%s", fresh[0].Content, fresh[0].ID, strings.Replace(how, "start", "starts", 1))
	default:
		m.note("%d tokens are new: they have the ids %d (%q) to %d (%q)%s", n, fresh[0].ID, fresh[0].Content, fresh[n-1].ID, fresh[n-1].Content, how)
	}
}

func (m *Model) note(format string, args ...any) {
	m.Notes = append(m.Notes, fmt.Sprintf(format, args...))
}

// setGroups assigns tensors to the groups of lr_groups and notes the groups' sizes.
func (p *opening) setGroups() error {
	c := p.Config
	if err := p.Model.SetGroups(c.ModelGroups()); err != nil {
		return c.Errorf("lr_groups", "lr_groups: %w", err)
	}
	sizes := p.Model.GroupParams()
	for i, g := range c.LRGroups {
		p.note("lr_groups: %s of %s parameters are in %s, with a learning rate of %v", humanize.Comma(sizes[i+1]), humanize.Comma(p.Model.TrainedParams()), g.Name, g.LR)
	}
	return nil
}

// openReference opens dpo.reference_model early, so that its errors appear before data is tokenized. The reference
// model gets the same token ids as the model. A note lists the ids that mean another token to the reference.
func (p *opening) openReference() error {
	name := p.Config.Preference().ReferenceModel
	if name == "" || !p.Ranks.First() {
		return nil
	}
	const key = "dpo.reference_model"
	if _, err := config.ModelDir(name); err != nil { // OpenModel would name another key
		return p.Config.Errorf("dpo", key+": %w; give a directory with its weights, or leave it out: the reference is then the model that training starts from", err)
	}
	c := p.Config.Clone()
	c.Model = config.ModelRef{Path: name}
	m, err := OpenModel(c)
	if err != nil {
		return p.Config.Errorf("dpo", key+": %w", err)
	}
	if m.Config.VocabSize < p.Model.VocabSize {
		return p.Config.Errorf("dpo", key+": %s has rows for %d tokens, and the model has %d: the two need one vocabulary", m.Dir, m.Config.VocabSize, p.Model.VocabSize)
	}
	weights, err := checkpoint.OpenSource(m.Dir, m.Stored.Layouts(false))
	if err != nil {
		return p.Config.Errorf("dpo", key+": %w", err)
	}
	weights.Close()
	p.OtherReference = m
	p.compareTokens(m)
	return nil
}

// compareTokens adds a note if the same id means different tokens to the reference model m and to the model. It lists
// these ids.
func (p *opening) compareTokens(m *Model) {
	if m.Tokenizer == nil || p.Tokenizer == nil || p.ModelDir == "" || m.withoutTokenizer() || p.Opened.withoutTokenizer() {
		return
	}
	others, example := 0, int32(0)
	for id := int32(min(m.Tokenizer.VocabSize(), p.Tokenizer.VocabSize())) - 1; id >= 0; id-- {
		if m.Tokenizer.Token(id) != p.Tokenizer.Token(id) {
			others, example = others+1, id
		}
	}
	if others > 0 {
		p.note("dpo.reference_model: %d tokens are others there than in the model, such as %d, which is %q there and %q here: the two need one vocabulary",
			others, example, m.Tokenizer.Token(example), p.Tokenizer.Token(example))
	}
}
