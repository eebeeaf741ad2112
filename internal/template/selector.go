// SPDX-License-Identifier: Apache-2.0

package template

import (
	"strings"

	"github.com/andybalholm/cascadia"
	"golang.org/x/net/html"
)

// attributeStep is how much of an attribute, in bytes, is looked at in one step.
const attributeStep = 8

// selector is a style rule's, in its parts: the last one is what the element
// itself must be. cascadia would match them too, but tries, for each ancestor
// that fits one part, all above it for the part before: what has some six parts
// and does not match may take it years.
type selector []part

// part is what an element must be, and how the one of the part before stands to it:
// ' ', '>', '+', '~'; 0 in the first.
type part struct {
	cascadia.Sel
	combinator byte
	wide       bool // it asks for attributes other than class and id
}

// readSelectors takes a list of selectors apart, of at most one more than maxRules. It
// is not ok with one that can't be moved into attributes, or can't be read.
func readSelectors(list string) (all []selector, ok bool) {
	if strings.Contains(list, ":") || strings.Contains(list, "/*") || strings.Contains(list, "#=") { // the last is cascadia's own, for expressions
		return nil, false
	}
	var one selector
	combinator := byte(0)
	for at := 0; at <= len(list); {
		end := at + simple(list[at:])
		if end > at {
			sel, err := cascadia.Parse(list[at:end])
			if err != nil || len(one) > 0 && combinator == 0 {
				return nil, false
			}
			one, combinator = append(one, part{sel, combinator, strings.Contains(list[at:end], "[")}), 0
		}
		between := byte(0)
		if end < len(list) {
			between = list[end]
		}
		switch between {
		case 0, ',':
			if len(one) == 0 || combinator != 0 && combinator != ' ' {
				return nil, false
			}
			if all, one, combinator = append(all, one), nil, 0; len(all) > maxRules {
				return all, true
			}
		case '>', '+', '~':
			if len(one) == 0 || combinator != 0 && combinator != ' ' {
				return nil, false
			}
			combinator = between
		default:
			if len(one) > 0 && combinator == 0 {
				combinator = ' '
			}
		}
		at = end + 1
	}
	return all, true
}

// simple returns where the selector of one element ends.
func simple(s string) int {
	quote, within := byte(0), false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case within:
			if c == '"' || c == '\'' {
				quote = c
			}
			within = c != ']'
		case c == '[':
			within = true
		case strings.IndexByte(" \t\r\n\f>+~,", c) >= 0:
			return i
		}
	}
	return len(s)
}

func (s selector) specificity() (sum cascadia.Specificity) {
	for _, p := range s {
		sum = sum.Add(p.Specificity())
	}
	return sum
}

// matches reports whether an element is what the parts up to one say, as far as
// the effort lasts.
func (s selector) matches(n *html.Node, last int, may *effort) bool {
	for _, a := range n.Attr {
		if s[last].wide || a.Key == "class" {
			may.steps -= len(a.Val) / attributeStep
		}
	}
	if may.steps--; may.spent() || !s[last].Match(n) {
		return false
	}
	var before func(*html.Node) *html.Node
	near := false // only the next one counts
	switch s[last].combinator {
	case 0:
		return true
	case ' ', '>':
		before, near = func(n *html.Node) *html.Node { return n.Parent }, s[last].combinator == '>'
	default:
		before, near = func(n *html.Node) *html.Node { return n.PrevSibling }, s[last].combinator == '+'
	}
	for n = before(n); n != nil && !may.spent(); n = before(n) {
		if n.Type != html.ElementNode {
			may.steps--
			continue
		}
		if s.matches(n, last-1, may) {
			return true
		}
		if near {
			return false
		}
	}
	return false
}
