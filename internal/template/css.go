// SPDX-License-Identifier: Apache-2.0

package template

import (
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

// Limits of the HTML whose styles are inlined; a larger one is left unchanged.
const (
	maxInlineBytes = 1 << 20 // bytes
	maxRules       = 2000
	maxMatchSteps  = 5_000_000 // rules times elements
	maxTextCopies  = 8 << 30   // bytes that a parser may copy when it joins adjacent texts
	maxRootTags    = 100       // tags of html and body with attributes
	maxNodes       = 1_000_000 // nodes that a parser may create for formatting tags that continue in other elements
)

// styleRule is a style rule whose selector can be evaluated for an inline style.
type styleRule struct {
	selector     selector
	specificity  cascadia.Specificity
	order        int
	declarations []declaration
	statement    *sheetStatement
	matched      bool // matched an element
}

// sheetStatement is a top-level statement of a style sheet.
type sheetStatement struct {
	source    string
	remainder string // what remains once each of its selectors has matched an element
	unmatched int    // number of selectors that have matched no element
}

// budget is the remaining work for one HTML.
type budget struct {
	steps int
	bytes int // of attributes
}

func (e *budget) exhausted() bool { return e.steps < 0 || e.bytes < 0 }

type declaration struct {
	property, value string
	important       bool
}

// commentPattern matches <!-- … -->, which html.Render would escape, and <![ … ]>, which it would
// turn into a comment. Conditional comments in mail must not change.
var commentPattern = regexp.MustCompile(`(?s)<!--.*?-->|<!\[[^>]*>`)

// inlineCSS moves the rules of style elements into style attributes, by specificity and order, for
// mail programs that drop style elements. Rules that can't be inlined (@media, :hover) stay. Rules
// that match no element stay too: mail programs add their own elements (#outlook, .ExternalClass),
// and some elements are in conditional comments. An HTML that can't be parsed, or that is very
// large, is returned unchanged.
func inlineCSS(source string) string {
	if len(source) > maxInlineBytes || !strings.Contains(strings.ToLower(source), "<style") || copiesTooMuch(source) || makesTooManyNodes(source) {
		return source
	}
	var kept []string
	marked := commentPattern.ReplaceAllStringFunc(source, func(s string) string {
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
	if len(rules) > maxRules || len(rules)*len(elements) > maxMatchSteps {
		return source
	}
	may := budget{steps: 4 * maxMatchSteps, bytes: MaxOutput}
	if applyRules(rules, elements, &may); may.exhausted() {
		return source
	}
	for style, statements := range left {
		replaceStyleElement(style, statements)
	}
	var out limitedBuffer
	if err := html.Render(&out, root); err != nil {
		return source
	}
	return commentPattern.ReplaceAllStringFunc(string(out.text), func(s string) string {
		n := 0
		if _, err := fmt.Sscanf(s, "<!--%d-->", &n); err != nil || n < 0 || n >= len(kept) {
			return s
		}
		return kept[n]
	})
}

// limitedBuffer stores at most MaxOutput bytes and then fails.
type limitedBuffer struct{ text []byte }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if len(b.text)+len(p) > MaxOutput {
		return 0, errTooMuchOutput
	}
	b.text = append(b.text, p...)
	return len(p), nil
}

var rootTagPattern = regexp.MustCompile(`(?i)<(?:html|body)[\s/]`)

// copiesTooMuch reports whether the parser might copy far more than the size of the source. It
// copies adjacent texts with nothing between them into a new one, and merges the attributes of each
// html and body tag into the first.
func copiesTooMuch(source string) bool {
	before, copied := 0, 0
	for piece := range strings.SplitSeq(source, "<") {
		if _, text, _ := strings.Cut(piece, ">"); text != "" {
			before += len(text)
			copied += before
		}
	}
	return copied > maxTextCopies || len(rootTagPattern.FindAllStringIndex(source, maxRootTags+1)) > maxRootTags
}

// formattingTagPattern matches the tags that a parser reopens in each block after which they are
// still open (WHATWG HTML §13.2.4.3); plainTagPattern matches those with simple attributes.
var (
	formattingTagPattern = regexp.MustCompile(`(?i)<(?:a|b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)(?:[\s/][^>]*)?>`)
	plainTagPattern      = regexp.MustCompile(`(?i)^<[a-z]+(?:\s+[a-z0-9:_-]+(?:="[^"]*"|='[^']*')?)*\s*>$`)
	quotedPattern        = regexp.MustCompile(`"[^"]*"|'[^']*'`)
	selfContainedPattern = compileSelfContained()
)

// compileSelfContained returns the pattern for formatting elements that end without continuing:
// they contain only text and images, or in a link also tags that are no blocks.
func compileSelfContained() *regexp.Regexp {
	const (
		attributes = `(?:\s+[a-z0-9:_-]+(?:="[^"<>]*"|='[^'<>]*'|=[^\s"'<>]+)?)*\s*/?>`
		names      = "b big code em font i nobr s small strike strong tt u"
	)
	inLink := strings.ReplaceAll(names, " ", "|")
	all := `<a` + attributes + `(?:[^<]|<(?:br|img|/?(?:span|` + inLink + `))` + attributes + `)*</a\s*>`
	for name := range strings.FieldsSeq(names) {
		all += `|<` + name + attributes + `(?:[^<]|<(?:br|img)` + attributes + `)*</` + name + `\s*>`
	}
	return regexp.MustCompile(`(?i)` + all)
}

// maxOpenLinks is the maximum number of open <a> elements. Each closes the previous one, unless
// nine nested blocks keep it open, and the parser's maximum depth limits these.
const maxOpenLinks = 512 / 10

// makesTooManyNodes reports whether the parser could create far more nodes than the source has.
// Only a few sources need the slow search for self-contained elements.
func makesTooManyNodes(source string) bool {
	return estimateNodes(source, nil) > maxNodes && estimateNodes(source, selfContainedPattern.FindAllStringIndex(source, -1)) > maxNodes
}

// estimateNodes returns the maximum number of nodes that the parser may create. Each block that
// ends may add all open formatting tags, at most three identical ones, except those in closed.
func estimateNodes(source string, closed [][]int) int {
	cost, links, link := 1, 0, 0
	seen := map[string]bool{}
	for _, at := range formattingTagPattern.FindAllStringIndex(source, -1) {
		for len(closed) > 0 && closed[0][0] < at[0] {
			closed = closed[1:]
		}
		if len(closed) > 0 && closed[0][0] == at[0] {
			continue
		}
		tag := source[at[0]:at[1]]
		plain := plainTagPattern.MatchString(tag)
		attributes := strings.Count(tag, "=") + strings.Count(tag, " ") + strings.Count(tag, "/")
		if plain {
			attributes = len(strings.Fields(quotedPattern.ReplaceAllString(tag, "")))
		}
		one := 1 + attributes/3
		switch {
		case strings.ContainsRune(" \t\r\n\f/>", rune(tag[2])) && tag[1]|0x20 == 'a':
			links, link = min(links+1, maxOpenLinks), max(link, one)
		case !plain:
			cost += one
		case !seen[tag]:
			seen[tag] = true
			cost += 3 * one
		}
	}
	return (cost + links*link) * strings.Count(source, "<")
}

// readStyles returns the rules of style elements, and the statements of each element.
func readStyles(styles []*html.Node) (rules []styleRule, left map[*html.Node][]*sheetStatement) {
	left = map[*html.Node][]*sheetStatement{}
	for _, style := range styles {
		text := style.FirstChild
		if text == nil || text.NextSibling != nil || !appliesToScreens(style) || strings.Contains(text.Data, "<!--") {
			continue
		}
		found, statements, ok := readSheet(text.Data, len(rules))
		if ok {
			rules = append(rules, found...)
			left[style] = statements
		}
	}
	return rules, left
}

func appliesToScreens(style *html.Node) bool {
	for _, a := range style.Attr {
		if media := strings.TrimSpace(a.Val); a.Key == "media" && media != "" && media != "all" && media != "screen" {
			return false
		}
	}
	return true
}

func replaceStyleElement(style *html.Node, statements []*sheetStatement) {
	var rest strings.Builder
	for _, s := range statements {
		if s.unmatched > 0 {
			rest.WriteString(s.source)
		} else {
			rest.WriteString(s.remainder)
		}
	}
	if rest.Len() == 0 {
		style.Parent.RemoveChild(style)
		return
	}
	style.FirstChild.Data = rest.String()
}

// sheetParser reads one style sheet.
type sheetParser struct {
	source       string
	order        int
	rules        []styleRule
	statements   []*sheetStatement
	selectors    string
	declarations []declaration
	nestedRules  strings.Builder // nested rules of the current rule
	begin        int             // start of the current rule or at-rule
	inner        int             // start of the nested rule
	depth        int             // nesting depth of at-rules and nested rules
	inRule       bool
}

// readSheet returns the rules of a style sheet that can be inlined, and all its statements. ok is
// false if it can't be parsed.
func readSheet(source string, order int) (rules []styleRule, statements []*sheetStatement, ok bool) {
	p := css.NewParser(input.NewInputString(source), false)
	s := &sheetParser{source: source, order: order}
	for end := 0; ; {
		before := end
		grammar, _, data := p.Next()
		end = min(p.Offset(), len(source))
		if grammar == css.ErrorGrammar {
			if p.HasParseError() {
				return nil, nil, false
			}
			return s.rules, s.statements, s.depth == 0
		}
		s.next(grammar, data, p.Values(), before, end)
	}
}

func (s *sheetParser) next(grammar css.GrammarType, data []byte, values []css.Token, before, end int) {
	begins := grammar == css.BeginAtRuleGrammar || s.inRule && grammar == css.BeginRulesetGrammar
	switch {
	case begins && s.depth == 0:
		s.inner = before
		s.depth++
	case begins, s.depth > 0 && grammar == css.BeginRulesetGrammar:
		s.depth++
	case s.depth > 0 && (grammar == css.EndAtRuleGrammar || grammar == css.EndRulesetGrammar):
		if s.depth--; s.depth == 0 {
			s.endInner(end)
		}
	case s.depth > 0:
	case grammar == css.AtRuleGrammar:
		s.inner = before
		s.endInner(end)
	case grammar == css.BeginRulesetGrammar:
		s.begin, s.selectors, s.declarations, s.inRule = before, joinTokens(values), nil, true
		s.nestedRules.Reset()
	case grammar == css.DeclarationGrammar, grammar == css.CustomPropertyGrammar:
		s.declarations = append(s.declarations, newDeclaration(string(data), values))
	case grammar == css.EndRulesetGrammar:
		s.inRule = false
		s.endRule(end)
	}
}

// endInner adds an at-rule to the statements, or a nested rule to its outer rule.
func (s *sheetParser) endInner(end int) {
	text := strings.TrimSpace(s.source[s.inner:end]) + "\n"
	if s.inRule {
		s.nestedRules.WriteString(text)
	} else {
		s.statements = append(s.statements, &sheetStatement{remainder: text})
	}
}

// endRule adds a rule for each of its selectors. If one of them can't be inlined, the rule stays in
// the style sheet unchanged.
func (s *sheetParser) endRule(end int) {
	if s.order+len(s.rules) > maxRules {
		return // further rules would not be applied
	}
	from := &sheetStatement{source: strings.TrimSpace(s.source[s.begin:end]) + "\n"}
	s.statements = append(s.statements, from)
	selectors, ok := readSelectors(s.selectors)
	if !ok {
		from.remainder = from.source
		return
	}
	if s.nestedRules.Len() > 0 {
		from.remainder = s.selectors + " {\n" + s.nestedRules.String() + "}\n"
	}
	from.unmatched = len(selectors)
	for _, one := range selectors {
		s.rules = append(s.rules, styleRule{selector: one, specificity: one.specificity(), order: s.order + len(s.rules), declarations: s.declarations, statement: from})
	}
}

func joinTokens(values []css.Token) string {
	var b strings.Builder
	for _, t := range values {
		b.Write(t.Data)
	}
	return b.String()
}

func newDeclaration(property string, values []css.Token) declaration {
	value := strings.TrimSpace(joinTokens(values))
	d := declaration{property: property, value: value}
	if i := strings.LastIndexByte(value, '!'); i >= 0 && strings.EqualFold(strings.TrimSpace(value[i+1:]), "important") {
		d.value, d.important = strings.TrimSpace(value[:i]), true
	}
	return d
}

// applyRules adds the declarations of the rules to the elements that they match, within the budget.
func applyRules(rules []styleRule, elements []*html.Node, may *budget) {
	slices.SortStableFunc(rules, func(a, b styleRule) int {
		if x, y := a.specificity, b.specificity; x != y {
			if x.Less(y) {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.order, b.order)
	})
	byKey := map[string][]int{}
	for i, r := range rules {
		key := r.selector[len(r.selector)-1].key
		byKey[key] = append(byKey[key], i)
	}
	for _, n := range elements {
		var list []declaration
		for _, i := range candidateRules(n, byKey, may) {
			r := &rules[i]
			if r.selector.matches(n, len(r.selector)-1, may) {
				may.steps -= len(r.declarations)
				if may.exhausted() {
					return
				}
				list = append(list, r.declarations...)
				if !r.matched {
					r.matched = true
					r.statement.unmatched--
				}
			}
		}
		if len(list) > 0 {
			mergeStyleAttribute(n, list, may)
		}
		if may.exhausted() {
			return
		}
	}
}

// candidateRules returns the rules, in order, that may match an element according to their keys.
func candidateRules(n *html.Node, byKey map[string][]int, may *budget) []int {
	list := slices.Concat(byKey[""], byKey[n.Data])
	for _, a := range n.Attr {
		if a.Key != "class" {
			continue
		}
		for class := range strings.FieldsFuncSeq(a.Val, func(r rune) bool { return strings.ContainsRune(" \t\r\n\f", r) }) {
			if may.steps -= 1 + len(list)/unitsPerStep; may.exhausted() {
				return nil
			}
			if more := byKey["."+class]; len(more) > 0 && !slices.Contains(list, more[0]) { // the class may be repeated
				list = append(list, more...)
			}
		}
	}
	may.steps -= len(list)
	slices.Sort(list)
	return list
}

// mergeStyleAttribute merges declarations, the weakest first, with the element's own style. The own
// style overrides all but important declarations.
func mergeStyleAttribute(n *html.Node, list []declaration, may *budget) {
	own := -1
	for i, a := range n.Attr {
		if a.Key == "style" {
			own = i
			list = append(list, parseStyleAttribute(a.Val)...)
		}
	}
	var merged []declaration
	for _, d := range list {
		if may.steps -= len(merged); may.exhausted() {
			return
		}
		i := slices.IndexFunc(merged, func(m declaration) bool { return m.property == d.property })
		switch {
		case i < 0:
			merged = append(merged, d)
		case d.important || !merged[i].important:
			// A later declaration moves to the end, after those that it may override, such as a
			// shorthand.
			merged = append(slices.Delete(merged, i, i+1), d)
		}
	}
	var b strings.Builder
	for i, d := range merged {
		if may.bytes -= len(d.property) + len(d.value); may.exhausted() {
			return
		}
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

func parseStyleAttribute(style string) (list []declaration) {
	p := css.NewParser(input.NewInputString(style), true)
	for {
		switch grammar, _, data := p.Next(); grammar {
		case css.ErrorGrammar:
			if !p.HasParseError() { // otherwise continue after the part that can't be parsed
				return list
			}
		case css.DeclarationGrammar, css.CustomPropertyGrammar:
			list = append(list, newDeclaration(string(data), p.Values()))
		}
	}
}
