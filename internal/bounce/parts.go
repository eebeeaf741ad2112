// SPDX-License-Identifier: Apache-2.0

package bounce

import (
	"bytes"
	"html"
	"io"
	"strings"

	"github.com/mailstead/mailstead/internal/message"
)

// reportParts are the parts of a report, decoded and limited in size.
type reportParts struct {
	header   message.Header
	texts    []string // texts for people; HTML only without plain text
	status   string   // message/delivery-status parts
	statuses int      // number of delivery-status parts read
	feedback message.Header
	original message.Header
	returned string // quoted original in a text
}

// splitParts splits a message into its parts.
func splitParts(raw []byte) *reportParts {
	raw = normalizeLineEnds(raw)
	ix, header, _ := message.ScanReader(bytes.NewReader(raw))
	p := &reportParts{header: header}
	var pages []string
	for i := range ix.Parts {
		part := &ix.Parts[i]
		if part.Kind == message.Multipart || len(p.texts)+len(pages) >= maxTexts {
			continue
		}
		if isInEmbedded(ix, part) {
			continue
		}
		p.addPart(raw, i, part, &pages)
	}
	if len(p.texts) == 0 {
		p.texts = pages
	}
	for i, text := range p.texts {
		text = stripQuoteMarks(text)
		human, returned := splitOriginal(text)
		p.texts[i] = human
		if p.returned == "" {
			p.returned = returned
		}
	}
	if len(p.original) == 0 && p.returned != "" {
		p.original = parseHeader(p.returned)
	}
	return p
}

func (p *reportParts) addPart(raw []byte, i int, part *message.Part, pages *[]string) {
	body := func() string { return partText(raw, part) }
	typ, subtype := part.MediaType()
	own := message.Header(raw[part.Header.Start:part.Header.End()])
	switch {
	case part.Kind == message.Embedded, part.Type == "message" && (part.Subtype == "rfc822" || part.Subtype == "global"),
		typ == "text" && subtype == "rfc822-headers", typ == "message" && subtype == "global-headers",
		typ == "message" && subtype == "partial", typ == "message" && subtype == "rfc822-headers":
		if len(p.original) == 0 {
			p.original = parseHeader(body())
		}
	case typ == "message" && (strings.Contains(subtype, "delivery-status") || subtype == "delivery-statu"),
		typ == "text" && subtype == "delivery-status":
		if len(p.status) < maxText && p.statuses < maxTexts {
			p.status += body() + "\n\n"
			p.statuses++
		}
	case typ == "message" && subtype == "feedback-report":
		p.feedback = parseHeader(body())
	case i > 0 && own.Unfolded("Received") != "" && own.MessageID() != "":
		if len(p.original) == 0 { // the original's header was returned as the part's own header (X1, Active!mail)
			p.original = own[:min(len(own), maxOriginal)]
		}
	case typ == "text" && subtype == "html":
		*pages = append(*pages, stripTags(body()))
	case typ == "text", typ == "message", i == 0 && typ != "application" && typ != "image":
		p.texts = append(p.texts, body())
	}
}

// isInEmbedded reports whether a part belongs to a returned message.
func isInEmbedded(ix *message.Structure, part *message.Part) bool {
	for at := part.Parent; at >= 0; at = ix.Parts[at].Parent {
		if ix.Parts[at].Kind == message.Embedded {
			return true
		}
	}
	return false
}

func partText(raw []byte, part *message.Part) string {
	b, err := io.ReadAll(part.Text(bytes.NewReader(raw[part.Body.Start:part.Body.End()]), maxText))
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(strings.ReplaceAll(string(b), "\r\n", "\n"), "\r", "\n")
}

// normalizeLineEnds makes lone CRs line ends, and drops the "From " line of an mbox.
func normalizeLineEnds(raw []byte) []byte {
	if bytes.HasPrefix(raw, []byte("From ")) {
		if i := bytes.IndexAny(raw, "\r\n"); i >= 0 {
			raw = bytes.TrimLeft(raw[i:], "\r\n")
		}
	}
	if !bytes.Contains(raw, []byte("\n")) {
		raw = bytes.ReplaceAll(raw, []byte("\r"), []byte("\n"))
	}
	return raw
}

// parseHeader converts a text that begins with a header into a header.
func parseHeader(text string) message.Header {
	text = strings.TrimLeft(text, " \t\n")
	if end := strings.Index(text, "\n\n"); end >= 0 {
		text = text[:end+1]
	}
	text = text[:min(len(text), maxOriginal)]
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return message.Header(strings.ReplaceAll(text, "\n", "\r\n"))
}

// stripTags returns the text of an HTML page without tags, styles and scripts. Blocks end with a
// line end.
func stripTags(page string) string {
	var out strings.Builder
	for page != "" {
		i := strings.IndexByte(page, '<')
		if i < 0 {
			out.WriteString(page)
			break
		}
		out.WriteString(page[:i])
		page = page[i:]
		end := strings.IndexByte(page, '>')
		if end < 0 {
			break
		}
		if strings.Contains(page[1:end], "@") && !strings.ContainsAny(page[1:end], " =") {
			out.WriteString(page[:end+1]) // an unescaped <user@host>
		}
		name := strings.ToLower(strings.TrimRight(firstWord(page[1:end]), "/"))
		switch name {
		case "br", "p", "/p", "div", "/div", "tr", "/tr", "li", "h1", "h2", "h3", "table", "/table", "hr":
			out.WriteByte('\n')
		case "td", "th":
			out.WriteByte(' ')
		}
		page = page[end+1:]
		if name == "style" || name == "script" {
			if stop := strings.Index(page, "</"); stop >= 0 {
				page = page[stop:]
			} else {
				page = ""
			}
		}
	}
	return html.UnescapeString(out.String())
}

func firstWord(s string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(s), " ")
	return word
}

// stripQuoteMarks removes the ">" from a text that is mostly a quoted report.
func stripQuoteMarks(text string) string {
	lines := strings.Split(text, "\n")
	quoted := 0
	for _, l := range lines {
		if strings.HasPrefix(l, ">") {
			quoted++
		}
	}
	if quoted < 5 || quoted*2 < len(lines) {
		return text
	}
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(strings.TrimPrefix(l, ">"), " ")
	}
	return strings.Join(lines, "\n")
}
