package cudart

// GPU is an nvmlDevice_t. It is valid between Init and Shutdown.
type GPU uintptr

// ClockDomain is an nvmlClockType_t.
type ClockDomain int

// The clocks of a GPU.
const (
	ClockSM     ClockDomain = 1
	ClockMemory ClockDomain = 2
)

// Throttle is a set of reasons why clocks are below what was asked for: an
// nvmlClocksThrottleReasons bit mask.
type Throttle uint64

// The reasons to throttle.
const (
	ThrottleAppClocks       Throttle = 1 << 1
	ThrottlePowerCap        Throttle = 1 << 2
	ThrottleHardware        Throttle = 1 << 3
	ThrottleThermalSoftware Throttle = 1 << 5
	ThrottleThermalHardware Throttle = 1 << 6
	ThrottlePowerBrake      Throttle = 1 << 7
)

const temperatureGPU = 0 // the sensor on the die

// NVML is libnvidia-ml. It also sees the GPUs that CUDA_VISIBLE_DEVICES hides, and
// numbers GPUs by their place on the bus, so a GPU must be looked up by its PCI id.
type NVML struct {
	init, shutdown, driverVersion                function
	handleByPCI                                  function
	name, memoryInfo, clockInfo, maxClockInfo    function
	pcieGen, pcieWidth, maxPCIeGen, maxPCIeWidth function
	throttleReasons, powerUsage, temperature     function
}

func (n *NVML) bind(b *binder) {
	b.texts.nvmlErrorString = b.need("nvmlErrorString").addr
	n.init = b.need("nvmlInit_v2")
	n.shutdown = b.need("nvmlShutdown")
	n.driverVersion = b.need("nvmlSystemGetDriverVersion")
	n.handleByPCI = b.need("nvmlDeviceGetHandleByPciBusId_v2")
	n.name = b.need("nvmlDeviceGetName")
	n.memoryInfo = b.need("nvmlDeviceGetMemoryInfo")
	n.clockInfo = b.need("nvmlDeviceGetClockInfo")
	n.maxClockInfo = b.need("nvmlDeviceGetMaxClockInfo")
	n.pcieGen = b.need("nvmlDeviceGetCurrPcieLinkGeneration")
	n.pcieWidth = b.need("nvmlDeviceGetCurrPcieLinkWidth")
	n.maxPCIeGen = b.need("nvmlDeviceGetMaxPcieLinkGeneration")
	n.maxPCIeWidth = b.need("nvmlDeviceGetMaxPcieLinkWidth")
	n.throttleReasons = b.need("nvmlDeviceGetCurrentClocksThrottleReasons")
	n.powerUsage = b.need("nvmlDeviceGetPowerUsage")
	n.temperature = b.need("nvmlDeviceGetTemperature")
}

// Init must be called before any other method, and each call undone by one of
// Shutdown. Where the driver is not loaded the error is ErrNoDevice. nvmlInit_v2:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlInitializationAndCleanup.html
func (n *NVML) Init() error { return n.init.call() }

// Shutdown undoes Init. nvmlShutdown:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlInitializationAndCleanup.html
func (n *NVML) Shutdown() error { return n.shutdown.call() }

// text calls f with the arguments before, followed by room for a text and the size
// of that room.
func (n *NVML) text(f *function, before ...uintptr) (string, error) {
	m := newFrame()
	defer m.release()
	const room = 96
	err := f.call(append(before, m.room(room), room)...)
	return goString(m.bytes), err
}

// number calls f with the arguments before, followed by the address for a number.
func number(f *function, before ...uintptr) (uint64, error) {
	m := newFrame()
	defer m.release()
	err := f.call(append(before, m.out(0))...)
	return m.words[0], err
}

// DriverVersion is the driver's own version, such as 550.54.15.
// nvmlSystemGetDriverVersion:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlSystemQueries.html
func (n *NVML) DriverVersion() (string, error) { return n.text(&n.driverVersion) }

// ByPCI is the GPU with a PCI id, such as CUDA.PCIBusID returns.
// nvmlDeviceGetHandleByPciBusId_v2:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
func (n *NVML) ByPCI(id string) (GPU, error) {
	m := newFrame()
	defer m.release()
	err := n.handleByPCI.call(m.text([]byte(id)), m.out(0))
	return GPU(m.words[0]), err
}

// Name is what NVIDIA calls the GPU. nvmlDeviceGetName:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
func (n *NVML) Name(g GPU) (string, error) { return n.text(&n.name, uintptr(g)) }

// Memory is the GPU's memory in bytes: all, free, and used by any process and
// by the driver. nvmlDeviceGetMemoryInfo:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
func (n *NVML) Memory(g GPU) (total, free, used int64, err error) {
	m := newFrame()
	defer m.release()
	m.words[1], m.words[2] = 0, 0
	err = n.memoryInfo.call(uintptr(g), m.out(0))
	return int64(m.words[0]), int64(m.words[1]), int64(m.words[2]), err
}

// ClockMHz is the current frequency of a clock. nvmlDeviceGetClockInfo:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
func (n *NVML) ClockMHz(g GPU, d ClockDomain) (int, error) {
	v, err := number(&n.clockInfo, uintptr(g), uintptr(d))
	return int(v), err
}

// MaxClockMHz is the highest frequency of a clock. nvmlDeviceGetMaxClockInfo:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
func (n *NVML) MaxClockMHz(g GPU, d ClockDomain) (int, error) {
	v, err := number(&n.maxClockInfo, uintptr(g), uintptr(d))
	return int(v), err
}

// PCIe is the current generation and number of lanes of the link; an idle GPU
// lowers the generation. nvmlDeviceGetCurrPcieLinkGeneration and
// nvmlDeviceGetCurrPcieLinkWidth:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
func (n *NVML) PCIe(g GPU) (generation, lanes int, err error) {
	return n.link(g, &n.pcieGen, &n.pcieWidth)
}

// MaxPCIe is the best link that the GPU and the board's socket allow together.
// nvmlDeviceGetMaxPcieLinkGeneration and nvmlDeviceGetMaxPcieLinkWidth:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
func (n *NVML) MaxPCIe(g GPU) (generation, lanes int, err error) {
	return n.link(g, &n.maxPCIeGen, &n.maxPCIeWidth)
}

func (n *NVML) link(g GPU, gen, width *function) (generation, lanes int, err error) {
	a, err := number(gen, uintptr(g))
	if err != nil {
		return 0, 0, err
	}
	b, err := number(width, uintptr(g))
	return int(a), int(b), err
}

// Throttled is why clocks are lowered now, zero where they are not.
// nvmlDeviceGetCurrentClocksThrottleReasons:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
func (n *NVML) Throttled(g GPU) (Throttle, error) {
	v, err := number(&n.throttleReasons, uintptr(g))
	return Throttle(v), err
}

// PowerMilliwatts is what the board draws. nvmlDeviceGetPowerUsage:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
func (n *NVML) PowerMilliwatts(g GPU) (int, error) {
	v, err := number(&n.powerUsage, uintptr(g))
	return int(v), err
}

// Celsius is the temperature of the die. nvmlDeviceGetTemperature:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
func (n *NVML) Celsius(g GPU) (int, error) {
	v, err := number(&n.temperature, uintptr(g), temperatureGPU)
	return int(v), err
}
