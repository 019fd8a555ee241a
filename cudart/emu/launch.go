package emu

import (
	"fmt"
	"unsafe"

	"mt/cudart/emu/ptx"
)

// launch is cuLaunchKernel. The parameters arrive as one buffer in extra, or as an array of
// pointers in params. launch copies them either way.
func (d *Driver) launch(h uint64, grid, block [3]uint32, shared uint32, sh uint64, params, extra *uint64) int32 {
	f, ok := find[*function](d, kindFunction, h, "cuLaunchKernel")
	s, ok2 := d.streamOf(sh, "cuLaunchKernel")
	if !ok || !ok2 || !d.own("cuLaunchKernel", "kernel "+f.name, f.gpu) || !d.own("cuLaunchKernel", s.name, s.gpu) {
		return errInvalidHandle
	}
	if code := d.launchable(f, grid, block, shared); code != 0 {
		return code
	}
	args, code := d.arguments(f, params, extra)
	if code != 0 {
		return code
	}
	o := &op{what: "kernel " + f.name}
	again := launchKey{f, grid, block, shared, string(args)}
	o.run = func() ([]span, error) {
		if known, ok := d.touched[again]; ok {
			return known, nil
		}
		m := &memory{d: d, gpu: s.gpu}
		l := ptx.Launch{Kernel: f.kernel, Grid: grid, Block: block, Shared: int(shared), Params: args, Memory: m,
			Threads: d.opt.Threads, Seed: d.opt.Seed + o.seq, CheckGlobal: d.opt.CheckGlobal}
		touched, err := l.Run()
		if err != nil {
			err = fmt.Errorf("%w%s", err, m.missed())
		}
		out := d.spans(s.gpu, touched)
		if d.opt.OrderOnly && err == nil {
			d.touched[again] = out
		}
		return out, err
	}
	d.plant(o, f)
	d.enqueue(s, o)
	return 0
}

// launchKey identifies a launch for Options.OrderOnly. Launches with equal keys access the same memory, provided
// that the data that they read has not changed.
type launchKey struct {
	f           *function
	grid, block [3]uint32
	shared      uint32
	args        string
}

// launchable returns the code with which CUDA rejects a launch with this grid, block size and
// shared memory; 0: the launch is valid.
func (d *Driver) launchable(f *function, grid, block [3]uint32, shared uint32) int32 {
	threads := uint64(block[0]) * uint64(block[1]) * uint64(block[2])
	limit := uint64(maxThreads)
	if f.kernel.MaxThreads > 0 {
		limit = min(limit, uint64(f.kernel.MaxThreads))
	}
	switch {
	case grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || threads == 0,
		grid[0] > maxGridX || grid[1] > maxGridYZ || grid[2] > maxGridYZ,
		block[0] > maxThreads || block[1] > maxThreads || block[2] > maxBlockZ || threads > limit:
		d.fault(Argument, "cuLaunchKernel of %s: grid %v, block %v; a block has at most %d threads", f.name, grid, block, limit)
		return errInvalidValue
	case int(shared) > f.maxDynamic:
		d.fault(Argument, "cuLaunchKernel of %s with %d bytes of dynamic shared memory, of which %d are allowed (cuFuncSetAttribute raises that)",
			f.name, shared, f.maxDynamic)
		return errInvalidValue
	}
	return 0
}

// Keys of the list extra of cuLaunchKernel. A key is followed by its value, up to paramEnd.
const (
	paramEnd = iota
	paramBuffer
	paramSize
)

// arguments returns the bytes of a launch's parameters, from params or from extra, whichever is
// given. Otherwise it returns an error code.
func (d *Driver) arguments(f *function, params, extra *uint64) ([]byte, int32) {
	want := f.kernel.ParamBytes
	switch {
	case params != nil && extra != nil:
		d.fault(Argument, "cuLaunchKernel of %s with kernelParams and extra", f.name)
		return nil, errInvalidValue
	case extra == nil && want == 0:
		return nil, 0
	case params != nil:
		return f.pointed(unsafe.Slice(params, len(f.params))), 0
	case extra == nil:
		d.fault(Argument, "cuLaunchKernel of %s without parameters, which are %d bytes", f.name, want)
		return nil, errInvalidValue
	}
	var buffer unsafe.Pointer
	size := uint64(0)
	for i := 0; ; i += 2 {
		key := *(*uint64)(unsafe.Add(unsafe.Pointer(extra), 8*i))
		if key == paramEnd {
			break
		}
		value := *(*uint64)(unsafe.Add(unsafe.Pointer(extra), 8*i+8))
		switch key {
		case paramBuffer:
			buffer = pointer(value)
		case paramSize:
			size = *(*uint64)(pointer(value))
		default:
			d.fault(Argument, "cuLaunchKernel of %s: key %d in extra", f.name, key)
			return nil, errInvalidValue
		}
	}
	if size != uint64(want) || size > 0 && buffer == nil {
		d.fault(Argument, "cuLaunchKernel of %s with %d bytes of parameters; it has %d", f.name, size, want)
		return nil, errInvalidValue
	}
	return append([]byte(nil), unsafe.Slice((*byte)(buffer), size)...), 0
}

// pointed packs the parameters into one buffer. `each` holds the address of every parameter.
func (f *function) pointed(each []uint64) []byte {
	out := make([]byte, f.kernel.ParamBytes)
	for i, p := range f.params {
		copy(out[p.at:p.at+p.bytes], unsafe.Slice((*byte)(pointer(each[i])), p.bytes))
	}
	return out
}

// spans converts the memory accesses of a kernel on device g, which package ptx reports, to spans.
// The driver checks their order against other work.
func (d *Driver) spans(g *gpu, touched []ptx.Access) []span {
	var out []span
	for _, a := range touched {
		var r *region
		if b := d.allocation(a.Buffer.Base); b != nil {
			r = &b.region
		} else if p := d.reachable(g, a.Buffer.Base); p != nil {
			r = &p.region
		} else { // constants of the module
			continue
		}
		out = append(out, span{r, a.ReadFrom, a.ReadTo, false}, span{r, a.WriteFrom, a.WriteTo, true})
	}
	return out
}
