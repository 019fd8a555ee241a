package data

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// dataSet is one of Spec.Paths or Spec.Sets: files, and how their rows are read.
type dataSet struct {
	Name    string
	Format  format   // the format of all its rows; empty: each file's first row decides
	Columns *columns // nil: the usual ones of Format
	Names   *columns // of pairs: those that are given; the others are recognised in each row
	// Samples is how many documents are taken. The seed chooses them, and where there are
	// fewer some come more than once. 0: all.
	Samples int64
	Split   split
	Kept    string // how files keep rows, one of Builders; empty: their names tell
}

// columns are the names that the parts of a row have in a file; empty for parts that it lacks.
type columns struct {
	Text, System, Tools              string
	Prompt, Query, Response, History string
	Messages                         string
	Role, Content                    string // fields of a message
	// Chosen and Rejected are the answers of a pair. Turn says that the prompt of a pair is the
	// user's turn also where it is a text; else texts follow each other as they are.
	Chosen, Rejected string `json:",omitempty"`
	Turn             bool   `json:",omitempty"`
	// Roles maps the names that a chat has for roles to those of templates. function_call
	// stands for an assistant that calls a function.
	Roles map[string]string
}

// lists tells which values of a table are lists in JSON, and not the text that a table has in
// every column. In the columns of pairs, which may be texts too, these are lists of messages.
func (s *Spec) lists(set int) func(name string, value []byte) bool {
	known := append(slices.Clone(idLists), "input_ids", olderTools, s.Columns.Messages)
	for _, m := range marks {
		c := columnsOf(m.format)
		known = append(known, c.Messages, c.History, c.Tools)
		if m.format.kind() == kindChat && c.Messages != "" {
			known = append(known, m.field)
		}
	}
	either := append(slices.Clone(responses), chosenField, rejectedField, columnsOf(fmtPairs).Prompt, s.Columns.Prompt, s.Columns.Response)
	var own []*columns
	if set < len(s.sets) {
		own = []*columns{s.sets[set].Columns, s.sets[set].Names}
	}
	for _, c := range own {
		if c != nil {
			known = append(known, c.Messages, c.History, c.Tools)
			either = append(either, c.Chosen, c.Rejected, c.Prompt, c.Response)
		}
	}
	return func(name string, value []byte) bool {
		return name != "" && (slices.Contains(known, name) || slices.Contains(either, name) && isMessages(value))
	}
}

// answers tells which columns of a data set hold answers, by their usual names and by those that
// are given. A table has no null, so an empty value there is an answer that is missing.
func (s *Spec) answers(set int) func(name string) bool {
	known := append(slices.Clone(responses), columnsOf(fmtAlpaca).Response, chosenField, rejectedField, s.Columns.Response)
	if set < len(s.sets) {
		for _, c := range []*columns{s.sets[set].Columns, s.sets[set].Names} {
			if c != nil {
				known = append(known, c.Response, c.Chosen, c.Rejected)
			}
		}
	}
	return func(name string) bool { return name != "" && slices.Contains(known, name) }
}

// isMessages tells whether text is a list of messages in JSON.
func isMessages(text []byte) bool {
	if len(text) == 0 || text[0] != '[' {
		return false
	}
	first := firstMessage(text)
	return first["role"] != nil || first["from"] != nil
}

const functionCall = "function_call"

var (
	openAIRoles = map[string]string{"system": "system", "developer": "developer", "user": "user", "assistant": "assistant",
		"tool": "tool", "function": "tool"}
	shareGPTRoles = map[string]string{"system": "system", "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant",
		functionCall: functionCall, "observation": "tool", "tool": "tool"}
)

// columnsOf are the usual names of the columns of a format.
func columnsOf(f format) *columns {
	switch f {
	case fmtAlpaca:
		return &columns{System: "system", Tools: "tools", Prompt: "instruction", Query: "input", Response: "output", History: "history"}
	case fmtShareGPT:
		return &columns{System: "system", Tools: "tools", Messages: "conversations", Role: "from", Content: "value", Roles: shareGPTRoles}
	case fmtMessages:
		return &columns{Tools: "tools", Messages: "messages", Role: "role", Content: "content", Roles: openAIRoles}
	case fmtPairs:
		return &columns{System: "system", Tools: "tools", Prompt: "prompt", Chosen: chosenField, Rejected: rejectedField, Role: "role", Content: "content", Roles: anyRoles()}
	case fmtPrompt:
		return &columns{System: "system", Tools: "tools", Prompt: "prompt", Response: "completion", Role: "role", Content: "content", Roles: openAIRoles}
	}
	return &columns{Text: "text"}
}

// anyRoles are the roles of both, for rows in which either may stand.
func anyRoles() map[string]string {
	roles := maps.Clone(shareGPTRoles)
	maps.Copy(roles, openAIRoles)
	return roles
}

// split is a range of a data set's rows, as Hugging Face writes it: "train" or
// "train[10:20%]".
type split struct {
	From, To               int64
	FromPercent, ToPercent bool
	Cut                    bool // a range is given; else all rows
	// Shards is into how many pieces that range is cut, and Shard which of them is taken; 0: it is whole.
	Shards, Shard int64
}

var splitText = regexp.MustCompile(`^train(\[(\d*)(%?):(\d*)(%?)\])?$`)

func parseSplit(s string) (p split, err error) {
	m := splitText.FindStringSubmatch(s)
	if m == nil {
		return p, fmt.Errorf("split is %q; a local file has train alone, or a part of it, as in \"train[:1000]\" or \"train[10%%:20%%]\"", s)
	}
	if m[1] == "" {
		return p, nil
	}
	p = split{Cut: true, FromPercent: m[3] != "", ToPercent: m[5] != "" || m[4] == ""}
	if p.From, err = number(m[2], 0); err != nil {
		return p, fmt.Errorf("split is %q: %w", s, err)
	}
	if p.To, err = number(m[4], 100); err != nil {
		return p, fmt.Errorf("split is %q: %w", s, err)
	}
	return p, nil
}

func number(s string, empty int64) (int64, error) {
	if s == "" {
		return empty, nil
	}
	return strconv.ParseInt(s, 10, 62)
}

// of is the range [from, to) that the split takes of n rows.
func (p split) of(n int64) (from, to int64) {
	if !p.Cut {
		return p.shard(0, n)
	}
	at := func(v int64, percent bool) int64 {
		if percent {
			v = int64(float64(min(v, 100)) / 100 * float64(n))
		}
		return min(v, n)
	}
	from, to = at(p.From, p.FromPercent), at(p.To, p.ToPercent)
	return p.shard(from, max(from, to))
}

// shard is the piece of the range [from, to) that is taken. The first pieces are longer by a
// row where they cannot all have the same length. Source: Dataset.shard of Hugging Face's datasets,
// which are contiguous.
func (p split) shard(from, to int64) (first, end int64) {
	if p.Shards == 0 {
		return from, to
	}
	n := to - from
	size, longer := n/p.Shards, n%p.Shards
	first = from + size*p.Shard + min(p.Shard, longer)
	if end = first + size; p.Shard < longer {
		end++
	}
	return first, end
}

// upTo is the number of rows from the start behind which none is taken, where the first most rows
// of the range are; most 0: the whole range. It is 0 where that depends on how many rows there are.
func (p split) upTo(most int64) int64 {
	switch {
	case p.Shards > 0, p.Cut && p.FromPercent && p.From > 0, p.Cut && p.ToPercent && p.To < 100:
		return 0
	case !p.Cut:
		return most
	case p.ToPercent && most == 0:
		return 0
	case p.ToPercent:
		return p.From + most
	case most == 0:
		return p.To
	}
	return min(p.To, p.From+most)
}

// whole tells whether all rows are taken.
func (p split) whole() bool { return !p.Cut && p.Shards == 0 }

const (
	mixConcat = "concat"
	mixUnder  = "interleave_under"
	mixOver   = "interleave_over"
)

// Mixes are the values of Spec.MixStrategy.
var Mixes = []string{mixConcat, mixUnder, mixOver}

// checkMix checks what the Spec says about mixing several data sets.
func (s *Spec) checkMix() error {
	if s.MixStrategy == "" {
		s.MixStrategy = mixConcat
	}
	if !slices.Contains(Mixes, s.MixStrategy) {
		return fmt.Errorf("mix_strategy %q is unknown; it is one of %s", s.MixStrategy, strings.Join(Mixes, ", "))
	}
	wrong := func(format string, args ...any) error {
		return &SpecError{"interleave_probs", fmt.Errorf("interleave_probs "+format, args...)}
	}
	p := s.InterleaveProbs
	switch {
	case len(p) == 0:
		return nil
	case s.MixStrategy == mixConcat:
		return wrong("is given and mix_strategy is %s, which takes each data set once; set %s or %s", mixConcat, mixUnder, mixOver)
	case len(p) != len(s.entries()):
		return wrong("has %d values and dataset %d entries; give each one", len(p), len(s.entries()))
	}
	var sum float64
	for _, v := range p {
		if !(v > 0 && v <= 1) {
			return wrong("has %v; a share is above 0 and at most 1", v)
		}
		sum += v
	}
	if sum < 0.999 || sum > 1.001 { // 0.333 written three times is near enough
		return wrong("sum up to %v; they must to 1", sum)
	}
	return nil
}
