package train

import (
	"errors"
	"fmt"

	"mt/data"
)

// samplePrompt is a prompt in tokens, and which tokens end an answer to it beside those
// that end any text.
type samplePrompt struct {
	text string
	ids  []int32
	ends []int32
}

// findPrompts turns sample_prompts into tokens: where the data are chats a prompt is what
// the user says, else a text to go on with.
func findPrompts(j *Inputs) (out []samplePrompt, err error) {
	texts := j.c.Samples()
	if len(texts) == 0 {
		return nil, nil
	}
	if j.tokErr != nil {
		return nil, j.c.Errorf("sample_steps", "sample_steps: there is no tokenizer for sample_prompts: %w", j.tokErr)
	}
	toIDs := func(text string) ([]int32, error) { return data.Prompt(j.tok, []byte(text)) }
	var ends []int32
	if j.set.IsChat() {
		spec := j.c.DataSpec()
		spec.Tokenizer, spec.ModelDir, spec.VocabSize = j.tok, j.modelDir, j.model.VocabSize
		d, err := data.NewDialogue(spec)
		if err != nil {
			return nil, j.c.Errorf("sample_prompts", "sample_prompts: %w", err)
		}
		ends = d.Ends()
		toIDs = func(text string) ([]int32, error) {
			v := &data.Conversation{}
			v.Add("user", text)
			return d.Prompt(v)
		}
	}
	for _, text := range texts {
		p := samplePrompt{text: text, ends: ends}
		if p.ids, err = toIDs(text); err == nil && len(p.ids) == 0 {
			err = errors.New("it has no token")
		}
		if most := j.model.MaxPositions; err == nil && most > 0 && len(p.ids) >= most {
			err = fmt.Errorf("it has %d tokens and the model has %d positions (max_position_embeddings)", len(p.ids), most)
		}
		if err != nil {
			return nil, j.c.Errorf("sample_prompts", "sample_prompts: %q: %w", text, err)
		}
		out = append(out, p)
	}
	return out, nil
}
