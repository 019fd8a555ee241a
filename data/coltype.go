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

// colType is the type of a Parquet or Arrow column, or of a value nested in a column.
type colType struct {
	name    string              // the type's name in the file, for errors
	json    bool                // values are JSON texts
	fields  map[string]*colType // of a struct, by name; nil for other types
	element *colType            // of a list; nil for other types
}

// mostTypeDepth limits how deep the types of a column are nested.
const mostTypeDepth = 64

// jsonExtension is Arrow's extension type for JSON text, which datasets uses for its feature Json. Source: Arrow,
// "Canonical Extension Types".
const jsonExtension = "arrow.json"

// Keys of the metadata in Arrow schemas and Parquet footers under which column types are found.
const (
	extensionKey   = "ARROW:extension:name" // of an Arrow field
	arrowSchemaKey = "ARROW:schema"         // of a Parquet file: its Arrow schema
	featuresKey    = "huggingface"          // of both: the features that the library datasets writes
)

// featureTypes returns the types of columns, by name, that the library datasets writes as JSON into a schema's
// metadata. nil: text holds none.
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

// savedTypes returns the types of columns, by name, in the dataset_info.json that save_to_disk of datasets writes
// beside the file path. nil: there is none.
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

// featureType returns the type that one feature of the library datasets describes. A feature is {"_type": NAME, …},
// an object of features (a struct), or a list of one feature (a list). depth counts the types around it.
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
	_ = json.Unmarshal(keys["_type"], &kind) // a struct may have a field _type that is not a string
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

// field returns the type of a struct's field; nil: t is nil or lacks the field.
func (t *colType) field(name string) *colType {
	if t == nil {
		return nil
	}
	return t.fields[name]
}

// item returns the type of a list's elements; nil: t is nil or not a list.
func (t *colType) item() *colType {
	if t == nil {
		return nil
	}
	return t.element
}

// isJSON reports whether values of type t are JSON text. t may be nil.
func (t *colType) isJSON() bool { return t != nil && t.json }

// appendJSON appends text, a value of a column whose type is JSON. Text that is not valid JSON is a bad row.
func appendJSON(dst, text []byte) ([]byte, error) {
	plain := withoutNaN(text)
	if !json.Valid(plain) {
		return dst, &badRow{err: fmt.Errorf("the column's type is JSON, and its value is %s, which is not", clip(text))}
	}
	return append(dst, strings.TrimSpace(string(plain))...), nil
}

// inColumn adds a column's name to an error. A *badRow (the error of one row, which skip_bad_rows skips) stays a
// *badRow.
func inColumn(name string, err error) error {
	out := fmt.Errorf("column %q: %w", name, err)
	if bad := (*badRow)(nil); errors.As(err, &bad) {
		return &badRow{class: bad.class, err: out}
	}
	return out
}

// appendNamed appends a value of a type that JSON lacks, such as a date, as a JSON string. In a top-level column
// (column true) it appends the object {kind: text} instead. Only the text to train on is read from such a column, and
// its reader accepts no object; the error then shows the kind.
func appendNamed(dst []byte, column bool, kind, text string) []byte {
	if !column {
		return quote(dst, text)
	}
	dst = append(quote(append(dst, '{'), kind), ':')
	return append(quote(dst, text), '}')
}

// appendNumber appends a number, given as text, of a type that JSON lacks, such as a decimal. In a top-level column
// (column true) it appends a JSON string, since the column may hold the text to train on.
func appendNumber(dst []byte, column bool, text string) []byte {
	if column {
		return quote(dst, text)
	}
	return append(dst, text...)
}

// appendBytes appends bytes that may be text. Valid UTF-8 becomes a JSON string; other bytes become an object that
// shows kind, the name of their type.
func appendBytes(dst []byte, kind string, b []byte) []byte {
	if utf8.Valid(b) {
		return quote(dst, b)
	}
	return appendNamed(dst, true, kind+" in Base64", base64.StdEncoding.EncodeToString(b))
}

// decimalText returns unscaled·10^-scale as decimal text.
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

// mostScale limits the scale (digits after the point) of a decimal, in a damaged file. No format has decimals of more
// than 76 digits.
const mostScale = 1 << 10

// bigEndian returns the big-endian two's complement number in b.
func bigEndian(b []byte) *big.Int {
	n := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0] >= 0x80 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return n
}

// half returns the half-precision number with these bits. Source: IEEE 754, binary16.
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

// Layouts of dates and times of day in ISO 8601, for Go's time.Format.
const (
	dateLayout  = "2006-01-02"
	clockLayout = "15:04:05.999999999"
)

// instantText returns a time since 1970 in ISO 8601. With zone it ends in Z, for UTC; without zone the time zone is
// unknown and left out.
func instantText(seconds, nanos int64, zone bool) string {
	text := time.Unix(seconds, nanos).UTC().Format(dateLayout + "T" + clockLayout)
	if zone {
		text += "Z"
	}
	return text
}

// timeText returns v, a time since 1970 in units of 1/perSecond seconds, in ISO 8601. zone is as in instantText.
func timeText(v, perSecond int64, zone bool) string {
	return instantText(floorDiv(v, perSecond), (v-floorDiv(v, perSecond)*perSecond)*(1_000_000_000/perSecond), zone)
}

// clockText returns v, a time of day in units of 1/perSecond seconds, as hours, minutes and seconds.
func clockText(v, perSecond int64) string {
	return time.Unix(floorDiv(v, perSecond), (v-floorDiv(v, perSecond)*perSecond)*(1_000_000_000/perSecond)).UTC().Format(clockLayout)
}

// dateText returns the date this many days after 1970-01-01.
func dateText(days int64) string { return time.Unix(days*86400, 0).UTC().Format(dateLayout) }

// floorDiv returns a/b rounded down; b must be positive.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// uuidText returns the 16 bytes of a UUID as hexadecimal digits in groups of 8, 4, 4, 4 and 12.
func uuidText(b []byte) string {
	h := fmt.Sprintf("%x", b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// intervalText returns an interval of months, days and nanoseconds as text.
func intervalText(months, days, nanos int64) string {
	return fmt.Sprintf("%d months %d days %s", months, days, time.Duration(nanos))
}

// parquetInterval returns a Parquet INTERVAL, in months, days and milliseconds, as text.
func parquetInterval(b []byte) string {
	n := func(i int) int64 { return int64(binary.LittleEndian.Uint32(b[4*i:])) }
	return intervalText(n(0), n(1), n(2)*1_000_000)
}

// appendHalf appends the half-precision number with these bits like appendNumber; null if it is NaN or infinite,
// since JSON cannot express these.
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

// In Parquet and Arrow, a struct has every field that occurs in any row, and rows without a field hold null. TRL
// drops these nulls (remove_none_values), and so does unpad.

// padding removes the nulls that Parquet and Arrow store for absent fields of structs; see unpad.
type padding struct {
	tools map[string]any // schema of each tool's parameters, by tool name
}

// unpad removes the nulls that stand for absent fields from a row whose columns have these types.
// Two kinds of null stay. The first is in a call's arguments, if the tool's schema allows null for
// the parameter. The second is a null field directly in a message, since the code that reads
// messages knows which fields may be null. The row's column names are in cols; nil: unknown.
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

// nests reports whether structs are nested at least levels deep in the type t.
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

// strip appends the JSON value raw, of type t, to dst without the null fields of its structs. If drop is false, the
// outermost structs (raw itself, or the elements of the list raw) keep their null fields, and structs inside them do
// not. In the arguments of a tool call, schema is the JSON Schema of raw; null fields that schema allows are kept. A
// nil schema allows none.
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

// nameIn returns the string in the field "name" of the JSON object raw; "": the object has no such
// field.
func nameIn(raw []byte) string {
	for key, value := range members(raw) {
		if key == "name" && value[0] == '"' {
			return string(unquote(nil, value[1:len(value)-1]))
		}
	}
	return ""
}

// elements yields the index and text of each element of a JSON list. The list must come from the column readers,
// which write no white space between elements.
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

// members yields the names and values of a JSON object. The object must come from the column readers, which write no
// white space between members.
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

// parameters returns the JSON Schema of the parameters of each tool in raw, a row's list of tools, by the tool's
// name.
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

// opened returns the decoded JSON value if v is a string that holds JSON, and otherwise v.
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

// keyOf returns the value under key in v; nil if v is not an object or lacks the key.
func keyOf(v any, key string) any {
	o, _ := v.(map[string]any)
	return o[key]
}

// allowsNull reports whether the JSON Schema allows the value null. Sources: JSON Schema 2020-12. The keyword
// nullable is from OpenAPI, and Transformers' get_json_schema writes it.
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
