// Package tune finds the pipeline depths with which a configuration trains fastest on this machine. It searches in
// virtual time, lets short real runs decide between the proposals, and compares the winner with the configuration's
// own depths.
//
// It imports internal/doctor and that package's imports. Invariant: a proposal was faster than the start in paired
// runs; otherwise there is no proposal.
package tune
