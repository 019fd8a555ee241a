package main

import (
	"go/ast"
	"go/token"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// operators lists the kinds of changes that mutants make, in the order in which mutants are drawn.
var operators = []string{"negate", "drop", "operator", "operands", "ignore error", "constant", "return early"}

// mutant is one change to one file: text replaces the bytes [from, to) of the file.
type mutant struct {
	pkg, file     string // import path; path from the module's root, with slashes
	function, op  string // "T.Name" for a method, "-" outside functions
	from, to      int
	line, col     int
	text          string
	before, after string // the changed lines before and after, with single spaces; after is "" if the mutant drops a statement
	in, test      string // the folder whose tests run first; test: a pattern of tests, for mutants of hand.txt
	verdict, who  string // the verdict; who: the test that failed, or the reason in survivors.txt
}

// finder collects the mutants of one file while it walks the syntax tree.
type finder struct {
	src      string
	base     token.Pos      // position of the file's first byte
	function string         // name of the function that contains the current node
	results  *ast.FieldList // results of the function or function literal that contains the current node
	found    []*mutant
}

// mutants returns all mutants of the parsed file f. src is the file's text.
func mutants(f *ast.File, src string) []*mutant {
	w := &finder{src: src, base: f.FileStart}
	for _, d := range f.Decls {
		w.function, w.results = "-", nil
		if fn, ok := d.(*ast.FuncDecl); ok {
			w.function, w.results = fn.Name.Name, fn.Type.Results
			if fn.Recv != nil {
				of, _, _ := strings.Cut(strings.TrimPrefix(w.of(fn.Recv.List[0].Type), "*"), "[")
				w.function = of + "." + w.function
			}
		}
		ast.Inspect(d, w.visit)
	}
	return w.found
}

// visit adds the mutants of node n alone. It reports whether the nodes below n are to be visited.
func (w *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncLit:
		outer := w.results
		w.results = n.Type.Results
		ast.Inspect(n.Body, w.visit)
		w.results = outer
		return false
	case *ast.IfStmt:
		w.condition(n.Cond)
	case *ast.ForStmt:
		w.condition(n.Cond)
	case *ast.SwitchStmt:
		for _, c := range n.Body.List {
			for _, e := range c.(*ast.CaseClause).List {
				if n.Tag == nil {
					w.condition(e)
				}
			}
		}
	case *ast.BlockStmt:
		w.statements(n.List)
	case *ast.CaseClause:
		w.statements(n.Body)
	case *ast.CommClause:
		w.statements(n.Body)
	case *ast.AssignStmt:
		w.swap(n.TokPos, n.Tok.String())
	case *ast.IncDecStmt:
		w.swap(n.TokPos, n.Tok.String())
	case *ast.ReturnStmt:
		if k := len(n.Results); k > 0 && w.results.NumFields() == k && w.of(w.results.List[len(w.results.List)-1].Type) == "error" && w.of(n.Results[k-1]) != "nil" {
			w.add("ignore error", n.Results[k-1].Pos(), n.End(), "nil")
			ast.Inspect(n.Results[k-1], w.visit) // only the last result, since the others are not used
			return false
		}
	case ast.Expr:
		w.expression(n)
	}
	return true
}

// expression adds the mutants of expression e alone, without those of its subexpressions.
func (w *finder) expression(e ast.Expr) {
	switch n := e.(type) {
	case *ast.BinaryExpr:
		if op := n.Op.String(); !isErr.MatchString(w.of(n)) {
			w.swap(n.OpPos, op)
			if slices.Contains([]string{"-", "/", "%", "<<", ">>", "&^", "<", "<=", ">", ">="}, op) {
				w.add("operands", n.Pos(), n.End(), "("+w.of(n.Y)+") "+op+" ("+w.of(n.X)+")")
			}
		}
	case *ast.CallExpr:
		commutes := w.of(n.Fun) == "max" || w.of(n.Fun) == "min"
		for i := 1; i < len(n.Args) && !n.Ellipsis.IsValid() && !commutes; i++ { // swaps neighbouring arguments whose syntax is of the same kind
			a, b := n.Args[i-1], n.Args[i]
			if x, y := w.of(a), w.of(b); reflect.TypeOf(a) == reflect.TypeOf(b) && x != y && !strings.Contains(x+y, "\n") {
				w.add("operands", a.Pos(), b.End(), y+", "+x)
			}
		}
	case *ast.BasicLit:
		if v, err := strconv.Atoi(n.Value); err == nil && strconv.Itoa(v) == n.Value {
			w.add("constant", n.Pos(), n.End(), strconv.Itoa(v+1))
		} else if n.Kind != token.STRING {
			w.add("constant", n.Pos(), n.End(), "("+n.Value+" + 1)")
		}
	case *ast.Ident:
		if n.Name == "true" || n.Name == "false" {
			w.add("constant", n.Pos(), n.End(), strconv.FormatBool(n.Name == "false"))
		}
	}
}

// isErr matches a condition that checks for an error.
var isErr = regexp.MustCompile(`^\w*[eE]rr != nil$`)

// condition adds a mutant that negates condition e or, if e checks for an error, one that ignores the error.
func (w *finder) condition(e ast.Expr) {
	switch {
	case e == nil:
	case isErr.MatchString(w.of(e)):
		w.add("ignore error", e.End(), e.End(), " && false")
	default:
		w.add("negate", e.Pos(), e.End(), "!("+w.of(e)+")")
	}
}

// opposite maps each operator to the operator that a mutant puts in its place.
var opposite = map[string]string{
	"+": "-", "-": "+", "*": "/", "/": "*", "%": "/", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
	"<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "|", "&^": "&", "++": "--", "--": "++", "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=",
	"<<=": ">>=", ">>=": "<<=", "&=": "|=", "|=": "&=",
}

// swap adds a mutant that replaces operator op at position at by its opposite. An operator without an opposite has no
// mutant.
func (w *finder) swap(at token.Pos, op string) {
	if to := opposite[op]; to != "" {
		w.add("operator", at, at+token.Pos(len(op)), to)
	}
}

// zeros matches a return statement that returns only zero values. A mutant that returns early would
// be the same.
var zeros = regexp.MustCompile(`^return( (nil|0|""|false),?)*$`)

// statements adds up to two mutants for each statement of a list: one drops the statement, and one returns zero values
// before it.
func (w *finder) statements(list []ast.Stmt) {
	leave, named := "return ", w.results != nil && len(w.results.List[0].Names) > 0
	for i := 0; w.results != nil && !named && i < len(w.results.List); i++ {
		leave += "*new(" + w.of(w.results.List[i].Type) + "), "
	}
	for _, s := range list {
		dropped := false
		switch s := s.(type) {
		case *ast.CaseClause, *ast.CommClause:
			return
		case *ast.AssignStmt:
			dropped = s.Tok != token.DEFINE && w.of(s.Lhs[0]) != "_"
		case *ast.IfStmt:
			dropped = s.Else == nil && !isErr.MatchString(w.of(s.Cond))
		case *ast.BranchStmt:
			dropped = s.Tok == token.BREAK || s.Tok == token.CONTINUE
		case *ast.ExprStmt, *ast.SendStmt, *ast.GoStmt, *ast.DeferStmt, *ast.IncDecStmt:
			dropped = true
		}
		if dropped { // keeps the names used, or Go would refuse the file
			w.add("drop", s.Pos(), s.End(), "if false { "+w.of(s)+" }")
		}
		if text := w.of(s); !zeros.MatchString(text) && !(named && strings.HasPrefix(text, "return ")) {
			w.add("return early", s.Pos(), s.Pos(), strings.TrimRight(leave, ", ")+"; ")
		}
	}
}

func (w *finder) of(n ast.Node) string { return w.src[n.Pos()-w.base : n.End()-w.base] }

func (w *finder) add(op string, from, to token.Pos, text string) {
	m := &mutant{function: w.function, op: op, from: int(from - w.base), to: int(to - w.base), text: text}
	m.show(w.src)
	w.found = append(w.found, m)
}

// show sets the position of m (line and column), and the texts of the changed lines before and
// after. src is the text of the file.
func (m *mutant) show(src string) {
	m.line = 1 + strings.Count(src[:m.from], "\n")
	start := strings.LastIndexByte(src[:m.from], '\n') + 1
	m.col = m.from - start + 1
	rest, _, _ := strings.Cut(src[m.to:], "\n")
	m.before, m.after = oneLine(src[start:m.to]+rest), oneLine(src[start:m.from]+m.text+rest)
	if m.op == "drop" {
		first, _, more := strings.Cut(src[m.from:m.to], "\n")
		if m.before, m.after = oneLine(first), ""; more {
			m.before += " …"
		}
	}
}

// oneLine returns text as one line, without comments and with single spaces. Mutants are shown and
// listed in this form.
func oneLine(text string) string {
	var words []string
	for l := range strings.Lines(text) {
		l, _, _ = strings.Cut(l, " // ")
		words = append(words, strings.Fields(l)...)
	}
	return strings.Join(words, " ")
}
