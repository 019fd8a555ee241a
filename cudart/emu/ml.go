package emu

import (
	"fmt"
	"slices"
	"unsafe"

	"mt/cudart"
)

// The signatures in this file follow nvml.h.

// mlMemory is an nvmlMemory_t. Values are in bytes.
type mlMemory struct{ total, free, used uint64 }

// busID returns the PCI bus address of the device.
func (g *gpu) busID() string { return fmt.Sprintf("00000000:%02x:00.0", 1+g.ordinal) }

// mlValues are the results of the NVML functions about a device. They are constant, because the
// emulator has no load or heat. Functions with an enum argument have a value for each enumerator.
var mlValues = map[string][]uint32{
	// Order of the clocks: graphics, SM, memory, video.
	"nvmlDeviceGetClockInfo":                    {1755, 1755, 2619, 1545}, // MHz
	"nvmlDeviceGetMaxClockInfo":                 {1980, 1980, 2619, 1545}, // MHz
	"nvmlDeviceGetCurrPcieLinkGeneration":       {5},
	"nvmlDeviceGetCurrPcieLinkWidth":            {16},
	"nvmlDeviceGetMaxPcieLinkGeneration":        {5},
	"nvmlDeviceGetMaxPcieLinkWidth":             {16},
	"nvmlDeviceGetPowerUsage":                   {312000}, // mW
	"nvmlDeviceGetTemperature":                  {45},     // °C, sensor 0
	"nvmlDeviceGetCurrentClocksThrottleReasons": {0},
}

// mlSymbols returns the functions of libnvidia-ml.
func mlSymbols() []symbol {
	list := append(mlLibrary(), mlDevice()...)
	for _, name := range []string{"nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetTemperature"} {
		list = append(list, mlChosen(name))
	}
	for _, name := range []string{"nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth",
		"nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkWidth", "nvmlDeviceGetPowerUsage"} {
		list = append(list, mlSimple(name))
	}
	for i := range list {
		list[i].lib = cudart.ML
	}
	return list
}

func mlLibrary() []symbol {
	return []symbol{
		{name: "nvmlInit_v2", bind: func(c caller) any {
			return func() int32 {
				return c.do(func(d *Driver) int32 {
					d.mlUsers++
					return 0
				})
			}
		}},
		{name: "nvmlShutdown", class: release, bind: func(c caller) any {
			return func() int32 {
				return c.do(func(d *Driver) int32 {
					if d.mlUsers == 0 {
						return mlUninitialized
					}
					d.mlUsers--
					return 0
				})
			}
		}},
		{name: "nvmlErrorString", class: infallible, bind: func(caller) any {
			return func(code int32) uintptr {
				if s, ok := mlTexts[code]; ok {
					return cString(s)
				}
				return cString(mlTexts[mlUnknown])
			}
		}},
		{name: "nvmlSystemGetDriverVersion", bind: func(c caller) any {
			return func(p unsafe.Pointer, n uint32) int32 {
				return c.do(func(d *Driver) int32 { return d.mlText(p, n, "570.86.15") })
			}
		}},
		{name: "nvmlDeviceGetHandleByPciBusId_v2", bind: func(c caller) any {
			return func(id unsafe.Pointer, out *uint64) int32 {
				return c.do(func(d *Driver) int32 {
					if id == nil {
						return mlInvalidArgument
					}
					s := goText(id, 64)
					return d.mlHandle(out, func(g *gpu) bool {
						id := g.busID()
						return s == id || "0000"+s == id || "00000000:"+s == id
					})
				})
			}
		}},
	}
}

func mlDevice() []symbol {
	return []symbol{
		{name: "nvmlDeviceGetName", bind: func(c caller) any {
			return func(h uint64, p unsafe.Pointer, n uint32) int32 {
				return c.do(func(d *Driver) int32 {
					return d.onML(h, c.symbol, func(*gpu) int32 { return d.mlText(p, n, d.opt.Name) })
				})
			}
		}},
		{name: "nvmlDeviceGetMemoryInfo", bind: func(c caller) any {
			return func(h uint64, out *mlMemory) int32 {
				return c.do(func(d *Driver) int32 {
					return d.onML(h, c.symbol, func(g *gpu) int32 {
						total, used := uint64(d.opt.BoardMemory), uint64(g.used)
						return mlPut(out, mlMemory{total, total - min(used, total), used})
					})
				})
			}
		}},
		{name: "nvmlDeviceGetCurrentClocksThrottleReasons", bind: func(c caller) any {
			return func(h uint64, out *uint64) int32 {
				return c.do(func(d *Driver) int32 {
					return d.onML(h, c.symbol, func(*gpu) int32 { return mlPut(out, uint64(mlValues[c.symbol.name][0])) })
				})
			}
		}},
	}
}

// mlSimple returns the C function name, which takes a device and the address of an unsigned int for
// the result.
func mlSimple(name string) symbol {
	return symbol{name: name, bind: func(c caller) any {
		return func(h uint64, out *uint32) int32 {
			return c.do(func(d *Driver) int32 {
				return d.onML(h, c.symbol, func(*gpu) int32 { return mlPut(out, mlValues[name][0]) })
			})
		}
	}}
}

// mlChosen returns the C function name. It takes a device, an enum that selects one of several
// values, and the address of an unsigned int for the result.
func mlChosen(name string) symbol {
	return symbol{name: name, bind: func(c caller) any {
		return func(h uint64, which int32, out *uint32) int32 {
			return c.do(func(d *Driver) int32 {
				return d.onML(h, c.symbol, func(*gpu) int32 {
					if which < 0 || int(which) >= len(mlValues[name]) {
						return mlInvalidArgument
					}
					return mlPut(out, mlValues[name][which])
				})
			})
		}
	}}
}

// mlPut stores the result v at p and returns the status code.
func mlPut[T any](p *T, v T) int32 {
	if p == nil {
		return mlInvalidArgument
	}
	*p = v
	return 0
}

// mlText stores s with a NUL in the n bytes at p and returns the status code.
func (d *Driver) mlText(p unsafe.Pointer, n uint32, s string) int32 {
	switch {
	case d.mlUsers == 0:
		return mlUninitialized
	case p == nil:
		return mlInvalidArgument
	case int(n) <= len(s):
		return mlInsufficientSize
	}
	putText(p, int(n), s)
	return 0
}

// mlHandle stores the handle of the first device for which asked returns true. Without such a device it returns an
// error code.
func (d *Driver) mlHandle(out *uint64, asked func(*gpu) bool) int32 {
	i := slices.IndexFunc(d.gpus, asked)
	switch {
	case d.mlUsers == 0:
		return mlUninitialized
	case i < 0 && !d.opt.NoDevice:
		return mlInvalidArgument
	case i < 0 || d.opt.NoDevice:
		return mlNotFound
	}
	return mlPut(out, d.mlDevices()|uint64(i+1))
}

// mlDevices returns a number such that a device's handle in libnvidia-ml is this number + the
// device's ordinal + 1.
func (d *Driver) mlDevices() uint64 { return uint64(kindML)<<48 | uint64(d.number)<<32 }

// onML calls f with the device of NVML handle h, and returns f's code. An invalid handle is a fault
// of the call of s.
func (d *Driver) onML(h uint64, s *symbol, f func(g *gpu) int32) int32 {
	if d.mlUsers == 0 {
		return mlUninitialized
	}
	i := h - d.mlDevices() - 1
	if i >= uint64(len(d.gpus)) {
		d.fault(Handle, "%s: %#x is no device of nvidia-ml", s.name, h)
		return mlInvalidArgument
	}
	return f(d.gpus[i])
}
