package rates

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestSlower: on a machine that takes twice as long every rate is half and every time is double,
// and the machine that it was made of stays as it is.
func TestSlower(t *testing.T) {
	m, err := Find("h100-pcie")
	if err != nil {
		t.Fatal(err)
	}
	m.Device.Ops = map[string]Op{"RMSNorm": {Fixed: 3, Rate: 700}}
	figures := func(m *Machine) map[string]float64 {
		raw, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var all any
		if err := json.Unmarshal(raw, &all); err != nil {
			t.Fatal(err)
		}
		out := map[string]float64{}
		numbers(out, "", all)
		return out
	}
	was, slow := figures(m), figures(m.Slower(2))
	rates, times := 0, 0
	for name, before := range was {
		want := before
		switch {
		case strings.HasPrefix(name, ".disk"):
		case strings.Contains(name, "gb_per_s"), strings.Contains(name, "tflops"):
			want, rates = before/2, rates+1
		case strings.HasSuffix(name, "_us"), strings.Contains(name, "s_per_mtoken"):
			want, times = before*2, times+1
		}
		if slow[name] != want {
			t.Errorf("%s: %v of %v, want %v", name, slow[name], before, want)
		}
	}
	if rates < 12 || times < 6 {
		t.Errorf("%d rates and %d times", rates, times)
	}
	if now := figures(m); !reflect.DeepEqual(now, was) {
		t.Errorf("the machine itself was %v, is %v", was, now)
	}
}

// numbers collects the numbers of a JSON value by where they are.
func numbers(out map[string]float64, at string, v any) {
	switch v := v.(type) {
	case float64:
		out[at] = v
	case map[string]any:
		for name, x := range v {
			numbers(out, at+"."+name, x)
		}
	case []any:
		for i, x := range v {
			numbers(out, fmt.Sprintf("%s[%d]", at, i), x)
		}
	}
}
