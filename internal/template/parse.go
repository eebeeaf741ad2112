// SPDX-License-Identifier: Apache-2.0

package template

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// nodeKind is the kind of a node.
type nodeKind int

const (
	literalNode nodeKind = iota
	escapedNode          // {{path}}
	rawNode              // {{{path}}}
	ifNode
	unlessNode
	eachNode
)

// node is an element of a template.
type node struct {
	kind     nodeKind
	text     string // for a literal
	path     path
	body     []node
	elseBody []node // after {{else}}
}

// program is a parsed template.
type program struct {
	body      []node
	nodeCount int // total, including nested nodes
}

// path names a value: up is the number of scopes to go outwards, followed by names. special is one
// of the names that begin with @.
type path struct {
	text     string
	up       int
	fromThis bool // begins with "this"
	atName   string
	names    []string
}

// syntaxError is a syntax error in a template, with its position.
type syntaxError struct {
	line, column int
	reason       string
}

func (e *syntaxError) Error() string {
	return fmt.Sprintf("Line %d, column %d: %s", e.line, e.column, e.reason)
}

// parser parses a template. Open blocks are on an explicit stack, so that nesting needs no
// recursion.
type parser struct {
	source    string
	at        int
	open      []openBlock
	nodeCount int
}

// openBlock is a block that isn't closed yet.
type openBlock struct {
	node   node
	name   string
	begin  int
	inElse bool // after its {{else}}
}

func parse(source string) (*program, error) {
	if !utf8.ValidString(source) {
		return nil, &syntaxError{1, 1, "the text is not UTF-8"}
	}
	p := &parser{source: source, open: []openBlock{{}}}
	for p.at < len(source) {
		if err := p.parseNext(); err != nil {
			return nil, err
		}
	}
	if last := p.open[len(p.open)-1]; len(p.open) > 1 {
		return nil, p.errorAt(last.begin, "{{#%s}} is never closed; add {{/%s}}", last.name, last.name)
	}
	return &program{p.open[0].node.body, p.nodeCount}, nil
}

func (p *parser) errorAt(at int, format string, args ...any) error {
	before := p.source[:at]
	line := strings.Count(before, "\n") + 1
	column := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
	return &syntaxError{line, column, fmt.Sprintf(format, args...)}
}

// add appends a node to the innermost open block.
func (p *parser) add(n node) {
	p.nodeCount++
	f := &p.open[len(p.open)-1]
	if f.inElse {
		f.node.elseBody = append(f.node.elseBody, n)
		return
	}
	f.node.body = append(f.node.body, n)
}

// parseNext parses up to the end of the next tag.
func (p *parser) parseNext() error {
	rest := p.source[p.at:]
	i := strings.Index(rest, "{{")
	if i < 0 {
		p.add(node{kind: literalNode, text: rest})
		p.at = len(p.source)
		return nil
	}
	if i > 0 && rest[i-1] == '\\' { // \{{ is a literal {{
		p.add(node{kind: literalNode, text: rest[:i-1] + "{{"})
		p.at += i + 2
		return nil
	}
	if i > 0 {
		p.add(node{kind: literalNode, text: rest[:i]})
	}
	p.at += i
	return p.parseTag(p.at)
}

// parseTag parses the tag that starts at begin.
func (p *parser) parseTag(begin int) error {
	rest := p.source[begin:]
	ending := "}}"
	switch {
	case strings.HasPrefix(rest, "{{{"):
		ending = "}}}"
	case strings.HasPrefix(rest, "{{!--"):
		ending = "--}}"
	}
	end := strings.Index(rest, ending)
	if end < 0 {
		return p.errorAt(begin, "a tag begins here and does not end; add %s", ending)
	}
	p.at = begin + end + len(ending)
	if strings.HasPrefix(rest, "{{!") {
		return nil
	}
	if ending == "}}}" {
		return p.addValue(begin, rawNode, rest[3:end])
	}
	inside := strings.TrimSpace(rest[2:end])
	switch {
	case strings.HasPrefix(inside, "#"):
		return p.openBlock(begin, inside[1:])
	case strings.HasPrefix(inside, "/"):
		return p.closeBlock(begin, strings.TrimSpace(inside[1:]))
	case inside == "else":
		return p.startElse(begin)
	case strings.HasPrefix(inside, ">"):
		return p.errorAt(begin, "partials are not supported")
	case strings.HasPrefix(inside, "&"):
		return p.errorAt(begin, "write {{{name}}} for a value that is not to be escaped")
	}
	return p.addValue(begin, escapedNode, inside)
}

func (p *parser) addValue(begin int, k nodeKind, text string) error {
	at, err := parsePath(strings.TrimSpace(text))
	if err != nil {
		return p.errorAt(begin, "%s", err)
	}
	p.add(node{kind: k, path: at})
	return nil
}

func (p *parser) openBlock(begin int, text string) error {
	name, argument, _ := strings.Cut(strings.TrimSpace(text), " ")
	blocks := map[string]nodeKind{"if": ifNode, "unless": unlessNode, "each": eachNode}
	k, ok := blocks[name]
	if !ok {
		return p.errorAt(begin, "there is no such block; the blocks are #if, #unless and #each")
	}
	at, err := parsePath(strings.TrimSpace(argument))
	if err != nil {
		return p.errorAt(begin, "%s", err)
	}
	if len(p.open) > maxDepth {
		return p.errorAt(begin, "blocks are nested more than %d deep", maxDepth)
	}
	p.open = append(p.open, openBlock{node: node{kind: k, path: at}, name: name, begin: begin})
	return nil
}

func (p *parser) closeBlock(begin int, name string) error {
	f := p.open[len(p.open)-1]
	switch {
	case len(p.open) == 1:
		return p.errorAt(begin, "nothing is open that could be closed here")
	case name != f.name:
		return p.errorAt(begin, "{{/%s}} must come first", f.name)
	}
	p.open = p.open[:len(p.open)-1]
	p.add(f.node)
	return nil
}

func (p *parser) startElse(begin int) error {
	f := &p.open[len(p.open)-1]
	if len(p.open) == 1 || f.inElse {
		return p.errorAt(begin, "{{else}} stands once within a block")
	}
	f.inElse = true
	return nil
}

// parsePath parses a path.
func parsePath(text string) (path, error) {
	p := path{text: text}
	if len(text) > maxPathBytes {
		return p, fmt.Errorf("a variable's name may have %d bytes", maxPathBytes)
	}
	for strings.HasPrefix(text, "../") {
		p.up++
		text = text[3:]
	}
	switch text {
	case "":
		return p, fmt.Errorf("the name of a variable is missing")
	case "@index", "@key", "@first", "@last":
		p.atName = text
		return p, nil
	case "this", ".":
		p.fromThis = true
		return p, nil
	}
	p.names = strings.Split(text, ".")
	if p.names[0] == "this" {
		p.fromThis, p.names = true, p.names[1:]
	}
	if len(p.names) > maxSegments {
		return p, fmt.Errorf("a variable's name may have %d parts", maxSegments)
	}
	for _, name := range p.names {
		if !isName(name) {
			return p, fmt.Errorf("this is not the name of a variable: letters, digits, _ and -, with dots between; helpers and arguments are not supported")
		}
	}
	return p, nil
}

func isName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
}
