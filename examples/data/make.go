//go:build ignore

// Make writes the small data sets of the examples. stories.txt has plain text: short stories about counting.
// chats.jsonl has conversations in the format of OpenAI's messages. pairs.jsonl has questions with a chosen and a
// rejected answer. The output is the same every time:
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

// pick returns a random element of list.
func pick(r *rand.Rand, list []string) string { return list[r.IntN(len(list))] }

// other returns a random name other than name.
func other(r *rand.Rand, name string) string {
	for {
		if n := pick(r, names); n != name {
			return n
		}
	}
}

// story returns a short story: a few sentences in which someone gets and gives away things, so that
// numbers are added and subtracted.
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

// chat returns one or two questions with answers, sometimes after a system message.
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

// sum returns a question about the sum of two numbers of things, and its answer.
func sum(r *rand.Rand) (question, answer string) {
	a, b, thing := 1+r.IntN(9), 1+r.IntN(9), pick(r, things)
	return fmt.Sprintf("What are %d %s and %d %s?", a, thing, b, thing), fmt.Sprintf("%d %s.", a+b, thing)
}

// pair returns a question with two answers. The chosen answer is a sentence; the rejected answer is the bare sum.
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

// encode appends row to b as one line of JSON.
func encode(b *strings.Builder, row map[string]any) {
	if err := json.NewEncoder(b).Encode(row); err != nil {
		log.Fatal(err)
	}
}
