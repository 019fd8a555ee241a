#!/usr/bin/env bash
# Tries every fault of every file system call in three small runs, and of state on disk. Each call
# fails with EIO, meets a full disk, is cut short, or has the program killed before, during and
# after it. See TestDiskFaults in cmd/mt. It takes some minutes to half an hour.
#
#     tools/faults.sh [COUNT]
#
# COUNT is the number of faults to try, drawn at random; without COUNT all are tried. Needs gcc and
# ptrace.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec go test ./cmd/mt -count=1 -timeout 3h -v -run '^Test(Disk|State)Faults$' -args -faults "${1:-0}"
