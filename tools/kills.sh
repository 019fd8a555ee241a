#!/usr/bin/env bash
# Kills runs (-9) at random calls while they train, save and resume. It compares the results with an
# undisturbed run, in memory and with state on disk. See TestRandomKills in cmd/mt. A thousand kills
# take some minutes.
#
#     tools/kills.sh [COUNT [SEED]]
#
# The same SEED draws the same kills; without SEED each run draws others. Needs gcc and ptrace.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec go test ./cmd/mt -count=1 -timeout 3h -v -run '^TestRandomKills$' -args -kills "${1:-1000}" -fault-seed "${2:-0}"
