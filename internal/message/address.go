// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"strings"
)

// Address is a mailbox in a header (RFC 5322 §3.4).
type Address struct {
	Name   string // display name as UTF-8; often empty
	Local  string // without quotes; may contain anything in received mail
	Domain string // empty if the address has none
}

// String returns local@domain.
func (a Address) String() string {
	if a.Domain == "" {
		return a.Local
	}
	return a.Local + "@" + a.Domain
}

// Display returns the address as a header shows it to people: Name <local@domain>, in UTF-8. The
// name is quoted if it contains characters that mean something there. ParseAddresses reads it.
func (a Address) Display() string {
	switch {
	case a.Name == "":
		return a.String()
	case strings.ContainsAny(a.Name, `()<>[]:;@\,."`) || strings.Contains(a.Name, "=?"):
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(a.Name) + `" <` + a.String() + ">"
	}
	return a.Name + " <" + a.String() + ">"
}

// ParseAddresses parses an address list, such as the value of To. It skips what it can't parse, and
// stops after MaxAddresses. Groups yield their members.
func ParseAddresses(value []byte) []Address {
	var list []Address
	p := addressParser{in: value}
	for {
		switch p.next() {
		case endOfList:
			return list
		case addressFound:
			list = append(list, Address{DecodeWords(string(p.name)), string(p.local), string(p.domain)})
		}
	}
}

// Addresses returns the addresses of all fields called name.
func (h Header) Addresses(name string) []Address {
	var list []Address
	for f := range h.Fields() {
		if f.Is(name) && len(list) < MaxAddresses {
			list = append(list, ParseAddresses(f.Value)...)
		}
	}
	return list[:min(len(list), MaxAddresses)]
}

type listItem int

const (
	endOfList listItem = iota // end of the list
	addressFound
	groupStart // the name is in addressParser.name
	groupEnd
)

// addressParser parses an address list in one pass. Its fields have the address found last; the
// next one overwrites them.
type addressParser struct {
	in                  []byte
	pos, count          int
	inGroup             bool
	name, local, domain []byte
	route               []byte // obsolete: "@a,@b"
	words               []byte
}

func (p *addressParser) next() listItem {
	for {
		for p.pos < len(p.in) && (isSpace(p.in[p.pos]) || p.in[p.pos] == ',') {
			p.pos++
		}
		if p.pos == len(p.in) || p.count >= MaxAddresses {
			p.pos = len(p.in)
			if p.inGroup {
				p.inGroup = false
				return groupEnd
			}
			return endOfList
		}
		if p.in[p.pos] == ';' {
			p.pos++
			if p.inGroup {
				p.inGroup = false
				return groupEnd
			}
			continue
		}
		if k := p.item(); k != endOfList {
			p.count++
			return k
		}
	}
}

// item parses one address or the start of a group.
func (p *addressParser) item() listItem {
	p.name, p.local, p.domain, p.route, p.words = p.name[:0], nil, nil, nil, p.words[:0]
	at, gap, space := -1, 0, false
	for p.pos < len(p.in) {
		c := p.in[p.pos]
		switch {
		case isSpace(c):
			space = true
			p.pos++
			continue
		case c == ',' || c == ';':
			return p.noAngle(at, gap)
		case c == '(':
			p.name = p.comment(p.name)
			space = true
			continue
		case c == '<':
			p.name = append(p.name[:0], p.words...)
			return p.angle()
		case c == ':' && !p.inGroup && at < 0:
			p.pos++
			p.inGroup = true
			p.name = append(p.name[:0], p.words...)
			return groupStart
		}
		before := len(p.words)
		if space && before > 0 {
			p.words = append(p.words, ' ')
		}
		space = false
		switch c {
		case '"':
			p.words = p.quoted(p.words)
		case '@':
			at = len(p.words)
			gap = at - before
			fallthrough
		default:
			p.words = append(p.words, c)
			p.pos++
		}
	}
	return p.noAngle(at, gap)
}

// noAngle completes an address without angle brackets, whose name may be a comment. Several words
// without "@" are a name without an address.
func (p *addressParser) noAngle(at, gap int) listItem {
	if at < 0 && bytes.IndexByte(p.words, ' ') > 0 {
		p.name = append(p.name[:0], p.words...)
		return addressFound
	}
	return p.bare(at, gap)
}

// bare completes an address in words, whose "@" is at at after a gap.
func (p *addressParser) bare(at, gap int) listItem {
	if at < 0 {
		p.local = p.words
	} else {
		p.local, p.domain = p.words[:at-gap], p.words[at+1:]
		if bytes.IndexByte(p.domain, ' ') >= 0 {
			p.domain = bytes.ReplaceAll(p.domain, []byte{' '}, nil)
		}
	}
	if len(p.local)+len(p.domain) == 0 {
		return endOfList
	}
	return addressFound
}

// angle parses <route:local@domain> and skips to the end of the item.
func (p *addressParser) angle() listItem {
	p.pos++
	p.takeRoute()
	p.words = p.words[:0]
	at := -1
loop:
	for p.pos < len(p.in) {
		c := p.in[p.pos]
		switch {
		case c == '>' || c == ',':
			break loop
		case c == '(':
			p.comment(nil)
		case c == '"':
			p.words = p.quoted(p.words)
		case isSpace(c) || c == '<':
			p.pos++
		default:
			if c == '@' {
				at = len(p.words)
			}
			p.words = append(p.words, c)
			p.pos++
		}
	}
	for p.pos < len(p.in) && p.in[p.pos] != ',' && p.in[p.pos] != ';' {
		if p.in[p.pos] == '(' {
			p.comment(nil)
		} else {
			p.pos++
		}
	}
	if p.bare(at, 0) == endOfList && len(p.name) == 0 {
		return endOfList
	}
	return addressFound
}

// takeRoute parses the obsolete @a,@b: (RFC 5322 §4.4).
func (p *addressParser) takeRoute() {
	for p.pos < len(p.in) && isSpace(p.in[p.pos]) {
		p.pos++
	}
	if p.pos == len(p.in) || p.in[p.pos] != '@' {
		return
	}
	for i := p.pos; i < len(p.in); i++ {
		switch c := p.in[i]; {
		case c == ':':
			p.route = p.in[p.pos:i]
			p.pos = i + 1
			return
		case c == '>' || c == '"' || c == '<':
			return
		}
	}
}

// quoted appends the content of the quoted string at pos.
func (p *addressParser) quoted(dst []byte) []byte {
	for p.pos++; p.pos < len(p.in); p.pos++ {
		c := p.in[p.pos]
		if c == '"' {
			p.pos++
			return dst
		}
		if c == '\\' && p.pos+1 < len(p.in) {
			p.pos++
			c = p.in[p.pos]
		}
		if c != '\r' && c != '\n' && c != 0 {
			dst = append(dst, c)
		}
	}
	return dst
}

// comment appends the content of the comment at pos to dst.
func (p *addressParser) comment(dst []byte) []byte {
	n := commentLength(p.in[p.pos:])
	c := p.in[p.pos : p.pos+n]
	p.pos += n
	c = c[1:]
	if len(c) > 0 && c[len(c)-1] == ')' {
		c = c[:len(c)-1]
	}
	dst = dst[:0]
	for i := 0; i < len(c); i++ {
		if c[i] == '\\' && i+1 < len(c) {
			i++
		}
		if c[i] != '\r' && c[i] != '\n' && c[i] != 0 {
			dst = append(dst, c[i])
		}
	}
	return dst
}
