package data

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// colType is the type of a column of a Parquet or Arrow file, or of a part of a column.
type colType struct {
	name    string              // the type in the file's words, for errors
	json    bool                // values are texts in JSON and mean what the JSON says
	fields  map[string]*colType // of a struct, by name; nil for other types
	element *colType            // of a list; nil for other types
}

// mostTypeDepth is how many levels deep a description of types is read.
const mostTypeDepth = 64

// jsonExtension is the name of Arrow's extension type for JSON in text. datasets writes its
// feature Json as this type. Source: Arrow, "Canonical Extension Types".
const jsonExtension = "arrow.json"

// Keys of the metadata in Arrow schemas and Parquet footers.
const (
	extensionKey   = "ARROW:extension:name" // of a field of Arrow
	arrowSchemaKey = "ARROW:schema"         // of a Parquet file: its schema in Arrow
	featuresKey    = "huggingface"          // of both: the features of datasets
)

// featureTypes reads the features that datasets writes beside a schema, by column. It returns
// nil where text holds no features.
func featureTypes(text []byte) map[string]*colType {
	var meta struct {
		Info struct {
			Features map[string]json.RawMessage `json:"features"`
		} `json:"info"`
	}
	if json.Unmarshal(text, &meta) != nil {
		return nil
	}
	return typesOf(meta.Info.Features, 0)
}

// savedTypes reads the features in the dataset_info.json beside a file of save_to_disk, by
// column. It returns nil where there are none.
func savedTypes(path string) map[string]*colType {
	text, err := readSmall(filepath.Join(filepath.Dir(path), infoName), maxInfo)
	var info struct {
		Features map[string]json.RawMessage `json:"features"`
	}
	if err != nil || json.Unmarshal(text, &info) != nil {
		return nil
	}
	return typesOf(info.Features, 0)
}

func typesOf(features map[string]json.RawMessage, depth int) map[string]*colType {
	if features == nil || depth > mostTypeDepth {
		return nil
	}
	out := make(map[string]*colType, len(features))
	for name, raw := range features {
		out[name] = featureType(raw, depth+1)
	}
	return out
}

// featureType reads one feature: {"_type": NAME, …}, a struct of features, or a list of one.
func featureType(raw json.RawMessage, depth int) *colType {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && len(list) == 1 && depth <= mostTypeDepth {
		return &colType{element: featureType(list[0], depth+1)}
	}
	var keys map[string]json.RawMessage
	if json.Unmarshal(raw, &keys) != nil {
		return nil
	}
	kind := ""
	_ = json.Unmarshal(keys["_type"], &kind) // a struct may have a field of that name, which is no string
	switch inner := keys["feature"]; {
	case kind == "":
		return &colType{fields: typesOf(keys, depth)}
	case kind == "Json":
		return &colType{json: true}
	case inner != nil && depth <= mostTypeDepth:
		return &colType{element: featureType(inner, depth+1)}
	}
	return nil
}

// field returns the type of a struct's field. It is nil where t is nil or lacks the field.
func (t *colType) field(name string) *colType {
	if t == nil {
		return nil
	}
	return t.fields[name]
}

// item returns the type of a list's elements. It is nil where t is nil or no list.
func (t *colType) item() *colType {
	if t == nil {
		return nil
	}
	return t.element
}

// isJSON reports whether t is known to be JSON in text.
func (t *colType) isJSON() bool { return t != nil && t.json }

// appendJSON appends the value that text, a value of a column of JSON, stands for.
func appendJSON(dst, text []byte) ([]byte, error) {
	plain := withoutNaN(text)
	if !json.Valid(plain) {
		return dst, &badRow{err: fmt.Errorf("the column's type is JSON, and its value is %s, which is not", clip(text))}
	}
	return append(dst, strings.TrimSpace(string(plain))...), nil
}

// inColumn adds the name of a column to an error of reading it. The error of one row stays one.
func inColumn(name string, err error) error {
	out := fmt.Errorf("column %q: %w", name, err)
	if bad := (*badRow)(nil); errors.As(err, &bad) {
		return &badRow{class: bad.class, err: out}
	}
	return out
}

// appendNamed appends a value that JSON has no type for. Inside a struct or list it is its
// text. A column of its own gets an object that names the type: no text is needed there but
// the one to learn, and whoever needs it refuses the object and shows the type.
func appendNamed(dst []byte, column bool, kind, text string) []byte {
	if !column {
		return quote(dst, text)
	}
	dst = append(quote(append(dst, '{'), kind), ':')
	return append(quote(dst, text), '}')
}

// appendNumber appends a number, given as text, of a type that JSON lacks. A column of its own gets
// the text, which may be the one to learn.
func appendNumber(dst []byte, column bool, text string) []byte {
	if column {
		return quote(dst, text)
	}
	return append(dst, text...)
}

// appendBytes appends bytes of a type that need not be text. Bytes that are UTF-8 are a text.
func appendBytes(dst []byte, kind string, b []byte) []byte {
	if utf8.Valid(b) {
		return quote(dst, b)
	}
	return appendNamed(dst, true, kind+" in Base64", base64.StdEncoding.EncodeToString(b))
}

// decimalText is the decimal number unscaled·10^-scale.
func decimalText(unscaled *big.Int, scale int) string {
	digits := new(big.Int).Abs(unscaled).String()
	switch {
	case scale > 0:
		if missing := scale + 1 - len(digits); missing > 0 {
			digits = strings.Repeat("0", missing) + digits
		}
		digits = digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
	case scale < 0 && unscaled.Sign() != 0:
		digits += strings.Repeat("0", -scale)
	}
	if unscaled.Sign() < 0 {
		return "-" + digits
	}
	return digits
}

// mostScale bounds the scale of a decimal. Source: no format has decimals of more than 76 digits.
const mostScale = 1 << 10

// bigEndian is the number whose two's complement b is, the highest byte first.
func bigEndian(b []byte) *big.Int {
	n := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0] >= 0x80 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return n
}

// half is the number in half precision with these bits. Source: IEEE 754, binary16.
func half(bits uint16) float64 {
	sign, exponent, fraction := float64(1), int(bits>>10&31), float64(bits&1023)
	if bits>>15 == 1 {
		sign = -1
	}
	switch exponent {
	case 0:
		return sign * fraction / (1 << 24)
	case 31:
		if fraction == 0 {
			return sign * math.Inf(1)
		}
		return math.NaN()
	}
	return sign * (1024 + fraction) / 1024 * float64(int64(1)<<exponent) / (1 << 15)
}

// Layouts of texts of times, as ISO 8601 has them.
const (
	dateLayout  = "2006-01-02"
	clockLayout = "15:04:05.999999999"
)

// instantText is a point in time, given in nanoseconds and seconds since 1970. zone says
// whether the clock is UTC's; else no zone is known.
func instantText(seconds, nanos int64, zone bool) string {
	text := time.Unix(seconds, nanos).UTC().Format(dateLayout + "T" + clockLayout)
	if zone {
		text += "Z"
	}
	return text
}

// timeText is a point in time counted in units of which a second has perSecond.
func timeText(v, perSecond int64, zone bool) string {
	return instantText(floorDiv(v, perSecond), (v-floorDiv(v, perSecond)*perSecond)*(1_000_000_000/perSecond), zone)
}

// clockText is a time of day counted in units of which a second has perSecond.
func clockText(v, perSecond int64) string {
	return time.Unix(floorDiv(v, perSecond), (v-floorDiv(v, perSecond)*perSecond)*(1_000_000_000/perSecond)).UTC().Format(clockLayout)
}

// dateText is the day that lies so many days after 1970-01-01.
func dateText(days int64) string { return time.Unix(days*86400, 0).UTC().Format(dateLayout) }

// floorDiv is a/b rounded down; b is positive.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// uuidText is a UUID as it is usually written.
func uuidText(b []byte) string {
	h := fmt.Sprintf("%x", b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// intervalText is an interval of Parquet or Arrow: months, days and a rest of nanoseconds.
func intervalText(months, days, nanos int64) string {
	return fmt.Sprintf("%d months %d days %s", months, days, time.Duration(nanos))
}

// parquetInterval is the text of an INTERVAL of Parquet: months, days and milliseconds.
func parquetInterval(b []byte) string {
	n := func(i int) int64 { return int64(binary.LittleEndian.Uint32(b[4*i:])) }
	return intervalText(n(0), n(1), n(2)*1_000_000)
}

// appendHalf appends a number in half precision like appendNumber, null where JSON cannot write it.
func appendHalf(dst []byte, column bool, bits uint16) []byte {
	v := half(bits)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(dst, "null"...)
	}
	text := strconv.FormatFloat(v, 'g', -1, 32)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return appendNumber(dst, column, text)
}

// A struct of a Parquet or Arrow file has every field that some row has. A row that lacks a
// field has null there. TRL drops such nulls (remove_none_values), and so does unpad.

// padding drops the nulls of structs.
type padding struct {
	tools map[string]any // the schema of each tool's parameters, by the tool's name
}

// unpad drops the nulls that stand for absent fields in a row of columns with these types. Nulls in
// arguments of a call stay where the tool's schema has null among the values of a parameter. The
// fields of a message itself stay too: whoever reads a message knows which may be null. cols name
// the row's columns.
func unpad(fields map[string]json.RawMessage, types map[string]*colType, cols *columns) {
	p := &padding{}
	toolsField := ""
	if cols != nil {
		toolsField = cols.toolsIn(fields)
	}
	if raw := given(fields[toolsField]); raw != nil && types[toolsField].nests(1) {
		fields[toolsField] = p.strip(nil, raw, types[toolsField], nil, true)
	}
	for name, t := range types {
		raw := given(fields[name])
		if raw == nil || name == toolsField || !t.nests(2) {
			continue
		}
		if p.tools == nil {
			p.tools = parameters(fields[toolsField])
		}
		fields[name] = p.strip(nil, raw, t, nil, false)
	}
}

// nests reports whether t has structs in structs, at least levels of them.
func (t *colType) nests(levels int) bool {
	switch {
	case t == nil:
		return false
	case t.element != nil:
		return t.element.nests(levels)
	case t.fields == nil:
		return false
	case levels == 1:
		return true
	}
	return slices.ContainsFunc(slices.Collect(maps.Values(t.fields)), func(f *colType) bool { return f.nests(levels - 1) })
}

// strip appends raw, a value of type t, without the nulls of its structs. drop says whether those of
// the outermost struct go too. schema describes a value inside arguments of a call; nil: there is none.
func (p *padding) strip(dst, raw []byte, t *colType, schema any, drop bool) []byte {
	switch {
	case t == nil || t.json || len(raw) == 0:
		return append(dst, raw...)
	case t.element != nil && raw[0] == '[':
		dst = append(dst, '[')
		for i, value := range elements(raw) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = p.strip(dst, value, t.element, keyOf(schema, "items"), drop)
		}
		return append(dst, ']')
	case t.fields == nil || raw[0] != '{':
		return append(dst, raw...)
	}
	var called any
	if t.fields["name"] != nil && t.fields["arguments"] != nil {
		called = p.tools[nameIn(raw)]
	}
	dst = append(dst, '{')
	first := true
	for key, value := range members(raw) {
		property := keyOf(keyOf(schema, "properties"), key)
		if drop && string(value) == "null" && !allowsNull(property) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		if key == "arguments" && called != nil {
			property = called
		}
		dst = p.strip(append(quote(dst, key), ':'), value, t.fields[key], property, true)
	}
	return append(dst, '}')
}

// nameIn is the text of the field name of an object; "" where it has none.
func nameIn(raw []byte) string {
	for key, value := range members(raw) {
		if key == "name" && value[0] == '"' {
			return string(unquote(nil, value[1:len(value)-1]))
		}
	}
	return ""
}

// elements are those of a JSON list as the readers of columns write it: with no space between them.
func elements(raw []byte) func(func(int, []byte) bool) {
	return func(yield func(int, []byte) bool) {
		for i, at := 0, 1; raw[at] != ']'; i++ {
			var s jsonScan
			n := s.scan(raw[at:])
			if !yield(i, raw[at:at+n]) {
				return
			}
			if at += n; raw[at] == ',' {
				at++
			}
		}
	}
}

// members are the names and values of a JSON object as the readers of columns write it.
func members(raw []byte) func(func(string, []byte) bool) {
	return func(yield func(string, []byte) bool) {
		for at := 1; raw[at] != '}'; {
			var name, value jsonScan
			n := name.scan(raw[at:])
			key := string(unquote(nil, raw[at+1:at+n-1]))
			at += n + 1
			n = value.scan(raw[at:])
			if !yield(key, raw[at:at+n]) {
				return
			}
			if at += n; raw[at] == ',' {
				at++
			}
		}
	}
}

// parameters are the schemas of the parameters of a row's tools, by the tools' names.
func parameters(raw json.RawMessage) map[string]any {
	out := map[string]any{}
	var tools any
	if raw == nil || json.Unmarshal(raw, &tools) != nil {
		return out
	}
	list, _ := opened(tools).([]any)
	for _, t := range list {
		tool := opened(t)
		if f := keyOf(tool, "function"); f != nil {
			tool = opened(f)
		}
		if name, ok := keyOf(tool, "name").(string); ok {
			out[name] = opened(keyOf(tool, "parameters"))
		}
	}
	return out
}

// opened is v, or where v is a text in JSON what the text says.
func opened(v any) any {
	text, ok := v.(string)
	if !ok {
		return v
	}
	var out any
	if json.Unmarshal([]byte(text), &out) != nil {
		return v
	}
	return out
}

// keyOf is the value of a key of an object; nil where v is no object or lacks the key.
func keyOf(v any, key string) any {
	o, _ := v.(map[string]any)
	return o[key]
}

// allowsNull reports whether a schema names null among its values. Sources: JSON Schema 2020-12;
// "nullable" is OpenAPI's, which Transformers' get_json_schema writes.
func allowsNull(schema any) bool {
	o, ok := schema.(map[string]any)
	if !ok {
		return false
	}
	isNull := func(v any) bool { return v == nil || v == "null" }
	switch kind := o["type"].(type) {
	case string:
		if kind == "null" {
			return true
		}
	case []any:
		if slices.ContainsFunc(kind, isNull) {
			return true
		}
	}
	if constant, has := o["const"]; has && constant == nil {
		return true
	}
	if values, ok := o["enum"].([]any); ok && slices.Contains(values, nil) {
		return true
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		if schemas, ok := o[key].([]any); ok && slices.ContainsFunc(schemas, allowsNull) {
			return true
		}
	}
	return o["nullable"] == true
}
