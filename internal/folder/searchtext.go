// SPDX-License-Identifier: Apache-2.0

package folder

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

// needle is a text to look for, whatever its case.
type needle []byte

func newNeedle(text string) needle { return needle(fold(text)) }

// plain reports whether an address list that has it as the ENVELOPE tells it has
// it in any form.
func (n needle) plain() bool { return !bytes.ContainsAny(n, " \t\"\\<>(),:;") }

// fold makes texts that differ in case only the same.
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

func (n needle) in(text string) bool { return strings.Contains(fold(text), string(n)) }

// textBuffer is how much of a text is looked at at once.
const textBuffer = 32 << 10

// maxText is more than any message has.
const maxText = 1 << 40

// foldedWindows calls f with the folded UTF-8 text at r, piece by piece, each
// begun with the last keep bytes of what was before, until f wants no more.
func foldedWindows(r io.Reader, keep int, buf []byte, f func(window []byte) (more bool)) error {
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

// wholeRunes returns how much of b comes before a rune that is cut off at its
// end.
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

// texts is a message whose bytes are looked through.
type texts struct {
	ctx context.Context
	r   io.ReaderAt
	ix  *message.Index
	buf []byte
	top message.Header // of the message itself, once it was read
	all bool           // bodies were looked through to their end, and could be read
	err error          // the first one of reading
}

// look is what is known of a criterion and the message in hand, whose bytes are
// read once for all criteria.
type look struct {
	found bool
	done  bool // also if it was not found
}

// judgeBytes judges a message whose row left it open. If it stays so, unread is
// why.
func (v *View) judgeBytes(ctx context.Context, c *criterion, m *candidate, buf []byte) (found truth, unread, err error) {
	b := m.row.Bytes
	if b == nil {
		b, err = v.store.Blobs.Load(ctx, m.row.Blob)
	}
	if errors.Is(err, blob.ErrNotExist) {
		there, failed := v.store.There(ctx, []db.ID{m.row.Message})
		if failed != nil || !there[m.row.Message] {
			return no, nil, failed // expunged, and collected meanwhile
		}
		return maybe, err, nil
	}
	if blob.Lost(err) {
		return maybe, err, nil
	}
	if err != nil {
		return maybe, nil, err
	}
	r, err := b.Open(ctx)
	if err != nil {
		return maybe, err, ctx.Err()
	}
	defer r.Close() //nolint:errcheck // nothing was written
	if m.bytes, err = newTexts(ctx, r, m.row.Structure, buf); err != nil {
		return maybe, err, ctx.Err()
	}
	sought := c.begin(m, nil)
	if c.judge(m) == maybe {
		m.bytes.lookThrough(sought, func() bool { return c.judge(m) != maybe })
		m.bytes.all = m.bytes.err == nil
	}
	return c.judge(m), m.bytes.err, ctx.Err()
}

// begin makes the criterion ready for another message, and adds to sought what
// looks through bodies.
func (c *criterion) begin(m *candidate, sought []*criterion) []*criterion {
	for i := range c.of {
		sought = c.of[i].begin(m, sought)
	}
	c.look = look{}
	if (c.Test == InBody || c.Test == InText) && !m.index.lacks(c.sought, m.at) {
		sought = append(sought, c)
	}
	return sought
}

// newTexts prepares to look through a message.
func newTexts(ctx context.Context, r *blob.Reader, structure, buf []byte) (*texts, error) {
	ix, err := indexOf(r, structure)
	return &texts{ctx: ctx, r: r, buf: buf, ix: ix}, err
}

// section reads until ctx ends.
func (t *texts) section(s message.Span) io.Reader {
	return blob.Until(t.ctx, io.NewSectionReader(t.r, s.Start, s.Len))
}

func (t *texts) has(c *criterion) truth {
	if (c.Test == HasHeader || c.Test == InEnvelope) && !c.look.done {
		c.look.found = t.hasField(c)
		c.look.done = t.err == nil
	}
	if !c.look.found && !c.look.done && !t.all {
		return maybe
	}
	return is(c.look.found)
}

func (t *texts) hasField(c *criterion) bool {
	for _, f := range t.header(&t.ix.Parts[0]).All(c.Header) {
		if c.needle.in(f.Decoded()) {
			return true
		}
	}
	return false
}

// header reads the header of a part, as far as message reads it for fields.
func (t *texts) header(p *message.Part) message.Header {
	if p == &t.ix.Parts[0] && t.top != nil {
		return t.top
	}
	b, err := p.ReadHeader(t.section(p.Header))
	t.fail(err)
	if p == &t.ix.Parts[0] {
		t.top = b
	}
	return b
}

// headerTexts are the fields of a part's header, decoded, as TEXT sees them,
// and the lines there that are no fields.
func (t *texts) headerTexts(p *message.Part) iter.Seq[string] {
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

// lookThrough looks for what criteria seek, until that decides. InBody means the
// texts of a message, with their transfer encoding undone and as UTF-8, of HTML
// only what people see of it, and the headers of messages within it. Other files
// are no text. RFC 9051 §6.4.4 lets a server match more freely than by octets:
// nobody looks for markup, and a word is found although a part of it is bold.
func (t *texts) lookThrough(sought []*criterion, decided func() bool) {
	keep, heads := 0, false
	for _, c := range sought {
		keep = max(keep, len(c.needle)-1)
		heads = heads || c.Test == InText
	}
	// see looks at a text of which the first bytes were seen before.
	see := func(text []byte, before int, body bool) (more bool) {
		news := false
		for _, c := range sought {
			if c.look.found || !body && c.Test != InText {
				continue
			}
			from := max(0, before-len(c.needle)+1)
			if bytes.Contains(text[min(from, len(text)):], c.needle) {
				c.look.found, news = true, true
			}
		}
		return !news || !decided()
	}
	seeAll := func(r io.Reader, body bool) (more bool) {
		before := 0
		more = true
		t.fail(foldedWindows(r, keep, t.buf, func(window []byte) bool {
			more = see(window, before, body)
			before = min(len(window), keep)
			return more
		}))
		return more
	}
	seeHeader := func(p *message.Part, body bool) (more bool) {
		for line := range t.headerTexts(p) {
			if !seeAll(strings.NewReader(line), body) {
				return false
			}
		}
		return true
	}
	if heads && !seeHeader(&t.ix.Parts[0], false) {
		return
	}
	for i := range t.ix.Parts {
		p := &t.ix.Parts[i]
		if t.isWithin(p) && !seeHeader(p, true) {
			return
		}
		if isText(p) && !seeAll(t.text(p), true) {
			return
		}
	}
}

// isWithin reports whether a part is a message within the message.
func (t *texts) isWithin(p *message.Part) bool {
	return p.Parent >= 0 && t.ix.Parts[p.Parent].Kind == message.Embedded
}

// text reads what people see of a text.
func (t *texts) text(p *message.Part) io.Reader {
	r := p.Text(t.section(p.Body), maxText)
	if _, subtype := p.MediaType(); subtype == "html" {
		return message.Visible(r)
	}
	return r
}

func isText(p *message.Part) bool {
	typ, _ := p.MediaType()
	return p.Kind == message.Leaf && (typ == "text" || typ == "message")
}

func (t *texts) fail(err error) {
	if t.err == nil && err != nil {
		t.err = fmt.Errorf("searching a message: %w", err)
	}
}
