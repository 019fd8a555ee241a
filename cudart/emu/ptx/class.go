package ptx

import "strings"

// Class is a kind of instruction, as far as the units of a multiprocessor tell instructions
// apart.
type Class uint8

const (
	ClassInteger    Class = iota // 32 bits and narrower: add, shift, logic, min and max
	ClassInteger64               // the same of 64 bits, which ptxas makes of 32-bit instructions
	ClassMultiply                // integer mul, mad
	ClassMultiply64              // mul.lo and mad.lo of 64 bits
	ClassBits                    // popc, clz
	ClassDivide                  // what ptxas expands: integer div and rem, div.rn, rcp.rn, sqrt.rn
	ClassFloat                   // fp32 add, mul, fma
	ClassDouble                  // fp64
	ClassSpecial                 // ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh, approximately
	ClassConvert                 // between integers and floats, and to narrower floats one by one
	ClassPack                    // cvt of two floats to a pair
	ClassCompare                 // setp, selp, logic of predicates, min and max of floats
	ClassMove                    // mov, cvta, neg and abs of floats, cvt between integers: mostly no instruction of the GPU
	ClassParameter               // ld.param: an operand in the constant bank
	ClassBranch                  // bra, brx, exit
	ClassShuffle                 // shfl
	ClassVote                    // vote, match, redux
	ClassMMA16                   // mma.sync m16n8k16 of bf16 with fp32 sums
	ClassMMA8                    // mma.sync m16n8k8
	ClassLdmatrix                // ldmatrix
	ClassLoadGlobal
	ClassStoreGlobal
	ClassLoadShared
	ClassStoreShared
	ClassLoadLocal // of a thread's own array, or of what was spilled
	ClassStoreLocal
	ClassAtomic
	ClassCopy       // cp.async that copies
	ClassCopyWait   // cp.async that closes a group or waits for one
	ClassBarrier    // of the block
	ClassWarpSync   // bar.warp.sync
	ClassFence      // membar, fence and other instructions that compute nothing
	ClassWGMMA      // wgmma.mma_async
	ClassWGMMAOrder // wgmma.fence, commit_group and wait_group
	ClassBulk       // cp.async.bulk that copies
	ClassBulkWait   // cp.async.bulk that closes a group or waits for one
	ClassMbar       // mbarriers: what does not wait
	ClassMbarWait   // mbarrier.try_wait and test_wait
	Classes         // how many there are
)

var classNames = [Classes]string{"integer", "integer64", "multiply", "multiply64", "bits", "divide", "float", "double", "special", "convert", "pack",
	"compare", "move", "parameter", "branch", "shuffle", "vote", "mma_m16n8k16", "mma_m16n8k8", "ldmatrix", "load_global", "store_global",
	"load_shared", "store_shared", "load_local", "store_local", "atomic", "copy", "copy_wait", "barrier", "warp_sync", "fence", "wgmma", "wgmma_order", "bulk_copy",
	"bulk_wait", "mbarrier", "mbarrier_wait"}

func (c Class) String() string { return classNames[c] }

// fixedClass are the classes that the mnemonic alone decides.
var fixedClass = map[string]Class{
	"selp": ClassCompare, "setp": ClassCompare,
	"cvta": ClassMove, "bra": ClassBranch, "brx": ClassBranch, "ret": ClassBranch, "exit": ClassBranch, "trap": ClassBranch,
	"shfl": ClassShuffle, "vote": ClassVote, "match": ClassVote, "redux": ClassVote,
	"ldmatrix": ClassLdmatrix, "atom": ClassAtomic, "red": ClassAtomic,
	"membar": ClassFence, "fence": ClassFence, "nanosleep": ClassFence, "setmaxnreg": ClassFence,
	"popc": ClassBits, "clz": ClassBits, "ex2": ClassSpecial, "lg2": ClassSpecial, "rsqrt": ClassSpecial,
}

// classOf is the class of an instruction, given its words. A load or store without a state
// space counts as one of global memory.
func classOf(words []string) Class {
	name, last := words[0], words[len(words)-1]
	has := func(word string) bool { return wordIn(words, word) }
	if last == "pred" && name != "vote" {
		return ClassCompare
	}
	if c, ok := fixedClass[name]; ok {
		return c
	}
	switch name {
	case "mov":
		return ClassMove
	case "cvt":
		return conversionClass(last, words[len(words)-2])
	case "ld":
		return bySpace(words, ClassLoadGlobal, ClassLoadShared, ClassLoadLocal)
	case "st":
		return bySpace(words, ClassStoreGlobal, ClassStoreShared, ClassStoreLocal)
	case "cp":
		if has("bulk") {
			return pick(has("commit_group") || has("wait_group"), ClassBulkWait, ClassBulk)
		}
		return pick(has("commit_group") || has("wait_group") || has("wait_all"), ClassCopyWait, ClassCopy)
	case "wgmma":
		return pick(has("mma_async"), ClassWGMMA, ClassWGMMAOrder)
	case "mbarrier":
		return pick(has("try_wait") || has("test_wait"), ClassMbarWait, ClassMbar)
	case "mma":
		return pick(has("m16n8k8"), ClassMMA8, ClassMMA16)
	case "bar", "barrier":
		return pick(has("warp"), ClassWarpSync, ClassBarrier)
	case "rem":
		return ClassDivide
	case "div", "rcp", "sqrt":
		return pick(has("approx") || has("full"), ClassSpecial, ClassDivide)
	}
	return arithmeticClass(name, last, has("wide"))
}

func wordIn(words []string, word string) bool {
	for _, w := range words {
		if w == word {
			return true
		}
	}
	return false
}

// bySpace picks the class of a load or a store.
func bySpace(words []string, global, shared, local Class) Class {
	switch {
	case wordIn(words, "param"):
		return ClassParameter
	case wordIn(words, "shared") || wordIn(words, "shared::cta"):
		return shared
	case wordIn(words, "local"):
		return local
	}
	return global
}

func conversionClass(from, to string) Class {
	switch {
	case strings.HasSuffix(to, "x2"):
		return ClassPack
	case strings.Contains(from, "f") || strings.Contains(to, "f"):
		return ClassConvert
	}
	return ClassMove
}

// arithmeticClass is the class of an instruction that computes.
func arithmeticClass(name, t string, wide bool) Class {
	multiplies := name == "mul" || name == "mad"
	switch {
	case t == "f64":
		return ClassDouble
	case strings.Contains(t, "f") && (name == "neg" || name == "abs"):
		return ClassMove
	case strings.Contains(t, "f"):
		return pick(name == "min" || name == "max", ClassCompare, ClassFloat)
	case multiplies && wide:
		return ClassMultiply
	case multiplies:
		return pick(typeBytes(t) == 8, ClassMultiply64, ClassMultiply)
	}
	return pick(typeBytes(t) == 8, ClassInteger64, ClassInteger)
}
