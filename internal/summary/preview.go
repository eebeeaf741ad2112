// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"

	"github.com/mailstead/mailstead/internal/message"
)

// MaxPreview is the maximum length of a preview in characters, as RFC 8970 §3.3 recommends.
const MaxPreview = 200

// Limits on the input of a preview.
const (
	maxPreviewText = 16 << 10  // octets of plain text
	maxPreviewHTML = 128 << 10 // octets of HTML, which may begin with many styles
	maxTagBytes    = 64 << 10  // octets of one tag
)

// Preview returns the beginning of a message for lists (RFC 8970): one line of its plain text
// without quotations, or else of its HTML without markup; "" if there is no text. The errors are
// r's.
func Preview(r io.ReaderAt, ix *message.Structure) (string, error) {
	in := &messageReader{r}
	parts := ix.ContentParts()
	var p previewBuilder
	for _, kind := range []struct {
		parts []int
		read  func(io.Reader)
		most  int64
	}{{parts.Text, p.addPlain, maxPreviewText}, {parts.HTML, p.addHTML, maxPreviewHTML}} {
		left := kind.most
		for _, i := range kind.parts[:min(len(kind.parts), maxTextParts)] {
			part := &ix.Parts[i]
			span := part.Body
			span.Len = min(span.Len, left)
			left -= span.Len
			source := &partReader{r: in.section(span), truncated: span.Len < part.Body.Len}
			kind.read(limitParams(part).Text(source, kind.most))
			if source.err != nil {
				return "", fmt.Errorf("reading the beginning of a message: %w", source.err)
			}
			if p.isFull() || left == 0 {
				break
			}
			p.pendingSpace = true
		}
		if p.runes > 0 {
			break
		}
	}
	return p.text.String(), nil
}

// previewBuilder collects the characters of a preview.
type previewBuilder struct {
	text         strings.Builder
	runes        int  // characters
	pendingSpace bool // whether a space comes before the next character
}

func (p *previewBuilder) isFull() bool { return p.runes >= MaxPreview }

// add appends text, with white space as single spaces and without invisible characters, such as the
// joiners in the first line of newsletters.
func (p *previewBuilder) add(s string) {
	for _, r := range s {
		joiner := r == '\u200c' || r == '\u200d'
		switch {
		case unicode.IsSpace(r):
			p.pendingSpace = true
			continue
		case joiner && (p.pendingSpace || p.runes == 0), !joiner && unicode.Is(unicode.Cf, r), unicode.IsControl(r), r == '\u034f', r == utf8.RuneError:
			continue
		}
		if p.pendingSpace && p.runes > 0 {
			if p.runes+1 >= MaxPreview {
				p.runes = MaxPreview
				return
			}
			p.text.WriteByte(' ')
			p.runes++
		}
		p.pendingSpace = false
		p.text.WriteRune(r)
		if p.runes++; p.isFull() {
			return
		}
	}
}

// addPlain adds a plain text up to its signature, without quoted lines.
func (p *previewBuilder) addPlain(r io.Reader) {
	lines := bufio.NewReader(r)
	for begins, quoted := true, false; !p.isFull(); {
		line, err := lines.ReadSlice('\n')
		if begins {
			if p.runes > 0 && string(bytes.TrimRight(line, "\r\n")) == "-- " {
				return
			}
			quoted = bytes.HasPrefix(line, []byte(">"))
		}
		if !quoted {
			p.add(string(line))
		}
		begins = err == nil                           // else this was only a piece of a line
		if err != nil && err != bufio.ErrBufferFull { //nolint:errorlint // what bufio promises
			return
		}
	}
}

// addHTML adds the text of HTML, with the alternative texts of its images.
func (p *previewBuilder) addHTML(r io.Reader) {
	tokens := html.NewTokenizer(r)
	tokens.SetMaxBuf(maxTagBytes)
	for hidden := ""; !p.isFull(); {
		kind := tokens.Next()
		switch kind {
		case html.ErrorToken:
			return
		case html.TextToken:
			if hidden == "" {
				p.add(string(tokens.Text()))
			}
			continue
		case html.CommentToken, html.DoctypeToken:
			continue
		}
		name, attributes := tokens.TagName()
		tag := string(name)
		switch {
		case kind == html.EndTagToken && tag == hidden, tag == "body":
			hidden = ""
		case hidden != "":
		case kind == html.StartTagToken && isHiddenTag(tag):
			hidden = tag
		case tag == "img":
			p.pendingSpace = true
			p.add(tagAttribute(tokens, attributes, "alt"))
		}
		p.pendingSpace = p.pendingSpace || !isInlineTag(tag)
	}
}

func isHiddenTag(tag string) bool {
	switch tag {
	case "head", "script", "style", "title", "template", "noscript":
		return true
	}
	return false
}

// isInlineTag reports whether a tag doesn't separate words.
func isInlineTag(tag string) bool {
	switch tag {
	case "a", "abbr", "b", "bdi", "bdo", "em", "font", "i", "mark", "s", "small", "span", "strong", "sub", "sup", "u", "wbr":
		return true
	}
	return false
}

// tagAttribute returns the value of an attribute of the current tag, or "".
func tagAttribute(tokens *html.Tokenizer, more bool, wanted string) string {
	for more {
		var name, value []byte
		if name, value, more = tokens.TagAttr(); string(name) == wanted {
			return string(value)
		}
	}
	return ""
}
