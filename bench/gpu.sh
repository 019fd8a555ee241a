#!/usr/bin/env bash
# Measures mt on a machine with an NVIDIA GPU, beside PyTorch's FSDP2, DeepSpeed's
# ZeRO-3, MegaTrain and plain PyTorch. The machine needs the mt binary, bash,
# coreutils and a python3 with what the peers need (mt bench train --help); no Go.
#
#     bench/gpu.sh --mt ./mt --out DIR [--minutes 9] [--only PART,PART] [--blocks N] [--gpus N] [--sanitize]
#
# Parts run in order of value. Each may take three times what it should. Before each
# the time left is looked at; what was
# left out is named in the report. A part that fails does not stop the others.
# A part with two sides runs mt and then the peer, from the same weights on the same
# tokens, and fails where their losses differ.
#
#   selftest        mt doctor --selftest --device cuda: correctness, copies, rates
#   seq1024         7B-shaped blocks (Qwen2.5-7B), 128 rows of 1024 tokens a step
#   gpus-2, -4 …    with --gpus N: the same on 2, 4 … N GPUs, in micro-batches of
#                   an eighth of the step. All else runs on one GPU, peers too
#   fsdp2-1024      mt and FSDP2 with CPU offload, the same blocks, batch and steps
#   zero3-1024      mt and ZeRO-3 with CPU offload
#   seq8192         16 rows of 8192
#   fsdp2-8192      mt and FSDP2, the same
#   zero3-8192      mt and ZeRO-3
#   megatrain-1024  mt and MegaTrain's public code
#   fsdp2-again     fsdp2-1024 once more, so that the ratio has a spread
#   zero3-again     zero3-1024 once more
#   torch-1024      mt and plain PyTorch, 2 blocks, which a large GPU holds whole
#   budget-14b      14B-shaped blocks, 16k tokens a step, within 10 GiB of the card
#   budget-32k      7B-shaped blocks, one sequence of 32k tokens, within 10 GiB
#   profile         where the time of a step goes, operation by operation
#   batches         smaller batches: 16, 32, 64 rows of 1024
#   depths          weight slots 2 and 4, one gradient buffer
#   full-7b         all 28 blocks, where 110 GiB of host memory are free
#   sanitize-memcheck, sanitize-racecheck, sanitize-synccheck
#                   with --sanitize, before all else: the self test at small sizes under
#                   compute-sanitizer, which comes with the CUDA toolkit; each for
#                   --sanitize-seconds (300) at most. What it finds is in the report
#
# DIR receives PART.json and PART.log, machine.json, and report.md; PROCESS.cudacore
# where a kernel faulted.
set -uo pipefail
shopt -s inherit_errexit

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mt=./mt out='' minutes=9 only='' blocks='' gpus=1 python=${MT_PYTHON:-python3}
rows=128 rows_long=16 steps=4 budget=10GiB shape=qwen2.5-7b shape_budget=qwen2.5-14b scale=1
sanitize='' sanitize_seconds=300

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

fail() { echo "gpu.sh: $*" >&2; exit 2; }

while [ $# -gt 0 ]; do
	case $1 in
	--mt | --out | --minutes | --only | --blocks | --gpus | --python | --scale)
		[ $# -ge 2 ] || fail "$1 needs a value"
		printf -v "${1#--}" %s "$2"
		shift 2
		;;
	--sanitize) sanitize=yes; shift ;;
	--sanitize-seconds)
		[ $# -ge 2 ] || fail "$1 needs a value"
		sanitize_seconds=$2
		shift 2
		;;
	--help | -h) usage; exit 0 ;;
	*) fail "unknown argument $1 (see --help)" ;;
	esac
done
[ -n "$out" ] || fail "--out DIR says where results go"
case $minutes in '' | *[!0-9]*) fail "--minutes $minutes is no whole number" ;; esac
case $gpus in '' | *[!0-9]* | 0) fail "--gpus $gpus is no number of GPUs" ;; esac
case $sanitize_seconds in '' | *[!0-9]*) fail "--sanitize-seconds $sanitize_seconds is no whole number" ;; esac
mt=$(command -v -- "$mt") || fail "--mt: there is no such program"
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
# --scale small tries the whole script out where no GPU computes, as with an
# emulated one: the figures then mean nothing.
if [ "$scale" = small ]; then
	rows=4 rows_long=2 shape=tiny shape_budget=tiny blocks=${blocks:-2} budget=1GiB steps=2
fi
readonly sanitize sanitize_seconds here mt out minutes only gpus python rows rows_long steps budget shape shape_budget scale

# free_bytes is what the machine has free, or what the container may still take where
# that is less (cgroup version 2, then 1).
free_bytes() {
	local free limit used
	free=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo) # in KiB: mawk prints no integer above 2^31
	free=$((free * 1024))
	for of in /sys/fs/cgroup/memory.max:/sys/fs/cgroup/memory.current \
		/sys/fs/cgroup/memory/memory.limit_in_bytes:/sys/fs/cgroup/memory/memory.usage_in_bytes; do
		limit=$(cat "${of%:*}" 2>/dev/null) && used=$(cat "${of#*:}" 2>/dev/null) || continue
		case $limit in '' | *[!0-9]*) continue ;; esac
		[ ${#limit} -lt 19 ] && [ $((limit - used)) -lt "$free" ] && free=$((limit - used))
	done
	echo $((free > 0 ? free : 0))
}

# A fault in a kernel leaves a small core dump in DIR, which cuda-gdb opens
# (target cudacore FILE) and says kernel and program counter of.
export CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 CUDA_ENABLE_LIGHTWEIGHT_COREDUMP=1 CUDA_COREDUMP_FILE="$out/%p.cudacore"

# A side takes at most 20 bytes a parameter on the host, and they take turns; a
# 7B-shaped block has 233 million, the embedding and the head together 1090. A
# fifth stays free.
if [ -z "$blocks" ]; then
	blocks=$((($(free_bytes) / 10 * 8 / 20 - 1090000000) / 233000000))
	[ "$blocks" -le 12 ] || blocks=12
	[ "$blocks" -ge 1 ] || fail "$(($(free_bytes) >> 30)) GiB of host memory are too few for one block and the vocabulary"
fi
readonly blocks

began=$SECONDS
left() { echo $((minutes * 60 - (SECONDS - began))); }

results=()

# chosen NAME says whether --only leaves that part in.
chosen() { [ -z "$only" ] || [[ ",$only," == *",$1,"* ]]; }

# part NAME SECONDS COMMAND… runs a part that needs about that many seconds and ends
# it after three times as many, so that a hang costs one part; its JSON goes to NAME.json.
part() {
	local name=$1 needs=$2 code=0
	shift 2
	chosen "$name" || return 0
	if [ "$(left)" -lt "$needs" ]; then
		echo "== $name: left out, $(left) s are left and it needs about $needs"
		results+=("$name=left out: $(left) s were left, it needs about $needs")
		return
	fi
	echo "== $name"
	local start=$SECONDS limit=$((3 * needs))
	[ "$(left)" -ge "$limit" ] || limit=$(left)
	timeout --kill-after=15 "$limit" "$@" >"$out/$name.json.part" 2>"$out/$name.log" || code=$?
	if [ "$code" -eq 0 ]; then
		mv "$out/$name.json.part" "$out/$name.json"
		results+=("$name=done in $((SECONDS - start)) s")
	else
		# What a failed self test says is worth keeping.
		# A part may have written its file itself, up to where it was cut off.
		if [ -s "$out/$name.json.part" ]; then mv "$out/$name.json.part" "$out/$name.json"; else rm -f "$out/$name.json.part"; fi
		case $code in
		124 | 137) results+=("$name=failed: it was stopped after $((SECONDS - start)) s, its limit is $limit s: $(tail -n 1 "$out/$name.log")") ;;
		*) results+=("$name=failed with exit code $code: $(tail -n 1 "$out/$name.log")") ;;
		esac
	fi
	echo "== ${results[-1]}"
}

# A run does one step to warm up, then one that does not count, those that do, and
# one after them: in the middle of a run the pipeline is as it is in training.
device=cuda
train() { # SHAPE BLOCKS ROWS SEQ FLAGS…
	local of=$1 n=$2 r=$3 seq=$4
	shift 4
	echo "$mt bench train --device $device --dtype bf16 --shape $of --blocks $n --rows $r --seq-len $seq --warmup 1 --rounds 1 --steps $steps --json $*"
}

# beside NAME SECONDS PEER MODULES BLOCKS ROWS SEQ is a part with two sides. A GPU
# that is emulated computes nothing in PyTorch: both sides then are on the CPU.
beside() {
	local name=$1 needs=$2 peer=$3 modules=$4
	if ! "$python" -c "import sys, importlib.util as u; sys.exit(not all(u.find_spec(m) for m in sys.argv[1].split(',')))" "$modules" 2>/dev/null; then
		if chosen "$name"; then
			results+=("$name=left out: $python has not all of $modules (mt bench train --peer $peer says how to install it)")
		fi
		return
	fi
	[ "$scale" = small ] && local device=cpu
	# shellcheck disable=SC2046
	MT_PYTHON=$python part "$name" "$needs" $(train $shape "$5" "$6" "$7" --peer "$peer")
}

short=1024 long=8192 longest=32768
if [ "$scale" = small ]; then short=64 long=128 longest=256; fi

{
	printf '{"date": "%s", "blocks": %d, "host_memory_available": %d, "cores": %d, "scale": "%s",\n' \
		"$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$blocks" "$(free_bytes)" "$(nproc)" "$scale"
	printf '"processor": "%s", "mt": "%s", "gpu": "%s"}\n' \
		"$(awk -F': *' '/^model name/ {print $2; exit}' /proc/cpuinfo)" "$("$mt" version | head -n 1)" \
		"$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | head -n 1)"
} >"$out/machine.json"

# sanitized TOOL is the self test under a tool of compute-sanitizer, whose findings go to
# sanitize-TOOL.txt. One that is stopped by its limit is no failure.
sanitized() {
	local name=sanitize-$1 code=0 limit=$sanitize_seconds start=$SECONDS
	chosen "$name" || return 0
	if [ -z "$sanitizer" ]; then
		results+=("$name=left out: compute-sanitizer is not installed, neither in PATH nor in /usr/local/cuda/bin; it comes with the CUDA toolkit")
		return
	fi
	[ "$(left)" -ge "$limit" ] || limit=$(left)
	if [ "$limit" -le 0 ]; then
		results+=("$name=left out: no time is left")
		return
	fi
	echo "== $name"
	timeout --kill-after=15 "$limit" "$sanitizer" --tool "$1" --error-exitcode 9 --log-file "$out/$name.txt" \
		"$mt" doctor --selftest --small --device cuda --json >"$out/$name.json" 2>"$out/$name.log" || code=$?
	case $code in
	0) results+=("$name=done in $((SECONDS - start)) s, nothing found") ;;
	9) results+=("$name=failed: compute-sanitizer has findings, see $name.txt") ;;
	124 | 137) results+=("$name=stopped after its $limit s") ;;
	*) results+=("$name=failed with exit code $code: $(tail -n 1 "$out/$name.log")") ;;
	esac
	echo "== ${results[-1]}"
}
sanitizer=$(command -v compute-sanitizer || command -v /usr/local/cuda/bin/compute-sanitizer)
if [ -n "$sanitize" ]; then
	for tool in memcheck racecheck synccheck; do sanitized $tool; done
fi

# Words are split on purpose: commands are made of words without spaces.
# shellcheck disable=SC2046
{
	part selftest 60 "$mt" doctor --selftest --device cuda --json --report "$out/selftest.json"
	part seq1024 70 $(train $shape "$blocks" "$rows" $short)
	for ((n = 2; n <= gpus; n = n * 2 > gpus && n < gpus ? gpus : n * 2)); do
		part "gpus-$n" 70 $(train $shape "$blocks" "$rows" $short --devices "$n" --micro-batch-tokens $((rows * short / 8)))
	done
	beside fsdp2-1024 200 fsdp2 torch "$blocks" "$rows" $short
	beside zero3-1024 200 zero3 torch,deepspeed "$blocks" "$rows" $short
	part seq8192 70 $(train $shape "$blocks" "$rows_long" $long)
	beside fsdp2-8192 200 fsdp2 torch "$blocks" "$rows_long" $long
	beside zero3-8192 200 zero3 torch,deepspeed "$blocks" "$rows_long" $long
	if [ "$scale" != small ]; then
		beside megatrain-1024 200 megatrain torch,transformers,deepspeed,infinity "$blocks" "$rows" $short
	fi
	beside fsdp2-again 200 fsdp2 torch "$blocks" "$rows" $short
	beside zero3-again 200 zero3 torch,deepspeed "$blocks" "$rows" $short
	beside torch-1024 120 torch torch,transformers 2 "$rows" $short
	part budget-14b 50 $(train $shape_budget $((blocks < 4 ? blocks : 4)) "$([ "$scale" = small ] && echo 2 || echo 16)" $short --device-memory $budget)
	part budget-32k 50 $(train $shape $((blocks < 4 ? blocks : 4)) 1 $longest --device-memory $budget)
	part profile 50 $(train $shape "$blocks" "$rows" $short --profile)
	for n in 16 32 64; do
		part "batch-$n" 40 $(train $shape "$blocks" "$([ "$scale" = small ] && echo 2 || echo "$n")" $short)
	done
	part depth-slots2 40 $(train $shape "$blocks" "$rows" $short --weight-slots 2)
	part depth-slots4 40 $(train $shape "$blocks" "$rows" $short --weight-slots 4)
	part depth-grad1 40 $(train $shape "$blocks" "$rows" $short --grad-buffers 1)
	if [ "$(free_bytes)" -ge $((110 << 30)) ] || [ "$scale" = small ]; then
		part full-7b 150 $(train $shape "$([ "$scale" = small ] && echo 3 || echo 28)" "$rows" $short)
	else
		results+=("full-7b=left out: $(($(free_bytes) >> 30)) GiB of host memory are free, it needs 110")
	fi
}

"$python" "$here/peers/gpu_report.py" "$out" "${results[@]}" >"$out/report.md" || fail "the report could not be written; the JSON files are in $out"
echo "== $out/report.md, after $((SECONDS - began)) s"
for r in "${results[@]}"; do
	case $r in *=failed*) exit 1 ;; esac
done
