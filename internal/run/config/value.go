package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// kind is the YAML shape of a value.
type kind uint8

const (
	null    kind = iota
	plain        // a scalar without quotes; its type depends on the key
	quoted       // text in quotes or a block
	list         // items
	mapping      // fields
)

func (k kind) String() string {
	return [...]string{"nothing", "a plain value", "text", "a list", "a mapping"}[k]
}

// value is a parsed YAML value. Its type follows from its key, which is not known while it is parsed.
type value struct {
	kind   kind
	text   string
	items  []value
	fields []field
	pos    Pos
}

// field is one key of a mapping, with its value.
type field struct {
	name string
	pos  Pos
	val  value
}

// shown formats v for error messages.
func (v value) shown() string {
	switch v.kind {
	case plain:
		return v.text
	case quoted:
		return fmt.Sprintf("%q", v.text)
	case list:
		if len(v.items) == 0 {
			return "an empty list"
		}
	case mapping:
		if len(v.fields) == 0 {
			return "an empty mapping"
		}
	}
	return v.kind.String()
}

// maxDepth bounds the nesting of lists and mappings. A config.json needs 3 levels.
const maxDepth = 16

// parseYAML parses src, one YAML document. name is the file's name for errors. The result is a mapping, or null for an
// empty document.
func parseYAML(name string, src []byte) (v value, err error) {
	if !utf8.Valid(src) {
		return v, Usagef("%s is not UTF-8 text: save it as UTF-8", name)
	}
	f, err := parseAST(name, bytes.TrimPrefix(src, []byte("\xef\xbb\xbf"))) // a byte order mark, which some editors write
	if IsUsage(err) {
		return v, err
	}
	if err != nil {
		var at yaml.Error
		if errors.As(err, &at) && at.GetToken() != nil && at.GetToken().Position != nil {
			p := at.GetToken().Position
			return v, Pos{File: name, Line: p.Line, Col: p.Column}.errorf("YAML: %s", at.GetMessage())
		}
		return v, Usagef("%s: YAML: %s", name, firstLine(err.Error()))
	}
	var body ast.Node
	for _, d := range f.Docs {
		if d.Body == nil {
			continue
		}
		if body != nil {
			return v, nodePos(name, d.Body).errorf("this begins a second YAML document; a config file has only one")
		}
		body = d.Body
	}
	if body == nil {
		return value{pos: Pos{File: name, Line: 1, Col: 1}}, nil
	}
	return (&reader{file: name}).node(body, 0)
}

// parseAST parses src with the YAML library and turns the library's panics into errors. checkTokens first rejects
// text that would cost the library's parser excessive time or memory.
func parseAST(name string, src []byte) (f *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("cannot be read (%v)", r)
		}
	}()
	tokens := lexer.Tokenize(string(src))
	if err := checkTokens(name, tokens); err != nil {
		return nil, err
	}
	return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
}

// maxKeys and maxItems exceed the keys and list items of any real config. The YAML library's time grows with the
// square of the number of keys.
const (
	maxKeys  = 2000
	maxItems = 50000
)

// checkTokens rejects text with more than maxKeys keys or maxItems items, or with nesting deeper than maxDepth within
// one line. The YAML library's memory grows with the square of the depth, and within a line one character adds a level.
// Over several lines each level needs indentation, so the file's size bounds the depth.
func checkTokens(name string, tokens token.Tokens) error {
	flow, dashes, keys, items, line := 0, 0, 0, 0, 0
	for _, t := range tokens {
		pos := Pos{File: name, Line: t.Position.Line, Col: t.Position.Column}
		if pos.Line != line {
			line, dashes = pos.Line, 0
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow = max(0, flow-1)
		case token.SequenceEntryType:
			dashes++
			items++
		case token.CollectEntryType:
			items++
		case token.MappingValueType:
			keys++
		}
		switch {
		case flow+dashes > maxDepth:
			return pos.errorf("lists and mappings are nested more than %d deep", maxDepth)
		case keys > maxKeys:
			return pos.errorf("there are more than %d keys; no config file needs as many", maxKeys)
		case items > maxItems:
			return pos.errorf("there are more than %d list items: give a folder or a pattern instead", maxItems)
		}
	}
	return nil
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

func nodePos(file string, n ast.Node) Pos {
	p := Pos{File: file, Line: 1, Col: 1}
	if t := n.GetToken(); t != nil && t.Position != nil {
		p.Line, p.Col = t.Position.Line, t.Position.Column
	}
	return p
}

// reader converts the library's tree into values. It rejects anchors, aliases, merge keys and tags, which a config
// does not need.
type reader struct{ file string }

func (r *reader) node(n ast.Node, depth int) (value, error) {
	v := value{pos: nodePos(r.file, n)}
	if depth > maxDepth {
		return v, v.pos.errorf("lists and mappings are nested more than %d deep", maxDepth)
	}
	switch n := n.(type) {
	case *ast.NullNode:
		return v, nil
	case *ast.StringNode:
		v.kind, v.text = plain, n.Value
		if t := n.Token.Type.String(); t == "SingleQuote" || t == "DoubleQuote" {
			v.kind = quoted
		}
		return v, nil
	case *ast.LiteralNode:
		v.kind = quoted
		if n.Value != nil {
			v.text = n.Value.Value
		}
		return v, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		v.kind, v.text = plain, n.GetToken().Value
		return v, nil
	case *ast.SequenceNode:
		v.kind = list
		for _, item := range n.Values {
			iv, err := r.node(item, depth+1)
			if err != nil {
				return v, err
			}
			v.items = append(v.items, iv)
		}
		return v, nil
	case *ast.MappingNode:
		return r.fields(v, n.Values, depth)
	case *ast.MappingValueNode:
		return r.fields(v, []*ast.MappingValueNode{n}, depth)
	}
	return v, v.pos.errorf("anchors, aliases, merge keys and tags are not supported: write the value out")
}

func (r *reader) fields(v value, in []*ast.MappingValueNode, depth int) (value, error) {
	v.kind = mapping
	seen := map[string]Pos{}
	for _, mv := range in {
		pos := nodePos(r.file, mv.Key)
		name, ok := keyText(mv.Key)
		if !ok {
			return v, pos.errorf("this is not a key: a key is a plain word")
		}
		if first, ok := seen[name]; ok {
			return v, pos.errorf("the key %q is repeated; it is first given in line %d: keep one of them", name, first.Line)
		}
		seen[name] = pos
		fv, err := r.node(mv.Value, depth+1)
		if err != nil {
			return v, err
		}
		v.fields = append(v.fields, field{name: name, pos: pos, val: fv})
	}
	if len(v.fields) > 0 {
		v.pos = v.fields[0].pos
	}
	return v, nil
}

// keyText returns the text of a mapping's key. The bool is false if the key is not a scalar.
func keyText(n ast.MapKeyNode) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		return n.GetToken().Value, true
	}
	return "", false
}
