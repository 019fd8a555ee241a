package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Setting is a key, by canonical name ("pipeline.weight_slots"), with its whole-number value.
type Setting struct {
	Key   string `json:"key"`
	Value int    `json:"value"`
}

// Settings formats settings for one line of a config file.
func Settings(all []Setting) string {
	var pipeline, rest []string
	for _, s := range all {
		if leaf, under := strings.CutPrefix(s.Key, pipelineKey+"."); under {
			pipeline = append(pipeline, fmt.Sprintf("%s: %d", leaf, s.Value))
			continue
		}
		rest = append(rest, fmt.Sprintf("%s: %d", s.Key, s.Value))
	}
	if len(pipeline) > 0 {
		rest = append([]string{pipelineKey + ": {" + strings.Join(pipeline, ", ") + "}"}, rest...)
	}
	return strings.Join(rest, ", ")
}

// File returns the config file's name; "" if there were only flags.
func (c *Config) File() string { return c.file }

// Edit writes settings into the config text src and changes no other bytes. A key that is present gets the new value;
// a missing key is added. Errors contain the file name and the lines to write by hand.
func Edit(name string, src []byte, settings []Setting) ([]byte, error) {
	fail := func(why error) ([]byte, error) {
		return nil, Usagef("config: %s cannot be edited (%w): add these settings by hand: %s", name, why, Settings(settings))
	}
	before, err := Parse(name, src, Args{})
	if err != nil {
		return nil, err
	}
	text := strings.TrimPrefix(string(src), byteOrderMark)
	windows := strings.Contains(text, "\r\n")
	if windows { // the YAML library would count too many lines
		text = strings.ReplaceAll(text, "\r\n", "\n")
	}
	for _, s := range settings {
		if text, err = edit(name, text, s); err != nil {
			return fail(err)
		}
	}
	if windows {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	if strings.HasPrefix(string(src), byteOrderMark) {
		text = byteOrderMark + text
	}
	if err := checkEdit(before, name, text, settings); err != nil {
		return fail(err)
	}
	return []byte(text), nil
}

// byteOrderMark is the mark at the start of files that some editors write.
const byteOrderMark = "\xef\xbb\xbf"

// checkEdit parses the edited text again. It returns an error if a setting does not have its new value, or if any
// other key has changed since before.
func checkEdit(before *Config, name, text string, settings []Setting) error {
	after, err := Parse(name, []byte(text), Args{})
	if err != nil {
		return err
	}
	want := map[string]string{}
	for _, s := range settings {
		want[s.Key] = fmt.Sprint(s.Value)
	}
	var errs []error
	eachKey(func(k *key) {
		expected, set := want[k.name]
		if !set {
			expected = k.print(before)
		}
		if got := k.print(after); got != expected {
			errs = append(errs, fmt.Errorf("%s would be %s, not %s", k.name, got, expected))
		}
	})
	return errors.Join(errs...)
}

// edit returns text with the one setting s written into it. name is the file's name for errors.
func edit(name, text string, s Setting) (string, error) {
	f, err := parseAST(name, []byte(text))
	if err != nil {
		return "", err
	}
	e := &editor{text: text, value: fmt.Sprint(s.Value)}
	for _, d := range f.Docs {
		if d.Body != nil {
			e.root = fieldsOf(d.Body)
			break
		}
	}
	if at := e.root.find(s.Key); at != nil {
		return e.replace(at.Value)
	}
	leaf, under := strings.CutPrefix(s.Key, pipelineKey+".")
	if !under {
		return e.add(e.root, leaf+": "+e.value)
	}
	at := e.root.find(pipelineKey)
	if at == nil {
		if e.root.flow {
			return e.add(e.root, pipelineKey+": {"+leaf+": "+e.value+"}")
		}
		return e.add(e.root, pipelineKey+":\n  "+leaf+": "+e.value)
	}
	if _, empty := at.Value.(*ast.NullNode); empty {
		return e.fill(at, leaf+": "+e.value)
	}
	pipeline := fieldsOf(at.Value)
	if old := pipeline.find(leaf); old != nil {
		return e.replace(old.Value)
	}
	return e.add(pipeline, leaf+": "+e.value)
}

// editor holds the text of one config file while one setting is written into it.
type editor struct {
	text, value string
	root        *branch
}

// branch is a mapping of the config file in the YAML library's tree: the whole file, or the keys under `pipeline:`.
type branch struct {
	node   ast.Node
	fields []*ast.MappingValueNode
	flow   bool // in braces
}

// fieldsOf returns the node n as a branch. If n is not a mapping, the branch has no fields.
func fieldsOf(n ast.Node) *branch {
	switch n := n.(type) {
	case *ast.MappingNode:
		return &branch{n, n.Values, n.IsFlowStyle}
	case *ast.MappingValueNode:
		return &branch{n, []*ast.MappingValueNode{n}, false}
	}
	return &branch{node: n}
}

// find returns the branch's field called name; nil if there is none. b may be nil and then has no fields.
func (b *branch) find(name string) *ast.MappingValueNode {
	if b == nil {
		return nil
	}
	for _, f := range b.fields {
		if text, ok := keyText(f.Key); ok && text == name {
			return f
		}
	}
	return nil
}

// errShape is the error for a file whose YAML layout Edit cannot change safely.
var errShape = errors.New("its layout is unusual")

// span returns the byte offsets in the text where the scalar n begins and ends. n must lie on one line.
func (e *editor) span(n ast.Node) (from, to int, err error) {
	t := n.GetToken()
	raw := strings.TrimSpace(t.Origin)
	from = e.offset(t.Position.Line, t.Position.Column)
	if from < 0 || raw == "" || strings.Contains(raw, "\n") || !strings.HasPrefix(e.text[from:], raw) {
		return 0, 0, errShape
	}
	return from, from + len(raw), nil
}

// offset returns the byte offset of a line and column, both counted from 1, columns in characters; −1 if there is no
// such place.
func (e *editor) offset(line, column int) int {
	at := 0
	for ; line > 1; line-- {
		i := strings.IndexByte(e.text[at:], '\n')
		if i < 0 {
			return -1
		}
		at += i + 1
	}
	for range column - 1 {
		rest := []rune(e.text[at:min(len(e.text), at+4)])
		if len(rest) == 0 {
			return -1
		}
		at += len(string(rest[0]))
	}
	return at
}

// splice returns e.text with the bytes [from, to) replaced by text.
func (e *editor) splice(from, to int, text string) string { return e.text[:from] + text + e.text[to:] }

// replace returns the text with e.value in place of the existing value n.
func (e *editor) replace(n ast.Node) (string, error) {
	if _, empty := n.(*ast.NullNode); empty && strings.TrimSpace(n.GetToken().Origin) == "" {
		return "", errShape
	}
	from, to, err := e.span(n)
	return e.splice(from, to, e.value), err
}

// add returns the text with field, such as "max_steps: 10", added behind the last field of the mapping b.
func (e *editor) add(b *branch, field string) (string, error) {
	switch {
	case b == nil || len(b.fields) == 0 && !b.flow || b == e.root && !b.flow:
		if b != nil && b != e.root {
			return "", errShape
		}
		if e.text == "" || strings.HasSuffix(e.text, "\n") {
			return e.text + field + "\n", nil
		}
		return e.text + "\n" + field, nil
	case len(b.fields) == 0:
		from, to, err := e.span(b.node)
		return e.splice(from, to, "{"+field), err
	case b.flow:
		end, err := e.end(b.fields[len(b.fields)-1].Value)
		return e.splice(end, end, ", "+field), err
	}
	last := b.fields[len(b.fields)-1]
	end, err := e.end(last.Value)
	if err != nil {
		return "", err
	}
	return e.addLine(end, strings.Repeat(" ", b.fields[0].Key.GetToken().Position.Column-1)+field), nil
}

// end returns the offset behind the value n, which is a scalar, or a mapping or list in brackets.
func (e *editor) end(n ast.Node) (int, error) {
	switch n := n.(type) {
	case *ast.MappingNode:
		if n.IsFlowStyle && n.End != nil {
			return e.offset(n.End.Position.Line, n.End.Position.Column) + 1, nil
		}
		return 0, errShape
	case *ast.SequenceNode:
		if n.IsFlowStyle && n.End != nil {
			return e.offset(n.End.Position.Line, n.End.Position.Column) + 1, nil
		}
		return 0, errShape
	}
	_, to, err := e.span(n)
	return to, err
}

// addLine returns the text with a new line behind the line that contains the offset at.
func (e *editor) addLine(at int, line string) string {
	if i := strings.IndexByte(e.text[at:], '\n'); i >= 0 {
		at += i
	} else {
		at = len(e.text)
	}
	return e.splice(at, at, "\n"+line)
}

// fill returns the text with a first field for a key that so far has no value, such as `pipeline:`.
func (e *editor) fill(at *ast.MappingValueNode, field string) (string, error) {
	if from, to, err := e.span(at.Value); err == nil && at.Value.GetToken().Position.Line >= at.Key.GetToken().Position.Line && to > from {
		return e.splice(from, to, "{"+field+"}"), nil
	}
	_, end, err := e.span(at.Key)
	if err != nil || e.root.flow {
		return "", errShape
	}
	return e.addLine(end, strings.Repeat(" ", at.Key.GetToken().Position.Column+1)+field), nil
}

// Editable returns the content of a config file and checks that the file can be replaced. It returns an error for a
// pipe or a folder that cannot be written.
func Editable(file string) ([]byte, error) {
	if file == "" {
		return nil, Usagef("there is no config file to write into: give CONFIG.yaml")
	}
	st, err := os.Stat(file)
	if err != nil {
		return nil, fileError(file, err)
	}
	if !st.Mode().IsRegular() {
		return nil, Usagef("config: %s is not a regular file, so it cannot be edited", file)
	}
	path, err := filepath.EvalSymlinks(file)
	if err != nil {
		return nil, fileError(file, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".mt-config-*")
	if err != nil {
		return nil, fileError(file, err)
	}
	if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
		return nil, fileError(file, err)
	}
	src, err := read(path)
	if err != nil {
		return nil, fileError(file, err)
	}
	return src, nil
}
