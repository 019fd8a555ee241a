// Package team holds the ranks that train together: they meet, tell each other values, stop and end as
// one. A process that trains alone is a team of one rank.
//
// It imports settings and actors. Invariant: all ranks end with the same error, or one of them has ended
// the run for all.
package team
