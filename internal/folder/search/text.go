// SPDX-License-Identifier: Apache-2.0

package search

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/message"
)

// needle is a folded text to search for.
type needle []byte

func newNeedle(text string) needle { return needle(fold(text)) }

// isPlain reports whether an address list that contains the needle in the ENVELOPE's form contains
// it in any form.
func (n needle) isPlain() bool { return !bytes.ContainsAny(n, " \t\"\\<>(),:;") }

// fold maps texts that differ only in case to the same text.
func fold(text string) string {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return strings.ToLower(strings.ToUpper(text))
		}
	}
	return strings.ToLower(text)
}

// appendFolded appends the folded text to b.
func appendFolded(b, text []byte) []byte {
	start := len(b)
	b = append(b, text...)
	for i := start; i < len(b); i++ {
		switch c := b[i]; {
		case c >= utf8.RuneSelf:
			return append(b[:start], fold(string(text))...)
		case 'A' <= c && c <= 'Z':
			b[i] += 'a' - 'A'
		}
	}
	return b
}

func (n needle) isIn(text string) bool { return strings.Contains(fold(text), string(n)) }

// textBuffer is how many bytes of a text are searched at once.
const textBuffer = 32 << 10

// unlimitedText is a limit that no message reaches.
const unlimitedText = 1 << 40

// eachFoldedWindow calls f with the folded UTF-8 text of r, piece by piece, until f returns false.
// Each piece starts with the last keep bytes of the previous one.
func eachFoldedWindow(r io.Reader, keep int, buf []byte, f func(window []byte) (more bool)) error {
	var window []byte
	held := 0 // bytes at the start of buf that begin a rune
	for {
		m, err := r.Read(buf[held:])
		read := buf[:held+m]
		whole := len(read)
		if err == nil {
			whole = wholeRunes(read)
		}
		window = appendFolded(window, read[:whole])
		if !f(window) {
			return nil
		}
		if len(window) > keep {
			window = append(window[:0], window[len(window)-keep:]...)
		}
		held = copy(buf, read[whole:])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// wholeRunes returns how many bytes of b precede a rune that is cut off at its end.
func wholeRunes(b []byte) int {
	for back := 1; back <= min(len(b), utf8.UTFMax-1); back++ {
		if at := len(b) - back; utf8.RuneStart(b[at]) {
			if !utf8.FullRune(b[at:]) {
				return at
			}
			break
		}
	}
	return len(b)
}

// textScanner searches the bytes of a message.
type textScanner struct {
	ctx       context.Context
	r         io.ReaderAt
	index     *message.Structure
	buf       []byte
	topHeader message.Header // of the message itself, once read
	complete  bool           // whether the bodies were searched and read completely
	err       error          // first read error
}

// contentMatch is the state of a criterion for the current message. The bytes are read once for all
// criteria.
type contentMatch struct {
	found bool
	done  bool // also set if it was not found
}

// testContent tests a message that its row leaves undecided. If the result is still unknown, unread
// is the reason.
func (r *folderSearch) testContent(ctx context.Context, m *candidate, buf []byte) (found matchResult, unread, err error) {
	c, b := &r.criterion, m.row.Content
	if b == nil {
		b, err = r.folders.Blobs.Load(ctx, m.row.BlobID)
	}
	if errors.Is(err, blob.ErrNotExist) {
		there, failed := r.folders.ExistingMessages(ctx, []db.ID{m.row.Message})
		if failed != nil || !there[m.row.Message] {
			return matchNo, nil, failed // expunged, and collected meanwhile
		}
		return matchUnknown, err, nil
	}
	if blob.IsLost(err) {
		return matchUnknown, err, nil
	}
	if err != nil {
		return matchUnknown, nil, err
	}
	in, err := b.Open(ctx)
	if err != nil {
		return matchUnknown, err, ctx.Err()
	}
	defer in.Close() //nolint:errcheck // nothing was written
	if m.content, err = newTextScanner(ctx, in, m.row.Structure, buf); err != nil {
		return matchUnknown, err, ctx.Err()
	}
	criteria := c.reset(m, nil)
	if c.match(m) == matchUnknown {
		m.content.scanBodies(criteria, func() bool { return c.match(m) != matchUnknown })
		m.content.complete = m.content.err == nil
	}
	return c.match(m), m.content.err, ctx.Err()
}

// reset prepares the criterion for another message, and appends to all the criteria that search
// bodies.
func (c *compiledCriterion) reset(m *candidate, all []*compiledCriterion) []*compiledCriterion {
	for i := range c.children {
		all = c.children[i].reset(m, all)
	}
	c.contentMatch = contentMatch{}
	if (c.Test == InBody || c.Test == InText) && !m.prefilter.lacks(c.termIndex, m.position) {
		all = append(all, c)
	}
	return all
}

// newTextScanner returns a scanner for a message.
func newTextScanner(ctx context.Context, r *blob.Reader, structure, buf []byte) (*textScanner, error) {
	ix, err := message.LoadStructure(structure, r.Size(), r.All())
	return &textScanner{ctx: ctx, r: r, buf: buf, index: ix}, err
}

// section returns a reader of a section that stops when ctx ends.
func (t *textScanner) section(s message.Span) io.Reader {
	return blob.ContextReader(t.ctx, io.NewSectionReader(t.r, s.Start, s.Len))
}

func (t *textScanner) match(c *compiledCriterion) matchResult {
	if (c.Test == HasHeader || c.Test == InEnvelope) && !c.contentMatch.done {
		c.contentMatch.found = t.hasField(c)
		c.contentMatch.done = t.err == nil
	}
	if !c.contentMatch.found && !c.contentMatch.done && !t.complete {
		return matchUnknown
	}
	return matchOf(c.contentMatch.found)
}

func (t *textScanner) hasField(c *compiledCriterion) bool {
	for _, f := range t.header(&t.index.Parts[0]).All(c.Header) {
		if c.needle.isIn(f.Decoded()) {
			return true
		}
	}
	return false
}

// header reads the header of a part, up to the limit of package message.
func (t *textScanner) header(p *message.Part) message.Header {
	if p == &t.index.Parts[0] && t.topHeader != nil {
		return t.topHeader
	}
	b, err := p.ReadHeader(t.section(p.Header))
	t.fail(err)
	if p == &t.index.Parts[0] {
		t.topHeader = b
	}
	return b
}

// headerTexts returns the decoded fields of a part's header, as TEXT searches them, and the lines
// there that are not fields.
func (t *textScanner) headerTexts(p *message.Part) iter.Seq[string] {
	return func(yield func(string) bool) {
		for f := range t.header(p).Fields() {
			if !yield(fieldText(f)) {
				return
			}
		}
	}
}

func fieldText(f message.Field) string {
	if len(f.Name) == 0 {
		return message.DecodeWords(string(f.Raw))
	}
	return string(f.Name) + ": " + f.Decoded()
}

// scanBodies searches for the criteria until decided returns true.
func (t *textScanner) scanBodies(criteria []*compiledCriterion, decided func() bool) {
	keep, heads := 0, false
	for _, c := range criteria {
		keep = max(keep, len(c.needle)-1)
		heads = heads || c.Test == InText
	}
	// see searches a text whose first before bytes were already seen.
	see := func(text []byte, before int, body bool) (more bool) {
		news := false
		for _, c := range criteria {
			if c.contentMatch.found || !body && c.Test != InText {
				continue
			}
			from := max(0, before-len(c.needle)+1)
			if bytes.Contains(text[min(from, len(text)):], c.needle) {
				c.contentMatch.found, news = true, true
			}
		}
		return !news || !decided()
	}
	seeAll := func(r io.Reader, body bool) (more bool) {
		before := 0
		more = true
		t.fail(eachFoldedWindow(r, keep, t.buf, func(window []byte) bool {
			more = see(window, before, body)
			before = min(len(window), keep)
			return more
		}))
		return more
	}
	if heads {
		for line := range t.headerTexts(&t.index.Parts[0]) {
			if !seeAll(strings.NewReader(line), false) {
				return
			}
		}
	}
	for r := range t.bodyTexts() {
		if !seeAll(r, true) {
			return
		}
	}
}

// bodyTexts returns readers of the texts that InBody searches: the texts of a message, decoded and
// as UTF-8, the visible text of HTML, and the header fields of embedded messages. Other files are
// not text. RFC 9051 §6.4.4 lets a server match more freely than by octets: nobody searches for
// markup, and a word must be found although a part of it is bold.
func (t *textScanner) bodyTexts() iter.Seq[io.Reader] {
	return func(yield func(io.Reader) bool) {
		for i := range t.index.Parts {
			p := &t.index.Parts[i]
			if t.isEmbedded(p) {
				for line := range t.headerTexts(p) {
					if !yield(strings.NewReader(line)) {
						return
					}
				}
			}
			if isTextPart(p) && !yield(t.visibleText(p)) {
				return
			}
		}
	}
}

// isEmbedded reports whether a part is a message within the message.
func (t *textScanner) isEmbedded(p *message.Part) bool {
	return p.Parent >= 0 && t.index.Parts[p.Parent].Kind == message.Embedded
}

// visibleText returns a reader of the visible text of a part.
func (t *textScanner) visibleText(p *message.Part) io.Reader {
	r := p.Text(t.section(p.Body), unlimitedText)
	if _, subtype := p.MediaType(); subtype == "html" {
		return message.VisibleText(r)
	}
	return r
}

func isTextPart(p *message.Part) bool {
	typ, _ := p.MediaType()
	return p.Kind == message.Leaf && (typ == "text" || typ == "message")
}

func (t *textScanner) fail(err error) {
	if t.err == nil && err != nil {
		t.err = fmt.Errorf("searching a message: %w", err)
	}
}
