// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"bufio"
	"context"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/mailstead/mailstead/internal/message"
)

// Limits of what is read of a message: whatever its size, that much.
const (
	maxTokens    = 800
	maxTextParts = 16
	maxPartText  = 64 << 10
	maxField     = 2 << 10
	minWord      = 3
	maxWord      = 24 // characters; longer ones are no words
)

// Tokens returns the hashes of the words that say what a message is about, each
// once, at most 800, in no order that means anything.
func Tokens(ctx context.Context, m *Mail) ([]uint64, error) {
	r, err := m.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // only read
	return tokens(m.Header, m.Index, r)
}

func tokens(h message.Header, index *message.Index, r io.ReaderAt) ([]uint64, error) {
	t := &tokenizer{seen: map[uint64]struct{}{}}
	t.text("subject:", clipped(h.Decoded("Subject")))
	for _, name := range []string{"From", "Reply-To", "Sender"} {
		for n, a := range h.Addresses(name) {
			if n == 5 {
				break
			}
			t.add("from:" + strings.ToLower(clipped(a.Local+"@"+a.Domain)))
			t.add("domain:" + strings.ToLower(clipped(a.Domain)))
			t.text("name:", clipped(a.Name))
		}
	}
	t.text("list:", clipped(h.Text("List-Id")))
	t.text("mailer:", clipped(h.Text("X-Mailer")))
	left := maxTextParts
	for i := range index.Parts {
		p := &index.Parts[i]
		if p.Kind != message.Leaf {
			continue
		}
		if p.Type != "text" {
			t.add("type:" + clipped(p.Type+"/"+p.Subtype))
			continue
		}
		if left--; left < 0 || len(t.seen) >= maxTokens {
			break
		}
		text := p.Text(io.NewSectionReader(r, p.Body.Start, p.Body.Len), maxPartText)
		if err := t.body(text, p.Subtype == "html"); err != nil {
			return nil, err
		}
	}
	all := make([]uint64, 0, len(t.seen))
	for h := range t.seen {
		all = append(all, h)
	}
	slices.Sort(all) // rows are met in the order of their key
	return all, nil
}

func clipped(s string) string { return s[:min(len(s), maxField)] }

type tokenizer struct{ seen map[uint64]struct{} }

// add notes a token, as long as there is room.
func (t *tokenizer) add(token string) {
	if len(t.seen) < maxTokens {
		t.seen[fnv(token)] = struct{}{}
	}
}

// fnv is FNV-1a of 64 bits.
func fnv(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

func (t *tokenizer) text(kind, s string) {
	_ = t.words(kind, strings.NewReader(s)) // which reads without fail
}

// words notes the words of a text. Of scripts that don't part words it takes
// each two letters that stand together.
func (t *tokenizer) words(kind string, r io.RuneReader) error {
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
		case unparted(c):
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

// unparted reports whether a letter is of a script that writes words without
// spaces between.
func unparted(c rune) bool {
	return c >= 0x0e00 && unicode.In(c, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// body notes the words of a part, and where it links to. Of HTML what a reader
// sees counts, roughly.
func (t *tokenizer) body(r io.Reader, html bool) error {
	text, err := io.ReadAll(r) // it is limited
	if err != nil {
		return err
	}
	s := string(text)
	t.links(s)
	if html {
		t.add("type:html")
		return t.words("", bufio.NewReader(&visible{s: s}))
	}
	return t.words("", strings.NewReader(s))
}

// links notes the hosts of the URLs in a text.
func (t *tokenizer) links(s string) {
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

// visible reads HTML without its tags; each leaves a space, but within a word.
type visible struct {
	s    string
	flat bool // nothing closes a tag any more
}

// Read is that of io.Reader.
func (v *visible) Read(p []byte) (n int, err error) {
	for n < len(p) && v.s != "" {
		if v.s[0] != '<' || v.flat {
			end := strings.IndexByte(v.s, '<')
			if end < 0 || v.flat {
				end = len(v.s)
			}
			c := copy(p[n:], v.s[:end])
			n, v.s = n+c, v.s[c:]
			continue
		}
		tag, rest, ok := strings.Cut(v.s[1:], ">")
		if !ok { // a bracket that opens nothing, as all that follow: to look again for each would take long
			v.flat = true
			continue
		}
		v.s = rest
		if !inWord(tag) {
			p[n] = ' '
			n++
		}
	}
	if n == 0 && v.s == "" {
		return 0, io.EOF
	}
	return n, nil
}

// inWord reports whether a tag, or a comment, may stand within a word, as those
// do that hide words from filters.
func inWord(tag string) bool {
	if strings.HasPrefix(tag, "!--") {
		return true
	}
	name, _, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(tag[:min(len(tag), 20)], "/")), " ")
	return slices.Contains([]string{"b", "i", "u", "em", "strong", "span", "font", "wbr", "a"}, name)
}
