package tokenizer

import (
	"encoding/json"
	"fmt"
)

// decoder is what p stands for.
func (p *part) decoder() (decoder, error) {
	switch p.Type {
	case "ByteLevel":
		return byteLevelDecoder{}, nil
	case "ByteFallback":
		return byteFallbackDecoder{}, nil
	case "Fuse":
		return fuse{}, nil
	case "Strip":
		return stripEnds(p.Content, p.Start, p.Stop), nil
	case "BPEDecoder":
		if p.Suffix == "" {
			return nil, fmt.Errorf("%s.suffix: an empty string is not supported", p.where)
		}
		return endsOfWords(p.Suffix), nil
	case "Metaspace":
		if _, err := p.metaspaces(); err != nil {
			return nil, err
		}
		return spacesOf(p.Replacement, p.scheme() != "never"), nil
	case "Replace":
		n, err := p.replace()
		return replaced(n), err
	}
	return nil, p.unknown()
}

// postProcessor is what p puts around the ids of a text.
func (t *hf) postProcessor(p *part) (postProcessor, error) {
	switch p.Type {
	case "ByteLevel": // for offsets only
		return postProcessor{}, nil
	case "TemplateProcessing":
		return t.template(p)
	case "BertProcessing", "RobertaProcessing":
		return t.around(p)
	}
	return postProcessor{}, p.unknown()
}

// template reads what a template puts around a single text.
func (t *hf) template(p *part) (out postProcessor, err error) {
	texts := 0
	for i, raw := range p.Single {
		var piece struct {
			SpecialToken *struct{ ID string }
			Sequence     *struct{ ID string }
		}
		where := fmt.Sprintf("%s.single[%d]", p.where, i)
		if err := json.Unmarshal(raw, &piece); err != nil {
			return out, fmt.Errorf("%s: %w", where, err)
		}
		switch {
		case piece.Sequence != nil && piece.Sequence.ID == "A":
			texts++
		case piece.SpecialToken != nil:
			var tok struct{ IDs []int64 }
			name := piece.SpecialToken.ID
			if err := json.Unmarshal(p.SpecialTokens[name], &tok); err != nil {
				return out, fmt.Errorf("%s: special_tokens has no ids of %q", where, name)
			}
			for _, id := range tok.IDs {
				if err := t.known(where, id); err != nil {
					return out, err
				}
				if texts == 0 {
					out.before = append(out.before, int32(id))
				} else {
					out.behind = append(out.behind, int32(id))
				}
			}
		default:
			return out, fmt.Errorf("%s: it is %s, neither a special token nor the text A", where, shorten(raw))
		}
	}
	if texts != 1 {
		return out, fmt.Errorf("%s.single: the text A is in it %d times, not once", p.where, texts)
	}
	return out, nil
}

// around reads the two tokens of BERT's and RoBERTa's processors.
func (t *hf) around(p *part) (out postProcessor, err error) {
	for _, v := range []struct {
		key string
		raw json.RawMessage
		to  *[]int32
	}{{"cls", p.Cls, &out.before}, {"sep", p.Sep, &out.behind}} {
		var token string
		var id int64
		if err := json.Unmarshal(v.raw, &[]any{&token, &id}); err != nil {
			return out, fmt.Errorf("%s.%s: it is %s, not a token and its id", p.where, v.key, shorten(v.raw))
		}
		if err := t.known(p.where+"."+v.key, id); err != nil {
			return out, err
		}
		*v.to = append(*v.to, int32(id))
	}
	return out, nil
}

// known refuses ids that no token has.
func (t *hf) known(where string, id int64) error {
	if id < 0 || id >= maxID || t.Token(int32(id)) == "" {
		return fmt.Errorf("%s: no token has the id %d", where, id)
	}
	return nil
}
