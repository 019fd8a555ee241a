package rates

// figure is a number with its source. A source begins with "measured", "datasheet" or "estimate", so that readers know
// how far to trust the number.
type figure struct {
	value  float64
	source string
}

// gpu is the profile of one kind of GPU that mt ships. name is lower case with dashes.
type gpu struct {
	name    string
	title   string   // about as NVIDIA and NVML write it
	aliases []string // other names that Find accepts
	memory  figure   // GiB
	// bf16 and fp32 are the rates of large matrix products in TFLOP/s. fp32 is without TF32.
	bf16, fp32 figure
	attention  heads
	sm90a      bool   // runs kernels for sm_90a
	integrated bool   // uses the host's memory
	bandwidth  figure // GB/s of device memory
	link       bus
	peers      way
	host       string // a host that is common for the GPU, in the format of ParseHost
}

// heads has a GPU's rates of bf16 attention, for head dimensions 64, 128 and 512.
type heads struct {
	of64, of128, of512 reaches
	source             string
}

// reaches has attention rates in TFLOP/s for sequences of 1,024 tokens (short) and 8,192 tokens
// (long). The forward counts the FLOPs of two matrix products, the backward of five.
type reaches struct{ shortForward, shortBackward, longForward, longBackward float64 }

func (r reaches) times(f float64) reaches {
	return reaches{r.shortForward * f, r.shortBackward * f, r.longForward * f, r.longBackward * f}
}

// times scales the rates by f, for another GPU that runs the same kernels f times as fast. The
// result has the given source.
func (h heads) times(f float64, source string) heads {
	return heads{h.of64.times(f), h.of128.times(f), h.of512.times(f), source}
}

// with512 returns h with rates for head dimension 512.
func (h heads) with512(r reaches) heads {
	h.of512 = r
	return h
}

// mt has its own attention kernels, so nobody has published their rates. The rates here come from the emulator, which
// counts the kernels' instructions and models their time (mt bench kernels --device emu). For the portable kernels, the
// model is fitted to the rates of FlashAttention-2. For the sm_90a kernels its rates are too high: for
// FlashAttention-3's forward it gives 718 TFLOP/s, and the paper measured 602. So the rates of sm_90a are multiplied by
// 602/718.
const (
	counted = "estimate: counted in mt's kernels by its emulator"
	tooHigh = 602.0 / 718
)

var (
	onH100 = heads{of64: reaches{293, 244, 502, 418}, of128: reaches{415, 309, 720, 529}}.
		times(tooHigh, counted+" (sm_90a), and 602/718 of that, as of FlashAttention-3; heads of 512 as counted").with512(portableH100.of512)
	onA100 = heads{reaches{127, 102, 169, 127}, reaches{163, 114, 213, 159}, reaches{98, 46, 122, 67}, counted}
	on4090 = heads{reaches{124, 96, 144, 131}, reaches{129, 84, 149, 130}, reaches{113, 49, 125, 83}, counted}
	// portableH100 has the rates that mt's attention kernels for any GPU, not the ones for sm_90a,
	// reach on an H100.
	portableH100 = heads{reaches{206, 139, 248, 171}, reaches{273, 149, 361, 196}, reaches{171, 70, 204, 114}, counted}
)

// bus has the rates of a link between host and device.
type bus struct {
	up, down, both figure // GB/s
	latency        figure // µs
}

// way describes how a GPU copies to other GPUs of the host directly.
type way struct {
	rate  figure // GB/s in each direction; 0: no copies between GPUs
	wires bool   // copies use wires of their own (NVLink), not the links to the host
}

// How GPUs of one host copy to each other. These values do not consider patched drivers that enable
// peer copies on consumer cards, nor NVLink bridges between two PCIe cards.
var (
	noPeers   = way{rate: figure{0, "measured: cudaDeviceCanAccessPeer says no on GeForce cards (NVIDIA/nccl, issue 1127, of RTX 3090)"}}
	single    = way{rate: figure{0, "estimate: a host has one"}}
	gen4Peers = way{rate: figure{22, "measured: 21.8 to 26.3 GB/s by nvbandwidth on six RTX A6000, PCIe 4.0 (NVIDIA/nvbandwidth, issue 50)"}}
	gen5Peers = way{rate: figure{46, "estimate: 0.84 of the link's 55 GB/s, as PCIe 4.0 reaches"}}
	nvlink3   = way{figure{255, "estimate: 0.85 of NVLink 3's 300 GB/s each way"}, true}
	nvlink4   = way{figure{382, "estimate: 0.85 of NVLink 4's 450 GB/s each way"}, true}
	nvlink5   = way{figure{765, "estimate: 0.85 of NVLink 5's 900 GB/s each way"}, true}
)

const (
	fromMAMF = "measured: best shape of bf16 products, Maximum Achievable Matmul FLOPS in stas00/ml-engineering, August 2026"
	// pinRate is the rate of pinning host memory in GB/s.
	pinRate  = 4
	pinning  = "estimate: some gigabytes a second by one thread; nobody has measured how far the driver's lock lets eight go at once"
	copyTime = "estimate: enqueue, copy engine and event of a small pinned copy"
)

var (
	gen4 = bus{up: figure{25, "measured: nvbandwidth on A100 SXM, 24.8 GB/s (forums.developer.nvidia.com, thread 352186); 26 elsewhere"},
		down:    figure{26, "measured: 25 to 26 GB/s, as h2d"},
		both:    figure{38, "measured: d2h keeps 24 GB/s and h2d falls to 11-20 (thread 352186 and others); the middle"},
		latency: figure{10, copyTime}}
	gen5 = bus{up: figure{55, "measured: 55.6 GB/s by nvbandwidth (NVIDIA's page on nvbandwidth)"}, down: figure{55, "measured: as h2d"},
		both:    figure{80, "estimate: 1.46 times one way, as PCIe 4.0 reaches"},
		latency: figure{10, copyTime}}
	c2c = bus{up: figure{375, "measured: arXiv:2407.07850, of 450 GB/s"}, down: figure{297, "measured: arXiv:2407.07850, of 450 GB/s"},
		both:    figure{420, "estimate: the host's memory of 486 GB/s serves both directions"},
		latency: figure{10, copyTime}}
	// oneMemory is the link of an integrated GPU. A copy between host and device stays in the same
	// memory, which reads and writes each byte.
	oneMemory = bus{up: figure{100, "estimate: a copy inside memory of 273 GB/s, read and write"}, down: figure{100, "estimate: as h2d"},
		both: figure{115, "estimate: both directions share the memory"}, latency: figure{10, copyTime}}
)

// The functions from here on estimate from a datasheet's peak, in GB/s or TFLOP/s, the rate that a
// program reaches. Datasheets have only peaks of memory and of fp32 products.
func hbm(peak float64) figure {
	return figure{peak * 0.85, "estimate: 0.85 of the datasheet's, as GH200's HBM3 reaches by STREAM (arXiv:2407.07850)"}
}

func gddr(peak float64) figure {
	return figure{peak * 0.9, "estimate: 0.9 of the datasheet's"}
}

func cores(peak float64) figure {
	return figure{peak * 0.75, "estimate: 0.75 of the datasheet's, without TF32"}
}

func ofPeak(part, peak float64, why string) figure {
	return figure{part * peak, "estimate: " + why}
}

func shows(gib float64) figure { return figure{gib, "nvidia-smi shows so much of it"} }

// scaled begins the source of attention rates that were taken from another GPU and multiplied by
// the ratio of the two GPUs' peak rates of matrix products. The other GPU's name follows.
const scaled = "estimate: scaled by the peak of products from "

// gpus lists the known GPUs. Peaks come from NVIDIA's datasheets and architecture white papers, dense and with fp32
// accumulation. An entry has TFLOP/s in bf16, TFLOP/s in fp32 and the memory's GB/s:
//   - RTX 3080 59.5, 29.8, 760 and RTX 3090 71.2, 35.6, 936 (GA102)
//   - RTX 4090 165.2, 82.6, 1008 (AD102)
//   - RTX 5090 209.5, 104.8, 1792 (RTX Blackwell)
//   - A100 312, 19.5, 1555 (40 GB), 1935 (80 GB PCIe), 2039 (80 GB SXM)
//   - L40S 362, 91.6, 864
//   - H100 PCIe 756, 51, 2000; H100 SXM 989, 67, 3350; H200 989, 67, 4800
//   - GH200 989, 67, 4000 (96 GB)
//   - B200 2250, 80, 8000
//   - GB10 125 (a sixteenth of half its sparse fp4, doubled), 31, 273
var gpus = []gpu{
	{name: "rtx-3080", title: "RTX 3080 10 GB", aliases: []string{"rtx-3080-10gb"}, memory: shows(10),
		bf16: ofPeak(0.9, 59.5, "0.9 of the datasheet's 59.5 TFLOP/s"), fp32: cores(29.8),
		attention: on4090.times(59.5/165.2, scaled+"RTX 4090"), bandwidth: gddr(760), link: gen4, peers: noPeers, host: "ddr4-3200x2"},
	{name: "rtx-3090", title: "RTX 3090", memory: shows(24),
		bf16: ofPeak(0.9, 71.2, "0.9 of the datasheet's 71.2 TFLOP/s"), fp32: cores(35.6),
		attention: on4090.times(71.2/165.2, scaled+"RTX 4090"), bandwidth: gddr(936), link: gen4, peers: noPeers, host: "ddr4-3200x2"},
	{name: "rtx-4090", title: "RTX 4090", memory: shows(24),
		bf16: ofPeak(0.9, 165.2, "0.9 of the datasheet's 165.2 TFLOP/s"), fp32: cores(82.6),
		attention: on4090, bandwidth: gddr(1008), link: gen4, peers: noPeers, host: "ddr5-5600x2"},
	{name: "rtx-5090", title: "RTX 5090", memory: shows(31.8),
		bf16: ofPeak(0.9, 209.5, "0.9 of the datasheet's 209.5 TFLOP/s"), fp32: cores(104.8),
		attention: on4090.times(209.5/165.2, scaled+"RTX 4090"), bandwidth: gddr(1792), link: gen5, peers: noPeers, host: "ddr5-5600x2"},
	{name: "a100-pcie-40gb", title: "A100 PCIe 40 GB", memory: shows(39.6),
		bf16: figure{252.9, fromMAMF + " (A100 PCIe)"}, fp32: cores(19.5),
		attention: onA100.times(252.9/271.2, scaled+"A100 SXM's measured products"), bandwidth: hbm(1555), link: gen4, peers: gen4Peers, host: "ddr4-3200x8"},
	{name: "a100-pcie-80gb", title: "A100 PCIe 80 GB", aliases: []string{"a100-pcie", "a100-80gb-pcie"}, memory: shows(79.6),
		bf16: figure{252.9, fromMAMF + " (A100 PCIe)"}, fp32: cores(19.5),
		attention: onA100.times(252.9/271.2, scaled+"A100 SXM's measured products"), bandwidth: hbm(1935), link: gen4, peers: gen4Peers, host: "ddr4-3200x8"},
	{name: "a100-sxm-40gb", title: "A100 SXM 40 GB", aliases: []string{"a100-40gb", "a100-sxm4-40gb"}, memory: shows(39.6),
		bf16: figure{271.2, fromMAMF + " (A100 SXM)"}, fp32: cores(19.5),
		attention: onA100, bandwidth: hbm(1555), link: gen4, peers: nvlink3, host: "ddr4-3200x8"},
	{name: "a100-sxm-80gb", title: "A100 SXM 80 GB", aliases: []string{"a100", "a100-80gb", "a100-sxm", "a100-sxm4-80gb"}, memory: shows(79.6),
		bf16: figure{271.2, fromMAMF + " (A100 SXM)"}, fp32: cores(19.5),
		attention: onA100, bandwidth: hbm(2039), link: gen4, peers: nvlink3, host: "ddr4-3200x8"},
	{name: "l40s", title: "L40S", memory: shows(45),
		bf16: ofPeak(0.7, 362, "0.7 of the datasheet's 362 TFLOP/s, for its 350 W"), fp32: cores(91.6),
		attention: onA100.times(253.0/271.2, scaled+"A100"), bandwidth: gddr(864), link: gen4, peers: gen4Peers, host: "ddr5-4800x8"},
	{name: "h100-pcie", title: "H100 PCIe", memory: shows(79.6),
		bf16: ofPeak(0.8, 756, "0.8 of the datasheet's 756 TFLOP/s, as H100 SXM reaches"), fp32: cores(51),
		sm90a: true, attention: onH100.times(756.0/989, scaled+"H100 SXM"), bandwidth: hbm(2000), link: gen5, peers: gen5Peers, host: "ddr5-4800x8"},
	{name: "h100-sxm", title: "H100 SXM", aliases: []string{"h100", "h100-80gb-hbm3", "h100-sxm5", "h100-80gb"}, memory: shows(79.6),
		bf16: figure{794.5, fromMAMF + " (H100 SXM)"}, fp32: cores(67),
		sm90a: true, attention: onH100, bandwidth: hbm(3350), link: gen5, peers: nvlink4, host: "ddr5-4800x8"},
	{name: "h200", title: "H200", aliases: []string{"h200-sxm", "h200-141gb"}, memory: shows(140.4),
		bf16: figure{794.5, fromMAMF + " (H100 SXM; the same chip)"}, fp32: cores(67),
		sm90a: true, attention: onH100, bandwidth: hbm(4800), link: gen5, peers: nvlink4, host: "ddr5-4800x8"},
	{name: "gh200", title: "GH200 96 GB", aliases: []string{"gh200-96gb", "gh200-480gb"}, memory: shows(95.6),
		bf16: figure{828.6, fromMAMF + " (GH200)"}, fp32: cores(67),
		sm90a: true, attention: onH100, bandwidth: figure{3400, "measured: STREAM on the GPU, arXiv:2407.07850"}, link: c2c, peers: single, host: "grace"},
	{name: "b200", title: "B200", aliases: []string{"b200-sxm", "b200-180gb"}, memory: shows(179),
		bf16: figure{1745, fromMAMF + " (B200)"}, fp32: cores(80),
		attention: portableH100.times(1.1, "estimate: as mt's portable kernels on an H100 with more multiprocessors; its newer products (tcgen05) are not used"), bandwidth: hbm(8000),
		link: gen5, peers: nvlink5, host: "ddr5-5600x8"},
	{name: "gb10", title: "GB10 (DGX Spark)", aliases: []string{"dgx-spark", "spark"}, memory: figure{119, "what Linux leaves of 128 GB, shared with the host"}, integrated: true,
		bf16: ofPeak(0.75, 125, "0.75 of 125 TFLOP/s; fp8 products reach 188 of 250 (forums.developer.nvidia.com, thread 359960)"), fp32: cores(31),
		attention: onA100.times(94.0/271.2, scaled+"A100"), bandwidth: ofPeak(0.85, 273, "0.85 of the datasheet's 273 GB/s, which the host shares"),
		link: oneMemory, peers: single, host: "gb10"},
}

// device returns the profile g in the form of a Machine: its Device and its Link.
func (g *gpu) device() (Device, Link) {
	a, name := g.attention, "NVIDIA "+g.title
	// Attention in fp32 uses no tensor cores. The bf16 count assumes a constant clock, while the rates of products
	// include the clock's drop under load. So bf16 attention is limited to ofProducts of the product rate.
	const fp32, ofProducts = 0.25, 0.95
	at := func(length, dim int, forward, backward float64) Attention {
		most := ofProducts * g.bf16.value
		return Attention{Length: length, Dim: dim, Forward: Round(min(forward, most)), Backward: Round(min(backward, most))}
	}
	d := Device{Name: name, Kind: "cuda", Memory: g.memory.value, SM90a: g.sm90a, Integrated: g.integrated, Bandwidth: Round(g.bandwidth.value), Launch: 3, Enqueue: 5,
		Products: map[string][]Product{"bf16": {{Rate: Round(g.bf16.value)}}, "fp32": {{Rate: Round(g.fp32.value)}}},
		Attention: map[string][]Attention{
			"bf16": {at(1024, 64, a.of64.shortForward, a.of64.shortBackward), at(1024, 128, a.of128.shortForward, a.of128.shortBackward),
				at(8192, 64, a.of64.longForward, a.of64.longBackward), at(8192, 128, a.of128.longForward, a.of128.longBackward),
				at(1024, 512, a.of512.shortForward, a.of512.shortBackward), at(8192, 512, a.of512.longForward, a.of512.longBackward)},
			"fp32": {at(8192, 64, 0.8*fp32*g.fp32.value, 0.8*fp32*g.fp32.value), at(8192, 128, fp32*g.fp32.value, fp32*g.fp32.value)},
		},
		Sources: map[string]string{
			"memory_gib": g.memory.source, "memory_gb_per_s": g.bandwidth.source, "products.bf16": g.bf16.source, "products.fp32": g.fp32.source,
			"attention.bf16": a.source + "; at most 0.95 of what products reach", "attention.fp32": "estimate: a quarter of what fp32 products reach, heads of 64 elements 0.8 of it",
			"launch_us": "estimate: the gap between kernels of one stream", "enqueue_us": "estimate: cudaLaunchKernel with the checks before it",
		}}
	l := g.link
	return d, Link{Up: l.up.value, Down: l.down.value, Both: l.both.value, Latency: l.latency.value, Pin: pinRate, Peer: g.peers.rate.value, Wires: g.peers.wires, Sources: map[string]string{
		"h2d_gb_per_s": l.up.source, "d2h_gb_per_s": l.down.source, "both_gb_per_s": l.both.source, "latency_us": l.latency.source, "pin_gb_per_s": pinning,
		"peer_gb_per_s": g.peers.rate.source}}
}
