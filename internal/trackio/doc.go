// Package trackio writes a run into Trackio's database, which Trackio shows with
// `trackio show`.
//
// It imports board, and the database from modernc.org/sqlite.
//
// Invariant: rows of other runs are never touched, and a table that Trackio made is
// taken as it is.
package trackio
