package emu

import (
	"slices"
	"unsafe"

	"mt/cudart"
)

// The signatures in this file follow cuda.h: CUdevice is an int, CUdeviceptr is 64 bits wide.

// driverSymbols returns the functions of libcuda.
func driverSymbols() []symbol {
	list := slices.Concat(driverDevice(), driverContexts(), driverModules())
	for i := range list {
		list[i].lib = cudart.Driver
	}
	return list
}

func driverDevice() []symbol {
	return []symbol{
		{name: "cuInit", class: prologue, need: needDevice, bind: func(c caller) any {
			return func(flags uint32) int32 {
				return c.do(func(d *Driver) int32 {
					if flags != 0 {
						return errInvalidValue
					}
					d.initialised = true
					return 0
				})
			}
		}},
		{name: "cuDriverGetVersion", bind: func(c caller) any {
			return func(v *int32) int32 { return c.do(func(d *Driver) int32 { return put(v, int32(d.opt.DriverVersion)) }) }
		}},
		{name: "cuDeviceGet", class: prologue, need: needInit, bind: func(c caller) any {
			return func(dev *int32, ordinal int32) int32 {
				return c.do(func(d *Driver) int32 {
					return d.onDevice(ordinal, func(g *gpu) int32 { return put(dev, int32(g.ordinal)) })
				})
			}
		}},
		{name: "cuDeviceGetName", need: needInit, bind: func(c caller) any {
			return func(p unsafe.Pointer, n, dev int32) int32 {
				return c.do(func(d *Driver) int32 {
					return d.onDevice(dev, func(*gpu) int32 {
						if p == nil || n <= 0 {
							return errInvalidValue
						}
						putText(p, int(n), d.opt.Name)
						return 0
					})
				})
			}
		}},
		{name: "cuDeviceGetAttribute", need: needInit, bind: func(c caller) any {
			return func(v *int32, attr, dev int32) int32 {
				return c.do(func(d *Driver) int32 { return d.attribute(v, attr, dev) })
			}
		}},
		{name: "cuGetErrorName", class: infallible, bind: func(caller) any {
			return func(code int32, s *uintptr) int32 {
				return putCode(s, code, func(t codeText) string { return t.driver })
			}
		}},
		{name: "cuGetErrorString", class: infallible, bind: func(caller) any {
			return func(code int32, s *uintptr) int32 {
				return putCode(s, code, func(t codeText) string { return t.words })
			}
		}},
	}
}

// driverContexts returns the functions that manage primary contexts. A device has one context.
func driverContexts() []symbol {
	return []symbol{
		{name: "cuDevicePrimaryCtxRetain", need: needInit, bind: func(c caller) any {
			return func(ctx *uint64, dev int32) int32 {
				return c.do(func(d *Driver) int32 {
					return d.onDevice(dev, func(g *gpu) int32 {
						if ctx == nil {
							return errInvalidValue
						}
						d.makeContext(g)
						g.retained++
						*ctx = g.context
						return 0
					})
				})
			}
		}},
		{name: "cuDevicePrimaryCtxRelease_v2", class: release, need: needInit, bind: func(c caller) any {
			return func(dev int32) int32 {
				return c.do(func(d *Driver) int32 { return d.onDevice(dev, d.releaseContext) })
			}
		}},
		{name: "cuCtxSetCurrent", class: prologue, need: needInit, bind: func(c caller) any {
			return func(ctx uint64) int32 { return c.do(func(d *Driver) int32 { return d.setCurrent(ctx) }) }
		}},
		{name: "cuCtxGetCurrent", need: needInit, bind: func(c caller) any {
			return func(ctx *uint64) int32 { return c.do(func(d *Driver) int32 { return put(ctx, d.thread().context) }) }
		}},
	}
}

func driverModules() []symbol {
	return []symbol{
		{name: "cuModuleLoadDataEx", need: needContext, bind: func(c caller) any {
			return func(m *uint64, image unsafe.Pointer, n uint32, keys *int32, values *uint64) int32 {
				return c.do(func(d *Driver) int32 { return d.moduleLoad(m, image, n, keys, values) })
			}
		}},
		{name: "cuModuleUnload", class: release, need: needContext, bind: func(c caller) any {
			return func(m uint64) int32 { return c.do(func(d *Driver) int32 { return d.moduleUnload(m) }) }
		}},
		{name: "cuModuleGetFunction", need: needContext, bind: func(c caller) any {
			return func(f *uint64, m uint64, name unsafe.Pointer) int32 {
				return c.do(func(d *Driver) int32 { return d.moduleFunction(f, m, name) })
			}
		}},
		{name: "cuFuncSetAttribute", need: needContext, bind: func(c caller) any {
			return func(f uint64, attr, value int32) int32 {
				return c.do(func(d *Driver) int32 { return d.funcSetAttribute(f, attr, value) })
			}
		}},
		{name: "cuTensorMapEncodeTiled", need: needInit, bind: func(c caller) any {
			return func(m unsafe.Pointer, kind, rank uint32, address uint64, sizes, strides *uint64, box, every *uint32, interleave, swizzle, promotion, fill uint32) int32 {
				return c.do(func(d *Driver) int32 {
					return d.tensorMap(m, &tensorMapArguments{kind, rank, address, sizes, strides, box, every, interleave, swizzle, promotion, fill})
				})
			}
		}},
		{name: "cuLaunchKernel", need: needContext, bind: func(c caller) any {
			return func(f uint64, gx, gy, gz, bx, by, bz, shared uint32, s uint64, params, extra *uint64) int32 {
				return c.do(func(d *Driver) int32 {
					return d.launch(f, [3]uint32{gx, gy, gz}, [3]uint32{bx, by, bz}, shared, s, params, extra)
				})
			}
		}},
	}
}

// putCode stores the address of libcuda's text for a status code in *s. `of` selects which text of the codeText: name
// or description.
func putCode(s *uintptr, code int32, of func(codeText) string) int32 {
	t, ok := codeTexts[code]
	if s == nil {
		return errInvalidValue
	}
	if *s = 0; !ok || of(t) == "" {
		return errInvalidValue
	}
	*s = cString(of(t))
	return 0
}
