package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"

	"mt/checkpoint"
	"mt/internal/files"
)

// settings are the keys of a config.json as they stand there; those of
// text_config, where multimodal models keep the language model's, lie over the
// others. The first mistake is kept in err, so that a caller checks once.
type settings struct {
	file string
	vals map[string]any
	err  error
}

// readSettings reads dir/config.json.
func readSettings(dir string) (*settings, error) {
	s := &settings{file: filepath.Join(dir, "config.json")}
	v, err := readJSON(s.file)
	if err != nil {
		return nil, err
	}
	var ok bool
	if s.vals, ok = v.(map[string]any); !ok {
		return nil, fmt.Errorf("%s: not a JSON object", s.file)
	}
	if text, ok := s.vals["text_config"].(map[string]any); ok {
		maps.Copy(s.vals, text)
	}
	return s, nil
}

// readJSON reads a whole file, numbers as json.Number.
func readJSON(file string) (any, error) {
	raw, err := checkpoint.ReadCompanion(file)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(files.JSON(raw)))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return v, nil
}

// renamed moves the values of keys that the file calls otherwise. A key of the name that most families
// have means nothing there.
func (s *settings) renamed(names map[string]string) {
	for common, own := range names {
		delete(s.vals, common)
		if v, given := s.vals[own]; given {
			s.vals[common] = v
		}
	}
}

// defaults sets the keys that are not there, not even as null; rope_scaling is rope_parameters by its older name.
func (s *settings) defaults(of map[string]any) {
	for k, v := range of {
		if _, given := s.vals[k]; !given && (k != "rope_parameters" || s.vals["rope_scaling"] == nil) {
			s.vals[k] = v
		}
	}
}

func (s *settings) fail(key, format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("%s: %s: %s", s.file, key, fmt.Sprintf(format, args...))
	}
}

// num is a number, or def where there is none.
func (s *settings) num(key string, def float64) float64 {
	v, ok := s.vals[key]
	if !ok || v == nil {
		return def
	}
	x, ok := number(v)
	if !ok {
		s.fail(key, "%v is not a number", v)
	}
	return x
}

// int is a whole number from 0 to 2³¹, or def where there is none.
func (s *settings) int(key string, def int) int {
	x := s.num(key, float64(def))
	if x != math.Trunc(x) || x < 0 || x > math.MaxInt32 {
		s.fail(key, "%v is not a whole number from 0 to %d", x, math.MaxInt32)
		return def
	}
	return int(x)
}

// need is a whole number that must be there and above 0.
func (s *settings) need(key string) int {
	n := s.int(key, 0)
	if n == 0 {
		s.fail(key, "missing or 0")
		return 1
	}
	return n
}

func (s *settings) bool(key string, def bool) bool {
	v, ok := s.vals[key]
	if !ok || v == nil {
		return def
	}
	b, ok := v.(bool)
	if !ok {
		s.fail(key, "%v is not true or false", v)
	}
	return b
}

func (s *settings) str(key string) string {
	v, _ := s.vals[key].(string)
	return v
}

func (s *settings) object(key string) map[string]any {
	m, _ := s.vals[key].(map[string]any)
	return m
}

// strs is a list of strings, nil where there is none.
func (s *settings) strs(key string) []string {
	list, _ := s.vals[key].([]any)
	var out []string
	for _, v := range list {
		str, ok := v.(string)
		if !ok {
			s.fail(key, "%v is not a string", v)
		}
		out = append(out, str)
	}
	return out
}

// id is a token id, or the first of a list of them; -1 where there is none.
func (s *settings) id(key string) int {
	v := s.vals[key]
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0]
	}
	x, ok := number(v)
	if !ok || x != math.Trunc(x) || x < 0 || x > math.MaxInt32 {
		return -1
	}
	return int(x)
}

func number(v any) (float64, bool) {
	switch x := v.(type) {
	case json.Number:
		f, err := x.Float64()
		return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
	case float64:
		return x, true
	case int:
		return float64(x), true
	}
	return 0, false
}
