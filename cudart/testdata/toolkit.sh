#!/usr/bin/env bash
# Puts the parts of NVIDIA's CUDA toolkit that checks need into a folder:
#
#     toolkit.sh DIR
#
# Afterwards DIR/nvidia/cu13 has include (headers), lib (libcudart, libcublasLt)
# and bin (ptxas, nvdisasm). Run again, it does nothing. The packages come from PyPI, 450 MB
# most of which is cuBLAS. It needs python3 with pip or venv (Debian: python3-pip
# or python3-venv), and no GPU. Where pip fails it ends with 3, any other failure with
# another status. The tests of package cudart read
#
#     MT_CUDA_HEADERS=DIR/nvidia/cu13/include
#     MT_CUDA_LIBS_TEST=DIR/nvidia/cu13/lib
set -euo pipefail

# Headers of the runtime include some of crt and of cccl.
readonly PACKAGES=(
	nvidia-cuda-runtime==13.5.37
	nvidia-cublas==13.10.0.20
	nvidia-cuda-nvcc==13.5.37
	nvidia-cuda-nvdisasm==13.5.37
	nvidia-cuda-crt==13.5.37
	nvidia-cuda-cccl==13.3.5.0.6
	nvidia-nvml-dev==13.4.92
)

[ $# -eq 1 ] || { echo "usage: $0 DIR" >&2; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
readonly dir
readonly stamp=$dir/toolkit.txt
wanted=$(printf '%s\n' "${PACKAGES[@]}")
readonly wanted
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
	exit 0
fi

scratch=$(mktemp -d "$dir/scratch.XXXXXX")
readonly scratch
trap 'rm -rf "$scratch"' EXIT

python=python3
if ! python3 -m pip --version >/dev/null 2>&1; then
	python3 -m venv "$scratch/venv"
	python=$scratch/venv/bin/python3
fi
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
	--dest "$scratch/wheels" "${PACKAGES[@]}" || exit 3

rm -rf "$dir/nvidia" "$stamp"
for wheel in "$scratch"/wheels/*.whl; do
	python3 -m zipfile -e "$wheel" "$scratch/all"
	rm "$wheel"
done
chmod -R a+x "$scratch/all/nvidia/cu13/bin"
mv "$scratch/all/nvidia" "$dir/nvidia"
printf '%s\n' "$wanted" >"$stamp"
