// Package recordings says where the runs lie that were recorded with PyTorch and
// Transformers, which tests compare with. They lie beside the repository, as two folders of
// cases (a make.py among them says how they were made), and may be absent; small ones of the same
// kind lie in the repository, in internal/run/testdata/recordings.
//
// It may import the standard library only, and only tests import it.
//
// Invariant: where a recording is absent, the test that asks for it is skipped and says so.
package recordings
