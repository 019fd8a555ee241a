// Package powercut is a disk whose power can be cut, for tests: a checkpoint.FS
// that works on real files, knows what was put on disk, and writes down what
// would be left of the rest.
//
// It imports checkpoint. Invariant: a file's content survives as it was when the
// file was last synced, and a name as it was when its directory was; what else a
// file system may have kept is one of the Losses.
package powercut
