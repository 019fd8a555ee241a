package bench

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"mt/device"
	"mt/host"
	"mt/internal/run/machine"
	"mt/plan/rates"
)

// Figure is a quantity with a name, its measured value and its predicted value.
type Figure struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	rates.Beside
}

// writeFigures prints figures as a table.
func writeFigures(w io.Writer, figures []Figure) error {
	rows := [][]string{{"figure", "unit", "predicted", "measured", "ratio"}}
	for _, f := range figures {
		predicted, ratio := f.Words()
		rows = append(rows, []string{f.Name, f.Unit, predicted, strconv.FormatFloat(f.Measured, 'g', 4, 64), ratio})
	}
	return writeTable(w, rows)
}

// withPredictions removes the columns "predicted" and "ratio" from a table if nothing was predicted. rows[0] is the
// table's head.
func (w Where) withPredictions(rows [][]string) [][]string {
	if w.PredictedFor != "" {
		return rows
	}
	at := slices.Index(rows[0], "predicted")
	for i, row := range rows {
		rows[i] = slices.Delete(row, at, at+2)
	}
	return rows
}

// RatesOf returns the rates by which figures of the device dev are predicted. name selects the rates (see rates.Find).
// Without a name, RatesOf uses the profile of dev's GPU with the cores and memory of this host. If there is no such
// profile, m is nil and why is the reason.
func RatesOf(name string, dev device.Device) (m *rates.Machine, why string, err error) {
	if name != "" {
		if m, err = rates.Find(name); err != nil {
			return nil, "", err
		}
		if m.Device.Kind != dev.Kind() {
			return nil, "", fmt.Errorf("%s has the rates of a %s device, and %s is measured: name rates of that, or leave --rates out", m.Name, m.Device.Kind, dev.Name())
		}
		return m, "", nil
	}
	if dev.Kind() != "cuda" {
		return nil, "mt has no profile of a CPU; --rates FILE takes what mt doctor --save measured", nil
	}
	if machine.Emulated() {
		return nil, "an emulator has no rates", nil
	}
	const gib = 1 << 30
	f := rates.Found{GPU: dev.Name(), DeviceGiB: float64(dev.Usage().Capacity) / gib, Cores: cores()}
	if room := host.AvailableMemory(); room.Known {
		f.HostGiB = float64(room.Bytes) / gib
	}
	if m, err = rates.At(f); err != nil {
		return nil, err.Error(), nil
	}
	return m, "", nil
}

// perSecond returns amount/seconds; 0 if seconds is 0, which means unknown.
func perSecond(amount, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return amount / seconds
}

// processPeak returns the peak resident memory of this process in bytes, from Linux's VmHWM; 0 on other systems.
func processPeak() float64 {
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		var kib float64
		if n, err := fmt.Sscanf(line, "VmHWM: %f kB", &kib); n == 1 && err == nil {
			return kib * 1024
		}
	}
	return 0
}
