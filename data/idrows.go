package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Names of the lists that a row of input_ids may have beside its token ids; docs/data.md explains each. All lists but
// lengthsField have one value for each token.
var (
	// lossMasks are lists with 1 for tokens in the loss and 0 for the others.
	lossMasks = []string{"assistant_masks", "assistant_mask", "assistant_tokens_mask", "completion_mask", "loss_mask", "response_mask",
		"label_mask", "labels_mask", "target_mask", "train_mask", "output_mask"}
	// lossWeights weigh the loss of each token. Only the weights 0 and 1 are supported.
	lossWeights = []string{"loss_weights", "loss_weight", "token_weights", "loss_scale", "weights"}
	// noEffect are lists that must be 0 everywhere. Another value would mean something, such as an image's
	// tokens, that text models do not have.
	noEffect = []string{"token_type_ids", "mm_token_type_ids"}
	// ambiguous names are refused, since programs disagree on whether 1 means that a token is in the loss or left
	// out.
	ambiguous = []string{"mask", "prompt_mask"}
	// idLists are the names of all lists that a row may have beside its ids.
	idLists = slices.Concat([]string{labelsField, attentionField, positionsField, lengthsField}, lossMasks, lossWeights, noEffect, ambiguous)
)

const (
	labelsField    = "labels"
	attentionField = "attention_mask"
	positionsField = "position_ids"
	lengthsField   = "seq_lengths"
)

// parseIDs parses a row of input_ids with its labels, removes padding, and finds the documents in the row. All ids
// must be below vocab.
func (r *jsonRow) parseIDs(fields map[string]json.RawMessage, vocab int) (err error) {
	r.text, r.labels, r.ends, r.masks = r.text[:0], nil, nil, r.masks[:0]
	if r.ids, err = parseInts(r.ids[:0], "input_ids", fields["input_ids"]); err != nil {
		return err
	}
	if raw := given(fields[labelsField]); raw != nil {
		if r.labBuf, err = parseInts(r.labBuf[:0], labelsField, raw); err != nil {
			return err
		}
		if r.labels = r.labBuf; len(r.labels) != len(r.ids) {
			return fmt.Errorf("labels has %d values and input_ids %d; give every token one (%d: not supervised)", len(r.labels), len(r.ids), IgnoreIndex)
		}
	}
	why := ""
	if len(fields) > 1 {
		if why, err = r.beside(fields); err != nil {
			return err
		}
	}
	for i, id := range r.ids {
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("input_ids[%d] is %d, and the model's ids go from 0 to %d; make the rows with this model's tokenizer", i, id, vocab-1)
		}
	}
	if len(r.ids) < 2 {
		return fmt.Errorf("input_ids has %d token(s)%s; a row takes at least 2, one to see and one to predict; remove it", len(r.ids), why)
	}
	return r.checkLabels(vocab)
}

// beside applies the other lists of a row to its ids: it masks labels, removes padding and divides
// documents. If it removed padding, why says so, for the error message if too few ids are left.
func (r *jsonRow) beside(fields map[string]json.RawMessage) (why string, err error) {
	for _, name := range ambiguous {
		if given(fields[name]) != nil {
			return "", fmt.Errorf("%s stands beside input_ids, and programs differ in what its ones mean; name it loss_mask where 1 is learned, else give labels", name)
		}
	}
	for _, name := range noEffect {
		marks, err := r.perToken(name, fields)
		if i := slices.IndexFunc(marks, func(v int32) bool { return v != 0 }); err == nil && i >= 0 {
			err = fmt.Errorf("%s[%d] is %d, and mt trains models that see no types of tokens; remove the field if they do not matter", name, i, marks[i])
		}
		if err != nil {
			return "", err
		}
	}
	for _, names := range [][]string{lossMasks, lossWeights} {
		for _, name := range names {
			if err := r.mask(name, fields); err != nil {
				return "", err
			}
		}
	}
	from, to, starts, err := r.attended(fields)
	if err != nil {
		return "", err
	}
	if to-from < len(r.ids) {
		why = fmt.Sprintf(" without the padding that %s marks", attentionField)
	}
	more, err := r.restarts(fields, from, to)
	if err != nil {
		return "", err
	}
	r.ids = append(r.ids[:0], r.ids[from:to]...)
	if r.labels != nil {
		r.labels = append(r.labels[:0], r.labels[from:to]...)
	}
	return why, r.divide(append(starts, more...), from)
}

// perToken returns the numbers of the row's list called name, which must have one value for each token. nil: the row
// lacks the list.
func (r *jsonRow) perToken(name string, fields map[string]json.RawMessage) (_ []int32, err error) {
	raw := given(fields[name])
	if raw == nil {
		return nil, nil
	}
	if r.marks, err = parseMarks(r.marks[:0], name, raw); err != nil {
		return nil, err
	}
	if len(r.marks) != len(r.ids) {
		return nil, fmt.Errorf("%s has %d values and input_ids %d; give every token one", name, len(r.marks), len(r.ids))
	}
	return r.marks, nil
}

// parseMarks is parseInts for lists of marks: it also accepts booleans, and integers written with a decimal point,
// such as 1.0.
func parseMarks(dst []int32, field string, raw []byte) ([]int32, error) {
	dst, err := parseInts(dst, field, raw)
	if err == nil || raw[0] != '[' {
		return dst, err
	}
	var values []any
	if json.Unmarshal(raw, &values) != nil {
		return dst, err
	}
	dst = dst[:0]
	for _, v := range values {
		switch v := v.(type) {
		case bool:
			dst = append(dst, map[bool]int32{true: 1}[v])
		case float64:
			if v != float64(int32(v)) {
				return dst, err
			}
			dst = append(dst, int32(v))
		default:
			return dst, err
		}
	}
	return dst, nil
}

// mask sets the label of each token to IgnoreIndex for which the row's list called name, such as
// loss_mask, has 0.
func (r *jsonRow) mask(name string, fields map[string]json.RawMessage) error {
	marks, err := r.perToken(name, fields)
	if err != nil || marks == nil {
		return err
	}
	r.masks = append(r.masks, name)
	if r.labels == nil {
		r.labBuf = append(r.labBuf[:0], r.ids...)
		r.labels = r.labBuf
	}
	for i, v := range marks {
		switch v {
		case 0:
			r.labels[i] = IgnoreIndex
		case 1:
		default:
			return fmt.Errorf("%s[%d] is %d; a token is learned (1) or not (0)", name, i, v)
		}
	}
	return nil
}

// attended returns the range [from, to) of tokens that attention_mask does not mark as padding, and the starts of
// documents in this range. A mask with values above 1 gives each document another number, as in LLaMA-Factory's
// neat_packing; else starts is empty.
func (r *jsonRow) attended(fields map[string]json.RawMessage) (from, to int, starts []int, err error) {
	marks, err := r.perToken(attentionField, fields)
	if err != nil || marks == nil {
		return 0, len(r.ids), nil, err
	}
	for to = len(marks); to > 0 && marks[to-1] == 0; to-- {
	}
	for from < to && marks[from] == 0 {
		from++
	}
	for i := from; i < to; i++ {
		switch v := marks[i]; {
		case v == 0:
			return 0, 0, nil, fmt.Errorf("%s[%d] is 0 between tokens that are attended to; mt takes padding at the ends of a row alone", attentionField, i)
		case v < 0:
			return 0, 0, nil, fmt.Errorf("%s[%d] is %d; it is 0 for padding, else 1, or the number of the token's document", attentionField, i, v)
		case i > from && v != marks[i-1]:
			starts = append(starts, i)
		}
	}
	return from, to, starts, nil
}

// restarts returns the positions of tokens in [from, to) at which a new document begins, by the row's position_ids or
// seq_lengths.
func (r *jsonRow) restarts(fields map[string]json.RawMessage, from, to int) (starts []int, err error) {
	at, err := r.perToken(positionsField, fields)
	if err != nil {
		return nil, err
	}
	for i := from; at != nil && i < to; i++ {
		switch {
		case at[i] == 0:
			starts = append(starts, i)
		case i == from || at[i] != at[i-1]+1:
			return nil, fmt.Errorf("%s[%d] is %d; mt counts the tokens of a document from 0, one by one: remove the field if the positions do not matter", positionsField, i, at[i])
		}
	}
	raw := given(fields[lengthsField])
	if raw == nil {
		return starts, nil
	}
	lengths, err := parseInts(nil, lengthsField, raw)
	if err != nil {
		return nil, err
	}
	sum := 0
	for _, n := range lengths {
		if starts = append(starts, sum); n < 1 || int(n) > len(r.ids)-sum {
			return nil, fmt.Errorf("%s is %s, which does not divide %d tokens", lengthsField, clip(raw), len(r.ids))
		}
		sum += int(n)
	}
	if sum != len(r.ids) {
		return nil, fmt.Errorf("%s add up to %d, and the row has %d tokens", lengthsField, sum, len(r.ids))
	}
	return starts, nil
}

// divide records in r.ends the end of each of the row's documents, which begin at starts. The row's front had padding
// tokens, which were removed; `shift` is their number, and the values of starts still count them. Documents without a supervised token are dropped:
// no other document attends to them, so they would have no effect.
func (r *jsonRow) divide(starts []int, shift int) error {
	slices.Sort(starts)
	n := len(r.ids)
	bounds := []int{0}
	for _, s := range starts {
		if s -= shift; s > bounds[len(bounds)-1] && s < n {
			bounds = append(bounds, s)
		}
	}
	if len(bounds) == 1 {
		return nil
	}
	bounds = append(bounds, n)
	kept := 0
	for i, end := range bounds[1:] {
		first := bounds[i]
		if end-first < 2 || r.labels != nil && supervised(r.labels[first:end]) == 0 {
			continue
		}
		copy(r.ids[kept:], r.ids[first:end])
		if r.labels != nil {
			copy(r.labels[kept:], r.labels[first:end])
		}
		kept += end - first
		r.ends = append(r.ends, kept)
	}
	if kept == 0 {
		return &badRow{class: classUnsupervised, err: errors.New("no token is supervised: no document of the row has one behind its first token, which never counts; remove the row")}
	}
	r.ids = r.ids[:kept]
	if r.labels != nil {
		r.labels = r.labels[:kept]
	}
	return nil
}

// checkLabels returns an error if a label is outside the vocabulary or no token of the row is supervised.
func (r *jsonRow) checkLabels(vocab int) error {
	if r.labels == nil {
		return nil
	}
	for i, l := range r.labels {
		if l != IgnoreIndex && (l < 0 || int(l) >= vocab) {
			return fmt.Errorf("labels[%d] is %d; it must be %d (not supervised) or an id from 0 to %d", i, l, IgnoreIndex, vocab-1)
		}
	}
	if supervised(r.labels) > 0 {
		return nil
	}
	if len(r.masks) > 0 {
		return &badRow{class: classUnsupervised, err: fmt.Errorf("no token is supervised: %s leaves none but perhaps the first, which never counts; remove the row", strings.Join(r.masks, " and "))}
	}
	return &badRow{class: classUnsupervised, err: fmt.Errorf("no token is supervised: labels[1:] are all %d (labels[0] never counts); remove the row", IgnoreIndex)}
}
