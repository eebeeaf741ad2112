// SPDX-License-Identifier: Apache-2.0

package digest

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

// MaxPreview is how many characters a preview has at most, as RFC 8970 §3.3
// recommends.
const MaxPreview = 200

// Bounds of the work that is done for a preview.
const (
	maxPreviewText = 16 << 10  // octets of plain texts that are looked at
	maxPreviewHTML = 128 << 10 // of HTML, which may begin with much of style
	maxToken       = 64 << 10  // of one tag
)

// Preview returns how a message begins, for lists (RFC 8970): one line of its
// plain text, without what it quotes, or else of its HTML without the markup;
// "" if there is nothing to read. The errors are r's.
func Preview(r io.ReaderAt, ix *message.Index) (string, error) {
	in := &source{r}
	parts := ix.Content()
	var p preview
	for _, kind := range []struct {
		parts []int
		read  func(io.Reader)
		most  int64
	}{{parts.Text, p.plain, maxPreviewText}, {parts.HTML, p.html, maxPreviewHTML}} {
		left := kind.most
		for _, i := range kind.parts[:min(len(kind.parts), maxBodies)] {
			part := &ix.Parts[i]
			span := part.Body
			span.Len = min(span.Len, left)
			left -= span.Len
			source := &noting{r: in.section(span), more: span.Len < part.Body.Len}
			kind.read(light(part).Text(source, kind.most))
			if source.err != nil {
				return "", fmt.Errorf("reading the beginning of a message: %w", source.err)
			}
			if p.full() || left == 0 {
				break
			}
			p.space = true
		}
		if p.n > 0 {
			break
		}
	}
	return p.text.String(), nil
}

// preview collects the characters of a preview.
type preview struct {
	text  strings.Builder
	n     int  // characters
	space bool // comes before the next
}

func (p *preview) full() bool { return p.n >= MaxPreview }

// add takes text in, with all white space as single blanks and without what
// cannot be seen, such as the joiners that newsletters fill their first line with.
func (p *preview) add(s string) {
	for _, r := range s {
		joiner := r == '\u200c' || r == '\u200d'
		switch {
		case unicode.IsSpace(r):
			p.space = true
			continue
		case joiner && (p.space || p.n == 0), !joiner && unicode.Is(unicode.Cf, r), unicode.IsControl(r), r == '\u034f', r == utf8.RuneError:
			continue
		}
		if p.space && p.n > 0 {
			if p.n+1 >= MaxPreview {
				p.n = MaxPreview
				return
			}
			p.text.WriteByte(' ')
			p.n++
		}
		p.space = false
		p.text.WriteRune(r)
		if p.n++; p.full() {
			return
		}
	}
}

// plain reads a plain text up to its signature, without the lines that quote.
func (p *preview) plain(r io.Reader) {
	lines := bufio.NewReader(r)
	for begins, quoted := true, false; !p.full(); {
		line, err := lines.ReadSlice('\n')
		if begins {
			if p.n > 0 && string(bytes.TrimRight(line, "\r\n")) == "-- " {
				return
			}
			quoted = bytes.HasPrefix(line, []byte(">"))
		}
		if !quoted {
			p.add(string(line))
		}
		begins = err == nil                           // else this was but a piece of a line
		if err != nil && err != bufio.ErrBufferFull { //nolint:errorlint // what bufio promises
			return
		}
	}
}

// html reads the text of an HTML, with the alternative texts of its images.
func (p *preview) html(r io.Reader) {
	tokens := html.NewTokenizer(r)
	tokens.SetMaxBuf(maxToken)
	for hidden := ""; !p.full(); {
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
		case kind == html.StartTagToken && isHidden(tag):
			hidden = tag
		case tag == "img":
			p.space = true
			p.add(attribute(tokens, attributes, "alt"))
		}
		p.space = p.space || !isInline(tag)
	}
}

func isHidden(tag string) bool {
	switch tag {
	case "head", "script", "style", "title", "template", "noscript":
		return true
	}
	return false
}

// isInline reports whether a tag parts no words.
func isInline(tag string) bool {
	switch tag {
	case "a", "abbr", "b", "bdi", "bdo", "em", "font", "i", "mark", "s", "small", "span", "strong", "sub", "sup", "u", "wbr":
		return true
	}
	return false
}

// attribute returns the value of an attribute of the tag just read, or "".
func attribute(tokens *html.Tokenizer, more bool, wanted string) string {
	for more {
		var name, value []byte
		if name, value, more = tokens.TagAttr(); string(name) == wanted {
			return string(value)
		}
	}
	return ""
}
