package predict

import (
	"bytes"
	"strings"
	"testing"

	"mt/device"
	"mt/host/optim"
	"mt/internal/run/settings"
	"mt/internal/testkit"
	"mt/model"
	"mt/plan"
	"mt/plan/rates"
)

// TestHosts: the table over numbers of hosts shows the cost of a slow network, its use, and the tokens from which it
// is hidden. A fast network costs nothing, and more hosts need less memory each.
func TestHosts(t *testing.T) {
	testkit.NotShort(t)
	testkit.DrawnInRace(t, 4)
	config := testkit.Must(model.Preset("quickstart"))(t)
	m := testkit.Must(rates.Find("h100+ddr5-4800x8"))(t)
	m.Device.Products = map[string][]rates.Product{"bf16": {{Rate: 5}}} // so that steps take a while
	q := plan.Request{Config: config, Act: device.BF16, Rows: 16, RowTokens: 1024, MicroBatchTokens: 8192, Clip: true, Ranks: 4, Units: optim.AdamW{}.Units,
		Planes: optim.AdamW{}.Planes, DeviceMemory: 8 << 30, HostMemory: 64 << 30}
	on := func(gbps float64) (*hosting, string) {
		t.Helper()
		m.Network = &rates.Network{Rate: gbps}
		h := testkit.Must(newForecaster(t.Context(), m, settings.Options{}).hosts(q))(t)
		var text bytes.Buffer
		testkit.NoError(t, h.write(&text))
		return h, text.String()
	}
	fast, text := on(1000)
	slow, slowText := on(0.05)
	if len(fast.Counts) != 3 || fast.Counts[1].Hosts != 2 || fast.Counts[2].Hosts != 4 {
		t.Fatalf("%+v", fast.Counts)
	}
	for i := 1; i < 3; i++ {
		before, f, s := fast.Counts[i-1], fast.Counts[i], slow.Counts[i]
		if f.Swept.Host >= before.Swept.Host || f.Speedup <= before.Speedup {
			t.Errorf("%d hosts: %d bytes each and a speedup of %.2f, of fewer hosts %d and %.2f", f.Hosts, f.Swept.Host, f.Speedup, before.Swept.Host, before.Speedup)
		}
		if s.Predicted.Step <= f.Predicted.Step || s.Infinite < 0.5 || f.Infinite > 0.05 || s.Network < 0.5 || f.Network > 0.1 {
			t.Errorf("%d hosts: a slow network takes %.3f s (%+.2f without limit, busy %.2f), a fast one %.3f s (%+.2f, busy %.2f)", f.Hosts,
				s.Predicted.Step, s.Infinite, s.Network, f.Predicted.Step, f.Infinite, f.Network)
		}
		if f.Sent <= before.Sent {
			t.Errorf("%d hosts send %d bytes each, fewer %d", f.Hosts, f.Sent, before.Sent)
		}
	}
	if fast.HidesFrom != 1024 || !strings.Contains(text, "with 4 hosts, from 1,024 tokens a step and host on the network hides") {
		t.Errorf("a fast network hides from %d tokens on:\n%s", fast.HidesFrom, text)
	}
	if want := int64(mostSweptTokens / 4); fast.TriedTo != want {
		t.Errorf("tried up to %d tokens a host, wanted %d", fast.TriedTo, want)
	}
	if slow.HidesFrom != 0 && slow.HidesFrom <= fast.HidesFrom {
		t.Errorf("a slow network hides from %d tokens on:\n%s", slow.HidesFrom, slowText)
	}
	q.Ranks = 1
	if h, err := newForecaster(t.Context(), m, settings.Options{}).hosts(q); h != nil || err != nil {
		t.Errorf("one host: %+v, %v", h, err)
	}
}
