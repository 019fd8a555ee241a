package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"mt/data"
)

// Args are the keys that a command line gives, in its order.
type Args struct{ entries []entry }

// Dashes makes dashes and underscores of a flag's name the same.
func Dashes(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
}

// AddTo makes every key a flag of set, by all its names: --max-steps, keys of mappings
// as --pipeline.weight-slots, and the keys of other tools. The values that are given
// are kept in a; Load checks them.
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

// add makes a flag of set that gives the key of that name.
func (a *Args) add(set *pflag.FlagSet, name, doc string) *pflag.Flag {
	f := set.VarPF(&keyFlag{args: a, name: name}, strings.ReplaceAll(name, "_", "-"), "", doc)
	if k := byName[name]; k != nil && k.isSwitch() || foreignSwitches[name] {
		f.NoOptDefVal = "true"
	}
	return f
}

// With is a with one key more, as if a flag had given it that text.
func (a Args) With(key, text string) (Args, error) {
	with := Args{slices.Clone(a.entries)}
	err := (&keyFlag{args: &with, name: key, typed: flagName(key)}).Set(text)
	return with, err
}

// Choices are the values of the keys that have few, by the names of their flags, without dashes in front.
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

// keyFlag is a key as a pflag.Value.
type keyFlag struct {
	args        *Args
	name, typed string // "max_steps"; "--max_steps" or "--max-steps"
}

// String implements pflag.Value. The flag has no default, since a config file may give
// the key a value.
func (f *keyFlag) String() string { return "" }

// Type implements pflag.Value.
func (f *keyFlag) Type() string { return "value" }

// Set implements pflag.Value. A value in braces is YAML where the key takes a
// mapping.
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

// Spell rewrites args, the arguments of a command with the flags of set, so that each
// flag and its value are one argument, such as --seed=1: a switch takes its value in no
// other way in pflag. A flag that set does not have is added to it, for Load to judge:
// it is a key of an inline model, or a mistake. What pflag would misread is a
// UsageError: a flag with one dash, a flag that is given twice, a flag where a value
// should be.
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
			return nil, Usagef("%s: has no value (write %s=VALUE if it begins with two dashes)", typed, typed)
		default:
			f.NoOptDefVal = "true" // Load reports that there is no such key
		}
	}
	return append(out, args...), nil
}

// togetherHint is how a flag of a list takes several values; "" for a flag of one value.
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

// address is what cannot be anything else behind --dashboard: a port, or a host with one.
var address = regexp.MustCompile(`^([^/]*:)?[0-9]+$`)

// takes says whether arg, which follows the flag f, is its value.
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

// Switch adds to set a flag of the command's own that may stand without its
// value.
func Switch(set *pflag.FlagSet, name string, to *bool) {
	set.BoolFunc(name, "", func(text string) (err error) {
		val, ok := truth(text)
		if !ok {
			return Usagef("--%s: wants true or false, is %s", name, text)
		}
		*to = val
		return nil
	})
}

// at is v with every place replaced by pos.
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
