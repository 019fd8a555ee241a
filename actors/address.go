package actors

import "fmt"

// role is what an actor does.
type role uint8

// The roles. Every lane has a Prefetcher, a Compute and an Offloader; the others exist
// once, Exchanger and Gatherer only where several ranks train together, the Stager only where the state of
// layers is on disks.
const (
	conductorRole role = iota
	feederRole
	prefetcherRole
	computeRole
	offloaderRole
	optimizerRole
	checkpointerRole
	reporterRole
	exchangerRole
	gathererRole
	stagerRole
	numRoles
)

func (r role) String() string {
	return [...]string{"conductor", "feeder", "prefetcher", "compute", "offloader", "optimizer", "checkpointer", "reporter", "exchanger", "gatherer", "stager"}[r]
}

// address names one actor of a run.
type address struct {
	role role
	lane laneID // 0 for those that exist once
}

// String is such as "conductor"; "compute" in the first lane, "compute 1" in the second.
func (a address) String() string {
	if a.lane == 0 {
		return a.role.String()
	}
	return fmt.Sprintf("%s %d", a.role, a.lane)
}

// The addresses of the actors that exist once.
var (
	conductorID    = address{role: conductorRole}
	feederID       = address{role: feederRole}
	optimizerID    = address{role: optimizerRole}
	checkpointerID = address{role: checkpointerRole}
	reporterID     = address{role: reporterRole}
	exchangerID    = address{role: exchangerRole}
	gathererID     = address{role: gathererRole}
	stagerID       = address{role: stagerRole}
)

// laneID is the number of a lane, from 0 on.
type laneID int

func (l laneID) prefetcher() address { return address{role: prefetcherRole, lane: l} }
func (l laneID) compute() address    { return address{role: computeRole, lane: l} }
func (l laneID) offloader() address  { return address{role: offloaderRole, lane: l} }
