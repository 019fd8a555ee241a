#!/usr/bin/env bash
# Every fault of every system call on files of three small runs, and on states that are on a disk: fails each with
# EIO, fills the disk at each write, cuts each short, and kills before, amid and
# after each change; see TestDiskFaults in cmd/mt. Some minutes to half an hour.
#
#     tools/faults.sh [COUNT]
#
# COUNT is how many faults to try, drawn at random; without it all are tried. Needs
# gcc and ptrace.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec go test ./cmd/mt -count=1 -timeout 3h -v -run '^Test(Disk|State)Faults$' -args -faults "${1:-0}"
