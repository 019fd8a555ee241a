package run

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"mt/cudart/emu"
	"mt/host"
	"mt/internal/run/config"
	"mt/internal/run/predict"
	"mt/internal/run/settings"
	"mt/internal/testkit"
	"mt/plan"
)

// TestOneMemory: an integrated GPU shares the host's memory. Its memory counts as host memory in a
// plan, and one budget, a part of the available memory, covers both.
func TestOneMemory(t *testing.T) {
	t.Cleanup(func() { checkClean(t) })
	plans := func(available int64) (plan.Table, error) {
		c := testkit.Must(config.Parse("run.yaml", []byte("model: {preset: qwen2.5-7b, num_hidden_layers: 2}\nmax_seq_len: 64\ndevice: cuda\n"), config.Args{}))(t)
		var out bytes.Buffer
		room := func() host.Room { return host.Room{Known: true, Bytes: available, By: "x"} }
		if err := predict.Plan(t.Context(), c, settings.Options{JSON: true, Stdout: &out, Stderr: io.Discard, Hooks: settings.Hooks{Symbols: emulate(t, emu.Options{Integrated: true, DeviceMemory: 64 << 30}), Room: room}}); err != nil {
			return plan.Table{}, err
		}
		var shown struct{ Memory plan.Table }
		testkit.NoError(t, json.Unmarshal(out.Bytes(), &shown))
		return shown.Memory, nil
	}
	whole, err := plans(1 << 40)
	if err != nil || !whole.OneMemory || whole.AllDevices == 0 {
		t.Fatalf("%+v, %v", whole, err)
	}
	less := whole.OnHost() - 1<<30
	if got, err := plans(less); err != nil || got.OnHost() > less/100*90 {
		t.Errorf("%d of %d bytes are planned for: %v", got.OnHost(), less, err)
	}
	if _, err := plans(16 << 30); err == nil || !strings.Contains(err.Error(), "90 % of what is available, for host and GPU together: x") {
		t.Errorf("with 16 GiB: %v", err)
	}
}
