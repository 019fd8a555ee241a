package jinja

// late are the names that the template's own statements set before they read
// them. Jinja takes such a name from nowhere else: a macro or a loop that reads it
// earlier finds nothing, even where the caller gave a variable of that name.
func late(body []stmt) []string {
	s := &symbols{known: map[string]bool{}}
	s.statements(body)
	return s.late
}

// symbols goes through the statements of one frame, without those inside its loops, macros
// and blocks.
type symbols struct {
	known map[string]bool // read or set before
	late  []string
}

func (s *symbols) store(target expr) {
	switch t := target.(type) {
	case *nameExpr:
		if !s.known[t.name] {
			s.known[t.name] = true
			s.late = append(s.late, t.name)
		}
	case *nsExpr:
		s.known[t.name] = true
	case *listExpr:
		for _, item := range t.items {
			s.store(item)
		}
	}
}

func (s *symbols) statements(body []stmt) {
	for _, st := range body {
		switch st := st.(type) {
		case *printStmt:
			s.load(st.exprs...)
		case *ifStmt:
			// Jinja looks a name up before a branch that sets it, so it is not late.
			s.load(st.test)
			late := len(s.late)
			s.statements(st.body)
			s.statements(st.orElse)
			s.late = s.late[:late]
		case *forStmt:
			s.load(st.iter)
		case *setStmt:
			s.load(st.value)
			s.store(st.target)
		case *setBlockStmt:
			s.store(st.target)
		case *macroStmt:
			s.store(&nameExpr{st.pos, st.name})
		case *callStmt:
			s.load(st.call)
		case *filterStmt:
			s.load(st.filter)
		case *withStmt:
			s.load(st.values...)
		}
	}
}

func (s *symbols) load(list ...expr) {
	for _, e := range list {
		switch e := e.(type) {
		case *nameExpr:
			s.known[e.name] = true
		case *listExpr:
			s.load(e.items...)
		case *dictExpr:
			s.load(e.keys...)
			s.load(e.vals...)
		case *binaryExpr:
			s.load(e.left, e.right)
		case *logicExpr:
			s.load(e.left, e.right)
		case *unaryExpr:
			s.load(e.node)
		case *concatExpr:
			s.load(e.parts...)
		case *compareExpr:
			s.load(e.first)
			s.load(e.rest...)
		case *condExpr:
			s.load(e.test, e.yes, e.no)
		case *attrExpr:
			s.load(e.node)
		case *itemExpr:
			s.load(e.node, e.index)
		case *sliceExpr:
			s.load(e.start, e.stop, e.step)
		case *callExpr:
			s.load(e.fn)
			s.arguments(&e.args)
		case *filterExpr:
			s.load(e.node)
			s.arguments(&e.args)
		}
	}
}

func (s *symbols) arguments(a *argList) {
	s.load(a.args...)
	s.load(a.named...)
	s.load(a.star, a.stars)
}
