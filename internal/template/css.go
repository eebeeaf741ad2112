// SPDX-License-Identifier: Apache-2.0

package template

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/andybalholm/cascadia"
	input "github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/css"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// Bounds of the html whose styles are put into attributes; a larger one stays
// as it is.
const (
	maxStyled   = 1 << 20 // bytes
	maxRules    = 2000
	maxMatching = 5_000_000 // rules times elements
)

// rule is a style rule whose selector is plain enough for an attribute.
type rule struct {
	selector     cascadia.Sel
	order        int
	declarations []declaration
}

type declaration struct {
	property, value string
	important       bool
}

// comments holds what <!-- … --> said, which html.Render would escape: mail
// has conditional ones that must stay as they are.
var comments = regexp.MustCompile(`(?s)<!--.*?-->`)

// inlineCSS moves the rules of style elements into style attributes, by their
// specificity and order, for mail programs that drop style elements. What
// can't stand in an attribute (@media, :hover) stays where it is. An html that
// can't be read, or that is very large, is returned as it is.
func inlineCSS(source string) string {
	if len(source) > maxStyled || !strings.Contains(strings.ToLower(source), "<style") {
		return source
	}
	var kept []string
	marked := comments.ReplaceAllStringFunc(source, func(s string) string {
		kept = append(kept, s)
		return fmt.Sprintf("<!--%d-->", len(kept)-1)
	})
	root, err := html.Parse(strings.NewReader(marked))
	if err != nil {
		return source
	}
	var styles, elements []*html.Node
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			elements = append(elements, n)
			if n.DataAtom == atom.Style {
				styles = append(styles, n)
			}
		}
	}
	rules, left := readStyles(styles)
	if len(rules) > maxRules || len(rules)*len(elements) > maxMatching {
		return source
	}
	applyRules(rules, elements)
	for style, rest := range left {
		setStyle(style, rest)
	}
	var out bytes.Buffer
	if err := html.Render(&out, root); err != nil {
		return source
	}
	return comments.ReplaceAllStringFunc(out.String(), func(s string) string {
		n := 0
		if _, err := fmt.Sscanf(s, "<!--%d-->", &n); err != nil || n < 0 || n >= len(kept) {
			return s
		}
		return kept[n]
	})
}

// readStyles takes the rules out of style elements, and returns what is left of
// each.
func readStyles(styles []*html.Node) (rules []rule, left map[*html.Node]string) {
	left = map[*html.Node]string{}
	for _, style := range styles {
		text := style.FirstChild
		if text == nil || text.NextSibling != nil || !forScreens(style) || strings.Contains(text.Data, "<!--") {
			continue
		}
		found, rest, ok := readSheet(text.Data, len(rules))
		if ok {
			rules = append(rules, found...)
			left[style] = rest
		}
	}
	return rules, left
}

func forScreens(style *html.Node) bool {
	for _, a := range style.Attr {
		if media := strings.TrimSpace(a.Val); a.Key == "media" && media != "" && media != "all" && media != "screen" {
			return false
		}
	}
	return true
}

func setStyle(style *html.Node, rest string) {
	if strings.TrimSpace(rest) == "" {
		style.Parent.RemoveChild(style)
		return
	}
	style.FirstChild.Data = rest
}

// sheet reads one style sheet.
type sheet struct {
	source    string
	order     int
	rules     []rule
	rest      strings.Builder
	selectors string
	open      []declaration
	begin     int // of the rule or at-rule in hand
	depth     int // of at-rules
}

// readSheet returns the rules of a style sheet that can stand in attributes,
// and the source of all others. It is not ok with what it can't read.
func readSheet(source string, order int) (rules []rule, rest string, ok bool) {
	p := css.NewParser(input.NewInputString(source), false)
	s := &sheet{source: source, order: order}
	for end := 0; ; {
		before := end
		grammar, _, data := p.Next()
		end = min(p.Offset(), len(source))
		if grammar == css.ErrorGrammar {
			if p.HasParseError() {
				return nil, "", false
			}
			return s.rules, s.rest.String(), s.depth == 0
		}
		s.next(grammar, data, p.Values(), before, end)
	}
}

func (s *sheet) next(grammar css.GrammarType, data []byte, values []css.Token, before, end int) {
	if s.depth > 0 || grammar == css.BeginAtRuleGrammar {
		switch grammar {
		case css.BeginAtRuleGrammar:
			if s.depth == 0 {
				s.begin = before
			}
			s.depth++
		case css.EndAtRuleGrammar:
			if s.depth--; s.depth == 0 {
				s.keep(end)
			}
		}
		return
	}
	switch grammar {
	case css.AtRuleGrammar:
		s.begin = before
		s.keep(end)
	case css.BeginRulesetGrammar:
		s.begin, s.selectors, s.open = before, tokens(values), nil
	case css.DeclarationGrammar:
		s.open = append(s.open, declared(string(data), values))
	case css.EndRulesetGrammar:
		s.endRule(end)
	}
}

func (s *sheet) keep(end int) { s.rest.WriteString(strings.TrimSpace(s.source[s.begin:end]) + "\n") }

// endRule adds a rule for each of its selectors, or keeps it as it is when one
// can't stand in an attribute.
func (s *sheet) endRule(end int) {
	selectors, err := cascadia.ParseGroup(s.selectors)
	if err != nil || strings.Contains(s.selectors, ":") {
		s.keep(end)
		return
	}
	for _, selector := range selectors {
		s.rules = append(s.rules, rule{selector, s.order + len(s.rules), s.open})
	}
}

func tokens(values []css.Token) string {
	var b strings.Builder
	for _, t := range values {
		b.Write(t.Data)
	}
	return b.String()
}

func declared(property string, values []css.Token) declaration {
	value := strings.TrimSpace(tokens(values))
	d := declaration{property: strings.ToLower(property), value: value}
	if i := strings.LastIndexByte(value, '!'); i >= 0 && strings.EqualFold(strings.TrimSpace(value[i+1:]), "important") {
		d.value, d.important = strings.TrimSpace(value[:i]), true
	}
	return d
}

// applyRules puts the declarations of the rules into the elements that they
// match.
func applyRules(rules []rule, elements []*html.Node) {
	slices.SortStableFunc(rules, func(a, b rule) int {
		if x, y := a.selector.Specificity(), b.selector.Specificity(); x != y {
			if x.Less(y) {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.order, b.order)
	})
	for _, n := range elements {
		var list []declaration
		for _, r := range rules {
			if r.selector.Match(n) {
				list = append(list, r.declarations...)
			}
		}
		if len(list) > 0 {
			setAttribute(n, list)
		}
	}
}

// setAttribute merges declarations, the weakest first, with the element's own
// style, which is stronger than all but the important ones.
func setAttribute(n *html.Node, list []declaration) {
	own := -1
	for i, a := range n.Attr {
		if a.Key == "style" {
			own = i
			list = append(list, readAttribute(a.Val)...)
		}
	}
	var merged []declaration
	for _, d := range list {
		i := slices.IndexFunc(merged, func(m declaration) bool { return m.property == d.property })
		switch {
		case i < 0:
			merged = append(merged, d)
		case d.important || !merged[i].important:
			// A later one stands behind what it may overrule, such as a shorthand.
			merged = append(slices.Delete(merged, i, i+1), d)
		}
	}
	var b strings.Builder
	for i, d := range merged {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(d.property + ": " + d.value)
		if d.important {
			b.WriteString(" !important")
		}
	}
	if own < 0 {
		n.Attr = append(n.Attr, html.Attribute{Key: "style"})
		own = len(n.Attr) - 1
	}
	n.Attr[own].Val = b.String()
}

func readAttribute(style string) (list []declaration) {
	p := css.NewParser(input.NewInputString(style), true)
	for {
		grammar, _, data := p.Next()
		switch grammar {
		case css.ErrorGrammar:
			return list
		case css.DeclarationGrammar:
			list = append(list, declared(string(data), p.Values()))
		}
	}
}
