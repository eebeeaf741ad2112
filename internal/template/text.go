// SPDX-License-Identifier: Apache-2.0

package template

import (
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
	html = fewEnds(html)
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
