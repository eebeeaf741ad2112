// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
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

// TestRetiredWordsBite checks the rule itself.
func TestRetiredWordsBite(t *testing.T) {
	for word, want := range map[string]bool{"lane": true, "Lanes": true, "deeds": true, "judged": true, "duties": true, "batcher": false, "planet": false} {
		if _, got := retiredWord(word); got != want {
			t.Errorf("%s: %v", word, got)
		}
	}
}
