package resolve

import (
	"errors"
	"fmt"

	"mt/data"
	"mt/internal/run/open"
)

// SamplePrompt is a tokenized prompt. Ends lists tokens that end an answer, besides the usual end tokens.
type SamplePrompt struct {
	Text string
	IDs  []int32
	Ends []int32
}

// findPrompts tokenizes the texts in sample_prompts. A text becomes the user's turn of a chat if the training data are
// chats, and otherwise the beginning of a text.
func findPrompts(in *open.Inputs) (out []SamplePrompt, err error) {
	texts := in.Config.Samples()
	if len(texts) == 0 {
		return nil, nil
	}
	if in.TokenizerErr != nil {
		return nil, in.Config.Errorf("sample_steps", "sample_steps: there is no tokenizer for sample_prompts: %w", in.TokenizerErr)
	}
	toIDs := func(text string) ([]int32, error) { return data.Prompt(in.Tokenizer, []byte(text)) }
	var ends []int32
	if in.Data.IsChat() {
		spec := in.Config.DataSpec()
		spec.Tokenizer, spec.ModelDir, spec.VocabSize = in.Tokenizer, in.ModelDir, in.Model.VocabSize
		d, err := data.NewDialogue(spec)
		if err != nil {
			return nil, in.Config.Errorf("sample_prompts", "sample_prompts: %w", err)
		}
		ends = d.Ends()
		toIDs = func(text string) ([]int32, error) {
			v := &data.Conversation{}
			v.Add("user", text)
			return d.Prompt(v)
		}
	}
	for _, text := range texts {
		p := SamplePrompt{Text: text, Ends: ends}
		if p.IDs, err = toIDs(text); err == nil && len(p.IDs) == 0 {
			err = errors.New("it has no token")
		}
		if most := in.Model.MaxPositions; err == nil && most > 0 && len(p.IDs) >= most {
			err = fmt.Errorf("it has %d tokens and the model has %d positions (max_position_embeddings)", len(p.IDs), most)
		}
		if err != nil {
			return nil, in.Config.Errorf("sample_prompts", "sample_prompts: %q: %w", text, err)
		}
		out = append(out, p)
	}
	return out, nil
}
