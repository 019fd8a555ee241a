package cudart

// GPU is an nvmlDevice_t. It is valid between Init and Shutdown.
type GPU uintptr

// ClockDomain is an nvmlClockType_t.
type ClockDomain int

// Clocks of a GPU.
const (
	ClockSM     ClockDomain = 1
	ClockMemory ClockDomain = 2
)

// Throttle is a set of reasons for reduced clocks: an nvmlClocksThrottleReasons bit mask.
type Throttle uint64

// Reasons to throttle.
const (
	ThrottleAppClocks       Throttle = 1 << 1
	ThrottlePowerCap        Throttle = 1 << 2
	ThrottleHardware        Throttle = 1 << 3
	ThrottleThermalSoftware Throttle = 1 << 5
	ThrottleThermalHardware Throttle = 1 << 6
	ThrottlePowerBrake      Throttle = 1 << 7
)

const temperatureGPU = 0 // the sensor on the die

// NVML is libnvidia-ml. Its GPU numbers differ from CUDA's ordinals: they include GPUs hidden by
// CUDA_VISIBLE_DEVICES, and follow bus positions. So look up a GPU by its PCI id.
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

// Init must be called before any other method. Each call needs a matching Shutdown. If the driver is not loaded, the
// error matches ErrNoDevice. nvmlInit_v2:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlInitializationAndCleanup.html
func (n *NVML) Init() error { return n.init.call() }

// Shutdown releases one Init. nvmlShutdown:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlInitializationAndCleanup.html
func (n *NVML) Shutdown() error { return n.shutdown.call() }

// text calls f with the arguments before, followed by a buffer and its size. It returns the string
// that f writes to the buffer.
func (n *NVML) text(f *function, before ...uintptr) (string, error) {
	m := newFrame()
	defer m.release()
	const room = 96
	err := f.call(append(before, m.room(room), room)...)
	return goString(m.bytes), err
}

// number calls f with the arguments before and the address of a number, and returns the number.
func number(f *function, before ...uintptr) (uint64, error) {
	m := newFrame()
	defer m.release()
	err := f.call(append(before, m.out(0))...)
	return m.words[0], err
}

// DriverVersion returns the driver's own version, such as 550.54.15. nvmlSystemGetDriverVersion:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlSystemQueries.html
func (n *NVML) DriverVersion() (string, error) { return n.text(&n.driverVersion) }

// ByPCI returns the GPU with a PCI id in the form of CUDA.PCIBusID. nvmlDeviceGetHandleByPciBusId_v2:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
func (n *NVML) ByPCI(id string) (GPU, error) {
	m := newFrame()
	defer m.release()
	err := n.handleByPCI.call(m.text([]byte(id)), m.out(0))
	return GPU(m.words[0]), err
}

// Name returns NVIDIA's name of the GPU. nvmlDeviceGetName:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
func (n *NVML) Name(g GPU) (string, error) { return n.text(&n.name, uintptr(g)) }

// Memory returns the GPU's total, free and used memory in bytes. used counts all processes and the driver.
// nvmlDeviceGetMemoryInfo:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
func (n *NVML) Memory(g GPU) (total, free, used int64, err error) {
	m := newFrame()
	defer m.release()
	m.words[1], m.words[2] = 0, 0
	err = n.memoryInfo.call(uintptr(g), m.out(0))
	return int64(m.words[0]), int64(m.words[1]), int64(m.words[2]), err
}

// ClockMHz returns the current frequency of a clock. nvmlDeviceGetClockInfo:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
func (n *NVML) ClockMHz(g GPU, d ClockDomain) (int, error) {
	v, err := number(&n.clockInfo, uintptr(g), uintptr(d))
	return int(v), err
}

// MaxClockMHz returns the highest frequency of a clock. nvmlDeviceGetMaxClockInfo:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
func (n *NVML) MaxClockMHz(g GPU, d ClockDomain) (int, error) {
	v, err := number(&n.maxClockInfo, uintptr(g), uintptr(d))
	return int(v), err
}

// PCIe returns the current generation and number of lanes of the link. An idle GPU lowers the generation.
// nvmlDeviceGetCurrPcieLinkGeneration and nvmlDeviceGetCurrPcieLinkWidth:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
func (n *NVML) PCIe(g GPU) (generation, lanes int, err error) {
	return n.link(g, &n.pcieGen, &n.pcieWidth)
}

// MaxPCIe returns the best link that both the GPU and the slot support. nvmlDeviceGetMaxPcieLinkGeneration and
// nvmlDeviceGetMaxPcieLinkWidth:
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

// Throttled returns the current reasons for reduced clocks; 0: none. nvmlDeviceGetCurrentClocksThrottleReasons:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
func (n *NVML) Throttled(g GPU) (Throttle, error) {
	v, err := number(&n.throttleReasons, uintptr(g))
	return Throttle(v), err
}

// PowerMilliwatts returns the power draw of the board. nvmlDeviceGetPowerUsage:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
func (n *NVML) PowerMilliwatts(g GPU) (int, error) {
	v, err := number(&n.powerUsage, uintptr(g))
	return int(v), err
}

// Celsius returns the temperature of the die. nvmlDeviceGetTemperature:
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
func (n *NVML) Celsius(g GPU) (int, error) {
	v, err := number(&n.temperature, uintptr(g), temperatureGPU)
	return int(v), err
}
