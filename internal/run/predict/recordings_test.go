package predict

import (
	"path/filepath"
	"testing"

	"mt/device"
	"mt/host/optim"
	"mt/internal/testkit"
	"mt/layers/schedule"
	"mt/model"
	"mt/plan"
	"mt/plan/rates"
)

// TestRecordingsInVirtualTime: each recorded model is predicted on one and two virtual GPUs. The step takes at
// least as long as its FLOPs at 2 PFLOP/s, twice the peak of an H100 in bf16.
func TestRecordingsInVirtualTime(t *testing.T) {
	testkit.NotShort(t)
	m := testkit.Must(rates.Find("h100+ddr5-4800x8"))(t)
	for _, dir := range testkit.Recordings(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			c := testkit.Must(model.LoadDir(filepath.Join(dir, "model")))(t)
			for devices := 1; devices <= 2; devices++ {
				q := plan.Request{Config: c, Act: device.BF16, Order: schedule.Lanes, Devices: devices, Rows: 4, RowTokens: 64, MicroBatchTokens: 128, Clip: true,
					Planes: optim.AdamW{}.Planes, DeviceMemory: 8 << 30, HostMemory: 64 << 30}
				r := testkit.Must(plan.Resolve(q))(t)
				p := testkit.Must(Predict(r, m))(t)
				if p.Report.Tokens != 4*64 || p.Counted <= 0 || p.Executed < p.Counted || p.Step().Seconds()*float64(devices)*2e15 < p.Executed {
					t.Errorf("%d devices: a step of %d tokens, %v FLOPs and %v executed takes %v", devices, p.Report.Tokens, p.Counted, p.Executed, p.Step())
				}
			}
		})
	}
}
