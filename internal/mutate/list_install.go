package main

// ofInstall breaks what people install mt from, and how they begin with it.
var ofInstall = []broken{
	{"tools/dist/wheel.go", []way{
		{from: "RawURLEncoding", to: "RawStdEncoding", test: "TestWheel"},
		{from: "data: b.data, runs: true}", to: "data: b.data}", test: "TestWheel"},
		{from: "Method: zip.Deflate, Modified: w.made}", to: "Method: zip.Deflate}", test: "TestWheel"},
		{from: "Root-Is-Purelib: false", to: "Root-Is-Purelib: true", test: "TestWheel"},
		{from: "out += \".post0\"", to: "out += \"\"", test: "TestPythonVersion"},
		{from: "strings.TrimPrefix(local+\".dirty\", \".\")", to: "local + \".dirty\"", test: "TestPythonVersion"},
	}},
	{"tools/dist/bill.go", []way{
		{from: "\tfor _, m := range b.info.Deps {", to: "\tfor _, m := range b.info.Deps[1:] {", test: "TestBill"},
		{from: "if !ok || err != nil || len(raw) != sha256.Size {", to: "if !ok && err != nil {", test: "TestBill"},
		{from: "len(entries) == 0 && must", to: "false", test: "TestTerms"},
		{from: "`(?i)^(licen[cs]e|copying|notice)`", to: "`^(LICEN[CS]E|COPYING)`", test: "TestTerms"},
	}},
	{"tools/dist/build.go", []way{
		{from: "if n < least {", to: "if false {", test: "TestNewer"},
		{from: "if err != nil || n > least {", to: "if err == nil && n > least {", test: "TestNewer"},
		{from: "if loader != p.loader {", to: "if false {", test: "TestRunsOn"},
		{from: "if !bytes.Equal(first, second) {", to: "if false {", test: "TestSame"},
	}},
	{"tools/dist/files.go", []way{
		{from: "ModTime: b.made, ", to: "", test: "TestSameBytes"},
		{from: "if name := e.Name(); name != sums && ", to: "if name := e.Name(); false && ", test: "TestFolders"},
	}},
	{"cudart/env.go", []way{
		{from: "\t\tprefixes = append(prefixes, filepath.Dir(bin))\n", to: "\t\t_ = bin\n", test: "TestFindPlaces"},
		{from: "filepath.Base(bin) == \"bin\"", to: "bin != \"\"", test: "TestFindPlaces"},
	}},
	{"cmd/mt/interview.go", []way{
		{from: "dir += \"-tuned\"", to: "_ = dir", test: "TestInitTakesFlags"},
		{from: "\t\t*in = before\n", to: "\t\t_ = before\n", test: "TestInitAsks"},
		{from: "in.cfg.Given(r.key) || in.cfg.Given(r.unless)", to: "in.cfg.Given(r.key)", test: "TestInitTakesFlags"},
		{from: "\t\t\treturn q.accept(in)\n", to: "\t\t\treturn nil\n", test: "TestInitRefuses"},
	}},
	{"cmd/mt/init.go", []way{
		{from: "case pairs && small:", to: "case false && small:", test: "TestInitTakesFlags"},
		{from: "!force && !errors.Is(err, fs.ErrNotExist)", to: "force && !errors.Is(err, fs.ErrNotExist)", test: "TestInitRefuses"},
	}},
	{"internal/config/print.go", []way{
		{from: "return c.Given(k.name), comments[k.name]", to: "return true, comments[k.name]", test: "TestInitAsks", in: "cmd/mt"},
	}},
	{"internal/manual/manual.go", []way{
		{from: "indented != kept && line != \"\"", to: "indented != kept", test: "TestPages"},
		{from: "\t\ttext = `\\&` + text\n", to: "", test: "TestPages"},
		{from: "if f.Hidden {", to: "if false {", test: "TestPages"},
	}},
}
