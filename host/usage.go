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

// Used is how many bytes of host memory arenas hold, and held at most.
type Used struct {
	Now, Peak        [NumPurposes]int64 // by purpose
	Total, PeakTotal int64              // PeakTotal is the largest Total has been
}

var usage struct {
	sync.Mutex
	Used
}

// Usage is what the arenas of this process hold, in bytes.
func Usage() Used {
	usage.Lock()
	defer usage.Unlock()
	return usage.Used
}

// count adds bytes, which may be negative, to what is held for p.
func count(p Purpose, bytes int64) {
	usage.Lock()
	defer usage.Unlock()
	usage.Now[p] += bytes
	usage.Total += bytes
	usage.Peak[p] = max(usage.Peak[p], usage.Now[p])
	usage.PeakTotal = max(usage.PeakTotal, usage.Total)
}
