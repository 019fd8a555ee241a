#!/usr/bin/env bash
# Rehearses bench/gpu.sh without a GPU: the script as it is, mt built with the emulator, and programs that stand in for a Python
# with PyTorch and DeepSpeed and for cuda-gdb. Each rehearsal plants one fault and fails unless report.md names it, what needs
# no rehearsal of its own is measured all the same, and the calls end within their time.
#
#     bench/rehearse.sh [--mt MT] [--out DIR] [NAME…]
#
#   healthy         calls 1 and 2 in a container with limits: every part is done, with a ratio beside both peers
#   hang            a kernel that never ends: named with operation and stream, by self test and step, which heeds SIGTERM
#   fault           a kernel that accesses an illegal address: error 700, and kernel and program counter of the core dump
#   full            allocations fail, then a card too small
#   peer-hangs      the peer stands still, and does not heed SIGTERM: our side is kept
#   peer-disagrees  the peer's losses are others: our side is kept, and the step is named
#   missing         without cuBLASLt, NVML, libcudart
#
# Without names all run, in some three minutes. MT is a binary of go build -tags emu; without --mt it is built. DIR keeps the
# reports.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mt='' out=''
while [ $# -gt 0 ]; do
	case $1 in
	--mt | --out)
		[ $# -ge 2 ] || { echo "rehearse.sh: $1 needs a value" >&2; exit 2; }
		printf -v "${1#--}" %s "$2"
		shift 2
		;;
	--help | -h) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
	-*) echo "rehearse.sh: unknown argument $1 (see --help)" >&2; exit 2 ;;
	*) break ;;
	esac
done
readonly all='healthy hang fault full peer-hangs peer-disagrees missing'
# shellcheck disable=SC2086
[ $# -gt 0 ] || set -- $all

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "$mt" ]; then
	mt=$work/mt
	go build -C "$here" -tags emu -o "$mt" ../cmd/mt || exit 2
fi
mt=$(realpath -- "$mt") || exit 2
"$mt" version | grep -q emulator || { echo "rehearse.sh: $mt has no emulator: go build -tags emu ./cmd/mt" >&2; exit 2; }
[ -n "$out" ] || out=$work/out
mkdir -p "$out" "$work/bin" || exit 2
out=$(cd "$out" && pwd)

# A Python that has all modules. As a peer it behaves as MT_REHEARSE_PEER says. Its losses and norms
# are those of mt bench train --shape tiny --blocks 2 --rows 4 --seq-len 64 --dtype bf16: a warm-up,
# then four steps.
cat >"$work/bin/python3" <<'END'
#!/usr/bin/env bash
[ "$1" != -c ] || exit 0
echo '{"ready": true, "parameters": 119360, "micro_rows": 4, "setting": {}, "loss": [5.542519], "grad_norm": [0.870914]}'
loss=5.540232
while read -r word _; do
	[ "$word" = run ] || exit 0
	case $MT_REHEARSE_PEER in
	hangs) trap '' TERM; sleep 600 ;;
	disagrees) loss=5.640232 ;;
	esac
	echo '{"seconds": [0.2, 0.1, 0.1, 0.2], "tokens": 1024, "loss": [5.558386, '$loss', 5.568169, 5.562316], "grad_norm": [0.867769, 0.851914, 0.886778, 0.890446]}'
done
END
# A cuda-gdb that prints for the emulator's core dump what the real one prints for a GPU's.
cat >"$work/bin/cuda-gdb" <<'END'
#!/usr/bin/env bash
for argument; do
	case $argument in "target cudacore "*) dump=${argument#target cudacore } ;; esac
done
kernel=$(sed -n 's/^kernel //p' "$dump")
echo "CUDA Exception: Warp Illegal Address
The exception was triggered at PC 0x7f31abb9f6d0
#0  0x00007f31abb9f6d0 in $kernel<<<(1,1,1),(32,1,1)>>> ()"
END
chmod +x "$work/bin/"*
# A container limited to 1.5 cores and 3 GiB of memory.
mkdir -p "$work/root/proc/self" "$work/root/sys/fs/cgroup/pod"
cp /proc/meminfo "$work/root/proc/meminfo"
echo 0::/pod >"$work/root/proc/self/cgroup"
echo 150000 100000 >"$work/root/sys/fs/cgroup/pod/cpu.max"
echo 3221225472 >"$work/root/sys/fs/cgroup/pod/memory.max"
echo 1073741824 >"$work/root/sys/fs/cgroup/pod/memory.current"

failed=no name='' dir='' until=0

wrong() {
	echo "   WRONG: $name: $*"
	failed=yes
}

# gpu NAME SECONDS FAULT PEER ARGUMENTS… runs bench/gpu.sh in a new folder. It must end within
# SECONDS.
gpu() {
	local began=$SECONDS
	name=$1 dir=$out/$1 until=$2
	local fault=$3 peer=$4
	shift 4
	rm -rf "$dir"
	PATH=$work/bin:$PATH MT_EMU_FAULT=$fault MT_REHEARSE_PEER=$peer MT_PYTHON=$work/bin/python3 MT_HOST_ROOT=$work/root \
		timeout --kill-after=5 "$((until + 30))" bash "$here/gpu.sh" --mt "$mt" --out "$dir" --scale small --part-seconds 6 --peers-on cuda "$@" >"$work/log" 2>&1
	local code=$? took=$((SECONDS - began))
	mkdir -p "$dir" && mv "$work/log" "$dir/log" && touch "$dir/report.md"
	echo "== $name: $took s, exit code $code"
	[ "$took" -le "$until" ] || wrong "it took $took s, and may take $until"
	case $code in 0 | 1) ;; *) wrong "exit code $code: $(tail -n 1 "$dir/log")" ;; esac
}

# says PATTERN prints the line of the report that matches the extended regular expression, or fails.
says() {
	local line
	if line=$(grep -E -m 1 -e "$1" "$dir/report.md"); then
		echo "   ${line:0:300}"
	else
		wrong "no line of $dir/report.md matches $1"
		grep -E '^- [a-z0-9-]+: ' "$dir/report.md"
	fi
}

healthy() {
	gpu healthy 150 '' agrees --call 1
	says '^The container may take the time of 1\.5 cores and 3\.0 GiB of memory'
	for part in doctor selftest blocks-2 profile seq1024 seq8192 attention copy matmul; do says "^- $part: done in "; done
	says 'Emulated GPU: passed, '
	says '^The GPU: driver 570'
	dir=$out/healthy-2
	gpu healthy-2 60 '' agrees --call 2
	for part in zero3-1024 fsdp2-1024; do
		says "^- $part: done in "
		grep -q '"device": "cuda"' "$dir/$part.json" || wrong "$part did not run with --device cuda"
	done
	says '^\| ZeRO-3 with CPU offload, rows of 1024 .* and .* \[.*–.*\] .*4 rows at once'
	says '^\| FSDP2 with CPU offload, rows of 1024 .* and .* \[.*–.*\] .*4 rows at once'
}

hang() {
	gpu hang 150 hang:rmsnorm agrees --call 1 --only selftest,blocks-2,copy
	says '^- selftest: failed '
	says '^- RMSNorm bf16: RMSNorm/bf16/.* hung after '
	says '^- blocks-2: failed: it was stopped after (1[89]|2[0-9]) s, its limit is 18 s: .*RMSNorm.* by rmsnorm[a-z0-9_]*[ ,].*has not ended after'
	says '^- copy: done in '
}

fault() {
	gpu fault 100 fault:rmsnorm agrees --call 1 --only selftest,blocks-2,copy
	says '^- blocks-2: failed with exit code 1: .*illegal memory access'
	says '^- blocks-2: .*core dump [0-9]+\.cudacore: CUDA Exception: Warp Illegal Address .*PC 0x[0-9a-f]+ .* in rmsnorm[a-z0-9_]*<<<'
	says '^- RMSNorm .*illegal memory access'
	says '^#0 .* in rmsnorm'
	says '^- copy: done in '
}

full() {
	gpu full 60 oom agrees --call 1 --only doctor,selftest,blocks-2,seq1024
	says '^- blocks-2: failed with exit code 1: .*out of device memory.*is another process using it'
	says '^- selftest: failed .*out of device memory'
	says '^- doctor: done in '
	gpu full-small 60 oom:64MiB agrees --call 1 --only blocks-2,seq1024
	says '^- blocks-2: failed with exit code 1: .*out of device memory.* of 64 MiB are in use'
}

peer-hangs() {
	gpu peer-hangs 100 '' hangs --call 2
	says '^- zero3-1024: failed: it was stopped after .* its limit is 18 s: .*DeepSpeed ZeRO-3 with CPU offload'
	says '^- fsdp2-1024: failed: it was stopped after .* its limit is 18 s: .*FSDP2 with CPU offload'
	says '^\| ZeRO-3 with CPU offload, rows of 1024 *\| [0-9].*\| not measured'
	says '^\| FSDP2 with CPU offload, rows of 1024 *\| [0-9].*\| not measured'
}

peer-disagrees() {
	gpu peer-disagrees 60 '' disagrees --call 2 --only zero3-1024
	says '^- zero3-1024: failed with exit code 1: .*step 3: the loss is 5\.54.* in mt and 5\.64023 in DeepSpeed ZeRO-3'
	says '^\| ZeRO-3 with CPU offload, rows of 1024, ended early *\| [0-9]'
}

missing() {
	gpu missing-cublasLt 60 missing:cublasLt agrees --call 1 --only doctor,blocks-2
	says '^- blocks-2: done in '
	says '^- no cuBLASLt: matrix products run on mt.s own kernels.*\(blocks-2\)'
	gpu missing-nvml 60 missing:nvml agrees --call 1 --only doctor,blocks-2
	says '^NVML \(libnvidia-ml\) does not describe the GPU'
	says '^- blocks-2: done in '
	gpu missing-cudart 60 missing:cudart agrees --call 1 --only doctor,blocks-2
	says '^- blocks-2: failed with exit code 1: .*libcudart\.so: the library is absent'
}

for rehearsal; do
	case " $all " in
	*" $rehearsal "*) "$rehearsal" ;;
	*) echo "rehearse.sh: there is no rehearsal $rehearsal: $all" >&2; exit 2 ;;
	esac
done
if [ "$failed" = yes ]; then
	echo 'rehearse.sh: a report does not name what happened, see WRONG above'
	exit 1
fi
