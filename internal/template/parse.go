// SPDX-License-Identifier: Apache-2.0

package template

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// kind says what a node does.
type kind int

const (
	literal kind = iota
	output       // {{path}}
	raw          // {{{path}}}
	ifBlock
	unlessBlock
	eachBlock
)

// node is a piece of a template.
type node struct {
	kind kind
	text string // of a literal
	path path
	body []node
	rest []node // behind {{else}}
}

// program is a parsed template.
type program struct {
	body  []node
	nodes int // in all, also those within others
}

// path names a value: up levels outwards, then by names. special is one of the
// names that begin with @.
type path struct {
	text    string
	up      int
	this    bool // begins with this
	special string
	names   []string
}

// syntaxError says where a template is not understood.
type syntaxError struct {
	line, column int
	why          string
}

func (e *syntaxError) Error() string {
	return fmt.Sprintf("Line %d, column %d: %s", e.line, e.column, e.why)
}

// parser reads a template. The blocks that are open stand in a stack, so that
// depth costs no recursion.
type parser struct {
	source string
	at     int
	open   []frame
	nodes  int
}

// frame is a block that has begun.
type frame struct {
	node   node
	name   string
	begin  int
	orElse bool // the {{else}} came
}

func parse(source string) (*program, error) {
	if !utf8.ValidString(source) {
		return nil, &syntaxError{1, 1, "the text is not UTF-8"}
	}
	p := &parser{source: source, open: []frame{{}}}
	for p.at < len(source) {
		if err := p.next(); err != nil {
			return nil, err
		}
	}
	if last := p.open[len(p.open)-1]; len(p.open) > 1 {
		return nil, p.fault(last.begin, "{{#%s}} is never closed; add {{/%s}}", last.name, last.name)
	}
	return &program{p.open[0].node.body, p.nodes}, nil
}

func (p *parser) fault(at int, format string, args ...any) error {
	before := p.source[:at]
	line := strings.Count(before, "\n") + 1
	column := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
	return &syntaxError{line, column, fmt.Sprintf(format, args...)}
}

// add puts a node into the block that is open.
func (p *parser) add(n node) {
	p.nodes++
	f := &p.open[len(p.open)-1]
	if f.orElse {
		f.node.rest = append(f.node.rest, n)
		return
	}
	f.node.body = append(f.node.body, n)
}

// next reads up to the end of the next tag.
func (p *parser) next() error {
	rest := p.source[p.at:]
	i := strings.Index(rest, "{{")
	if i < 0 {
		p.add(node{kind: literal, text: rest})
		p.at = len(p.source)
		return nil
	}
	if i > 0 && rest[i-1] == '\\' { // \{{ is two braces and no tag
		p.add(node{kind: literal, text: rest[:i-1] + "{{"})
		p.at += i + 2
		return nil
	}
	if i > 0 {
		p.add(node{kind: literal, text: rest[:i]})
	}
	p.at += i
	return p.tag(p.at)
}

// tag reads the tag that begins at begin.
func (p *parser) tag(begin int) error {
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
		return p.fault(begin, "a tag begins here and does not end; add %s", ending)
	}
	p.at = begin + end + len(ending)
	if strings.HasPrefix(rest, "{{!") {
		return nil
	}
	if ending == "}}}" {
		return p.value(begin, raw, rest[3:end])
	}
	inside := strings.TrimSpace(rest[2:end])
	switch {
	case strings.HasPrefix(inside, "#"):
		return p.begin(begin, inside[1:])
	case strings.HasPrefix(inside, "/"):
		return p.end(begin, strings.TrimSpace(inside[1:]))
	case inside == "else":
		return p.otherwise(begin)
	case strings.HasPrefix(inside, ">"):
		return p.fault(begin, "partials are not supported")
	case strings.HasPrefix(inside, "&"):
		return p.fault(begin, "write {{{name}}} for a value that is not to be escaped")
	}
	return p.value(begin, output, inside)
}

func (p *parser) value(begin int, k kind, text string) error {
	at, err := parsePath(strings.TrimSpace(text))
	if err != nil {
		return p.fault(begin, "%s", err)
	}
	p.add(node{kind: k, path: at})
	return nil
}

func (p *parser) begin(begin int, text string) error {
	name, argument, _ := strings.Cut(strings.TrimSpace(text), " ")
	blocks := map[string]kind{"if": ifBlock, "unless": unlessBlock, "each": eachBlock}
	k, ok := blocks[name]
	if !ok {
		return p.fault(begin, "there is no such block; the blocks are #if, #unless and #each")
	}
	at, err := parsePath(strings.TrimSpace(argument))
	if err != nil {
		return p.fault(begin, "%s", err)
	}
	if len(p.open) > maxDepth {
		return p.fault(begin, "blocks are nested more than %d deep", maxDepth)
	}
	p.open = append(p.open, frame{node: node{kind: k, path: at}, name: name, begin: begin})
	return nil
}

func (p *parser) end(begin int, name string) error {
	f := p.open[len(p.open)-1]
	switch {
	case len(p.open) == 1:
		return p.fault(begin, "nothing is open that could be closed here")
	case name != f.name:
		return p.fault(begin, "{{/%s}} must come first", f.name)
	}
	p.open = p.open[:len(p.open)-1]
	p.add(f.node)
	return nil
}

func (p *parser) otherwise(begin int) error {
	f := &p.open[len(p.open)-1]
	if len(p.open) == 1 || f.orElse {
		return p.fault(begin, "{{else}} stands once within a block")
	}
	f.orElse = true
	return nil
}

// parsePath reads the name of a value.
func parsePath(text string) (path, error) {
	p := path{text: text}
	if len(text) > maxPath {
		return p, fmt.Errorf("a variable's name may have %d bytes", maxPath)
	}
	for strings.HasPrefix(text, "../") {
		p.up++
		text = text[3:]
	}
	switch text {
	case "":
		return p, fmt.Errorf("the name of a variable is missing")
	case "@index", "@key", "@first", "@last":
		p.special = text
		return p, nil
	case "this", ".":
		p.this = true
		return p, nil
	}
	p.names = strings.Split(text, ".")
	if p.names[0] == "this" {
		p.this, p.names = true, p.names[1:]
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
