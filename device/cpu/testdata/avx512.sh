#!/usr/bin/env bash
# Runs the tests of packages with AVX-512 assembly on an emulated Skylake-X, for processors without AVX-512:
#
#     device/cpu/testdata/avx512.sh
#
# Bochs, which emulates a whole machine, starts Debian's kernel with the test binaries and no disk. It has no
# AVX512_BF16, and takes about ten minutes. The script needs Go and these Debian packages: bochs, bochsbios, vgabios,
# busybox-static, cpio, grub-common, grub-pc-bin, mtools, xorriso. It fetches a kernel with apt-get. If that fails, the
# exit status is 3; other failures have other statuses.
set -euo pipefail

# What runs: a package, and flags of its tests. Bochs before 2.8 reads all bytes of a widening load under a mask, so it
# faults where a processor does not.
readonly TESTS=(
	'device/cpu/vec'
	'device/cpu/gemm -test.skip ^TestNothingBehindIsRead$'
	'host/optim -test.short'
)
readonly MOST_SECONDS=1200

[ $# -eq 0 ] || { echo "usage: $0" >&2; exit 2; }
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
scratch=$(mktemp -d)
readonly scratch
trap 'rm -rf "$scratch"' EXIT

# kernel puts Debian's smallest kernel at $scratch/cd/boot/kernel.
kernel() {
	local package
	package=$(apt-cache depends linux-image-cloud-amd64 | awk '$1 == "Depends:" && $2 ~ /^linux-image/ { print $2; exit }')
	[ -n "$package" ] || { echo "apt knows no linux-image-cloud-amd64: apt-get update" >&2; return 1; }
	(cd "$scratch" && apt-get download -q "$package" && dpkg-deb -x ./*.deb image) || return 1
	mkdir -p "$scratch/cd/boot/grub"
	cp "$scratch"/image/boot/vmlinuz-* "$scratch/cd/boot/kernel"
}

# root makes the file system in memory: the test binaries, and an init that runs them one after another.
root() {
	local test root=$scratch/root package flags
	mkdir -p "$root"/{bin,dev,proc,sys,tmp}
	cp "$(command -v busybox)" "$root/bin/busybox"
	{
		echo '#!/bin/busybox sh'
		echo '/bin/busybox mount -t proc proc /proc; /bin/busybox mount -t devtmpfs dev /dev; /bin/busybox mount -t tmpfs tmp /tmp'
		echo 'export HOME=/tmp; cd /tmp; /bin/busybox grep -m1 -o avx512vl /proc/cpuinfo || /bin/busybox poweroff -f'
		for test in "${TESTS[@]}"; do
			read -r package flags <<<"$test"
			CGO_ENABLED=0 go test -c -o "$root/bin/${package//\//.}" "./$package" >&2
			echo "echo; echo '-- $test'; if /bin/${package//\//.} $flags; then echo '-- passed'; else echo '-- failed'; fi"
		done
		echo "echo '-- end'; /bin/busybox sleep 5; /bin/busybox poweroff -f"
	} >"$root/init"
	chmod a+x "$root/init"
	(cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$scratch/cd/boot/root"
}

# The kernel takes the offsets of Bochs's compact XSAVE areas for wrong and would leave AVX out. Without XSAVES (bit 323)
# and XSAVEC (321) it uses the standard ones.
machine() {
	cat >"$scratch/cd/boot/grub/grub.cfg" <<-'END'
		set timeout=0
		menuentry tests {
			linux /boot/kernel console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check clearcpuid=323,321
			initrd /boot/root
		}
	END
	grub-mkrescue -o "$scratch/cd.iso" "$scratch/cd" >"$scratch/grub.log" 2>&1 || { cat "$scratch/grub.log" >&2; return 1; }
	cat >"$scratch/bochsrc" <<-END
		cpu: model=corei7_skylake_x, count=1, ips=100000000, reset_on_triple_fault=0
		memory: guest=1024, host=1024
		romimage: file=/usr/share/bochs/BIOS-bochs-latest
		vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
		ata0-master: type=cdrom, path=$scratch/cd.iso, status=inserted
		boot: cdrom
		com1: enabled=1, mode=file, dev=$scratch/serial
		display_library: rfb, options="timeout=0"
		log: $scratch/bochs.log
		panic: action=fatal
		clock: sync=none
	END
	echo c >"$scratch/start" # continue: Debian's Bochs begins in its debugger
}

kernel || exit 3
root
machine
: >"$scratch/serial"
timeout "$MOST_SECONDS" bochs -q -f "$scratch/bochsrc" -rc "$scratch/start" >"$scratch/bochs.out" 2>&1 </dev/null || :
tr -d '\r' <"$scratch/serial" | sed -n '/^avx512vl$/,$p'
passed=$(grep -c -- '^-- passed' "$scratch/serial") || :
if [ "$passed" -ne ${#TESTS[@]} ]; then
	tail -n 20 "$scratch/bochs.out" "$scratch/bochs.log" >&2
	echo "$passed of ${#TESTS[@]} packages passed with AVX-512" >&2
	exit 1
fi
