// Package checkup looks at the parts of a machine that a run's speed hangs on, and says of each
// whether it is ok, slow or broken, and what to do about it.
//
// It imports host, internal/machine and the helpers of internal. What it looks at (the file system
// with /proc and /sys, what CUDA and NVML say, how fast memory and disk are) is given to it, so that
// tests give it machines that nobody has. Invariant: a part that is not ok has a remedy.
package checkup
