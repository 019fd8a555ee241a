package emu

import "mt/cudart"

// The signatures in this file follow cuda_runtime_api.h: int and enum are int32, size_t is uint64.
// Pointers that are only passed on are uint64.

// runtimeSymbols returns the functions of libcudart.
func runtimeSymbols() []symbol {
	list := append(runtimeDevice(), runtimeMemory()...)
	list = append(list, runtimeStreams()...)
	list = append(list, runtimeEvents()...)
	list = append(list, runtimePeers()...)
	for i := range list {
		list[i].lib = cudart.Runtime
	}
	return list
}

func runtimeDevice() []symbol {
	return []symbol{
		{name: "cudaGetDeviceCount", bind: func(c caller) any {
			return func(n *int32) int32 { return c.do(func(d *Driver) int32 { return d.deviceCount(n) }) }
		}},
		{name: "cudaDeviceGetAttribute", need: needDevice, bind: func(c caller) any {
			return func(v *int32, attr, dev int32) int32 {
				return c.do(func(d *Driver) int32 { return d.attribute(v, attr, dev) })
			}
		}},
		{name: "cudaRuntimeGetVersion", bind: func(c caller) any {
			return func(v *int32) int32 {
				return c.do(func(d *Driver) int32 { return put(v, int32(d.opt.RuntimeVersion)) })
			}
		}},
		{name: "cudaDriverGetVersion", bind: func(c caller) any {
			return func(v *int32) int32 { return c.do(func(d *Driver) int32 { return put(v, int32(d.opt.DriverVersion)) }) }
		}},
		{name: "cudaGetLastError", class: infallible, bind: func(c caller) any {
			return func() int32 {
				return c.do(func(d *Driver) int32 {
					t := d.thread()
					code := t.last
					if t.last = 0; d.sticky != 0 {
						t.last = d.sticky
					}
					return code
				})
			}
		}},
		{name: "cudaGetErrorName", class: infallible, bind: func(caller) any {
			return func(code int32) uintptr { return cString(text(code).runtime) }
		}},
		{name: "cudaGetErrorString", class: infallible, bind: func(caller) any {
			return func(code int32) uintptr { return cString(text(code).words) }
		}},
	}
}

func runtimeMemory() []symbol {
	return []symbol{
		{name: "cudaMemGetInfo", need: needRuntime, bind: func(c caller) any {
			return func(free, total *uint64) int32 {
				return c.do(func(d *Driver) int32 {
					return max(put(free, uint64(max(0, d.opt.DeviceMemory-d.here().used))), put(total, uint64(d.opt.DeviceMemory)))
				})
			}
		}},
		{name: "cudaMalloc", need: needRuntime, bind: func(c caller) any {
			return func(p *uint64, n uint64) int32 { return c.do(func(d *Driver) int32 { return d.malloc(p, n) }) }
		}},
		{name: "cudaFree", class: release, need: needRuntime, bind: func(c caller) any {
			return func(p uint64) int32 { return c.do(func(d *Driver) int32 { return d.free(p) }) }
		}},
		{name: "cudaHostAlloc", need: needRuntime, bind: func(c caller) any {
			return func(p *uint64, n uint64, flags uint32) int32 {
				return c.do(func(d *Driver) int32 { return d.hostAlloc(p, n, flags) })
			}
		}},
		{name: "cudaFreeHost", class: release, need: needRuntime, bind: func(c caller) any {
			return func(p uint64) int32 {
				return c.do(func(d *Driver) int32 {
					if p == 0 {
						return 0
					}
					return d.unpin("cudaFreeHost", p, true, errInvalidValue)
				})
			}
		}},
		{name: "cudaHostRegister", need: needRuntime, bind: func(c caller) any {
			return func(p, n uint64, flags uint32) int32 {
				return c.do(func(d *Driver) int32 { return d.hostRegister(p, n, flags) })
			}
		}},
		{name: "cudaHostUnregister", class: release, need: needRuntime, bind: func(c caller) any {
			return func(p uint64) int32 {
				return c.do(func(d *Driver) int32 { return d.unpin("cudaHostUnregister", p, false, errNotRegistered) })
			}
		}},
		{name: "cudaMemcpyAsync", need: needRuntime, bind: func(c caller) any {
			return func(dst, src, n uint64, kind int32, s uint64) int32 {
				return c.do(func(d *Driver) int32 { return d.memcpyAsync(dst, src, n, kind, s) })
			}
		}},
		{name: "cudaMemsetAsync", need: needRuntime, bind: func(c caller) any {
			return func(dst uint64, value int32, n, s uint64) int32 {
				return c.do(func(d *Driver) int32 { return d.memsetAsync(dst, value, n, s) })
			}
		}},
	}
}

func runtimeStreams() []symbol {
	return []symbol{
		{name: "cudaStreamCreateWithFlags", need: needRuntime, bind: func(c caller) any {
			return func(p *uint64, flags uint32) int32 {
				return c.do(func(d *Driver) int32 { return d.streamCreate(p, flags) })
			}
		}},
		{name: "cudaStreamDestroy", class: release, need: needRuntime, bind: func(c caller) any {
			return func(s uint64) int32 { return c.do(func(d *Driver) int32 { return d.streamDestroy(s) }) }
		}},
		{name: "cudaStreamSynchronize", class: waits, need: needRuntime, bind: func(c caller) any {
			return func(s uint64) int32 { return c.do(func(d *Driver) int32 { return d.streamSynchronize(s) }) }
		}},
		{name: "cudaStreamWaitEvent", need: needRuntime, bind: func(c caller) any {
			return func(s, e uint64, flags uint32) int32 {
				return c.do(func(d *Driver) int32 { return d.streamWaitEvent(s, e, flags) })
			}
		}},
	}
}

func runtimeEvents() []symbol {
	return []symbol{
		{name: "cudaEventCreateWithFlags", need: needRuntime, bind: func(c caller) any {
			return func(p *uint64, flags uint32) int32 {
				return c.do(func(d *Driver) int32 { return d.eventCreate(p, flags) })
			}
		}},
		{name: "cudaEventDestroy", class: release, need: needRuntime, bind: func(c caller) any {
			return func(e uint64) int32 { return c.do(func(d *Driver) int32 { return d.eventDestroy(e) }) }
		}},
		{name: "cudaEventRecord", need: needRuntime, bind: func(c caller) any {
			return func(e, s uint64) int32 { return c.do(func(d *Driver) int32 { return d.eventRecord(e, s) }) }
		}},
		{name: "cudaEventQuery", need: needRuntime, bind: func(c caller) any {
			return func(e uint64) int32 { return c.do(func(d *Driver) int32 { return d.eventQuery(e) }) }
		}},
		{name: "cudaEventSynchronize", class: waits, need: needRuntime, bind: func(c caller) any {
			return func(e uint64) int32 { return c.do(func(d *Driver) int32 { return d.eventSynchronize(e) }) }
		}},
		{name: "cudaEventElapsedTime", need: needRuntime, bind: func(c caller) any {
			return func(ms *float32, start, end uint64) int32 {
				return c.do(func(d *Driver) int32 { return d.eventElapsed(ms, start, end) })
			}
		}},
	}
}

// put stores the result v at p, a pointer from C, and returns the status code of the call.
func put[T any](p *T, v T) int32 {
	if p == nil {
		return errInvalidValue
	}
	*p = v
	return 0
}

// text returns CUDA's names and description of a code.
func text(code int32) codeText {
	if t, ok := codeTexts[code]; ok {
		return t
	}
	return codeText{"unrecognized error code", "unrecognized error code", "unrecognized error code"}
}

// deviceCount is cudaGetDeviceCount.
func (d *Driver) deviceCount(n *int32) int32 {
	if n == nil {
		return errInvalidValue
	}
	*n = 0
	switch {
	case d.opt.DriverTooOld:
		return errInsufficientDriver
	case d.opt.NoDevice:
		return errNoDevice
	}
	*n = int32(len(d.gpus))
	return 0
}

// attribute returns a device attribute. libcudart and libcuda use the same attribute numbers.
func (d *Driver) attribute(v *int32, attr, dev int32) int32 {
	return d.onDevice(dev, func(g *gpu) int32 {
		if attr < 1 || attr > lastAttribute {
			return errInvalidValue
		}
		return put(v, int32(d.attributes(g)[attr]))
	})
}

// lastAttribute is the last CUdevice_attribute of CUDA 13.
const lastAttribute = 144

// attributes returns the CUdevice_attribute values that are not 0.
func (d *Driver) attributes(g *gpu) map[int32]int {
	optIn := d.opt.maxSharedOptIn()
	registering := 1
	if d.opt.RefuseRegister != 0 {
		registering = 0
	}
	watchdog := 0
	if d.opt.Watchdog {
		watchdog = 1
	}
	integrated := 0
	if d.opt.Integrated {
		integrated = 1
	}
	return map[int32]int{
		1: maxThreads, 2: maxThreads, 3: maxThreads, 4: maxBlockZ,
		5: maxGridX, 6: maxGridYZ, 7: maxGridYZ,
		8: maxSharedDefault, 9: 64 << 10, 10: 32, 12: 65536, 13: 1980000, // kHz
		16: processors, 17: watchdog, 18: integrated, 19: 1, 20: 0, 31: 1, 32: 1, 33: 1 + g.ordinal, 34: 0,
		36: 2619000, 37: 5120, 38: 50 << 20, 39: 2048, 40: 3, 41: 1, 50: 0,
		75: d.opt.ComputeCapability / 10, 76: d.opt.ComputeCapability % 10,
		81: optIn + 1024, 82: 65536, 91: 1, 97: optIn, 99: registering, 106: 32, 111: 1024, 113: 1, 115: 1,
	}
}
