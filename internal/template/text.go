// SPDX-License-Identifier: Apache-2.0

package template

import (
	"regexp"
	"strings"

	"github.com/k3a/html2text"
)

// maxDerived bounds the html of which a text is made.
const maxDerived = 1 << 20

// maxEnds bounds how many ">" count behind one "<".
const maxEnds = 8

// textOf makes the plain text of an html, for readers that show no html; a
// very long one is not read to its end.
func textOf(html string) string {
	if len(html) > maxDerived {
		html = strings.ToValidUTF8(html[:maxDerived], "")
	}
	html = fewEnds(anchors.ReplaceAllStringFunc(html, plainLink))
	text := html2text.HTML2TextWithOptions(html, html2text.WithUnixLineBreaks(), html2text.WithLinksInnerText(), html2text.WithListSupport())
	return strings.TrimSpace(text)
}

// fewEnds leaves out each ">" behind which html2text would look at all since the
// last "<" once more: it takes it for the end of that tag again, and shows it
// nowhere.
func fewEnds(html string) string {
	var b strings.Builder
	ends, from := 0, 0
	for i := range len(html) {
		switch html[i] {
		case '<':
			ends = 0
		case '>':
			if ends++; ends > maxEnds {
				b.WriteString(html[from:i])
				from = i + 1
			}
		}
	}
	if from == 0 {
		return html
	}
	b.WriteString(html[from:])
	return b.String()
}

var (
	anchors = regexp.MustCompile(`(?i)<a(?:\s(?:(?:"[^"<]*"|'[^'<]*'|[^<>"'])*|[^<>]*))?>`)
	href    = regexp.MustCompile(`(?i)\shref\s*=\s*(?:'([^']*)'|"([^"]*)"|([^\s"'<>]+))`)
	inHref  = strings.NewReplacer("<", "%3C", ">", "%3E", `"`, "%22", "\n", "", "\r", "")
)

// plainLink makes a start tag of a link such that html2text understands it: of
// one that leads nowhere, or has its href on another line, it would hide all that
// follows.
func plainLink(tag string) string {
	link := href.FindStringSubmatch(tag)
	if link == nil {
		return ""
	}
	return `<a href="` + inHref.Replace(link[1]+link[2]+link[3]) + `">`
}
