package files

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestJSON: NaN, Infinity and -Infinity become null if they are values, and stay unchanged in
// strings.
func TestJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": 1}`:                             `{"a": 1}`,
		`{"a": NaN}`:                           `{"a": null}`,
		`{"a": [0.0, Infinity], "b": 2}`:       `{"a": [0.0, null], "b": 2}`,
		"{\"a\":\n-Infinity\n}":                "{\"a\":\nnull\n}",
		`{"NaN": "Infinity, NaN"}`:             `{"NaN": "Infinity, NaN"}`,
		`{"a": "\"", "b": NaN}`:                `{"a": "\"", "b": null}`,
		`{"a": "x\\", "b": [NaN,NaN]}`:         `{"a": "x\\", "b": [null,null]}`,
		`{"a": NaNs, "b": Infinityx}`:          `{"a": NaNs, "b": Infinityx}`,
		`NaN`:                                  `null`,
		`{"a": "no end NaN`:                    `{"a": "no end NaN`,
		`{"a": "ends in a backslash NaN\`:      `{"a": "ends in a backslash NaN\`,
		`{"deep": {"er": [{"x": -Infinity}]}}`: `{"deep": {"er": [{"x": null}]}}`,
	} {
		if got := string(JSON([]byte(text))); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestMembers: Members passes an object's members in order, with values as they are written. Text
// that is not an object is an error.
func TestMembers(t *testing.T) {
	text := ` {"a" : {"x": [1, "}"]}, "b\u0041\"": "s\\" ,"c":-1.5e3,"d":[],"e": null, "": true} `
	var got []string
	err := Members([]byte(text), func(key string, value []byte) error {
		got = append(got, key+"="+string(value))
		return nil
	})
	want := `a={"x": [1, "}"]} bA"="s\\" c=-1.5e3 d=[] e=null =true`
	if err != nil || strings.Join(got, " ") != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	var plain map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &plain); err != nil || len(plain) != len(got) {
		t.Errorf("%d members, encoding/json finds %d", len(got), len(plain))
	}
	for _, bad := range []string{"", "[]", "1", `{"a": }`, `{"a": 1`, `{"a": 1} x`} {
		if err := Members([]byte(bad), func(string, []byte) error { return nil }); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
	stop := fmt.Errorf("stop")
	if err := Members([]byte(`{"a": 1, "b": 2}`), func(key string, _ []byte) error { return stop }); err != stop {
		t.Error(err)
	}
}

// TestUnmarshal: errors of Unmarshal describe a wrong value in terms of JSON, not of Go types.
func TestUnmarshal(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": 1, "b": NaN}`: "",
		"[1]":                "not a JSON object, but a JSON array",
		"3":                  "not a JSON object, but a JSON number",
		`{"a": "x"}`:         "a: a JSON string is not what this key takes",
		`{"a": `:             "unexpected end of JSON input",
	} {
		var v struct {
			A int `json:"a"`
			B any `json:"b"`
		}
		got := ""
		if err := Unmarshal([]byte(text), &v); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
