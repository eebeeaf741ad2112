// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"bufio"
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/mailstead/mailstead/internal/message"
)

// Limits on the parsed content of a message of any size.
const (
	maxTokens    = 800
	maxTextParts = 16
	maxPartText  = 64 << 10
	maxField     = 2 << 10
	minWord      = 3
	maxWord      = 24 // characters; longer sequences are not words
)

// Tokens returns the hashes of the words of a message, each once, at most 800. Their order has no
// meaning.
func Tokens(ctx context.Context, m *Message) ([]uint64, error) {
	r, err := m.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // only read
	return tokenize(m.Header, m.Index, r)
}

func tokenize(h message.Header, index *message.Structure, r io.ReaderAt) ([]uint64, error) {
	t := &tokenizer{seen: map[uint64]struct{}{}}
	t.addText("subject:", clip(h.Decoded("Subject")))
	for _, name := range []string{"From", "Reply-To", "Sender"} {
		for n, a := range h.Addresses(name) {
			if n == 5 {
				break
			}
			t.add("from:" + strings.ToLower(clip(a.Local+"@"+a.Domain)))
			t.add("domain:" + strings.ToLower(clip(a.Domain)))
			t.addText("name:", clip(a.Name))
		}
	}
	t.addText("list:", clip(h.Unfolded("List-Id")))
	t.addText("mailer:", clip(h.Unfolded("X-Mailer")))
	left := maxTextParts
	for i := range index.Parts {
		p := &index.Parts[i]
		if p.Kind != message.Leaf {
			continue
		}
		if p.Type != "text" {
			t.add("type:" + clip(p.Type+"/"+p.Subtype))
			continue
		}
		if left--; left < 0 || len(t.seen) >= maxTokens {
			break
		}
		text := p.Text(io.NewSectionReader(r, p.Body.Start, p.Body.Len), maxPartText)
		if err := t.addBody(text, p.Subtype == "html"); err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(t.seen)), nil // rows are accessed in key order
}

func clip(s string) string { return s[:min(len(s), maxField)] }

type tokenizer struct{ seen map[uint64]struct{} }

// add adds a token if there are fewer than maxTokens.
func (t *tokenizer) add(token string) {
	if len(t.seen) < maxTokens {
		t.seen[fnvHash(token)] = struct{}{}
	}
}

// fnvHash returns the 64-bit FNV-1a hash.
func fnvHash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

func (t *tokenizer) addText(kind, s string) {
	_ = t.addWords(kind, strings.NewReader(s)) // a strings.Reader doesn't fail
}

// addWords adds the words of a text. For scripts without spaces between words it adds each pair of
// adjacent letters.
func (t *tokenizer) addWords(kind string, r io.RuneReader) error {
	var word []rune
	end := func() {
		if len(word) >= minWord && len(word) <= maxWord {
			t.add(kind + strings.Trim(string(word), "'-."))
		}
		word = word[:0]
	}
	var before rune
	for len(t.seen) < maxTokens {
		c, _, err := r.ReadRune()
		if err == io.EOF { //nolint:errorlint // a reader's bare io.EOF
			end()
			return nil
		}
		if err != nil {
			return err
		}
		c = unicode.ToLower(c)
		switch {
		case isUnspacedScript(c):
			end()
			if before != 0 {
				t.add(kind + string([]rune{before, c}))
			}
			before = c
			continue
		case unicode.IsLetter(c), unicode.IsDigit(c), unicode.IsMark(c), c == '$', c == '€', len(word) > 0 && (c == '\'' || c == '-' || c == '.'):
			if len(word) <= maxWord {
				word = append(word, c)
			}
		default:
			end()
		}
		before = 0
	}
	return nil
}

// isUnspacedScript reports whether a letter belongs to a script without spaces between words.
func isUnspacedScript(c rune) bool {
	return c >= 0x0e00 && unicode.In(c, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// addBody adds the words and link targets of a part. For HTML, it adds approximately the visible
// text.
func (t *tokenizer) addBody(r io.Reader, html bool) error {
	text, err := io.ReadAll(r) // limited in size
	if err != nil {
		return err
	}
	s := string(text)
	t.addLinks(s)
	if html {
		t.add("type:html")
		return t.addWords("", bufio.NewReader(&tagStripper{rest: s}))
	}
	return t.addWords("", strings.NewReader(s))
}

// addLinks adds the host names of the URLs in a text.
func (t *tokenizer) addLinks(s string) {
	for len(t.seen) < maxTokens {
		_, rest, ok := strings.Cut(s, "://")
		if !ok {
			return
		}
		s = rest
		end := strings.IndexFunc(s, func(c rune) bool {
			return c != '.' && c != '-' && !unicode.IsLetter(c) && !unicode.IsDigit(c)
		})
		if end < 0 {
			end = len(s)
		}
		if end > 0 && end < 254 {
			t.add("link:" + strings.ToLower(s[:end]))
		}
	}
}

// tagStripper reads HTML without its tags. Each tag becomes a space, except within a word.
type tagStripper struct {
	rest       string
	noMoreTags bool // whether no ">" follows
}

// Read implements io.Reader.
func (v *tagStripper) Read(p []byte) (n int, err error) {
	for n < len(p) && v.rest != "" {
		if v.rest[0] != '<' || v.noMoreTags {
			end := strings.IndexByte(v.rest, '<')
			if end < 0 || v.noMoreTags {
				end = len(v.rest)
			}
			c := copy(p[n:], v.rest[:end])
			n, v.rest = n+c, v.rest[c:]
			continue
		}
		tag, rest, ok := strings.Cut(v.rest[1:], ">")
		if !ok { // no later bracket is closed either; searching again for each would take long
			v.noMoreTags = true
			continue
		}
		v.rest = rest
		if !isInlineTag(tag) {
			p[n] = ' '
			n++
		}
	}
	if n == 0 && v.rest == "" {
		return 0, io.EOF
	}
	return n, nil
}

// isInlineTag reports whether a tag or a comment may be within a word. Spam uses such tags to hide
// words from filters.
func isInlineTag(tag string) bool {
	if strings.HasPrefix(tag, "!--") {
		return true
	}
	name, _, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(tag[:min(len(tag), 20)], "/")), " ")
	return slices.Contains([]string{"b", "i", "u", "em", "strong", "span", "font", "wbr", "a"}, name)
}
