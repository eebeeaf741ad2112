// SPDX-License-Identifier: Apache-2.0

package template

import (
	"strings"
	"unicode"

	"github.com/andybalholm/cascadia"
	"golang.org/x/net/html"
)

// unitsPerStep is how many attributes of an element, or bytes of them or of a selector, count as
// one step.
const unitsPerStep = 8

// selector is a parsed selector of a style rule; its last part must match the element itself.
// cascadia isn't used for matching: for each ancestor that matches one part, it tries all ancestors
// above for the previous part. A selector of six parts that doesn't match could take years.
type selector []compound

// compound is the part of a selector for one element, with the combinator to the previous part: '
// ', '>', '+', '~'; 0 for the first.
type compound struct {
	cascadia.Sel
	combinator            byte
	key                   string // a required ".class" or element name; "" for any element
	attributeChecks       int    // how many times it checks each attribute
	checksOtherAttributes bool   // checks attributes other than class and id
}

func newCompound(text string, combinator byte) (compound, error) {
	sel, err := cascadia.Parse(text)
	p := compound{Sel: sel, combinator: combinator, key: selectorKey(text), checksOtherAttributes: strings.Contains(text, "[")}
	p.attributeChecks = 1 + strings.Count(text, ".") + strings.Count(text, "#") + strings.Count(text, "[")
	if p.checksOtherAttributes { // the attribute may be long
		p.attributeChecks += len(text) / unitsPerStep
	}
	return p, err
}

// selectorKey returns the key of a simple selector; "" if there are escapes, which may stand for
// anything, or non-ASCII characters, whose case folding differs.
func selectorKey(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return r == '\\' || r > unicode.MaxASCII }) {
		return ""
	}
	if end := strings.IndexAny(text, "#["); end >= 0 {
		text = text[:end]
	}
	name, classes, _ := strings.Cut(text, ".")
	if class, _, _ := strings.Cut(classes, "."); class != "" {
		return "." + class
	}
	if name == "*" {
		return ""
	}
	return strings.ToLower(name)
}

// cost returns how many steps it takes to match an element.
func (p *compound) cost(n *html.Node) int {
	size := len(n.Attr)
	for _, a := range n.Attr {
		if p.checksOtherAttributes || a.Key == "class" {
			size += len(a.Val)
		}
	}
	return p.attributeChecks * (1 + size/unitsPerStep)
}

// readSelectors parses a list of selectors, at most one more than maxRules. ok is false if a
// selector can't be inlined or parsed.
func readSelectors(list string) (all []selector, ok bool) {
	if strings.Contains(list, ":") || strings.Contains(list, "/*") || strings.Contains(list, "#=") { // "#=" is an extension of cascadia for regular expressions
		return nil, false
	}
	var one selector
	combinator := byte(0)
	for at := 0; at <= len(list); {
		end := at + compoundEnd(list[at:])
		if end > at {
			p, err := newCompound(list[at:end], combinator)
			if err != nil || len(one) > 0 && combinator == 0 {
				return nil, false
			}
			one, combinator = append(one, p), 0
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

// compoundEnd returns the end of the selector for one element.
func compoundEnd(s string) int {
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

// matches reports whether an element matches the parts up to index last, within the budget.
func (s selector) matches(n *html.Node, last int, may *budget) bool {
	if may.steps -= s[last].cost(n); may.exhausted() || !s[last].Match(n) {
		return false
	}
	var before func(*html.Node) *html.Node
	near := false // only the next element counts
	switch s[last].combinator {
	case 0:
		return true
	case ' ', '>':
		before, near = func(n *html.Node) *html.Node { return n.Parent }, s[last].combinator == '>'
	default:
		before, near = func(n *html.Node) *html.Node { return n.PrevSibling }, s[last].combinator == '+'
	}
	for n = before(n); n != nil && !may.exhausted(); n = before(n) {
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
