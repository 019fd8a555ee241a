package cudart

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"mt/internal/testkit"
)

// headersVariable is an environment variable with a colon-separated list of folders with NVIDIA's headers.
const headersVariable = "MT_CUDA_HEADERS"

// constant is a value of this package, and its name in NVIDIA's header, with which tests compare
// it.
type constant struct {
	name  string
	value uint64
}

// constants are all values that this package passes to the libraries or reads from them, by header.
var constants = map[string][]constant{
	"driver_types.h": {
		{"cudaErrorInvalidValue", errorInvalidValue}, {"cudaErrorMemoryAllocation", errorMemoryAllocation}, {"cudaErrorStubLibrary", errorStubLibrary},
		{"cudaErrorInsufficientDriver", errorInsufficientDriver}, {"cudaErrorNoDevice", errorNoDevice},
		{"cudaErrorNoKernelImageForDevice", errorNoKernelImageForDevice}, {"cudaErrorECCUncorrectable", errorECCUncorrectable},
		{"cudaErrorUnsupportedPtxVersion", errorUnsupportedPTXVersion}, {"cudaErrorSymbolNotFound", errorSymbolNotFound},
		{"cudaErrorNotReady", errorNotReady}, {"cudaErrorIllegalAddress", errorIllegalAddress}, {"cudaErrorLaunchTimeout", errorLaunchTimeout},
		{"cudaErrorAssert", errorAssert}, {"cudaErrorHostMemoryAlreadyRegistered", errorHostMemoryAlreadyRegistered},
		{"cudaErrorHostMemoryNotRegistered", errorHostMemoryNotRegistered}, {"cudaErrorHardwareStackError", errorHardwareStackError},
		{"cudaErrorIllegalInstruction", errorIllegalInstruction}, {"cudaErrorMisalignedAddress", errorMisalignedAddress},
		{"cudaErrorInvalidAddressSpace", errorInvalidAddressSpace}, {"cudaErrorInvalidPc", errorInvalidPC},
		{"cudaErrorLaunchFailure", errorLaunchFailure}, {"cudaErrorNotSupported", errorNotSupported},
		{"cudaErrorNvlinkUncorrectable", errorNVLinkUncorrectable}, {"cudaErrorContextIsDestroyed", errorContextIsDestroyed},
		{"cudaErrorContained", errorContained}, {"cudaErrorCompatNotSupportedOnDevice", errorCompatNotSupported},
		{"cudaErrorSystemDriverMismatch", errorSystemDriverMismatch}, {"cudaErrorUnknown", errorUnknown},
		{"cudaErrorPeerAccessUnsupported", errorPeerAccessUnsupported}, {"cudaErrorPeerAccessAlreadyEnabled", errorPeerAccessAlreadyEnabled},
		{"cudaErrorTooManyPeers", errorTooManyPeers}, {"cudaErrorMapBufferObjectFailed", errorMapBufferObjectFailed},

		{"cudaDevAttrClockRate", uint64(AttrClockRate)}, {"cudaDevAttrMultiProcessorCount", uint64(AttrProcessors)},
		{"cudaDevAttrKernelExecTimeout", uint64(AttrExecTimeout)}, {"cudaDevAttrIntegrated", uint64(AttrIntegrated)},
		{"cudaDevAttrPciBusId", uint64(AttrPCIBus)}, {"cudaDevAttrPciDeviceId", uint64(AttrPCIDevice)},
		{"cudaDevAttrPciDomainId", uint64(AttrPCIDomain)},
		{"cudaDevAttrComputeCapabilityMajor", uint64(AttrComputeMajor)}, {"cudaDevAttrComputeCapabilityMinor", uint64(AttrComputeMinor)},

		{"cudaMemcpyHostToDevice", uint64(HostToDevice)}, {"cudaMemcpyDeviceToHost", uint64(DeviceToHost)},
		{"cudaMemcpyDeviceToDevice", uint64(DeviceToDevice)},
		{"cudaEventDefault", uint64(EventDefault)}, {"cudaEventBlockingSync", uint64(EventBlockingSync)}, {"cudaEventDisableTiming", uint64(EventDisableTiming)},
		{"cudaStreamNonBlocking", streamNonBlocking}, {"cudaHostAllocPortable", hostAllocPortable}, {"cudaHostRegisterPortable", hostRegisterPortable},
	},
	"cuda.h": {
		{"CUDA_ERROR_INVALID_VALUE", errorInvalidValue}, {"CUDA_ERROR_OUT_OF_MEMORY", errorMemoryAllocation}, {"CUDA_ERROR_STUB_LIBRARY", errorStubLibrary},
		{"CUDA_ERROR_NO_DEVICE", errorNoDevice}, {"CUDA_ERROR_NO_BINARY_FOR_GPU", errorNoKernelImageForDevice},
		{"CUDA_ERROR_ECC_UNCORRECTABLE", errorECCUncorrectable}, {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", errorUnsupportedPTXVersion},
		{"CUDA_ERROR_NOT_FOUND", errorSymbolNotFound}, {"CUDA_ERROR_NOT_READY", errorNotReady}, {"CUDA_ERROR_ILLEGAL_ADDRESS", errorIllegalAddress},
		{"CUDA_ERROR_LAUNCH_TIMEOUT", errorLaunchTimeout}, {"CUDA_ERROR_ASSERT", errorAssert},
		{"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", errorHostMemoryAlreadyRegistered}, {"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", errorHostMemoryNotRegistered},
		{"CUDA_ERROR_HARDWARE_STACK_ERROR", errorHardwareStackError}, {"CUDA_ERROR_ILLEGAL_INSTRUCTION", errorIllegalInstruction},
		{"CUDA_ERROR_MISALIGNED_ADDRESS", errorMisalignedAddress}, {"CUDA_ERROR_INVALID_ADDRESS_SPACE", errorInvalidAddressSpace},
		{"CUDA_ERROR_INVALID_PC", errorInvalidPC}, {"CUDA_ERROR_LAUNCH_FAILED", errorLaunchFailure}, {"CUDA_ERROR_NOT_SUPPORTED", errorNotSupported},
		{"CUDA_ERROR_NVLINK_UNCORRECTABLE", errorNVLinkUncorrectable}, {"CUDA_ERROR_CONTEXT_IS_DESTROYED", errorContextIsDestroyed},
		{"CUDA_ERROR_CONTAINED", errorContained}, {"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", errorCompatNotSupported},
		{"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", errorSystemDriverMismatch}, {"CUDA_ERROR_UNKNOWN", errorUnknown},

		{"CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", funcMaxDynamicShared},
		{"CU_LAUNCH_PARAM_END_AS_INT", launchParamEnd}, {"CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT", launchParamBufferPointer},
		{"CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT", launchParamBufferSize},
	},
	"library_types.h": {{"CUDA_R_32F", uint64(Float32)}, {"CUDA_R_16BF", uint64(BFloat16)}},
	"cublas_api.h": {
		{"CUBLAS_COMPUTE_32F", uint64(ComputeFloat32)}, {"CUBLAS_OP_N", uint64(NoTranspose)}, {"CUBLAS_OP_T", uint64(Transposed)},
		{"CUBLAS_STATUS_ALLOC_FAILED", blasAllocFailed}, {"CUBLAS_STATUS_INVALID_VALUE", blasInvalidValue},
		{"CUBLAS_STATUS_ARCH_MISMATCH", blasArchMismatch}, {"CUBLAS_STATUS_NOT_SUPPORTED", blasNotSupported},
	},
	"cublasLt.h": {
		{"CUBLASLT_EPILOGUE_BIAS", uint64(EpilogueBias)},
		{"CUBLASLT_MATMUL_DESC_TRANSA", uint64(DescTransA)}, {"CUBLASLT_MATMUL_DESC_TRANSB", uint64(DescTransB)},
		{"CUBLASLT_MATMUL_DESC_EPILOGUE", uint64(DescEpilogue)}, {"CUBLASLT_MATMUL_DESC_BIAS_POINTER", uint64(DescBiasPointer)},
		{"CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE", uint64(DescBiasDataType)},
		{"CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT", layoutBatchCount}, {"CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET", layoutBatchStride},
		{"CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES", uint64(PreferMaxWorkspaceBytes)},
		{"CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK", uint64(PreferReductions)}, {"CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE", ReductionFloat32},
		{"CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES", uint64(PreferMinAlignmentA)}, {"CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES", uint64(PreferMinAlignmentB)},
		{"CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES", uint64(PreferMinAlignmentC)}, {"CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES", uint64(PreferMinAlignmentD)},
	},
	"nvml.h": {
		{"NVML_ERROR_INVALID_ARGUMENT", nvmlInvalidArgument}, {"NVML_ERROR_NOT_SUPPORTED", nvmlNotSupported}, {"NVML_ERROR_NOT_FOUND", nvmlNotFound},
		{"NVML_ERROR_DRIVER_NOT_LOADED", nvmlDriverNotLoaded}, {"NVML_ERROR_GPU_IS_LOST", nvmlGPUIsLost}, {"NVML_ERROR_MEMORY", nvmlInsufficientMemory},
		{"NVML_CLOCK_SM", uint64(ClockSM)}, {"NVML_CLOCK_MEM", uint64(ClockMemory)},
		{"NVML_TEMPERATURE_GPU", temperatureGPU},
		{"nvmlClocksEventReasonApplicationsClocksSetting", uint64(ThrottleAppClocks)},
		{"nvmlClocksEventReasonSwPowerCap", uint64(ThrottlePowerCap)}, {"nvmlClocksThrottleReasonHwSlowdown", uint64(ThrottleHardware)},
		{"nvmlClocksEventReasonSwThermalSlowdown", uint64(ThrottleThermalSoftware)},
		{"nvmlClocksThrottleReasonHwThermalSlowdown", uint64(ThrottleThermalHardware)},
		{"nvmlClocksThrottleReasonHwPowerBrakeSlowdown", uint64(ThrottlePowerBrake)},
	},
}

// layouts are C expressions that only a C compiler can evaluate, by the headers that they need: sizes and offsets of
// structs that this package lays out, and enumerators without an explicit number.
var layouts = map[string][]constant{
	"cublasLt.h": {
		{"sizeof(cublasLtMatmulAlgo_t)", uint64(unsafe.Sizeof(Algorithm{}))},
		{"sizeof(cublasLtMatmulHeuristicResult_t)", uint64(unsafe.Sizeof(Heuristic{}))},
		{"offsetof(cublasLtMatmulHeuristicResult_t, algo)", uint64(unsafe.Offsetof(Heuristic{}.Algorithm))},
		{"offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize)", uint64(unsafe.Offsetof(Heuristic{}.WorkspaceBytes))},
		{"offsetof(cublasLtMatmulHeuristicResult_t, state)", uint64(unsafe.Offsetof(Heuristic{}.state))},
		{"offsetof(cublasLtMatmulHeuristicResult_t, wavesCount)", uint64(unsafe.Offsetof(Heuristic{}.Waves))},
		{"sizeof(cublasStatus_t)", 4}, {"sizeof(cublasLtMatmulDescAttributes_t)", 4}, {"sizeof(cublasLtHandle_t)", 8},
	},
	"cuda.h": {
		{"CU_JIT_INFO_LOG_BUFFER", jitInfoLogBuffer}, {"CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES", jitInfoLogBufferBytes},
		{"CU_JIT_ERROR_LOG_BUFFER", jitErrorLogBuffer}, {"CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES", jitErrorLogBufferBytes},
		{"CU_TENSOR_MAP_DATA_TYPE_BFLOAT16", tensorMapBFloat16}, {"CU_TENSOR_MAP_SWIZZLE_128B", tensorMapSwizzle128}, {"CU_TENSOR_MAP_L2_PROMOTION_L2_256B", tensorMapFetch256},
		{"sizeof(CUtensorMap)", uint64(unsafe.Sizeof(TensorMap{}))}, {"sizeof(CUtensorMapSwizzle)", 4},
		{"sizeof(CUdevice)", 4}, {"sizeof(CUjit_option)", 4}, {"sizeof(CUresult)", 4}, {"sizeof(CUstream)", 8}, {"sizeof(CUfunction)", 8}, {"sizeof(CUdeviceptr)", 8},
	},
	"nvml.h": {
		{"sizeof(nvmlMemory_t)", 24}, {"offsetof(nvmlMemory_t, total)", 0}, {"offsetof(nvmlMemory_t, free)", 8}, {"offsetof(nvmlMemory_t, used)", 16},
		{"sizeof(nvmlDevice_t)", 8},
	},
}

// header returns the path of a header in the folders of MT_CUDA_HEADERS; "" if there is none.
func header(t *testing.T, name string) string {
	t.Helper()
	folders := os.Getenv(headersVariable)
	if folders == "" {
		t.Skip(headersVariable + " names no folder with CUDA's headers")
	}
	for _, folder := range filepath.SplitList(folders) {
		if path := filepath.Join(folder, name); folder != "" {
			if _, err := os.Stat(path); err == nil {
				return path
			}
		}
	}
	t.Skipf("no %s in %s", name, folders)
	return ""
}

var comments = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)

// defined returns the value of a #define or an enumerator in the text of a header. It follows a name that is defined
// as another name.
func defined(text, name string) (uint64, error) {
	found := regexp.MustCompile(`(?m)(?:#define\s+` + name + `\s+|\b` + name + `\s*=\s*)([^\n,}]+)`).FindStringSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("%s is not defined", name)
	}
	value := strings.TrimRight(strings.Trim(strings.TrimSpace(found[1]), "()"), "uUlL")
	if regexp.MustCompile(`^[A-Za-z_]\w*$`).MatchString(value) {
		return defined(text, value)
	}
	v, err := strconv.ParseUint(value, 0, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return v, nil
}

func TestConstants(t *testing.T) {
	for name, list := range constants {
		t.Run(name, func(t *testing.T) {
			raw := testkit.Must(os.ReadFile(header(t, name)))(t)
			text := comments.ReplaceAllString(string(raw), "")
			for _, c := range list {
				if v, err := defined(text, c.name); err != nil {
					t.Error(err)
				} else if v != c.value {
					t.Errorf("%s is %d, ours is %d", c.name, v, c.value)
				}
			}
		})
	}
}

// TestLayouts: the sizes and offsets of structs in this package, and its enumerators, are those
// that a C compiler computes from NVIDIA's headers.
func TestLayouts(t *testing.T) {
	for name, list := range layouts {
		t.Run(name, func(t *testing.T) {
			header(t, name)
			cc := compiler(t)
			var source strings.Builder
			fmt.Fprintf(&source, "#include <stdbool.h>\n#include <stddef.h>\n#include <stdio.h>\n#include <%s>\nint main(void) {\n", name)
			for _, c := range list {
				fmt.Fprintf(&source, "printf(\"%%zu\\n\", (size_t)%s);\n", c.name)
			}
			source.WriteString("return 0;\n}\n")
			dir := t.TempDir()
			file, program := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
			testkit.NoError(t, os.WriteFile(file, []byte(source.String()), 0o666))
			args := []string{"-o", program, file}
			for _, folder := range filepath.SplitList(os.Getenv(headersVariable)) {
				args = append(args, "-I", folder)
			}
			if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%.2000s", cc, err, out)
			}
			out := testkit.Must(exec.Command(program).Output())(t)
			lines := strings.Fields(string(out))
			for i, c := range list {
				if lines[i] != strconv.FormatUint(c.value, 10) {
					t.Errorf("%s is %s, ours is %d", c.name, lines[i], c.value)
				}
			}
		})
	}
}

func compiler(t *testing.T) string {
	for _, name := range []string{"gcc", "clang", "clang-19", "cc"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no C compiler")
	return ""
}
