package config

import (
	"slices"
	"strings"
)

// Args is a command line taken apart.
type Args struct {
	Positional []string
	Own        map[string]string // the command's own flags that were given; "true" for a switch
	entries    []entry
}

// Switch says whether one of the command's own switches was given.
func (a Args) Switch(name string) bool { return a.Own[name] != "" }

// ParseArgs takes the command line of a command apart whose flags are config
// keys: --key value, --key=value, dashes or underscores, aliases too, keys of
// mappings as --pipeline.weight-slots; a switch may stand without its value.
// own are the command's own flags: "dry-run" is a switch, "prompt=" takes a
// value. What follows "--" is positional. Whether keys exist is for Load to
// say.
func ParseArgs(args []string, own ...string) (Args, error) {
	p := &argParser{args: args, own: own, out: Args{Own: map[string]string{}}, seen: map[string]bool{}}
	for p.next < len(args) {
		arg := args[p.next]
		p.next++
		if arg == "--" {
			p.out.Positional = append(p.out.Positional, args[p.next:]...)
			break
		}
		if arg == "-h" {
			arg = "--help"
		}
		var err error
		switch {
		case strings.HasPrefix(arg, "--"):
			err = p.flag(arg)
		case len(arg) > 1 && arg[0] == '-':
			err = Usagef("%s: flags have two dashes, as in --learning-rate 1e-4", arg)
		default:
			p.out.Positional = append(p.out.Positional, arg)
		}
		if err != nil {
			return p.out, err
		}
	}
	return p.out, nil
}

// argParser is ParseArgs on its way through args.
type argParser struct {
	args []string
	next int // index of the argument to look at next
	own  []string
	out  Args
	seen map[string]bool
}

// flag takes one flag, and its value when that stands apart.
func (p *argParser) flag(arg string) error {
	flag, text, has := strings.Cut(arg, "=")
	name := strings.ReplaceAll(flag[2:], "-", "_")
	if p.seen[name] {
		return Usagef("%s: given twice", flag)
	}
	p.seen[name] = true
	dashed := strings.ReplaceAll(name, "_", "-")
	ownSwitch, ownValue := slices.Contains(p.own, dashed), slices.Contains(p.own, dashed+"=")
	if !has {
		switch {
		case ownSwitch:
			text = "true"
		case ownValue:
			if p.next == len(p.args) {
				return Usagef("%s: has no value", flag)
			}
			text = p.args[p.next]
			p.next++
		default:
			var err error
			if text, err = p.value(name, flag); err != nil {
				return err
			}
		}
	}
	switch {
	case ownSwitch:
		val, ok := truth(text)
		if !ok {
			return Usagef("%s: wants true or false, is %s", flag, text)
		}
		if val {
			p.out.Own[dashed] = "true"
		}
		return nil
	case ownValue:
		p.out.Own[dashed] = text
		return nil
	}
	return p.out.add(flag, name, text)
}

// value is the value of a key's flag, taken from the next argument.
func (p *argParser) value(name, flag string) (string, error) {
	next, ok := "", p.next < len(p.args)
	if ok {
		next = p.args[p.next]
	}
	if isSwitch(name) {
		if _, isTruth := truth(next); isTruth || next == "auto" {
			p.next++
			return next, nil
		}
		return "true", nil
	}
	if !ok || strings.HasPrefix(next, "--") {
		if byName[name] == nil && foreign[name] == nil && !strings.Contains(name, ".") {
			return "", nil // Load says that there is no such key
		}
		return "", Usagef("%s: has no value (write %s=VALUE if it begins with two dashes)", flag, flag)
	}
	p.next++
	return next, nil
}

// isSwitch says whether the flag may stand without a value.
func isSwitch(name string) bool {
	if k := byName[name]; k != nil {
		return k.isBool()
	}
	return foreignSwitches[name]
}

// add keeps one flag. A value in braces is YAML where the key takes a mapping.
func (a *Args) add(flag, name, text string) error {
	pos := Pos{Flag: flag}
	v := value{kind: plain, text: text, pos: pos}
	if takesMapping(name) && strings.HasPrefix(strings.TrimSpace(text), "{") {
		parsed, err := parseYAML(flag, []byte(text))
		if err != nil {
			return err
		}
		v = parsed.at(pos)
	}
	if name == pipelineKey && v.kind == mapping {
		for _, f := range v.fields {
			a.entries = append(a.entries, entry{pipelineKey + "." + f.name, pos, f.val})
		}
		return nil
	}
	a.entries = append(a.entries, entry{name, pos, v})
	return nil
}

// takesMapping says whether the flag may have a mapping for its value.
func takesMapping(name string) bool {
	k := byName[name]
	return name == pipelineKey || k != nil && (k.name == modelKey || k.isMapping())
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
