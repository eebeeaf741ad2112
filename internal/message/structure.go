// SPDX-License-Identifier: Apache-2.0

package message

import "strconv"

// BodyStructure returns the message's BODYSTRUCTURE in IMAP's wire form (RFC
// 3501 §7.4.2).
func (ix *Structure) BodyStructure() []byte {
	dst, _ := ix.appendBody(make([]byte, 0, 192*min(len(ix.Parts), 64)), 0, true)
	return dst
}

// Body returns the message's BODY: its structure without extension data.
func (ix *Structure) Body() []byte {
	dst, _ := ix.appendBody(nil, 0, false)
	return dst
}

// appendBody appends part i, and returns the index of the part after it and its children.
func (ix *Structure) appendBody(dst []byte, i int, extended bool) ([]byte, int) {
	p := &ix.Parts[i]
	next := i + 1
	dst = append(dst, '(')
	if p.Kind == Multipart {
		for next < len(ix.Parts) && ix.Parts[next].Parent == i {
			dst, next = ix.appendBody(dst, next, extended)
		}
		dst = append(dst, ' ')
		dst = AppendIMAPString(dst, p.Subtype)
		if extended {
			dst = append(dst, ' ')
			dst = appendParams(dst, p.Params)
			dst = p.appendExtension(dst)
		}
		return append(dst, ')'), next
	}
	dst = p.appendFields(dst)
	typ, _ := p.MediaType()
	switch {
	case p.Kind == Embedded:
		dst = append(dst, ' ')
		dst = append(dst, p.Envelope...)
		dst = append(dst, ' ')
		dst, next = ix.appendBody(dst, next, extended)
		fallthrough
	case typ == "text":
		dst = append(dst, ' ')
		dst = strconv.AppendInt(dst, p.Lines, 10)
	}
	if extended {
		dst = append(dst, ' ')
		dst = appendNString(dst, p.MD5)
		dst = p.appendExtension(dst)
	}
	return append(dst, ')'), next
}

// appendFields appends the media type and the body-fields.
func (p *Part) appendFields(dst []byte) []byte {
	typ, subtype := p.MediaType()
	dst = AppendIMAPString(dst, typ)
	dst = append(dst, ' ')
	dst = AppendIMAPString(dst, subtype)
	dst = append(dst, ' ')
	if typ == "text" && len(p.Params) == 0 {
		dst = append(dst, `("charset" "us-ascii")`...) // RFC 2045 §5.2
	} else {
		dst = appendParams(dst, p.Params)
	}
	dst = append(dst, ' ')
	dst = appendNString(dst, p.ID)
	dst = append(dst, ' ')
	dst = appendNString(dst, p.Description)
	dst = append(dst, ' ')
	encoding := p.Encoding
	if encoding == "" {
		encoding = "7bit"
	}
	dst = AppendIMAPString(dst, encoding)
	dst = append(dst, ' ')
	return strconv.AppendInt(dst, p.Body.Len, 10)
}

// appendExtension appends disposition, language and location.
func (p *Part) appendExtension(dst []byte) []byte {
	dst = append(dst, ' ')
	if p.Disposition == "" {
		dst = append(dst, "NIL "...)
	} else {
		dst = append(dst, '(')
		dst = AppendIMAPString(dst, p.Disposition)
		dst = append(dst, ' ')
		dst = appendParams(dst, p.DispositionParams)
		dst = append(dst, ") "...)
	}
	switch len(p.Languages) {
	case 0:
		dst = append(dst, "NIL"...)
	case 1:
		dst = AppendIMAPString(dst, p.Languages[0])
	default:
		dst = append(dst, '(')
		for i, l := range p.Languages {
			if i > 0 {
				dst = append(dst, ' ')
			}
			dst = AppendIMAPString(dst, l)
		}
		dst = append(dst, ')')
	}
	dst = append(dst, ' ')
	return appendNString(dst, p.Location)
}

func appendParams(dst []byte, params []Param) []byte {
	if len(params) == 0 {
		return append(dst, "NIL"...)
	}
	for i, p := range params {
		if i == 0 {
			dst = append(dst, '(')
		} else {
			dst = append(dst, ' ')
		}
		dst = AppendIMAPString(dst, p.Name)
		dst = append(dst, ' ')
		dst = AppendIMAPString(dst, p.Value)
	}
	return append(dst, ')')
}
