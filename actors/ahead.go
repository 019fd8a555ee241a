package actors

import "mt/schedule"

// This file bounds how far Compute is ahead of the device. The driver has room for some 1,024
// operations of a stream; a thread that enqueues one more waits inside the driver, and with it whoever
// needs the driver's locks. So each launch that is enqueued and not done is a credit of Compute's.
//
// A launch that lacks this credit alone is not late: the device has others to work on. So it
// is the cause of no stall (computeCore.ready).

// How much may be enqueued and not be done: so many launches, and of those that go over a micro-batch so many tokens,
// or else one launch. A launch of a block has about 80 operations in its backward, of an expert 11; over a long
// micro-batch it has one group of them for every 16,384 tokens or so.
const (
	launchesAhead = 8
	tokensAhead   = 8 * 16384
)

// runAhead has the tokens of each launch that is enqueued and that the device has not done, in order.
type runAhead []int

// tokensOf is how many tokens count for a launch of p. An expert has a few large operations, whatever its tokens.
func tokensOf(p *Pass, l schedule.Launch) int {
	if p.Visits[l.Visit].Stage == schedule.Expert {
		return 0
	}
	return p.Batch.MicroBatches[l.MicroBatch].Tokens
}

// room says whether a launch of so many tokens may be enqueued.
func (a runAhead) room(tokens int) bool {
	for _, n := range a {
		tokens += n
	}
	return len(a) == 0 || len(a) < launchesAhead && tokens <= tokensAhead
}
