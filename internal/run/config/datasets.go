package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"mt/data"
)

// setKey describes one key of an item of `datasets`, such as path or split.
type setKey struct {
	name string
	doc  string
	set  func(s *data.Set, e *setter) error
	show func(s *data.Set) any // value for printing, of a type that value.inline returns; nil: not given
}

// setTypes maps the values that other tools have for a data set's key `type` to mt's values of that key.
var setTypes = map[string]string{"chat_template": "messages", "openai": "messages", "chatml": "messages", "completion": "text", "pretrain": "text",
	"prompt-completion": "prompt_completion", "preference": "pairs"}

// setKeys lists the keys of an item of datasets in printing order.
var setKeys = []setKey{
	{"path", "File, folder, glob, or Hub data set in the local cache. With `data_files` also `json`, `csv`, `parquet`, `arrow` or `text`",
		textOf(func(s *data.Set) *string { return &s.Path }), shownText(func(s *data.Set) *string { return &s.Path })},
	{"name", "Config of the data set, if its card lists several",
		textOf(func(s *data.Set) *string { return &s.Config }), shownText(func(s *data.Set) *string { return &s.Config })},
	{"data_files", "Files or globs, relative to `path` if that is a folder or a Hub data set",
		func(s *data.Set, e *setter) error { return e.list(&s.Files) }, func(s *data.Set) any { return anysOrNil(s.Files) }},
	{"split", "Split, or part of a split: `validation`, `train[:10%]`",
		textOf(func(s *data.Set) *string { return &s.Split }), shownText(func(s *data.Set) *string { return &s.Split })},
	{"shards", "Number of shards, of which one is read",
		wholeOf(func(s *data.Set) *int { return &s.Shards }), shownInt(func(s *data.Set) *int { return &s.Shards })},
	{"shards_idx", "Index of the shard, from 0",
		wholeOf(func(s *data.Set) *int { return &s.Shard }), shownInt(func(s *data.Set) *int { return &s.Shard })},
	{"ds_type", "File format, whatever the file names say: " + oneOf(data.Builders),
		textOf(func(s *data.Set) *string { return &s.Kept }), shownText(func(s *data.Set) *string { return &s.Kept })},
	{"type", "Content of the rows: " + oneOf(data.SetFormats) + "; also chat_template (messages), completion and pretrain (text)",
		func(s *data.Set, e *setter) error {
			err := textOf(func(s *data.Set) *string { return &s.Format })(s, e)
			if to, ok := setTypes[s.Format]; ok {
				s.Format = to
			}
			return err
		}, shownText(func(s *data.Set) *string { return &s.Format })},
	fieldKey("field", "text", "Column of the text"),
	fieldKey("field_messages", "messages", "Column of the messages"),
	fieldKey("field_prompt", "prompt", "Pairs: column of the prompt, which is messages or verbatim text"),
	fieldKey("field_chosen", "chosen", "Pairs: column of the chosen answer"),
	fieldKey("field_rejected", "rejected", "Pairs: column of the rejected answer"),
	fieldKey("field_instruction", "instruction", "Column of the instruction or prompt. Pairs: column of a prompt that becomes the user's turn"),
	fieldKey("field_input", "input", "Column of the input beside the instruction"),
	fieldKey("field_output", "output", "Column of the answer"),
	fieldKey("field_system", "system", "Column of the system message"),
	fieldKey("field_tools", "tools", "Column of the tools"),
	fieldKey("message_field_role", "role", "Field of a message's role"),
	fieldKey("message_field_content", "content", "Field of a message's text"),
	{"roles", "Names of the roles in messages, such as `{user: [human], assistant: [gpt, bot]}`", setRoles, showRoles},
}

// mappingsKey is axolotl's other form of the keys message_field_role and message_field_content: one mapping from role
// and content to the names that these fields have in the data.
const mappingsKey = "message_property_mappings"

// textOf returns a function that parses a text field of a data set and stores it. `at` returns the field's address in
// the data set.
func textOf(at func(*data.Set) *string) func(*data.Set, *setter) error {
	return func(s *data.Set, e *setter) error { return e.text(at(s)) }
}

func shownText(at func(*data.Set) *string) func(*data.Set) any {
	return func(s *data.Set) any {
		if *at(s) == "" {
			return nil
		}
		return *at(s)
	}
}

// wholeOf returns a function that parses a whole number of at least 0 and stores it in a data set. `at` returns the
// field's address in the data set.
func wholeOf(at func(*data.Set) *int) func(*data.Set, *setter) error {
	return func(s *data.Set, e *setter) error {
		if e.v.kind == null {
			return nil
		}
		n, err := e.integer()
		*at(s) = int(n)
		return err
	}
}

func shownInt(at func(*data.Set) *int) func(*data.Set) any {
	return func(s *data.Set) any {
		if *at(s) == 0 {
			return nil
		}
		return strconv.Itoa(*at(s))
	}
}

func anysOrNil(list []string) any {
	if len(list) == 0 {
		return nil
	}
	return anys(list)
}

// fieldKey returns the setKey for a key called name whose value names a column of the data. field is the entry of
// data.Set.Fields that stores the column, and doc the help text.
func fieldKey(name, field, doc string) setKey {
	return setKey{name, doc, func(s *data.Set, e *setter) error {
		var column string
		if err := e.text(&column); err != nil || column == "" {
			return err
		}
		if s.Fields == nil {
			s.Fields = map[string]string{}
		}
		s.Fields[field] = column
		return nil
	}, func(s *data.Set) any {
		if s.Fields[field] == "" {
			return nil
		}
		return s.Fields[field]
	}}
}

// setRoles parses the key `roles` of a data set. The key maps each role of chat templates, such as user, to the names
// that the data uses for it.
func setRoles(s *data.Set, e *setter) error {
	const want = "a mapping such as {user: [human], assistant: [gpt]}"
	if e.v.kind == null {
		return nil
	}
	if e.v.kind != mapping {
		return e.fail(want)
	}
	s.Roles = map[string]string{}
	for _, f := range e.v.fields {
		if !slices.Contains([]string{"user", "assistant", "system", "tool"}, f.name) {
			return f.pos.errorf("roles: unknown role %q; the roles are user, assistant, system and tool", f.name)
		}
		var names []string
		if err := (&setter{key: &key{name: "roles." + f.name}, spelled: "roles." + f.name, v: f.val}).list(&names); err != nil {
			return err
		}
		for _, n := range names {
			s.Roles[n] = f.name
		}
	}
	return nil
}

func showRoles(s *data.Set) any {
	if len(s.Roles) == 0 {
		return nil
	}
	out := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(s.Roles)) {
		role := s.Roles[name]
		list, _ := out[role].([]any)
		out[role] = append(list, name)
	}
	return out
}

// sets parses the list of data sets in e's value and stores it in *p. An item is a path, or a mapping with the keys in
// setKeys.
func (e *setter) sets(p *[]data.Set) error {
	v, err := e.written()
	if err != nil {
		return err
	}
	items := v.items
	switch v.kind {
	case null, list:
	case mapping:
		items = []value{v}
	default:
		var paths []string
		if err := e.list(&paths); err != nil {
			return err
		}
		for _, path := range paths {
			items = append(items, value{kind: quoted, text: path, pos: v.pos})
		}
	}
	out := []data.Set{}
	for i, item := range items {
		s, err := e.one(fmt.Sprintf("%s[%d]", e.spelled, i), item)
		if err != nil {
			return err
		}
		out = append(out, s)
	}
	if *p = out; len(out) == 0 {
		*p = nil
	}
	return nil
}

// one parses one item of a list of data sets from v. name stands for the item in errors, such as "datasets[0]".
func (e *setter) one(name string, v value) (s data.Set, err error) {
	switch v.kind {
	case plain, quoted:
		s.Path = v.text
		return s, nil
	case mapping:
	default:
		return s, (&setter{key: e.key, spelled: name, v: v}).fail("a path, or a mapping such as {path: ORG/NAME, type: alpaca}")
	}
	for _, f := range v.fields {
		if f.name == mappingsKey {
			if err := setMappings(&s, name, f); err != nil {
				return s, err
			}
			continue
		}
		i := slices.IndexFunc(setKeys, func(k setKey) bool { return k.name == f.name })
		if i < 0 {
			return s, f.pos.errorf("%s has an unknown key %q%s", name, f.name, suggest(f.name, setKeyNames()))
		}
		spelled := name + "." + f.name
		if err := setKeys[i].set(&s, &setter{key: &key{name: spelled, limit: atLeast(0, ""), field: func(*Config) any { return new(int) }}, spelled: spelled, v: f.val}); err != nil {
			return s, err
		}
	}
	if s.Path == "" {
		return s, v.pos.errorf("%s has no path: give a file, a folder, a pattern or a name on the Hub", name)
	}
	return s, nil
}

// setMappings parses the field message_property_mappings of the data set s. name stands for the data set in errors.
func setMappings(s *data.Set, name string, f field) error {
	for _, m := range f.val.fields {
		if m.name != "role" && m.name != "content" {
			return m.pos.errorf("%s.%s: unknown key %q; mt reads role and content", name, mappingsKey, m.name)
		}
		spelled := name + "." + mappingsKey + "." + m.name
		if err := fieldKey("", m.name, "").set(s, &setter{key: &key{name: spelled}, spelled: spelled, v: m.val}); err != nil {
			return err
		}
	}
	if f.val.kind != mapping && f.val.kind != null {
		return f.val.pos.errorf("%s.%s must be a mapping such as {role: from, content: value}, not %s", name, mappingsKey, f.val.shown())
	}
	return nil
}

func setKeyNames() []string {
	out := []string{mappingsKey}
	for _, k := range setKeys {
		out = append(out, k.name)
	}
	return out
}

// setsText formats sets as YAML on one line.
func setsText(sets []data.Set) string {
	items := make([]string, len(sets))
	for i := range sets {
		var parts []string
		for _, k := range setKeys {
			switch x := k.show(&sets[i]).(type) {
			case nil:
			case string:
				if _, err := strconv.Atoi(x); err != nil || k.name != "shards" && k.name != "shards_idx" {
					x = flow(x)
				}
				parts = append(parts, k.name+": "+x)
			default:
				parts = append(parts, k.name+": "+flow(x))
			}
		}
		items[i] = "{" + strings.Join(parts, ", ") + "}"
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// checkSets rejects two cases: data given both as paths (dataset) and as items (datasets), and an item whose own keys
// contradict each other. fail records an error about a key.
func (c *Config) checkSets(fail func(key, format string, args ...any)) {
	for _, k := range []struct {
		lists, paths string
		sets         []data.Set
		given        []string
	}{{"datasets", "dataset", c.Datasets, c.Dataset}, {"eval_datasets", "eval_dataset", c.EvalDatasets, c.EvalDataset}} {
		if len(k.sets) > 0 && len(k.given) > 0 {
			fail(k.lists, "%s and %s are both given: move the paths in %s to %s", k.lists, k.paths, k.paths, k.lists)
		}
		for i := range k.sets {
			if err := k.sets[i].Check(); err != nil {
				fail(k.lists, "%s[%d]: %v", k.lists, i, err)
			}
		}
	}
}

// held reports whether the run has held-out data.
func (c *Config) held() bool { return c.ValSize > 0 || c.HasEvalData() }

// HasEvalData reports whether eval_dataset or eval_datasets is given.
func (c *Config) HasEvalData() bool { return len(c.EvalDataset)+len(c.EvalDatasets) > 0 }

// DataKey returns the key that names the training data.
func (c *Config) DataKey() string {
	if len(c.Datasets) > 0 {
		return "datasets"
	}
	return "dataset"
}

// EvalDataKey returns the key that names the evaluation data.
func (c *Config) EvalDataKey() string {
	return "eval_" + map[bool]string{true: "datasets", false: "dataset"}[len(c.EvalDatasets) > 0]
}

// DataSpec returns c's settings for the training data. The caller adds the tokenizer, the vocabulary and the model's
// directory.
func (c *Config) DataSpec() data.Spec {
	s := c.dataSpec(c.Dataset, c.Datasets)
	s.MixStrategy, s.InterleaveProbs = c.MixStrategy, c.InterleaveProbs
	s.MaxSamples = c.MaxSamples
	if !c.HasEvalData() {
		s.ValSize = c.ValSize
	}
	return s
}

// EvalSpec is DataSpec for the evaluation data, whose rows are all held out.
func (c *Config) EvalSpec() data.Spec {
	s := c.dataSpec(c.EvalDataset, c.EvalDatasets)
	s.Held = true
	return s
}

func (c *Config) dataSpec(paths []string, sets []data.Set) data.Spec {
	s := data.Spec{Pairs: len(c.DPO) > 0, Paths: paths, Sets: sets, Dir: c.DatasetDir, Hub: DatasetDir, Format: c.DatasetFormat, Template: c.templatePlace(),
		Columns:     data.Columns{Text: c.TextColumn, Messages: c.MessagesColumn, Prompt: c.PromptColumn, Response: c.ResponseColumn},
		MaskHistory: c.MaskHistory, TrainOnPrompt: c.TrainOnPrompt, SkipBadRows: c.SkipBadRows,
		MaxSeqLen: c.MaxSeqLen, Seed: c.Seed, Shuffle: c.Shuffle, CacheDir: c.CacheDir, Threads: c.Threads}
	s.TemplateVars = c.TemplateVars()
	if c.Packing != Auto {
		packing := c.Packing == On
		s.Packing = &packing
	}
	return s
}

// templatePlace returns where the chat template lies. That is the value of the key template, or the cached directory
// if the value is a Hub id in the Hugging Face cache.
func (c *Config) templatePlace() string {
	if !strings.Contains(c.Template, "/") || !hubID.MatchString(c.Template) {
		return c.Template
	}
	if dir, err := ModelDir(c.Template); err == nil {
		return dir
	}
	return c.Template
}

// TemplateVars returns the variables for the chat template: chat_template_kwargs plus enable_thinking.
func (c *Config) TemplateVars() map[string]any {
	if c.EnableThinking == Auto {
		return c.ChatTemplateKwargs
	}
	out := map[string]any{}
	maps.Copy(out, c.ChatTemplateKwargs)
	out[thinkingKey] = c.EnableThinking == On
	return out
}

const thinkingKey = "enable_thinking"

// checkTemplateVars rejects chat_template_kwargs if it has a variable that mt sets itself. It also rejects
// enable_thinking given both there and as a key of its own.
func (c *Config) checkTemplateVars(fail func(key, format string, args ...any)) {
	for _, name := range data.OwnVars {
		if _, given := c.ChatTemplateKwargs[name]; given {
			fail("chat_template_kwargs", "chat_template_kwargs has %s, which mt sets itself: remove it", name)
		}
	}
	if _, twice := c.ChatTemplateKwargs[thinkingKey]; twice && c.EnableThinking != Auto {
		fail(thinkingKey, "enable_thinking and chat_template_kwargs.enable_thinking are both given: give one of them")
	}
}
