package train

import (
	"mt/checkpoint"
	"mt/internal/config"
)

// openReference opens dpo.reference_model, so that what is wrong with it is told before data is tokenised. It is given the
// model's tokens: a note tells where these mean something else to it.
func (j *opening) openReference() error {
	name := j.c.Preference().ReferenceModel
	if name == "" || !j.team.first() {
		return nil
	}
	const key = "dpo.reference_model"
	if _, err := config.ModelDir(name); err != nil { // OpenModel would name another key
		return j.c.Errorf("dpo", key+": %w; give a directory with its weights, or leave it out: the reference is then the model that training starts from", err)
	}
	c := j.c.Clone()
	c.Model = config.ModelRef{Path: name}
	m, err := OpenModel(c)
	if err != nil {
		return j.c.Errorf("dpo", key+": %w", err)
	}
	if m.Config.VocabSize < j.model.VocabSize {
		return j.c.Errorf("dpo", key+": %s has rows for %d tokens, and the model has %d: the two need one vocabulary", m.Dir, m.Config.VocabSize, j.model.VocabSize)
	}
	weights, err := checkpoint.OpenSource(m.Dir, m.Stored.Layouts(false))
	if err != nil {
		return j.c.Errorf("dpo", key+": %w", err)
	}
	weights.Close()
	j.other = m
	j.compareTokens(m)
	return nil
}

// compareTokens notes which tokens of the model are others in the reference m.
func (j *opening) compareTokens(m *Model) {
	if m.Tokenizer == nil || j.tok == nil || j.modelDir == "" || m.withoutTokenizer() || j.opened.withoutTokenizer() {
		return
	}
	others, example := 0, int32(0)
	for id := int32(min(m.Tokenizer.VocabSize(), j.tok.VocabSize())) - 1; id >= 0; id-- {
		if m.Tokenizer.Token(id) != j.tok.Token(id) {
			others, example = others+1, id
		}
	}
	if others > 0 {
		j.note("dpo.reference_model: %d tokens are others there than in the model, such as %d, which is %q there and %q here: the two need one vocabulary",
			others, example, m.Tokenizer.Token(example), j.tok.Token(example))
	}
}
