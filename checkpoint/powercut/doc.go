// Package powercut simulates a disk whose power can be cut, for tests. It is a checkpoint.FS over real files. It
// records what was synced, and writes down what a power cut would leave.
//
// It imports checkpoint. Invariant: after a power cut, a file has the content of its last sync, and a directory the
// names of its own last sync. Each Loss describes which of the unsynced names a file system may have kept.
package powercut
