// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// retired are the words of an earlier private vocabulary, each with the term that the field uses.
// They must not appear in identifiers.
var retired = map[string]string{
	"errand": "delivery plan", "parcel": "prepared message", "tenure": "lease", "bury": "expire", "buried": "expired",
	"duty": "leader job", "lane": "batcher", "courier": "delivery agent", "consignment": "transaction", "letter": "transaction, message",
	"handful": "sample", "door": "listener, server", "floor": "layer", "house": "fixture, service", "deed": "audit entry",
	"shelf": "segment", "onward": "forward", "verdict": "result", "judge": "verifier", "strangers": "clients", "allowance": "limit",
	"whoever": "the client, the caller", "whatever": "any", "anew": "again",
}

// retiredInComments are those of them that have no ordinary meaning in a comment either.
var retiredInComments = []string{"errand", "parcel", "bury", "duty", "lane", "consignment", "handful", "deed", "shelf", "onward", "whoever", "anew"}

// retiredInText may not appear in strings, templates and documents. Bounces and archives name Courier,
// the mail server.
var retiredInText = regexp.MustCompile(`(?i)\b(errands?|parcels?|tenures?|duties|couriers?|consignments?|doors?|deeds?|onward|anew|in hand|standing holds?)\b`)

var textAboutOthers = []string{"internal/bounce/patterns.go", "internal/mailfile/read.go"}

// ordinary are identifiers in which such a word has its ordinary meaning, or which mirror names of
// other people or of the API.
var ordinary = regexp.MustCompile(`^(IsLetter|isLetter|.*[lL]etters?[A-Z].*|flagLetter|passwordLetters|Letter|logFloor|raiseLogFloor(Query)?|Floor)$`)

var identifierWord = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)

func retiredWord(word string) (term string, yes bool) {
	word = strings.ToLower(word)
	for _, w := range []string{word, strings.TrimSuffix(word, "s"), strings.TrimSuffix(word, "ies") + "y", strings.TrimSuffix(word, "d")} {
		if term, yes = retired[w]; yes {
			return term, true
		}
	}
	return "", false
}

// TestRetiredWords rejects the private vocabulary in names and comments, so that a newcomer who
// knows mail can read the code.
func TestRetiredWords(t *testing.T) {
	for _, src := range sources(t) {
		seen := map[string]bool{}
		ast.Inspect(src.ast, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && !src.isTest() && !slices.Contains(textAboutOthers, src.path) {
				if w := retiredInText.FindString(l.Value); w != "" {
					t.Errorf("%s:%d: %q in a string", src.path, src.line(l), w)
				}
			}
			id, ok := n.(*ast.Ident)
			if !ok || seen[id.Name] || ordinary.MatchString(id.Name) {
				return true
			}
			seen[id.Name] = true
			for _, w := range identifierWord.FindAllString(id.Name, -1) {
				if term, yes := retiredWord(w); yes {
					t.Errorf("%s:%d: %s: the term is %q", src.path, src.line(id), id.Name, term)
				}
			}
			return true
		})
		for _, group := range src.ast.Comments {
			for _, w := range identifierWord.FindAllString(group.Text(), -1) {
				if w = strings.ToLower(w); slices.Contains(retiredInComments, w) && src.dir != "internal/archtest" {
					t.Errorf("%s:%d: %q in a comment: the term is %q", src.path, src.line(group), w, retired[w])
				}
			}
		}
	}
}

// TestRetiredWordsInText rejects it in what people read.
func TestRetiredWordsInText(t *testing.T) {
	read := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "internal/dashboard/templates/*.html", "internal/dashboard/templates/*/*.html"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if name := filepath.Base(file); name == "decisions.md" || name == "CHANGELOG.md" {
				continue // records of earlier times
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			read++
			for i, line := range strings.Split(string(text), "\n") {
				if w := retiredInText.FindString(line); w != "" {
					t.Errorf("%s:%d: %q", file, i+1, w)
				}
			}
		}
	}
	if read < 40 {
		t.Errorf("only %d files were read", read)
	}
}

// TestRetiredWordsBite checks the rule itself.
func TestRetiredWordsBite(t *testing.T) {
	for word, want := range map[string]bool{"lane": true, "Lanes": true, "deeds": true, "judged": true, "duties": true, "batcher": false, "planet": false} {
		if _, got := retiredWord(word); got != want {
			t.Errorf("%s: %v", word, got)
		}
	}
}
