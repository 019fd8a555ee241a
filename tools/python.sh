#!/usr/bin/env bash
# Makes a Python environment in a folder, with the programs from PyPI that mt is compared with:
#
#     tools/python.sh DIR
#
# Afterwards MT_PYTHON=DIR/bin/python3 lets `go test` run the comparisons. A second run does
# nothing, unless requirements.txt has changed; then it starts over. The script needs python3 with
# venv (Debian: python3-venv) and 6 GB of disk, mostly for the CUDA libraries that PyPI's torch
# links. It needs no GPU. If pip fails, the exit status is 3; other failures have other statuses.
set -euo pipefail

[ $# -eq 1 ] || { echo "usage: $0 DIR" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here dir=$1
readonly stamp=$dir/requirements.txt
if cmp -s "$here/requirements.txt" "$stamp" && "$dir/bin/python3" -c '' 2>/dev/null; then
	exit 0
fi
rm -rf "$dir"
python3 -m venv "$dir"
"$dir/bin/python3" -m pip install --quiet --disable-pip-version-check --no-compile --only-binary :all: -r "$here/requirements.txt" || exit 3
cp "$here/requirements.txt" "$stamp"
