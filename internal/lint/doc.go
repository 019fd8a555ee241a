// Package lint holds the rules of the repository that the compiler does not check. Its tests apply the rules to this
// source tree:
//
//   - which package may import which, and that each permission is used
//   - that a training run does not depend on tools around it: no package of a run imports bench or internal/doctor,
//     for example
//   - where unsafe and protoactor may appear
//   - how long a function may be
//   - that every package has a doc.go
//   - that no note postpones work
//   - that docs/decisions/README.md lists every decision
//   - that every relative link of a page leads somewhere
//   - how many sentences of comments and pages are hard to read
//
// It may import the standard library only; nothing imports it.
//
// Invariant: the rules are data (Arrows, Limits) and the checks are pure functions, so tests apply each rule to trees
// that break it.
package lint
