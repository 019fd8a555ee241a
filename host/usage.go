package host

import (
	"fmt"
	"sync"
)

// Purpose says what host memory is for, so that usage can be shown and planned.
type Purpose uint8

// The purposes that arenas are made for.
const (
	ForWeights   Purpose = iota // tiles: what streams to the device
	ForLoPlanes                 // lower halves of split weights
	ForPlanes                   // what an optimizer keeps beside the weights
	ForGradSlabs                // where gradients land
	NumPurposes
)

var purposeNames = [NumPurposes]string{"weights", "lo planes", "moments", "gradient slabs"}

func (p Purpose) String() string {
	if p < NumPurposes {
		return purposeNames[p]
	}
	return fmt.Sprintf("Purpose(%d)", uint8(p))
}

// Used is how many bytes of host memory arenas hold now, and the most they have
// held.
type Used struct {
	Now, Peak        [NumPurposes]int64 // by purpose
	Total, PeakTotal int64              // PeakTotal is the largest that Total has been
}

var usage struct {
	sync.Mutex
	Used
}

// Usage is the memory that the arenas of this process hold.
func Usage() Used {
	usage.Lock()
	defer usage.Unlock()
	return usage.Used
}

// count adds bytes, which may be negative, to the memory held for p.
func count(p Purpose, bytes int64) {
	usage.Lock()
	defer usage.Unlock()
	usage.Now[p] += bytes
	usage.Total += bytes
	usage.Peak[p] = max(usage.Peak[p], usage.Now[p])
	usage.PeakTotal = max(usage.PeakTotal, usage.Total)
}
