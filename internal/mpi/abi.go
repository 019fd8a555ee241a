package mpi

import (
	"fmt"
	"path/filepath"
	"strings"
)

// ABI says what the handles and constants of a library are.
type ABI string

// The ABIs. That of MPI-5 is served by several implementations, that of MPICH also by
// Intel's, Cray's and MVAPICH's.
const (
	Standard ABI = "MPI-5"
	MPICH    ABI = "MPICH"
	OpenMPI  ABI = "Open MPI"
)

// constants are the values that a library's mpi.h gives to names of the standard.
// Handles are those that the functions take.
type constants struct {
	funneled, serialized uintptr // levels of threads, in increasing order
	world                uintptr // MPI_COMM_WORLD
	byte                 uintptr // MPI_BYTE
	errorsReturn         uintptr // MPI_ERRORS_RETURN
	infoNull             uintptr // MPI_INFO_NULL
	inPlace              uintptr // MPI_IN_PLACE
	statusIgnore         uintptr // MPI_STATUS_IGNORE
	shared               uintptr // MPI_COMM_TYPE_SHARED
}

// constantsOf are the constants of an ABI. symbol is the address of an object in the
// library, 0 where it has none. Sources: mpi_abi.h and mpi.h of MPICH 5.0, mpi.h of
// Open MPI 5.0; those of MPICH 4.0 and Open MPI 4.1 agree.
func constantsOf(abi ABI, symbol func(name string) uintptr) (constants, error) {
	switch abi {
	case Standard:
		return constants{funneled: 1024, serialized: 2048, world: 0x101, byte: 0x247, errorsReturn: 0x143, infoNull: 0x130,
			inPlace: 1, shared: 221}, nil
	case MPICH:
		return constants{funneled: 1, serialized: 2, world: 0x44000000, byte: 0x4c00010d, errorsReturn: 0x54000001, infoNull: 0x1c000000,
			inPlace: ^uintptr(0), statusIgnore: 1, shared: 1}, nil
	}
	c := constants{funneled: 1, serialized: 2, inPlace: 1}
	for name, to := range map[string]*uintptr{"ompi_mpi_comm_world": &c.world, "ompi_mpi_byte": &c.byte,
		"ompi_mpi_errors_return": &c.errorsReturn, "ompi_mpi_info_null": &c.infoNull} {
		if *to = symbol(name); *to == 0 {
			return constants{}, fmt.Errorf("it lacks %s", name)
		}
	}
	return c, nil
}

// abiOf is the ABI of the library in a file. The file's name counts first, because an
// implementation may have the objects of its own ABI below the standard one. Drafts of the
// standard, which had other constants (MPICH 4.3 has one), had that name too.
func abiOf(file string, symbol func(name string) uintptr) (ABI, error) {
	standard := symbol("MPI_Abi_get_version") != 0
	switch {
	case strings.HasPrefix(filepath.Base(file), "libmpi_abi.") && !standard:
		return "", fmt.Errorf("its ABI is a draft of MPI-5's: it lacks MPI_Abi_get_version")
	case strings.HasPrefix(filepath.Base(file), "libmpi_abi."):
		return Standard, nil
	case symbol("ompi_mpi_comm_world") != 0:
		return OpenMPI, nil
	case symbol("MPIR_Dup_fn") != 0: // MPI_DUP_FN of MPICH's mpi.h
		return MPICH, nil
	case standard:
		return Standard, nil
	}
	return "", fmt.Errorf("it has none of the ABIs that mt knows (MPI-5, MPICH, Open MPI)")
}

// versionOf is a library's name and version as people write them, made of what
// MPI_Get_library_version says: "MPICH 4.0.2" of "MPICH Version:      4.0.2\n…",
// "Open MPI 4.1.4" of "Open MPI v4.1.4, package: …".
func versionOf(said string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
	line, _, _ = strings.Cut(line, ",")
	words := strings.Fields(strings.Replace(line, "Version:", "", 1))
	for i, w := range words {
		if len(w) > 1 && w[0] == 'v' && w[1] >= '0' && w[1] <= '9' {
			words[i] = w[1:]
		}
	}
	return strings.Join(words, " ")
}

// familyOf is whose launcher a library needs. What has Open MPI's ABI descends from it and
// may have another name, as Spectrum MPI does; of the standard ABI the name tells.
func familyOf(abi ABI, version string) Family {
	if abi == OpenMPI || strings.HasPrefix(version, "Open MPI") {
		return OfOpenMPI
	}
	return OfMPICH
}
