// SPDX-License-Identifier: Apache-2.0

package message

import (
	"slices"
	"strings"
)

// ContentParts are the parts of a message by their meaning to its reader, as indexes into
// Index.Parts, in order.
type ContentParts struct {
	Text, HTML  []int // bodies
	Attachments []int // everything else; an embedded message is one attachment
}

// ContentParts sorts the parts of the message as mail readers do (RFC 8621 §4.1.4). A text is an
// attachment if its sender says so (RFC 2183 §2.2). A text with only a file name is a body at the
// usual position of a body: first in the message or in an alternative, or before any other text.
func (ix *Structure) ContentParts() ContentParts {
	var c ContentParts
	within := make([]bool, len(ix.Parts)) // whether the part is in an embedded message
	leads := make([]bool, len(ix.Parts))  // whether the part is first in the message or in an alternative
	children := make([]bool, len(ix.Parts))
	for i := range ix.Parts {
		p := &ix.Parts[i]
		leads[i] = i == 0
		if p.Parent >= 0 {
			if within[p.Parent] || ix.Parts[p.Parent].Kind == Embedded {
				within[i] = true
				continue
			}
			first := !children[p.Parent]
			children[p.Parent] = true
			leads[i] = ix.Parts[p.Parent].Subtype == "alternative" || first && leads[p.Parent]
		}
		if p.Kind == Multipart {
			continue
		}
		typ, subtype := p.MediaType()
		body := p.Kind == Leaf && typ == "text" && (subtype == "plain" || subtype == "html") && p.Disposition != "attachment" &&
			(leads[i] || len(c.Text)+len(c.HTML) == 0 || !p.hasFilename())
		switch {
		case !body:
			c.Attachments = append(c.Attachments, i)
		case subtype == "html":
			c.HTML = append(c.HTML, i)
		default:
			c.Text = append(c.Text, i)
		}
	}
	return c
}

// hasFilename reports whether the part has a file name. It doesn't decode long names, since every
// part may have one.
func (p *Part) hasFilename() bool {
	const short = 64
	long := func(list []Param, name string) bool {
		return slices.ContainsFunc(list, func(a Param) bool { return strings.TrimSuffix(a.Name, "*") == name && len(a.Value) > short })
	}
	return long(p.DispositionParams, "filename") || long(p.Params, "name") || p.Filename() != ""
}
