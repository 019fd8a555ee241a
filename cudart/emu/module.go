package emu

import (
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"unsafe"

	"mt/cudart/emu/ptx"
)

// Launch limits. Source: CUDA C++ Programming Guide, technical specifications per compute capability.
const (
	maxThreads       = 1024 // per block
	maxBlockZ        = 64
	maxGridX         = 1<<31 - 1
	maxGridYZ        = 65535
	maxSharedDefault = 48 << 10 // without cuFuncSetAttribute, in bytes
	processors       = 132
)

// module is a PTX file that the program has loaded on one device.
type module struct {
	gpu       *gpu
	name      string
	parsed    *ptx.Module
	text      string
	functions map[string]uint64
}

// function is a kernel of a module.
type function struct {
	gpu        *gpu
	name       string
	kernel     *ptx.Kernel
	params     []param
	maxDynamic int // bytes of dynamic shared memory that a launch may request
}

// parsedModules caches the modules that this process has parsed. They never change, and tests load
// the same modules hundreds of times.
var parsedModules sync.Map // text → *ptx.Module

// parse parses PTX. It parses equal text only once.
func parse(src string) (*ptx.Module, error) {
	if m, ok := parsedModules.Load(src); ok {
		return m.(*ptx.Module), nil
	}
	m, err := ptx.Parse("ptx", src)
	if err != nil {
		return nil, err
	}
	parsedModules.Store(src, m)
	return m, nil
}

// maxImage is how many bytes of a module are searched for the NUL at its end.
const maxImage = 64 << 20

// moduleLoad is cuModuleLoadDataEx for PTX text.
func (d *Driver) moduleLoad(out *uint64, image unsafe.Pointer, n uint32, keys *int32, values *uint64) int32 {
	if out == nil || image == nil || n > 0 && (keys == nil || values == nil) {
		return errInvalidValue
	}
	*out = 0
	log := jitLog(unsafe.Slice(keys, n), unsafe.Slice(values, n))
	src := goText(image, maxImage)
	if code, why := d.compatible(src); code != 0 {
		log.write("ptxas fatal   : " + why)
		return code
	}
	m, err := parse(src)
	if err != nil {
		log.write("ptxas error   : " + err.Error())
		return errInvalidPTX
	}
	mod := &module{gpu: d.here(), parsed: m, text: src, functions: map[string]uint64{}}
	*out = d.keep(kindModule, mod)
	mod.name = handleName(*out)
	log.write("")
	return 0
}

var (
	versionLine = regexp.MustCompile(`(?m)^\s*\.version\s+(\d+)\.(\d+)`)
	targetLine  = regexp.MustCompile(`(?m)^\s*\.target\s+sm_(\d+)([af]?)`)
)

// compatible returns the code with which the driver or the device rejects the PTX text src because of its .version
// or .target, and the reason. Code 0: they accept it.
func (d *Driver) compatible(src string) (int32, string) {
	v, t := versionLine.FindStringSubmatch(src), targetLine.FindStringSubmatch(src)
	if v == nil || t == nil {
		return errInvalidPTX, "no .version or no .target"
	}
	major, _ := strconv.Atoi(v[1]) // the pattern matches only digits
	minor, _ := strconv.Atoi(v[2])
	if 10*major+minor > d.opt.MaxPTXVersion {
		return errUnsupportedPTX, fmt.Sprintf("Unsupported .version %s.%s; current version is '%d.%d'",
			v[1], v[2], d.opt.MaxPTXVersion/10, d.opt.MaxPTXVersion%10)
	}
	cc, _ := strconv.Atoi(t[1])
	if cc > d.opt.ComputeCapability || t[2] == "a" && cc != d.opt.ComputeCapability || t[2] == "f" && cc/10 != d.opt.ComputeCapability/10 {
		return errInvalidPTX, fmt.Sprintf("Program with .target 'sm_%s%s' cannot be compiled to architecture 'sm_%d'",
			t[1], t[2], d.opt.ComputeCapability)
	}
	return 0, ""
}

// jit says where the caller of cuModuleLoadDataEx wants the compiler's error log.
type jit struct {
	buffer unsafe.Pointer
	size   *uint64 // in: capacity in bytes; out: bytes written
}

// jitLog finds CU_JIT_ERROR_LOG_BUFFER (5) and its size (6) among the options.
func jitLog(keys []int32, values []uint64) jit {
	var j jit
	for i, k := range keys {
		switch k {
		case 5:
			j.buffer = pointer(values[i])
		case 6:
			j.size = &values[i]
		}
	}
	return j
}

func (j jit) write(s string) {
	if j.size == nil {
		return
	}
	room := int(uint32(*j.size))
	*j.size = uint64(min(len(s), max(room-1, 0)))
	if j.buffer != nil {
		putText(j.buffer, room, s)
	}
}

// moduleUnload is cuModuleUnload. It waits for the device, which may be running kernels of the module.
func (d *Driver) moduleUnload(h uint64) int32 {
	m, ok := find[*module](d, kindModule, h, "cuModuleUnload")
	if !ok || !d.own("cuModuleUnload", m.name, m.gpu) {
		return errInvalidHandle
	}
	delete(d.objects, h)
	for _, f := range m.functions {
		delete(d.objects, f)
	}
	d.drain()
	return 0
}

// moduleFunction is cuModuleGetFunction.
func (d *Driver) moduleFunction(out *uint64, h uint64, name unsafe.Pointer) int32 {
	m, ok := find[*module](d, kindModule, h, "cuModuleGetFunction")
	switch {
	case !ok || !d.own("cuModuleGetFunction", m.name, m.gpu):
		return errInvalidHandle
	case out == nil || name == nil:
		return errInvalidValue
	}
	s := goText(name, 4096)
	k := m.parsed.Kernel(s)
	if k == nil {
		return errNotFound
	}
	f, ok := m.functions[s]
	if !ok {
		f = d.keep(kindFunction, &function{gpu: m.gpu, name: s, kernel: k, params: paramsOf(m.text, s),
			maxDynamic: maxSharedDefault - min(k.StaticShared, maxSharedDefault)})
		m.functions[s] = f
	}
	*out = f
	return 0
}

// param is a kernel parameter: its offset in the parameter buffer and its size, in bytes.
type param struct{ at, bytes int }

var paramDecl = regexp.MustCompile(`\.param\s+(?:\.align\s+(\d+)\s+)?\.[a-z]+(\d+)(?:\s+\.ptr[^,)]*?)?\s+[\w$]+(?:\[(\d+)\])?\s*[,)]`)

// paramsOf returns the parameters of a kernel, as declared in the PTX text.
func paramsOf(text, kernel string) []param {
	entry := regexp.MustCompile(`\.entry\s+` + regexp.QuoteMeta(kernel) + `\s*\([^)]*\)`).FindString(text)
	var out []param
	at := 0
	for _, m := range paramDecl.FindAllStringSubmatch(entry, -1) {
		align, _ := strconv.Atoi(m[1])
		bits, _ := strconv.Atoi(m[2])
		count, _ := strconv.Atoi(m[3])
		bytes := bits / 8 * max(count, 1)
		align = max(align, bits/8)
		at = (at + align - 1) / align * align
		out = append(out, param{at, bytes})
		at += bytes
	}
	return out
}

// funcSetAttribute is cuFuncSetAttribute for the maximum dynamic shared memory (8) and for the carveout (9), which has
// no effect here.
func (d *Driver) funcSetAttribute(h uint64, attr, value int32) int32 {
	f, ok := find[*function](d, kindFunction, h, "cuFuncSetAttribute")
	switch {
	case !ok || !d.own("cuFuncSetAttribute", "kernel "+f.name, f.gpu):
		return errInvalidHandle
	case attr == 9 && value >= -1 && value <= 100:
		return 0
	case attr != 8 || value < 0 || int(value)+f.kernel.StaticShared > d.opt.maxSharedOptIn():
		return errInvalidValue
	}
	f.maxDynamic = int(value)
	return 0
}
