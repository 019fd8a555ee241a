#!/usr/bin/env bash
# Kills (-9) one of two ranks at random moments while they train, save and resume. It compares the
# results with an undisturbed run. See TestRankKills in cmd/mt. A hundred kills take some minutes.
#
#     tools/rankkills.sh [COUNT [SEED]]
#
# Another SEED draws other kills. Needs mpirun.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec go test ./cmd/mt -count=1 -timeout 3h -v -run '^TestRankKills$' -args -rank-kills "${1:-100}" -fault-seed "${2:-1}"
