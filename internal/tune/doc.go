// Package tune finds the depths of the pipeline with which a configuration trains fastest on
// this machine: it searches in virtual time, lets short real runs decide between what the search
// proposes, and holds the winner against what the configuration had.
//
// It imports internal/doctor and what that may. Invariant: what it proposes
// was faster than the start in a paired run; else it proposes nothing.
package tune
