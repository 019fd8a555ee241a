// Command dist makes what people install mt from: for linux on amd64 and arm64 a binary in an archive and in a
// Python wheel, the list of what is linked into it (CycloneDX), and the checksums of all of them.
//
//	go run ./tools/dist [-out out/dist] [-arch amd64,arm64] [-check=false]
//	go run ./tools/dist -gpu-kit [-offline] [-out out/kit] [-check=false]
//
// With -gpu-kit it makes instead one archive with all that bench/gpu.sh needs on a machine with a GPU, PyTorch and no
// network. Packages of Python come from PyPI, or the index in PIP_INDEX_URL, as kit/packages.txt pins them.
//
// It needs Go and a git clone, and publishes nothing; docs/releasing.md says what comes next. It may import the
// helpers in internal. Invariant: the same commit and the same Go make the same bytes, in whatever folder and whenever.
package main
