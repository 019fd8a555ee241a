package actors

// runAhead is how many visits are enqueued at most before the device has done the first of them. One
// is at work and the next one waits, so the device never does. More would fill the driver's queue of launches
// (1,024 of a stream), and a thread that enqueues one more is then held inside the driver.
const runAhead = 2

// passVisit is the work of waiting until the device is done with a visit.
type passVisit struct{}
