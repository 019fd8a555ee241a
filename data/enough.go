package data

import "sync/atomic"

// most is how many documents from a data set's start are needed; 0: all. No more are read. Of several
// data sets of pairs all are, since a pair's ID counts the pairs of the data sets before its own.
func (s *Spec) most(set int) int64 {
	if len(s.sets) > 1 && (s.Pairs || s.Format == string(fmtPairs) || s.sets[set].Format == fmtPairs) {
		return 0
	}
	return s.sets[set].Split.upTo(s.MaxSamples)
}

// supply counts what was read of each data set of which not all is needed.
type supply struct {
	spec *Spec
	docs []int64       // documents that the builder has written, by data set
	rows []int64       // rows that the feeder has sent, with the documents of earlier runs
	full []atomic.Bool // the builder has as many documents as are needed
}

// newSupply is the supply of a cache that holds what is in w already, and of which the builder goes
// on in a source of data set number set; -1: there is no such source.
func newSupply(s *Spec, m *manifest, set int) *supply {
	out := &supply{s, make([]int64, len(s.sets)), make([]int64, len(s.sets)), make([]atomic.Bool, len(s.sets))}
	left := m.Docs
	for _, f := range m.Files {
		out.docs[f.Set] += f.Docs
		left -= f.Docs
	}
	if set >= 0 {
		out.docs[set] += left
	}
	copy(out.rows, out.docs)
	for i := range out.docs {
		out.wrote(i, 0)
	}
	return out
}

// wrote counts documents of a data set that the builder has written.
func (s *supply) wrote(set int, n int64) {
	if s.docs[set] += n; s.reached(set) {
		s.full[set].Store(true)
	}
}

// reached reports whether the builder has all documents that are needed of a data set.
func (s *supply) reached(set int) bool {
	most := s.spec.most(set)
	return most > 0 && s.docs[set] >= most
}

// enough reports to the feeder whether it need read no more of a data set. Each row makes a document
// or more, unless bad rows are left out; then the builder has to say.
func (s *supply) enough(set int) bool {
	most := s.spec.most(set)
	return most > 0 && (s.full[set].Load() || !s.spec.SkipBadRows && s.rows[set] >= most)
}
