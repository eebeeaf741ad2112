// SPDX-License-Identifier: Apache-2.0

package template

import (
	"strings"

	"github.com/k3a/html2text"
)

// maxDerived bounds the html of which a text is made.
const maxDerived = 1 << 20

// textOf makes the plain text of an html, for readers that show no html; a
// very long one is not read to its end.
func textOf(html string) string {
	if len(html) > maxDerived {
		html = strings.ToValidUTF8(html[:maxDerived], "")
	}
	text := html2text.HTML2TextWithOptions(html, html2text.WithUnixLineBreaks(), html2text.WithLinksInnerText(), html2text.WithListSupport())
	return strings.TrimSpace(text)
}
