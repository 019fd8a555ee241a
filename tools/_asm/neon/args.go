package neon

import (
	"fmt"
	"go/ast"
	"go/parser"
)

// arg says where an argument or result of a function is on the stack. Its offset in bytes from the
// first argument is at, and its size in bytes size.
type arg struct{ at, size int }

// layout returns where the arguments and results of a Go function with this signature are, by name, and their total
// size in bytes.
func layout(signature string) (args map[string]arg, size int) {
	expr, err := parser.ParseExpr(signature)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", signature, err))
	}
	fn := expr.(*ast.FuncType)
	args = map[string]arg{}
	for _, field := range fn.Params.List {
		n := sizeOf(field.Type)
		for _, name := range field.Names {
			size = (size + n - 1) / n * n
			args[name.Name] = arg{size, n}
			size += n
		}
	}
	if fn.Results != nil {
		n := sizeOf(fn.Results.List[0].Type)
		size = (size + 7) / 8 * 8
		args["ret"] = arg{size, n}
		size += n
	}
	return args, size
}

// sizeOf returns the size in bytes of an argument of type t.
func sizeOf(t ast.Expr) int {
	if name, ok := t.(*ast.Ident); ok {
		switch name.Name {
		case "float32", "uint32":
			return 4
		case "bool":
			return 1
		}
	}
	return 8
}

// Arg loads the generated function's argument called name into a new register.
func (f *Func) Arg(name string) R {
	to := f.General()
	f.LoadArg(name, to)
	return to
}

// LoadArg loads the generated function's argument called name into the register `to`.
func (f *Func) LoadArg(name string, to R) {
	a, ok := f.args[name]
	if !ok {
		panic(f.name + " has no argument " + name)
	}
	f.line("%s %s+%d(FP), R%d", map[int]string{8: "MOVD", 4: "MOVWU", 1: "MOVBU"}[a.size], name, a.at, to)
}

// Args loads the generated function's arguments called names into new registers.
func (f *Func) Args(names ...string) []R {
	regs := make([]R, len(names))
	for i, name := range names {
		regs[i] = f.Arg(name)
	}
	return regs
}

// SpreadArg returns a register with the fp32 argument called name in all lanes.
func (f *Func) SpreadArg(name string) V {
	to := f.Reg()
	f.line("FMOVS %s+%d(FP), F%d", name, f.args[name].at, to)
	f.DUP(to, to, 0)
	return to
}

// Return emits the end of a function whose result is the first fp32 lane of x.
func (f *Func) Return(x V) {
	f.line("FMOVS F%d, ret+%d(FP)", x, f.args["ret"].at)
	f.Ret()
}
