package data

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/data/tokenizer"
	"mt/internal/testkit"
)

// tree makes a directory with files and directories for the tests of globs. The link sub/loop leads
// back up to the directory.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{
		"a.go", "b.txt", "sub/a.go", "sub/deep/er/c.go", "sub/d.go/inside.go", ".hidden.go", ".git/x.go", "sub/.cfg/y.go", "we[i]rd.txt", "z/a.go",
	} {
		write(t, dir, name, name)
	}
	testkit.NoError(t, os.Symlink(dir, filepath.Join(dir, "sub", "loop")))
	testkit.NoError(t, os.Symlink(filepath.Join(dir, "a.go"), filepath.Join(dir, "sub", "link.go")))
	testkit.NoError(t, os.Symlink(filepath.Join(dir, "nowhere"), filepath.Join(dir, "sub", "dangling.go")))
	return dir
}

func TestFindSources(t *testing.T) {
	dir := tree(t)
	t.Setenv("MT_TEST_TREE", dir)
	tests := []struct {
		name   string
		paths  []string
		want   []string
		hidden int
	}{
		{"file", []string{"b.txt"}, []string{"b.txt"}, 0},
		{"absolute", []string{filepath.Join(dir, "b.txt")}, []string{"b.txt"}, 0},
		{"hidden file by name", []string{".hidden.go"}, []string{".hidden.go"}, 0},
		{"variable", []string{"${MT_TEST_TREE}/a.go"}, []string{"a.go"}, 0},
		{"directory", []string{"sub"}, []string{"sub/a.go", "sub/d.go/inside.go", "sub/deep/er/c.go", "sub/link.go"}, 1},
		{"star", []string{"*.go"}, []string{"a.go"}, 0},
		{"star over directories", []string{"*/a.go"}, []string{"sub/a.go", "z/a.go"}, 0},
		{"question mark and class", []string{"?.[gh]o"}, []string{"a.go"}, 0},
		{"hidden by pattern", []string{".*.go"}, []string{".hidden.go"}, 0},
		{"any depth", []string{"**/*.go"}, []string{"a.go", "sub/a.go", "sub/d.go/inside.go", "sub/deep/er/c.go", "sub/link.go", "z/a.go"}, 0},
		{"any depth within", []string{"**/deep/**/c.go"}, []string{"sub/deep/er/c.go"}, 0},
		{"any depth twice", []string{"**/**/c.go"}, []string{"sub/deep/er/c.go"}, 0},
		{"any depth at the end", []string{"sub/deep/**"}, []string{"sub/deep/er/c.go"}, 0},
		{"through a link", []string{"sub/lo*/b.txt"}, []string{"sub/loop/b.txt"}, 0},
		{"a name like a pattern", []string{"we[i]rd.txt"}, []string{"we[i]rd.txt"}, 0},
		{"in the order given, each once", []string{"z/a.go", "a.go", "z", "b.txt"}, []string{"z/a.go", "a.go", "b.txt"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sources, hidden, err := findSources(&Spec{Paths: tt.paths, Dir: dir})
			testkit.NoError(t, err)
			var got []string
			for _, s := range sources {
				rel := testkit.Must(filepath.Rel(dir, s.path))(t)
				got = append(got, rel)
				if info, err := os.Stat(s.path); err != nil || info.Size() != s.size || info.ModTime().UnixNano() != s.mtime {
					t.Errorf("%s: size %d, time %d; stat says %v, %v", rel, s.size, s.mtime, info, err)
				}
			}
			if !slices.Equal(got, tt.want) || hidden != tt.hidden {
				t.Errorf("found %q, %d hidden; want %q, %d", got, hidden, tt.want, tt.hidden)
			}
		})
	}
}

func TestFindSourcesErrors(t *testing.T) {
	dir := tree(t)
	testkit.NoError(t, os.MkdirAll(filepath.Join(dir, "empty", ".only"), 0o755))
	tests := []struct {
		path string
		want string
	}{
		{"none.txt", "no such file or directory: none.txt (looked for " + filepath.Join(dir, "none.txt")},
		{"*.rs", "no file matches " + filepath.Join(dir, "*.rs")},
		{"none/**/*.go", "no file matches"},
		{"[.go", "syntax error in pattern"},
		{"empty", "holds no files"},
		{"", "name is empty"},
		{"${MT_TEST_NOT_SET}/a.go", "variable MT_TEST_NOT_SET is not set"},
		{"/dev/null", "/dev/null is a device"},
	}
	for _, tt := range tests {
		_, _, err := findSources(&Spec{Paths: []string{tt.path}, Dir: dir})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: error %v, want one that says %q", tt.path, err, tt.want)
		}
	}
}

func TestExpandVarsFindsGo(t *testing.T) {
	t.Setenv("GOROOT", "/from/the/environment")
	if got, err := ExpandVars("${GOROOT}/src"); err != nil || got != "/from/the/environment/src" {
		t.Errorf("GOROOT from the environment: %q, %v", got, err)
	}
	t.Setenv("GOROOT", "")
	got, err := ExpandVars("${GOROOT}/src/fmt/print.go")
	testkit.NoError(t, err)
	if _, err := os.Stat(got); err != nil {
		t.Errorf("GOROOT by asking go: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	_, err = ExpandVars("${GOROOT}/src")
	wantError(t, err, "GOROOT is not set", "export GOROOT")
}

// TestGorootWithoutGoEnv: if `go env` fails, ExpandVars takes the directory above the go command as
// GOROOT.
func TestGorootWithoutGoEnv(t *testing.T) {
	root, bin := t.TempDir(), t.TempDir()
	write(t, root, "src/fmt/print.go", "package fmt")
	write(t, root, "bin/go", "#!/bin/sh\nexit 1\n")
	testkit.NoError(t, os.Chmod(filepath.Join(root, "bin", "go"), 0o755))
	testkit.NoError(t, os.Symlink(filepath.Join(root, "bin", "go"), filepath.Join(bin, "go")))
	t.Setenv("GOROOT", "")
	t.Setenv("PATH", bin)
	want := testkit.Must(filepath.EvalSymlinks(root))(t)
	if got, err := ExpandVars("${GOROOT}"); err != nil || got != want {
		t.Errorf("GOROOT is %q, %v, want %q", got, err, want)
	}
}

// TestNamedTemplates: a model may have separate chat templates for rows with tools and rows with
// documents. Each row uses its own template, in whichever file the model's directory keeps it.
func TestNamedTemplates(t *testing.T) {
	const turns = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}|{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
	var (
		plain = `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"}]}`
		tools = `{"tools":[{"type":"function","function":{"name":"f"}}],` + plain[1:]
		docs  = `{"chat_template_kwargs":{"documents":[{"title":"d"}]},` + plain[1:]
		both  = `{"chat_template_kwargs":{"documents":[{"title":"d"}]},` + tools[1:]
	)
	for name, files := range map[string]map[string]string{
		"a folder":  {"chat_template.jinja": turns, "additional_chat_templates/tool_use.jinja": "T{{ tools[0].function.name }} " + turns, "additional_chat_templates/rag.jinja": "R{{ documents[0].title }} " + turns},
		"a list":    {"tokenizer_config.json": `{"chat_template":[{"name":"default","template":"` + turns + `"},{"name":"rag","template":"R{{ documents[0].title }} ` + turns + `"},{"name":"tool_use","template":"T{{ tools[0].function.name }} ` + turns + `"}]}`},
		"an object": {"chat_template.json": `{"chat_template":{"default":"` + turns + `","rag":"R{{ documents[0].title }} ` + turns + `","tool_use":"T{{ tools[0].function.name }} ` + turns + `"}}`},
	} {
		dir := t.TempDir()
		for file, text := range files {
			write(t, dir, file, text)
		}
		for row, want := range map[string]string{plain: "u:h|a:[g|]", tools: "Tf u:h|a:[g|]", docs: "Rd u:h|a:[g|]", both: "Tf u:h|a:[g|]"} {
			s := textSpec(t, 4096, write(t, t.TempDir(), "a.jsonl", row))
			s.ModelDir, s.Packing = dir, set(false)
			if got := masked(mustOpen(t, s).Row(0)); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		s := textSpec(t, 64, "")
		s.ModelDir = dir
		all, err := ReadConversations(strings.NewReader(tools), "x")
		testkit.NoError(t, err)
		all[0].Cut(1)
		ids, err := dialogue(t, s).Prompt(all[0])
		if got := rowText(Row{IDs: ids}); err != nil || got != "Tf u:h|a:" {
			t.Errorf("%s: the prompt is %q, %v", name, got, err)
		}
	}
	one := t.TempDir()
	write(t, one, "additional_chat_templates/tool_use.jinja", turns)
	s := textSpec(t, 4096, write(t, t.TempDir(), "a.jsonl", tools))
	s.ModelDir, s.Packing = one, set(false)
	if got := masked(mustOpen(t, s).Row(0)); got != "u:h|a:[g|]" {
		t.Errorf("a template for tools alone: %q", got)
	}
	s = textSpec(t, 4096, write(t, t.TempDir(), "a.jsonl", plain))
	s.ModelDir = one
	_, err := Open(s)
	wantError(t, err, "a.jsonl:1: ", `it has the templates ["tool_use"], but none named "default"`, "chat_template.jinja")
}

// TestCacheOfNamedTemplates: if the model's template for tools changes, another token cache is
// used.
func TestCacheOfNamedTemplates(t *testing.T) {
	ids := map[string]bool{}
	for _, text := range []string{"A", "B", ""} {
		dir := t.TempDir()
		write(t, dir, "chat_template.jinja", "x")
		if text != "" {
			write(t, dir, "additional_chat_templates/tool_use.jinja", text)
		}
		f := newChatForm(&Spec{ModelDir: dir, Tokenizer: tokenizer.Bytes()})
		ids[f.id()] = true
	}
	if len(ids) != 3 {
		t.Errorf("%d keys of three directories", len(ids))
	}
}

// TestNamedTokens: a template can use special tokens, such as image_token, by the names that the
// tokenizer's files give them.
func TestNamedTokens(t *testing.T) {
	base := string(withChatML(t).Files()["tokenizer.json"])
	for config, want := range map[string]string{
		`{"extra_special_tokens":{"image_token":"<|im_start|>","x_token":{"content":"<|im_end|>"}}}`: "<|im_start|>,<|im_end|>,,",
		`{"image_token":"<|im_end|>","pad_token":"<|im_start|>"}`:                                    "<|im_end|>,,<|im_start|>,",
		`{"additional_special_tokens":["<|im_end|>","<|im_start|>"]}`:                                ",,,<|im_end|>+<|im_start|>",
		`{"extra_special_tokens":["<|im_start|>"]}`:                                                  ",,,<|im_start|>",
	} {
		dir := t.TempDir()
		write(t, dir, "tokenizer.json", base)
		write(t, dir, "tokenizer_config.json", config)
		tok := testkit.Must(tokenizer.Load(dir, 300))(t)
		s := chatSpec(t, "{{ image_token }},{{ x_token }},{{ pad_token }},{{ additional_special_tokens | join('+') }}|{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}{% endif %}",
			write(t, t.TempDir(), "a.jsonl", chat("user", "h", "assistant", "g")))
		s.Tokenizer, s.VocabSize = tok, 300
		if got := string(tok.DecodeSpecial(mustOpen(t, s).Row(0).IDs)); got != want+"|hg" {
			t.Errorf("%s: %q, want %q", config, got, want+"|hg")
		}
	}
}

// TestPublishedWithoutData: a data set of the Hub, or one with a card, without any data is an error that describes
// its files. Cards and scripts are never text.
func TestPublishedWithoutData(t *testing.T) {
	const card, zip = "---\nlicense: mit\n---\n# A card\n", "PK\x03\x04aaaa"
	for _, c := range []struct {
		name  string
		files map[string]string
		hub   bool
		want  []string // parts of the error; nil: no error, and the rows are texts
		texts string
	}{
		{"a script", map[string]string{"README.md": card, "it.py": "import datasets"}, true, []string{"holds no data, only README.md, it.py", "it.py is a loading script", "to_parquet"}, ""},
		{"a script beside a card", map[string]string{"README.md": card, "sub/it.py": "x"}, false, []string{"holds no data", "it.py is a loading script"}, ""},
		{"a card", map[string]string{"README.md": "# no head\n", "LICENSE": "MIT"}, true, []string{"holds no data, only LICENSE, README.md", "download all"}, ""},
		{"an archive", map[string]string{"README.md": card, "data.zip": zip}, true, []string{"data.zip: it is a ZIP archive; unpack it"}, ""},
		{"two archives", map[string]string{"data/a.7z": "7z\xbc\xaf\x27\x1c", "data/b.zip": zip}, true, []string{"a.7z: it is a 7z archive"}, ""},
		{"texts", map[string]string{"README.md": card, "it.py": "import datasets", "a.txt": "abc", "b.zip": zip}, true, nil, "abc$"},
		{"a folder of programs", map[string]string{"README.md": "# mine\n", "a.py": "x=1"}, false, nil, "# mine\n$x=1$"},
	} {
		dir := t.TempDir()
		for file, text := range c.files {
			write(t, dir, file, text)
		}
		s := textSpec(t, 64, dir)
		s.Packing = set(false)
		if c.hub {
			s.Paths, s.Dir = []string{"org/name"}, t.TempDir()
			s.Hub = func(string) (string, error) { return dir, nil }
		}
		d, err := Open(s)
		if c.want != nil {
			wantError(t, err, c.want...)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := strings.Join(texts(d.All()), ""); got != c.texts {
			t.Errorf("%s: %q, want %q", c.name, got, c.texts)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	script := filepath.Join(t.TempDir(), "it.py")
	write(t, filepath.Dir(script), "it.py", "x=1")
	if got := texts(mustOpen(t, textSpec(t, 64, script)).All()); len(got) != 1 || got[0] != "x=1$" {
		t.Errorf("a program that is named is %q", got)
	}
}

// TestHalfSurrogates: in every format, half of a surrogate pair is an error that names the field.
// Whole pairs and escaped backslashes are read.
func TestHalfSurrogates(t *testing.T) {
	for _, row := range []string{
		`{"text":"a %s b"}`,
		`{"prompt":"h","completion":"a %s"}`,
		`{"prompt":"h %s","completion":"a"}`,
		`{"instruction":"h","output":"%s"}`,
		`{"instruction":"h","output":"g","history":[["a","%s"]]}`,
		`{"messages":[{"role":"user","content":"%s"},{"role":"assistant","content":"g"}]}`,
		`{"conversations":[{"from":"human","value":"h"},{"from":"gpt","value":"%s"}]}`,
		`{"system":"%s","messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"}]}`,
		`{"prompt":"h","chosen":"a %s","rejected":"b"}`,
		`{"instruction":"h","chosen":"a","rejected":"%s"}`,
		`{"chosen":"h %s","rejected":"h b"}`,
	} {
		for escape, half := range map[string]bool{`\ud83d`: true, `x\udE42y`: true, `\ud83d\u0041`: true, `\ud83d\\u`: true, `\ud83d\ude42`: false, `\\ud83d`: false, `\u00e9\\\ud83d\ude42`: false} {
			s := textSpec(t, 4096, write(t, t.TempDir(), "a.jsonl", strings.ReplaceAll(row, "%s", escape)))
			s.Template = write(t, t.TempDir(), "t.jinja", small)
			s.Pairs = strings.Contains(row, "chosen")
			d, err := Open(s)
			if half {
				wantError(t, err, "a.jsonl:1: ", "half of a surrogate pair")
				continue
			}
			if err != nil {
				t.Errorf("%s with %s: %v", row, escape, err)
			} else if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestHalfSurrogatesInTexts: half of a surrogate pair is also found in lists and objects that a row
// holds as JSON text, escaped once or twice.
func TestHalfSurrogatesInTexts(t *testing.T) {
	const chat = `"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"}]`
	for _, row := range []string{
		`{"messages":"[{\"role\":\"user\",\"content\":\"h\"},{\"role\":\"assistant\",\"content\":\"g%s\"}]"}`,
		`{"messages":["{\"role\":\"user\",\"content\":\"%s\"}","{\"role\":\"assistant\",\"content\":\"g\"}"]}`,
		`{"tools":"[{\"name\":\"%s\"}]",` + chat + `}`,
		`{"chat_template_kwargs":"{\"kind\":\"%s\"}",` + chat + `}`,
		`{"instruction":"h","output":"g","history":"[[\"a\",\"%s\"]]"}`,
	} {
		for escape, half := range map[string]bool{`\ud83d`: true, `\\ud83d`: true, `\ud83d\ude42`: false} {
			s := chatSpec(t, small, write(t, t.TempDir(), "a.jsonl", strings.ReplaceAll(row, "%s", escape)))
			d, err := Open(s)
			if half {
				wantError(t, err, "a.jsonl:1: ", "half of a surrogate pair")
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", row, err)
			} else if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
