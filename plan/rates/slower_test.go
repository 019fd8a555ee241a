package rates

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestSlower: on a machine that takes twice as long, every rate is halved and every time doubled. The original machine
// does not change.
func TestSlower(t *testing.T) {
	m := testkit.Must(Find("h100-pcie"))(t)
	m.Device.Restart, m.Device.HostMemory = 900, 1000
	m.Device.Ops = map[string]Op{"RMSNorm": {Fixed: 3, Rate: 700}}
	figures := func(m *Machine) map[string]float64 {
		raw := testkit.Must(json.Marshal(m))(t)
		var all any
		testkit.NoError(t, json.Unmarshal(raw, &all))
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

// numbers collects the numbers of a JSON value v into out. The keys are paths inside the value,
// which begin with at.
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

// TestSeveralNames: names separated by commas stand for devices of one host. Only the first may
// have a host or be a file with several devices. A unified device needs no link.
func TestSeveralNames(t *testing.T) {
	two := testkit.Must(Find("rtx4090,h100"))(t)
	two.More[0].Device.Unified, two.More[0].Link = true, Link{}
	file := filepath.Join(t.TempDir(), "two.json")
	if err := two.Save(file); err != nil {
		t.Errorf("a second device that is unified: %v", err)
	}
	if m, err := Find(file + ",rtx3090"); err != nil || len(m.More) != 2 {
		t.Errorf("a device beside those of a file: %v", err)
	}
	for name, want := range map[string]string{"h100," + file: "has several devices: name it first", "h100,rtx4090+ddr5-4800x8": "ddr5-4800x8 is a second one"} {
		if _, err := Find(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// TestDevicesThatDiffer: Slower and WithoutPeers change every device of the copy and none of the
// original. All devices of a host share its PCIe switches.
func TestDevicesThatDiffer(t *testing.T) {
	m := testkit.Must(Find("rtx4090,h100"))(t)
	m.Link.Peer, m.More[0].Link.Peer, m.Link.PerSwitch = 20, 30, 2
	before, _ := json.Marshal(m)
	apart, slow := m.WithoutPeers(), m.Slower(2)
	for i, name := range []string{"rtx4090", "h100"} {
		alone := testkit.Must(Find(name))(t)
		card, half := slow.On(i), alone.Slower(2)
		if !reflect.DeepEqual(card.Device, half.Device) || card.Link.Up != half.Link.Up {
			t.Errorf("device %d of a slower machine: %+v, want %+v", i, card, half)
		}
		if peer, per := apart.On(i).Link.Peer, apart.On(i).Link.PerSwitch; peer != 0 || per != 2 {
			t.Errorf("device %d copies to others at %g GB/s, %d share a switch", i, peer, per)
		}
	}
	if after, _ := json.Marshal(m); string(after) != string(before) {
		t.Errorf("a change made of it\n%s\nthis\n%s", before, after)
	}
}
