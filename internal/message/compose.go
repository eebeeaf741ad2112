// SPDX-License-Identifier: Apache-2.0

package message

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"io"
	"slices"
	"strings"
)

// ComposeResult describes a composed mail.
type ComposeResult struct {
	Size      int64 // bytes written
	NeedsUTF8 bool  // whether addresses or ids are not ASCII, which requires SMTPUTF8 (RFC 6531)
}

// Compose writes the mail of the draft to w: 7-bit, with CRLF line ends and lines within the limits
// of RFC 5322 §2.1.1. Raw UTF-8 is used only in non-ASCII addresses and ids. Attachments are
// streamed.
//
// Text and HTML become a multipart/alternative, inline attachments with a Content-ID a
// multipart/related with the HTML, and all others a multipart/mixed around everything. A message/…
// attachment is not encoded, since RFC 2046 §5.2 forbids base64 for it; if it is not 7-bit, it
// becomes application/octet-stream.
//
// Compose rejects an invalid draft with an error of kind Invalid before it writes anything. Other
// errors are those of w and of the attachments.
func Compose(w io.Writer, d *Draft) (ComposeResult, error) {
	if err := d.Check(); err != nil {
		return ComposeResult{}, err
	}
	c := composer{w: w, d: d, boundary: d.Boundary}
	if c.boundary == nil {
		c.boundary = func() string { return "=_" + rand.Text() }
	}
	var h fieldWriter
	needsUTF8 := d.appendHeader(&h)
	c.write(h.dst)
	c.mixed()
	if c.last != '\n' {
		c.print("\r\n")
	}
	return ComposeResult{c.size, needsUTF8}, c.err
}

// composer writes the body of a draft. It stops after an error.
type composer struct {
	w        io.Writer
	d        *Draft
	boundary func() string
	size     int64
	last     byte // the last byte written
	err      error
}

// Write implements io.Writer.
func (c *composer) Write(b []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.w.Write(b)
	c.size += int64(n)
	c.err = err
	if n > 0 {
		c.last = b[n-1]
	}
	return n, err
}

func (c *composer) write(b []byte) { _, _ = c.Write(b) }

func (c *composer) print(s ...string) { c.write([]byte(strings.Join(s, ""))) }

// mixed writes the body with the attachments that the HTML doesn't show.
func (c *composer) mixed() {
	var beside []*Attachment
	for i := range c.d.Attachments {
		if a := &c.d.Attachments[i]; !c.d.isRelated(a) {
			beside = append(beside, a)
		}
	}
	if len(beside) == 0 {
		c.alternative()
		return
	}
	parts := []func(){c.alternative}
	if c.d.Text == "" && c.d.HTML == "" {
		parts = nil
	}
	for _, a := range beside {
		parts = append(parts, func() { c.attachment(a) })
	}
	c.multipart("mixed", "", parts)
}

// isRelated reports whether the HTML shows the attachment.
func (d *Draft) isRelated(a *Attachment) bool { return d.HTML != "" && a.Inline && a.ContentID != "" }

func (c *composer) alternative() {
	switch {
	case c.d.HTML == "":
		c.text("plain", c.d.Text)
	case c.d.Text == "":
		c.html()
	default:
		c.multipart("alternative", "", []func(){func() { c.text("plain", c.d.Text) }, c.html})
	}
}

// html writes the HTML with the attachments that it shows.
func (c *composer) html() {
	parts := []func(){func() { c.text("html", c.d.HTML) }}
	for i := range c.d.Attachments {
		if a := &c.d.Attachments[i]; c.d.isRelated(a) {
			parts = append(parts, func() { c.attachment(a) })
		}
	}
	if len(parts) == 1 {
		parts[0]()
		return
	}
	c.multipart("related", `; type="text/html"`, parts)
}

func (c *composer) multipart(subtype, params string, parts []func()) {
	b := c.boundary()
	c.print("Content-Type: multipart/", subtype, params, ";\r\n boundary=\"", b, "\"\r\n\r\n")
	for _, part := range parts {
		c.print("--", b, "\r\n")
		part()
		c.print("\r\n")
	}
	c.print("--", b, "--\r\n")
}

func (c *composer) text(subtype, s string) {
	s = toCRLF(strings.ToValidUTF8(s, "\uFFFD"))
	encoding := profileOf(s).textEncoding()
	c.print("Content-Type: text/", subtype, "; charset=utf-8\r\nContent-Transfer-Encoding: ", encoding, "\r\n\r\n")
	if c.err == nil {
		c.fail(encode(c, strings.NewReader(s), encoding))
	}
}

func (c *composer) attachment(a *Attachment) {
	if c.err != nil {
		return
	}
	contentType := a.contentType()
	typ, _, params := parseContentType([]byte(contentType))
	encoding := "base64"
	has := func(param string) bool {
		return slices.ContainsFunc(params, func(p Param) bool { return strings.TrimSuffix(p.Name, "*") == param })
	}
	if typ == "message" || typ == "text" && !has("charset") {
		p, err := a.profile()
		c.fail(err)
		switch {
		case typ == "text" && p.eightBit > 0 && !p.notUTF8:
			contentType += "; charset=utf-8"
		case typ == "text":
		case p.isSevenBit():
			encoding = "7bit"
		default:
			contentType = "application/octet-stream"
		}
	}
	name := CleanFilename(a.Filename)
	var h fieldWriter
	h.begin("Content-Type")
	value, rest := cutValue([]byte(contentType))
	for h.put(strings.TrimSpace(string(value))); len(rest) > 0; {
		h.putNoSpace(";")
		value, rest = cutValue(rest)
		h.put(strings.TrimSpace(string(value)))
	}
	if !has("name") {
		h.nameParameter(name)
	}
	h.end()
	h.field("Content-Transfer-Encoding", encoding)
	h.begin("Content-Disposition")
	if a.Inline {
		h.put("inline")
	} else {
		h.put("attachment")
	}
	h.filenameParameter(name)
	h.end()
	h.field("Content-ID", a.contentID())
	c.write(append(h.dst, "\r\n"...))
	c.stream(a, encoding)
}

func (c *composer) stream(a *Attachment, encoding string) {
	if c.err != nil {
		return
	}
	r, err := a.Open()
	if err != nil {
		c.fail(fmt.Errorf("opening an attachment: %w", err))
		return
	}
	if encoding == "7bit" {
		c.fail(encode(c, NormalizeLineEnds(r), encoding))
	} else {
		c.fail(encode(c, r, encoding))
	}
	c.fail(r.Close())
}

func (c *composer) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// profile reads the whole attachment, with its line ends normalized.
func (a *Attachment) profile() (contentProfile, error) {
	r, err := a.Open()
	if err != nil {
		return contentProfile{}, fmt.Errorf("opening an attachment: %w", err)
	}
	p, err := readProfile(NormalizeLineEnds(r))
	if err2 := r.Close(); err == nil {
		err = err2
	}
	return p, err
}

// contentType returns the declared type, or that of the file name's extension.
func (a *Attachment) contentType() string {
	if a.ContentType != "" {
		return a.ContentType
	}
	ext := ""
	if i := strings.LastIndexByte(a.Filename, '.'); i >= 0 {
		ext = strings.ToLower(a.Filename[i+1:])
	}
	return cmp.Or(contentTypes[ext], "application/octet-stream")
}

// contentTypes are the types of file name extensions. Package mime knows others on each system.
var contentTypes = map[string]string{
	"png": "image/png", "gif": "image/gif", "webp": "image/webp", "bmp": "image/bmp", "tiff": "image/tiff", "avif": "image/avif",
	"jpg": "image/jpeg", "jpeg": "image/jpeg", "svg": "image/svg+xml",
	"pdf": "application/pdf", "zip": "application/zip", "json": "application/json", "xml": "application/xml", "rtf": "application/rtf",
	"csv": "text/csv", "html": "text/html", "css": "text/css", "txt": "text/plain", "log": "text/plain", "ics": "text/calendar",
	"eml": "message/rfc822", "mp3": "audio/mpeg", "mp4": "video/mp4", "doc": "application/msword",
	"docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	"xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	"pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}
