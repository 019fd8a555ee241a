package model

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Freeze selects the tensors that are not trained, by regular expressions (RE2 syntax) that match anywhere in a name. A
// frozen tensor is copied to the device as others are, but has no gradient, no lower half and no optimizer planes.
type Freeze struct {
	Names []string // tensors that match any of these are frozen
	But   []string // unless empty: tensors that match none of these are frozen too
}

// freezing is a Freeze whose regular expressions are compiled.
type freezing struct{ names, but []*regexp.Regexp }

func (f Freeze) compile() (out freezing, err error) {
	if out.names, err = compile(f.Names); err == nil {
		out.but, err = compile(f.But)
	}
	return out, err
}

// compile compiles the regular expressions of a Freeze or a Group.
func compile(exprs []string) (out []*regexp.Regexp, err error) {
	for _, e := range exprs {
		p, err := regexp.Compile(e)
		if err != nil {
			return nil, fmt.Errorf("%q is no regular expression: %w", e, err)
		}
		out = append(out, p)
	}
	return out, nil
}

// matched says whether p matches the tensor's own name, or the name of the larger checkpoint tensor that holds it (see
// Place).
func (s Stored) matched(p *regexp.Regexp) bool {
	return p.MatchString(s.Name) || p.MatchString(s.Tensor())
}

// checkMatched returns an error if the expression p matches none of the tensors: p is then probably
// misspelt.
func checkMatched(p *regexp.Regexp, tensors []Stored) error {
	if slices.ContainsFunc(tensors, func(s Stored) bool { return s.matched(p) }) {
		return nil
	}
	return fmt.Errorf("%q matches no tensor; they have names such as %s and %s", p, tensors[0].Tensor(), tensors[len(tensors)/2].Tensor())
}

// has says whether f freezes tensor s.
func (f freezing) has(s Stored) bool {
	return slices.ContainsFunc(f.names, s.matched) || len(f.but) > 0 && !slices.ContainsFunc(f.but, s.matched)
}

// frozen sets Frozen on the parameters that c.Freeze selects. Parameters that are never trained
// have Frozen set already.
func (c *Config) frozen(params []Param) {
	for i := range params {
		if p := &params[i]; len(p.Stored) > 0 { // SetFreeze has checked that all its tensors agree
			p.Frozen = p.Frozen || c.freezing.has(p.Stored[0])
		}
	}
}

// SetFreeze freezes the tensors that f selects. It returns an error if an expression is invalid or
// matches no tensor, or if no tensor would be trained. It also refuses to freeze only some tensors
// of one parameter, such as q without k and v.
func (c *Config) SetFreeze(f Freeze) error {
	if len(f.Names)+len(f.But) == 0 {
		return nil
	}
	by, err := f.compile()
	if err != nil {
		return err
	}
	var tensors []Stored
	for _, l := range c.Layers() {
		for _, p := range l.Params {
			frozen := 0
			for _, s := range p.Stored {
				if by.has(s) {
					frozen++
				}
			}
			if frozen > 0 && frozen < len(p.Stored) {
				return fmt.Errorf("%s are kept as one tensor, so they are frozen together or not at all", strings.Join(storedNames(p), ", "))
			}
			tensors = append(tensors, p.Stored...)
		}
	}
	for _, p := range slices.Concat(by.names, by.but) {
		if err := checkMatched(p, tensors); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(tensors, by.has) {
		return fmt.Errorf("%q matches every tensor, so nothing is frozen; name fewer, or leave the key out", f.But)
	}
	was, wasBy := c.Freeze, c.freezing
	if c.Freeze, c.freezing = f, by; c.TrainedParams() == 0 {
		c.Freeze, c.freezing = was, wasBy
		return fmt.Errorf("every tensor is frozen, so there is nothing to train")
	}
	return nil
}

func storedNames(p Param) (names []string) {
	for _, s := range p.Stored {
		names = append(names, s.Name)
	}
	return names
}

// TrainedParams returns the number of parameters that are not frozen.
func (c *Config) TrainedParams() (n int64) {
	for _, l := range c.Layers() {
		for _, p := range l.Params {
			if !p.Frozen {
				n += p.Elems()
			}
		}
	}
	return n
}

// LowestTrained returns the index of the lowest layer with a gradient; len(layouts): none has one.
func LowestTrained(layouts []Layout) int {
	for i, l := range layouts {
		if l.GradElems > 0 {
			return i
		}
	}
	return len(layouts)
}

// BackwardFLOPs returns the backward part of FLOPs. From the lowest trained layer on, each matrix product counts once
// for its input's gradient. It counts once more for its weights' gradient, if they are trained. If tensors are frozen,
// it adds these up over the parameter table; otherwise the result is twice ForwardFLOPs.
func (c *Config) BackwardFLOPs(tokens, pairs int64) float64 {
	if len(c.Freeze.Names)+len(c.Freeze.But) == 0 {
		return 2 * c.ForwardFLOPs(tokens, pairs)
	}
	all, products, blocks, recurrences := c.Layouts(false), 0.0, 0, 0.0
	for _, l := range all[LowestTrained(all):] {
		switch l.Kind {
		case Block, Attention:
			if blocks++; c.Beside {
				recurrences += float64(2 * c.RecurrenceFLOPs())
			}
		case Recurrent, Mixer:
			recurrences += float64(2 * c.RecurrenceFLOPs())
		}
		for _, p := range l.Tensors {
			n := float64(p.Elems())
			switch {
			case p.Dims != 2 || p.InIndexer() || l.Kind == Embedding || l.Kind == Positions || p.Role == RolePerLayerTable:
				continue
			case p.Part > 0 && p.Part <= c.NumExperts: // a routed expert's, not the shared one's
				n *= float64(c.NumExpertsPerTok) / float64(c.NumExperts)
			}
			if l.Kind == Head {
				n *= float64(c.Streams())
			}
			products += n
			if !p.Frozen {
				products += n
			}
		}
	}
	attention := 2 * c.PairFLOPs() * float64(pairs) * float64(blocks) / float64(max(1, c.AttentionBlocks()))
	return (2*products+recurrences)*float64(tokens) + attention
}
