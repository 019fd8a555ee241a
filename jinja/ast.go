package jinja

// pos is a byte offset into the source with line breaks normalised.
type pos int

func (p pos) at() pos { return p }

// expr is an expression. Statement and expression nodes are never changed after
// Parse.
type expr interface{ at() pos }

type (
	constExpr struct {
		pos
		value any
	}
	nameExpr struct {
		pos
		name string
	}
	// nsExpr is a.b as the target of an assignment.
	nsExpr struct {
		pos
		name, attr string
	}
	// listExpr is a list or, with tuple, a tuple.
	listExpr struct {
		pos
		items []expr
		tuple bool
	}
	dictExpr struct {
		pos
		keys, vals []expr
	}
	// binaryExpr is an arithmetic operator, named by its token.
	binaryExpr struct {
		pos
		op          string
		left, right expr
	}
	// logicExpr is and, or.
	logicExpr struct {
		pos
		or          bool
		left, right expr
	}
	// unaryExpr is -, + or not.
	unaryExpr struct {
		pos
		op   string
		node expr
	}
	concatExpr struct {
		pos
		parts []expr
	}
	compareExpr struct {
		pos
		first expr
		ops   []string // == != < <= > >= in notin
		rest  []expr
	}
	// condExpr is yes if test else no; no is nil where there is no else.
	condExpr struct {
		pos
		test, yes, no expr
	}
	attrExpr struct {
		pos
		node expr
		name string
	}
	itemExpr struct {
		pos
		node, index expr
	}
	// sliceExpr stands as the index of an itemExpr; each part may be nil.
	sliceExpr struct {
		pos
		start, stop, step expr
	}
	callExpr struct {
		pos
		fn   expr
		args argList
	}
	// filterExpr is a filter, or with test a test. node is nil in a filter block.
	filterExpr struct {
		pos
		node expr
		name string
		args argList
		test bool
	}
)

// argList is the arguments of a call: positional, by keyword, *star, **stars.
type argList struct {
	args        []expr
	names       []string
	named       []expr
	star, stars expr
}

// stmt is a statement.
type stmt interface{ at() pos }

type (
	textStmt struct {
		pos
		text string
	}
	// printStmt prints expressions.
	printStmt struct {
		pos
		exprs []expr
	}
	ifStmt struct {
		pos
		test   expr
		body   []stmt
		orElse []stmt // elif is an ifStmt in here
	}
	forStmt struct {
		pos
		target     expr
		iter       expr
		test       expr // nil: none
		body, none []stmt
		recursive  bool
	}
	setStmt struct {
		pos
		target expr
		value  expr
	}
	setBlockStmt struct {
		pos
		target expr
		filter expr // nil: none
		body   []stmt
	}
	macroStmt struct {
		pos
		name     string
		params   []string
		defaults []expr // of the last len(defaults) params
		body     []stmt
		// uses of the special names in the body
		caller, kwargs, varargs bool
	}
	callStmt struct {
		pos
		call  *callExpr
		macro *macroStmt
	}
	filterStmt struct {
		pos
		filter expr
		body   []stmt
	}
	withStmt struct {
		pos
		targets, values []expr
		body            []stmt
	}
	blockStmt struct {
		pos
		name             string
		scoped, required bool
		body             []stmt
	}
	generationStmt struct {
		pos
		body []stmt
	}
	// jumpStmt is break or continue.
	jumpStmt struct {
		pos
		stop bool
	}
)
