package open

import (
	"mt/checkpoint"
	"mt/internal/config"
)

// openReference opens dpo.reference_model, so that what is wrong with it is told before data is tokenised. It is given the
// model's tokens: a note tells where these mean something else to it.
func (p *opening) openReference() error {
	name := p.Config.Preference().ReferenceModel
	if name == "" || !p.Team.First() {
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

// compareTokens notes which tokens of the model are others in the reference m.
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
