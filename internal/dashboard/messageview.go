// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/summary"
)

// messageView is what there is to read in a message, sent or received.
type messageView struct {
	Path string // of the message: its preview, its bytes and its files are below
	summary.Summary
	summary.Content
	Lost bool // its bytes can't be read, so there is nothing else
}

// messageOpener opens a message with the index of its parts.
type messageOpener func() (*message.Index, *blob.Reader, error)

func (v *requestContext) readMessage(path string, open messageOpener) (l messageView, err error) {
	l.Path = path
	index, r, err := open()
	if err == nil {
		l.Summary, l.Content, err = summary.Read(r, index)
		_ = r.Close() // only read
	}
	l.Lost, err = v.reportLost(err)
	return l, err
}

// reportLost takes the error of a message whose bytes are lost, and logs it: the page
// has more to show than that message's text.
func (v *requestContext) reportLost(err error) (bool, error) {
	if !blob.IsLost(err) {
		return false, err
	}
	v.d.Log.ErrorContext(v.ctx, "a message can't be read", "request", v.requestID(), "path", v.r.URL.Path, "error", err)
	return true, nil
}

// previewCSP is for html that anybody may have written: no script, nothing
// from elsewhere, and not of our origin.
const previewCSP = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'; frame-ancestors 'self'; sandbox"

// writePreview answers with the html of a message, for a sandboxed frame.
func (v *requestContext) writePreview(open messageOpener) error {
	index, r, err := open()
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // only read
	_, content, err := summary.Read(r, index)
	if err != nil {
		return err
	}
	if content.HTML == nil {
		return notFound()
	}
	text := inlineImages(*content.HTML, content.Attachments, func(n int) (io.Reader, bool) {
		_, body, ok, err := summary.OpenAttachment(r, index, n)
		return body, ok && err == nil
	})
	v.writeUntrustedHTML(text)
	return nil
}

// messageStyle is how html looks that says nothing about it.
const messageStyle = `<!doctype html><meta name="color-scheme" content="light"><style>html{font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}img{max-width:100%}</style>`

// writeUntrustedHTML answers with html that is not ours.
func (v *requestContext) writeUntrustedHTML(html string) {
	h := v.w.Header()
	h.Set("Content-Security-Policy", previewCSP)
	h.Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(v.w, messageStyle+html) // whoever has gone needs no answer
}

// maxImages bounds the bytes that images of a message add to its html.
const maxImages = 4 << 20

// inlineImages puts the images that come with a message into its html. Those from
// elsewhere are never loaded.
func inlineImages(html string, files []summary.Attachment, open func(n int) (io.Reader, bool)) string {
	room := maxImages
	for _, f := range files {
		switch f.ContentType {
		case "image/png", "image/jpeg", "image/gif", "image/webp":
		default:
			continue
		}
		var uses int
		for _, quote := range []string{`"`, `'`} {
			uses += strings.Count(html, quote+"cid:"+f.ContentID+quote)
		}
		if f.ContentID == "" || uses == 0 || f.Size > int64(room) {
			continue
		}
		body, ok := open(f.N)
		if !ok {
			continue
		}
		data, err := io.ReadAll(io.LimitReader(body, int64(room)))
		need := uses * base64.StdEncoding.EncodedLen(len(data))
		if err != nil || need > room {
			continue
		}
		room -= need
		src := "data:" + f.ContentType + ";base64," + base64.StdEncoding.EncodeToString(data)
		for _, quote := range []string{`"`, `'`} {
			html = strings.ReplaceAll(html, quote+"cid:"+f.ContentID+quote, quote+src+quote)
		}
	}
	return html
}

// downloadRaw answers with all bytes of a message.
func (v *requestContext) downloadRaw(name string, open messageOpener) error {
	_, r, err := open()
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // only read
	return v.download(name+".eml", "message/rfc822", r.All())
}

// downloadAttachment answers with the file of a message that the path names. Whatever
// it is, no browser shows it as a page of ours.
func (v *requestContext) downloadAttachment(open messageOpener) error {
	n, err := strconv.Atoi(v.r.PathValue("n"))
	if err != nil || strconv.Itoa(n) != v.r.PathValue("n") {
		return notFound()
	}
	index, r, err := open()
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // only read
	f, body, ok, err := summary.OpenAttachment(r, index, n)
	if err == nil && !ok {
		err = notFound()
	}
	if err != nil {
		return err
	}
	name := f.Filename
	if name == "" {
		name = fmt.Sprintf("attachment-%d", n)
	}
	return v.download(name, "application/octet-stream", body)
}

// downloadWriteTimeout is how long 32 KiB of a file may take to be read by the client.
const downloadWriteTimeout = time.Minute

// download streams a file. One that breaks off must not look whole, so then the
// connection is cut.
func (v *requestContext) download(name, media string, body io.Reader) error {
	chunk := make([]byte, 32<<10)
	n, err := io.ReadFull(body, chunk)
	last := err == io.EOF || err == io.ErrUnexpectedEOF
	if err != nil && !last {
		return err
	}
	h := v.w.Header()
	h.Set("Content-Type", media)
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	control := http.NewResponseController(v.w)
	for {
		_ = control.SetWriteDeadline(time.Now().Add(downloadWriteTimeout)) // the server has a bound of its own, too
		if _, err := v.w.Write(chunk[:n]); err != nil || last {
			return nil //nolint:nilerr // whoever has gone needs no answer
		}
		n, err = io.ReadFull(body, chunk)
		last = err == io.EOF || err == io.ErrUnexpectedEOF
		if err != nil && !last {
			v.d.Log.ErrorContext(v.ctx, "a file broke off", "request", v.requestID(), "path", v.r.URL.Path, "error", err)
			panic(http.ErrAbortHandler)
		}
	}
}

// metadataItem is a member of a JSON object, in words.
type metadataItem struct{ Name, Value string }

// maxMetadataItems bounds the members that a page shows.
const maxMetadataItems = 200

// flattenJSON reads a JSON object in its order; members of members are named by their
// way, as in order.id.
func flattenJSON(text json.RawMessage) (list []metadataItem) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	walkJSON(d, "", func(p metadataItem) bool {
		list = append(list, p)
		return len(list) < maxMetadataItems
	})
	return list
}

// walkJSON reads one value and tells its leaves; false ends it.
func walkJSON(d *json.Decoder, name string, tell func(metadataItem) bool) bool {
	t, err := d.Token()
	if err != nil {
		return false
	}
	open, nested := t.(json.Delim)
	if !nested {
		if t == nil {
			t = "null"
		}
		return tell(metadataItem{name, fmt.Sprint(t)})
	}
	for i := 0; d.More(); i++ {
		inner := strconv.Itoa(i + 1)
		if open == '{' {
			key, err := d.Token()
			if err != nil {
				return false
			}
			inner = fmt.Sprint(key)
		}
		if name != "" {
			inner = name + "." + inner
		}
		if !walkJSON(d, inner, tell) {
			return false
		}
	}
	_, err = d.Token() // the end
	return err == nil
}

// threadPath is where the conversation of a message is shown.
func threadPath(id string) string { return "/threads/" + url.PathEscape(id) }
