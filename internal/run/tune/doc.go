// Package tune finds the pipeline depths with which a configuration trains fastest on this machine. It searches in
// virtual time and proposes several plans. Short real runs eliminate the slower ones, and the winner is compared with
// the start: the plan of the configuration as it is.
//
// It imports internal/doctor and that package's imports. Invariant: tune proposes a change only if it was faster than
// the start in paired runs.
package tune
