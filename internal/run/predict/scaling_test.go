package predict

import (
	"bytes"
	"strings"
	"testing"

	"mt/device"
	"mt/host/optim"
	"mt/internal/run/settings"
	"mt/internal/testkit"
	"mt/layers/schedule"
	"mt/model"
	"mt/plan"
	"mt/plan/rates"
)

// TestScaling: the table over numbers of devices shows the limit of each number, on machines where that resource is
// slow, and what would help.
func TestScaling(t *testing.T) {
	testkit.NotShort(t)
	config := testkit.Must(model.Preset("quickstart"))(t)
	q := plan.Request{Config: config, Act: device.BF16, Order: schedule.Lanes, Devices: 3, Rows: 16, RowTokens: 1024, MicroBatchTokens: 1024, Clip: true,
		Planes: optim.AdamW{}.Planes, DeviceMemory: 8 << 30, HostMemory: 64 << 30}
	for name, tc := range map[string]struct {
		change   func(*plan.Request, *rates.Machine)
		limit    string
		hostFrom int
		helps    string // more than half as much as what helps most
	}{
		"devices": {func(_ *plan.Request, m *rates.Machine) {
			m.Device.Launch = 0
			m.Host = fasterHost(fasterHost(fasterHost(fasterHost(m)))).Host
			m.Device.Products = map[string][]rates.Product{"bf16": {{Rate: 1}}}
		}, "devices", 0, ""},
		"host memory": {func(_ *plan.Request, m *rates.Machine) {
			slow := rates.Op{Rate: 3.9, Cores: 1}
			m.Host.Bandwidth, m.Host.Update, m.Host.Norm, m.Host.Gather = 4, slow, slow, slow
		}, "host memory", 1, "twice the memory channels"},
		"host cores": {func(_ *plan.Request, m *rates.Machine) {
			m.Host.Bandwidth, m.Host.Update, m.Host.Norm.Rate = 1000, rates.Op{Rate: 4}, 4
		}, "host cores", 1, "twice the cores on the host"},
		"links": {func(_ *plan.Request, m *rates.Machine) { m.Link.Up, m.Link.Down, m.Link.Both = 0.2, 0.2, 0.2 }, "links", 0, "links twice as fast"},
		"turns": {func(q *plan.Request, m *rates.Machine) {
			q.MicroBatchTokens = 8192
			m.Device.Products = map[string][]rates.Product{"bf16": {{Rate: 1}}}
		}, "turns", 0, "twice the rows a step"},
	} {
		t.Run(name, func(t *testing.T) {
			m := testkit.Must(rates.Find("h100+ddr5-4800x8"))(t)
			q := q
			tc.change(&q, m)
			s := testkit.Must(newForecaster(t.Context(), m, settings.Options{}).scale(q))(t)
			var text bytes.Buffer
			testkit.NoError(t, s.write(&text))
			last := s.Counts[len(s.Counts)-1]
			if len(s.Counts) != 3 || s.Counts[1].Devices != 2 || last.Devices != 3 || last.Limit != tc.limit || s.HostFrom != tc.hostFrom {
				t.Errorf("the limit of three devices is %q, the host's from %d on, want %q and %d\n%s", last.Limit, s.HostFrom, tc.limit, tc.hostFrom, &text)
			}
			if s.Counts[0].Speedup != 1 || s.Counts[0].Turns != 0 {
				t.Errorf("one device beside one: %+v", s.Counts[0])
			}
			helps := 0.0
			for _, g := range s.Help {
				if g.What == tc.helps {
					helps = g.Gain
				}
			}
			if tc.helps != "" && (helps < limiting || helps < s.Help[0].Gain/2 || !strings.Contains(text.String(), tc.helps+" +")) {
				t.Errorf("%s is to help, and what would help is %+v\n%s", tc.helps, s.Help, &text)
			}
		})
	}
	if s, err := newForecaster(t.Context(), nil, settings.Options{}).scale(plan.Request{Devices: 1}); s != nil || err != nil {
		t.Errorf("a table over one device: %v, %v", s, err)
	}
	q.DeviceMemory = 1 << 20
	m := testkit.Must(rates.Find("h100"))(t)
	s := testkit.Must(newForecaster(t.Context(), m, settings.Options{}).scale(q))(t)
	var text bytes.Buffer
	if err := s.write(&text); err != nil || strings.Count(text.String(), "of device memory") != 3 {
		t.Errorf("runs that do not fit: %v\n%s", err, &text)
	}
}

// TestChange: a relative change that rounds to zero prints as +0 %, without a minus.
func TestChange(t *testing.T) {
	for part, want := range map[float64]string{0: "+0 %", -0.004: "+0 %", 0.004: "+0 %", -0.006: "-1 %", 0.25: "+25 %"} {
		if got := change(part); got != want {
			t.Errorf("%g: %s, want %s", part, got, want)
		}
	}
}
