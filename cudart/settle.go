package cudart

import "os"

// unsettling lists environment variables that make the libraries compute other results than
// requested, or that keep mt's kernels from loading.
var unsettling = []struct {
	name string
	// is: the harmful value; "": any. use: the replacement; "": remove the variable.
	is, use string
}{
	{tf32Override, "1", "0"}, // cuBLASLt rounds fp32 operands to TF32
	// cuBLASLt emulates fp32 and fp64 products with bf16 or integers.
	{"CUBLAS_EMULATE_SINGLE_PRECISION", "", ""},
	{"CUBLAS_EMULATE_DOUBLE_PRECISION", "", ""},
	{"CUBLAS_EMULATION_STRATEGY", "", ""},
	{"CUDA_DISABLE_PTX_JIT", "", ""}, // the driver rejects PTX, the form of all kernels of mt
	{"CUDA_FORCE_PTX_JIT", "", ""},   // the driver recompiles cuBLASLt's kernels, which need not contain PTX
}

const tf32Override = "NVIDIA_TF32_OVERRIDE"

// settle removes or replaces the variables listed in unsettling, in the environment of this process
// and its children.
func settle() {
	for _, v := range unsettling {
		value, there := os.LookupEnv(v.name)
		switch {
		case !there || v.is != "" && value != v.is:
		case v.use != "":
			_ = os.Setenv(v.name, v.use) // the name is valid, so this cannot fail
		default:
			_ = os.Unsetenv(v.name) // nor can this
		}
	}
}
