#!/usr/bin/env bash
# Makes the Python environment env/ beside this file, without a network. The environment uses the
# machine's python3 with PyTorch, and adds DeepSpeed and its dependencies from packages/.
#
#     ./install.sh [PYTHON]
#
# A second run makes the environment again.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here python=${1:-python3}
command -v "$python" >/dev/null || { echo "install.sh: there is no program $python: name a Python that has PyTorch" >&2; exit 1; }
(cd "$here/packages" && sha256sum --quiet -c SHA256SUMS)

# The machine's Python may itself be an environment, whose packages --system-site-packages would not
# show. A .pth file therefore names the folder of torch.
torch=$("$python" -c 'import importlib.util as u, os; print(os.path.dirname(os.path.dirname(u.find_spec("torch").origin)))' 2>/dev/null) ||
	{ echo "install.sh: $python has no torch: name a Python that has PyTorch, as in ./install.sh /opt/conda/bin/python3" >&2; exit 1; }
rm -rf "$here/env"
"$python" -m venv --without-pip --system-site-packages "$here/env" # a Python may have no pip
env=$here/env/bin/python3
echo "$torch" >"$("$env" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/machine.pth"

pip() { PYTHONPATH=$(echo "$here"/packages/pip-*.whl) "$env" -m pip install --quiet --disable-pip-version-check --no-index --find-links "$here/packages" "$@"; }
# DeepSpeed's setup.py needs torch, so DeepSpeed is built in this environment. Nothing is compiled
# ahead of time.
pip setuptools wheel packaging
DS_BUILD_OPS=0 pip --no-build-isolation deepspeed
"$env" -c 'from importlib.metadata import version as v; print("PyTorch", v("torch") + ", DeepSpeed", v("deepspeed"))'
