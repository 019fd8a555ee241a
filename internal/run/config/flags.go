package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"mt/data"
)

// Args holds the keys that a command line gives, in order.
type Args struct{ entries []entry }

// Dashes normalizes a flag's name by turning underscores into dashes, so that --max_steps and --max-steps are one
// flag. pflag calls it.
func Dashes(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
}

// AddTo adds flags to set: one for every name of every key, one for every key of another tool, and one for every key
// of a mapping, such as --pipeline.weight-slots. a collects the values; Load checks them.
func (a *Args) AddTo(set *pflag.FlagSet) {
	eachKey(func(k *key) {
		for _, name := range append([]string{k.name}, k.aliases...) {
			a.add(set, name, k.doc)
		}
	})
	a.add(set, pipelineKey, "several of its keys at once, as {weight_slots: 4}")
	for name := range foreign {
		a.add(set, name, "").Hidden = true
	}
}

// add adds to set the flag that gives the key called name, with doc as its help, and returns the flag.
func (a *Args) add(set *pflag.FlagSet, name, doc string) *pflag.Flag {
	f := set.VarPF(&keyFlag{args: a, name: name}, strings.ReplaceAll(name, "_", "-"), "", doc)
	if k := byName[name]; k != nil && k.isSwitch() || foreignSwitches[name] {
		f.NoOptDefVal = "true"
	}
	return f
}

// With returns a copy of a with one more key, as if a flag had given it.
func (a Args) With(key, text string) (Args, error) {
	with := Args{slices.Clone(a.entries)}
	err := (&keyFlag{args: &with, name: key, typed: flagName(key)}).Set(text)
	return with, err
}

// Choices maps each flag that accepts only a fixed list of values to that list. The flags' names are without leading
// dashes.
func Choices() map[string][]string {
	out := map[string][]string{}
	eachKey(func(k *key) {
		if len(k.choices) == 0 {
			return
		}
		for _, name := range append([]string{k.name}, k.aliases...) {
			out[strings.ReplaceAll(name, "_", "-")] = k.choices
		}
	})
	return out
}

// keyFlag is a pflag.Value for one key.
type keyFlag struct {
	args        *Args
	name, typed string // the key "max_steps"; the flag as typed, "--max_steps" or "--max-steps"
}

// String implements pflag.Value. The flag shows no default, since a config file may give the key a value.
func (f *keyFlag) String() string { return "" }

// Type implements pflag.Value.
func (f *keyFlag) Type() string { return "value" }

// Set implements pflag.Value. If the key takes a mapping, a value in braces is parsed as YAML.
func (f *keyFlag) Set(text string) error {
	pos := Pos{Flag: f.typed}
	v := value{kind: plain, text: text, pos: pos}
	k := byName[f.name]
	takesMapping := f.name == pipelineKey || k != nil && (k.name == modelKey || k.isMapping())
	if takesMapping && strings.HasPrefix(strings.TrimSpace(text), "{") {
		parsed, err := parseYAML(f.typed, []byte(text))
		if err != nil {
			return err
		}
		v = parsed.at(pos)
	}
	f.args.entries = append(f.args.entries, entry{f.name, pos, v})
	return nil
}

// Spell rewrites args so that each flag and its value are one argument, such as --seed=1, the only form in which
// pflag accepts a value for a switch. A flag that set lacks is added to set: it is a key of an inline model or a
// mistake, and Load decides which. Spell returns a UsageError for arguments that pflag would misread: a flag with one
// dash, a repeated flag, or a flag where a value should be.
func (a *Args) Spell(set *pflag.FlagSet, args []string) (out []string, err error) {
	seen := map[*pflag.Flag]bool{}
	for len(args) > 0 && args[0] != "--" {
		arg := args[0]
		out, args = append(out, arg), args[1:]
		if len(arg) < 2 || arg[0] != '-' || arg == "-h" {
			continue
		}
		if arg[1] != '-' {
			return nil, Usagef("%s: flags have two dashes, as in --learning-rate 1e-4", arg)
		}
		typed, _, hasValue := strings.Cut(arg, "=")
		f := set.Lookup(typed[2:])
		known := f != nil || strings.Contains(typed, ".")
		if f == nil {
			f = a.add(set, strings.ReplaceAll(typed[2:], "-", "_"), "")
		}
		if seen[f] {
			return nil, Usagef("%s: given twice%s", typed, togetherHint(f, typed))
		}
		seen[f] = true
		if k, ok := f.Value.(*keyFlag); ok {
			k.typed = typed
		}
		switch {
		case hasValue:
		case len(args) > 0 && takes(f, args[0]):
			out[len(out)-1], args = arg+"="+args[0], args[1:]
		case f.NoOptDefVal != "":
		case known:
			return nil, Usagef("%s: needs a value (write %s=VALUE if the value begins with two dashes)", typed, typed)
		default:
			f.NoOptDefVal = "true" // Load reports that there is no such key
		}
	}
	return append(out, args...), nil
}

// togetherHint explains how to give several values to a list's flag; "" for a flag with a single value.
func togetherHint(f *pflag.Flag, typed string) string {
	k, isKey := f.Value.(*keyFlag)
	if !isKey || byName[k.name] == nil {
		return ""
	}
	switch byName[k.name].field(Default()).(type) {
	case *[]string, *[]float64, *[]data.Set:
		return fmt.Sprintf("; it takes several values at once: %s A,B or %[1]s '[A, B]'", typed)
	}
	return ""
}

// address matches arguments that can only be the value of --dashboard: a port, or a host with a port.
var address = regexp.MustCompile(`^([^/]*:)?[0-9]+$`)

// takes reports whether arg, the argument behind the flag f, is the value of f. A switch takes only a truth value,
// auto or, for --dashboard, an address.
func takes(f *pflag.Flag, arg string) bool {
	k, isKey := f.Value.(*keyFlag)
	_, isTruth := truth(arg)
	switch {
	case !isKey:
		return f.NoOptDefVal == ""
	case f.NoOptDefVal != "":
		return isTruth || arg == "auto" || k.name == dashboardKey && address.MatchString(arg)
	}
	return !strings.HasPrefix(arg, "--")
}

// Switch adds to set a boolean flag that stands for no key of a config and stores its value in *to. The flag may stand
// without a value.
func Switch(set *pflag.FlagSet, name string, to *bool) {
	set.BoolFunc(name, "", func(text string) (err error) {
		val, ok := truth(text)
		if !ok {
			return Usagef("--%s: must be true or false, not %s", name, text)
		}
		*to = val
		return nil
	})
}

// at returns a copy of v in which v and everything inside it has the position pos.
func (v value) at(pos Pos) value {
	v.pos = pos
	for i := range v.items {
		v.items[i] = v.items[i].at(pos)
	}
	for i := range v.fields {
		v.fields[i].pos, v.fields[i].val = pos, v.fields[i].val.at(pos)
	}
	return v
}
