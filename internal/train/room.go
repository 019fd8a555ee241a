package train

import (
	"fmt"

	"mt/host"
)

// room is how much host memory is available.
func (j *Inputs) room() host.Room {
	room := host.AvailableMemory()
	if f := j.hooks.room; f != nil {
		room = f()
	}
	if _, n := j.team.neighbours(); n > 1 {
		room.Bytes, room.By = room.Bytes/int64(n), fmt.Sprintf("%s, shared by %d ranks", room.By, n)
	}
	return room
}

// onePart is the part of the available memory that a run may take where host and device share one memory, in percent.
// The system counts copies of files as available, and drops them when a process touches its memory. A GPU's driver takes
// memory from inside the kernel, which then has less time to drop them. The rest is for that, and for the desktop that
// such machines often show.
const onePart = 90

// budgetOf returns what a run may take of room.
func budgetOf(integrated bool, room host.Room) host.Room {
	if integrated && room.Known {
		room.Bytes, room.By = room.Bytes/100*onePart, fmt.Sprintf("%d %% of what is available, for host and GPU together: %s", onePart, room.By)
	}
	return room
}
