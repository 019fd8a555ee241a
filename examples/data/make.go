//go:build ignore

// Make writes the small data of the examples: stories.txt, plain text of short
// stories about counting, chats.jsonl, conversations about the same in the shape
// of OpenAI's messages, and pairs.jsonl, questions with an answer that was chosen
// and one that was rejected. The same every time:
//
//	go run examples/data/make.go examples/data
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

var (
	names  = []string{"Anna", "Bela", "Chidi", "Dora", "Emil", "Fatou", "Goran", "Hana"}
	things = []string{"apples", "books", "candles", "drums", "eggs", "flowers", "gloves", "hats"}
	places = []string{"at the market", "in the garden", "by the river", "near the school"}
)

// pick is one of list.
func pick(r *rand.Rand, list []string) string { return list[r.IntN(len(list))] }

// other is one of the names, but not name.
func other(r *rand.Rand, name string) string {
	for {
		if n := pick(r, names); n != name {
			return n
		}
	}
}

// story is a few sentences that add and take away.
func story(r *rand.Rand) string {
	name, thing := pick(r, names), pick(r, things)
	n := 2 + r.IntN(8)
	var b strings.Builder
	fmt.Fprintf(&b, "%s has %d %s.", name, n, thing)
	for range 1 + r.IntN(3) {
		k := 1 + r.IntN(5)
		if r.IntN(2) == 0 || k >= n {
			n += k
			fmt.Fprintf(&b, " %s finds %d more %s.", name, k, pick(r, places))
		} else {
			n -= k
			fmt.Fprintf(&b, " %s gives %d of them to %s.", name, k, other(r, name))
		}
	}
	fmt.Fprintf(&b, " Now %s has %d %s.", name, n, thing)
	return b.String()
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// chat is one or two questions with their answers, sometimes with a system
// message before them.
func chat(r *rand.Rand) []message {
	var out []message
	if r.IntN(4) == 0 {
		out = append(out, message{"system", "You count things."})
	}
	for range 1 + r.IntN(2) {
		question, answer := sum(r)
		out = append(out, message{"user", question}, message{"assistant", answer})
	}
	return out
}

// sum is a question and its answer.
func sum(r *rand.Rand) (question, answer string) {
	a, b, thing := 1+r.IntN(9), 1+r.IntN(9), pick(r, things)
	return fmt.Sprintf("What are %d %s and %d %s?", a, thing, b, thing), fmt.Sprintf("%d %s.", a+b, thing)
}

// pair is a question with two answers: the one that is chosen says more than the sum.
func pair(r *rand.Rand) map[string]any {
	question, answer := sum(r)
	return map[string]any{
		"prompt":   []message{{"user", question}},
		"chosen":   []message{{"assistant", "That makes " + answer}},
		"rejected": []message{{"assistant", answer}},
	}
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: go run examples/data/make.go FOLDER")
	}
	r := rand.New(rand.NewPCG(1, 2))
	var stories, chats, pairs strings.Builder
	for range 400 {
		fmt.Fprintln(&stories, story(r))
	}
	for range 300 {
		encode(&chats, map[string]any{"messages": chat(r)})
	}
	for range 200 {
		encode(&pairs, pair(r))
	}
	for name, text := range map[string]string{"stories.txt": stories.String(), "chats.jsonl": chats.String(), "pairs.jsonl": pairs.String()} {
		if err := os.WriteFile(filepath.Join(os.Args[1], name), []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// encode adds row to b, on a line.
func encode(b *strings.Builder, row map[string]any) {
	if err := json.NewEncoder(b).Encode(row); err != nil {
		log.Fatal(err)
	}
}
