#!/usr/bin/env bash
# Puts older versions of NVIDIA's ptxas into a folder, for device/cuda/kernels/check.sh:
#
#     assemblers.sh DIR
#
# Afterwards DIR/VERSION/ptxas is there for each version, which is that of the drivers that
# compile by it. Run again, it fetches only what is missing. The packages come from PyPI, some
# 25 MB each. It needs python3 with pip or venv, and no GPU. Where pip fails it ends with 3, any
# other failure with another status.
set -euo pipefail

# The newest ptxas is in toolkit.sh.
readonly PACKAGES=(
	nvidia-cuda-nvcc-cu12==12.0.140
	nvidia-cuda-nvcc-cu12==12.2.140
	nvidia-cuda-nvcc-cu12==12.4.131
	nvidia-cuda-nvcc-cu12==12.8.93
	nvidia-cuda-nvcc==13.0.88
)

[ $# -eq 1 ] || { echo "usage: $0 DIR" >&2; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
readonly dir
scratch=$(mktemp -d "$dir/.scratch.XXXXXX")
readonly scratch
trap 'rm -rf "$scratch"' EXIT

python=
for package in "${PACKAGES[@]}"; do
	version=$(sed 's/.*==\([0-9]*\.[0-9]*\)\..*/\1/' <<<"$package")
	[ ! -x "$dir/$version/ptxas" ] || continue
	if [ -z "$python" ]; then
		python=python3
		if ! python3 -m pip --version >/dev/null 2>&1; then
			python3 -m venv "$scratch/venv"
			python=$scratch/venv/bin/python3
		fi
	fi
	"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
		--dest "$scratch/$version" "$package" || exit 3
	python3 -m zipfile -e "$scratch/$version"/*.whl "$scratch/$version/all"
	mkdir -p "$dir/$version"
	chmod a+x "$scratch/$version"/all/nvidia/*/bin/ptxas
	mv "$scratch/$version"/all/nvidia/*/bin/ptxas "$dir/$version/ptxas"
	rm -rf "${scratch:?}/$version"
done
