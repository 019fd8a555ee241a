package cudart

import (
	"errors"
	"testing"
)

func TestNVML(t *testing.T) {
	f, c := newFake(t)
	n := c.NVML()
	writes := func(name string, at int, text string) {
		f.on(name, func(a *[maxArguments]uintptr) uintptr {
			copy(memory[[96]byte](a[at])[:a[at+1]], text+"\x00")
			return 0
		})
	}
	writes("nvmlSystemGetDriverVersion", 0, "550.54.15")
	if v, err := n.DriverVersion(); err != nil || v != "550.54.15" {
		t.Errorf("%q, %v", v, err)
	}
	writes("nvmlDeviceGetName", 1, "NVIDIA H200")
	if v, err := n.Name(7); err != nil || v != "NVIDIA H200" {
		t.Errorf("%q, %v", v, err)
	}
	f.on("nvmlDeviceGetHandleByPciBusId_v2", func(a *[maxArguments]uintptr) uintptr {
		if textAt(a[0]) != "00000000:c1:00.0" {
			return nvmlNotFound
		}
		*memory[uintptr](a[1]) = 7
		return 0
	})
	if g, err := n.ByPCI("00000000:c1:00.0"); err != nil || g != 7 {
		t.Errorf("%d, %v", g, err)
	}
	if _, err := n.ByPCI("other"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	f.on("nvmlDeviceGetMemoryInfo", func(a *[maxArguments]uintptr) uintptr { *memory[[3]uint64](a[1]) = [3]uint64{30, 10, 20}; return 0 })
	if total, free, used, err := n.Memory(7); err != nil || [3]int64{total, free, used} != [3]int64{30, 10, 20} {
		t.Errorf("%d, %d, %d, %v", total, free, used, err)
	}
	numbers := func(name string, at int, v uint32) {
		f.on(name, func(a *[maxArguments]uintptr) uintptr { *memory[uint32](a[at]) = v; return 0 })
	}
	for _, test := range []struct {
		generation, width string
		ask               func(GPU) (int, int, error)
	}{
		{"nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth", n.PCIe},
		{"nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkWidth", n.MaxPCIe},
	} {
		numbers(test.generation, 1, 5)
		numbers(test.width, 1, 16)
		if gen, lanes, err := test.ask(7); err != nil || gen != 5 || lanes != 16 {
			t.Errorf("%s: %d, %d, %v", test.generation, gen, lanes, err)
		}
		f.fails(test.generation, nvmlNotSupported)
		if _, _, err := test.ask(7); !errors.Is(err, ErrNotSupported) {
			t.Errorf("%s: %v", test.generation, err)
		}
	}
	f.on("nvmlDeviceGetCurrentClocksThrottleReasons", func(a *[maxArguments]uintptr) uintptr { *memory[uint64](a[1]) = 0x24; return 0 })
	if r, err := n.Throttled(7); err != nil || r != ThrottlePowerCap|ThrottleThermalSoftware {
		t.Errorf("%#x, %v", r, err)
	}
	numbers("nvmlDeviceGetTemperature", 2, 61)
	if v, err := n.Celsius(7); err != nil || v != 61 {
		t.Errorf("%d, %v", v, err)
	}
}
