#!/usr/bin/env bash
# Makes a Python environment with the programs that mt is compared with, from
# PyPI, in a folder:
#
#     tools/python.sh DIR
#
# Afterwards MT_PYTHON=DIR/bin/python3 lets `go test` run the comparisons. Run
# again, it does nothing; where requirements.txt has changed, it starts anew. It
# needs python3 with venv (Debian: python3-venv), 6 GB of disk, most of which are
# CUDA's libraries that PyPI's torch links with, and no GPU. Where pip fails it ends
# with 3, any other failure with another status.
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
