package cudart

import "os"

// unsettling are environment variables with which the libraries would compute something else than they are
// asked for, or would not load mt's kernels.
var unsettling = []struct {
	name string
	// is is the value that matters, "" any; use is what is set in its place, "" removes the variable.
	is, use string
}{
	{tf32Override, "1", "0"}, // cuBLASLt rounds fp32 operands to TF32
	// cuBLASLt computes fp32 and fp64 products by bf16 or integers.
	{"CUBLAS_EMULATE_SINGLE_PRECISION", "", ""},
	{"CUBLAS_EMULATE_DOUBLE_PRECISION", "", ""},
	{"CUBLAS_EMULATION_STRATEGY", "", ""},
	{"CUDA_DISABLE_PTX_JIT", "", ""}, // the driver takes no PTX, of which all kernels of mt are
	{"CUDA_FORCE_PTX_JIT", "", ""},   // the driver compiles cuBLASLt's kernels anew, where they have PTX at all
}

const tf32Override = "NVIDIA_TF32_OVERRIDE"

// settle sets or removes these variables for this process and its children.
func settle() {
	for _, v := range unsettling {
		value, there := os.LookupEnv(v.name)
		switch {
		case !there || v.is != "" && value != v.is:
		case v.use != "":
			_ = os.Setenv(v.name, v.use) // cannot fail, as the name is valid
		default:
			_ = os.Unsetenv(v.name) // nor can this
		}
	}
}
