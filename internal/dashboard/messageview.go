// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/summary"
	"github.com/mailstead/mailstead/internal/web"
)

// messageView is the content of a sent or received message.
type messageView struct {
	Path string // path of the message; its preview, raw bytes and attachments are below
	summary.Summary
	summary.Content
	Lost bool // whether its data can't be read, so that there is no content
}

// messageOpener opens a message and the index of its parts.
type messageOpener func() (*message.Structure, *blob.Reader, error)

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

// reportLost logs an error about lost data and returns true: the page can still show the rest. It
// returns other errors.
func (v *requestContext) reportLost(err error) (bool, error) {
	if !blob.IsLost(err) {
		return false, err
	}
	v.d.Log.ErrorContext(v.ctx, "a message can't be read", "request", v.requestID(), "path", v.r.URL.Path, "error", err)
	return true, nil
}

// previewCSP is the policy for untrusted HTML: no scripts, no external resources, and an opaque
// origin.
const previewCSP = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'; frame-ancestors 'self'; sandbox"

// writePreview responds with the HTML of a message, for a sandboxed frame.
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

// messageStyle is the default style of HTML messages.
const messageStyle = `<!doctype html><meta name="color-scheme" content="light"><style>html{font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}img{max-width:100%}</style>`

// writeUntrustedHTML responds with untrusted HTML.
func (v *requestContext) writeUntrustedHTML(html string) {
	h := v.w.Header()
	h.Set("Content-Security-Policy", previewCSP)
	h.Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(v.w, messageStyle+html) // the client may have disconnected
}

// maxImages limits the bytes that inline images add to a message's HTML.
const maxImages = 4 << 20

// inlineImages embeds the attached images of a message in its HTML. External images are never
// loaded.
func inlineImages(html string, files []summary.Attachment, open func(n int) (io.Reader, bool)) string {
	capacity := maxImages
	for _, f := range files {
		switch f.ContentType {
		case "image/png", "image/jpeg", "image/gif", "image/webp":
		default:
			continue
		}
		var uses int
		for _, quote := range []string{`"`, `'`} {
			uses += strings.Count(html, quote+"cid:"+string(f.ContentID)+quote)
		}
		if f.ContentID == "" || uses == 0 || f.Size > int64(capacity) {
			continue
		}
		body, ok := open(f.Number)
		if !ok {
			continue
		}
		data, err := io.ReadAll(io.LimitReader(body, int64(capacity)))
		need := uses * base64.StdEncoding.EncodedLen(len(data))
		if err != nil || need > capacity {
			continue
		}
		capacity -= need
		src := "data:" + f.ContentType + ";base64," + base64.StdEncoding.EncodeToString(data)
		for _, quote := range []string{`"`, `'`} {
			html = strings.ReplaceAll(html, quote+"cid:"+string(f.ContentID)+quote, quote+src+quote)
		}
	}
	return html
}

// downloadRaw responds with the raw bytes of a message.
func (v *requestContext) downloadRaw(name string, open messageOpener) error {
	_, r, err := open()
	if err != nil {
		return err
	}
	return web.RawFile(name, r).Serve(v.w, v.r, v.d.Log)
}

// downloadAttachment responds with the attachment that the path names.
func (v *requestContext) downloadAttachment(open messageOpener) error {
	index, r, err := open()
	if err != nil {
		return err
	}
	f, err := web.AttachmentFile(index, r, v.r.PathValue("n"))
	if err == nil && f == nil {
		err = notFound()
	}
	if err != nil {
		return err
	}
	f.Media = "application/octet-stream"
	return f.Serve(v.w, v.r, v.d.Log)
}

// metadataItem is a member of a JSON object, formatted for display.
type metadataItem struct{ Name, Value string }

// maxMetadataItems is the maximum number of metadata members on a page.
const maxMetadataItems = 200

// flattenJSON lists the members of a JSON object in order. Nested members have dotted names, such
// as order.id.
func flattenJSON(text json.RawMessage) (list []metadataItem) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	walkJSON(d, "", func(p metadataItem) bool {
		list = append(list, p)
		return len(list) < maxMetadataItems
	})
	return list
}

// walkJSON reads a value and calls tell for each leaf. It returns false to stop.
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
	_, err = d.Token() // the closing delimiter
	return err == nil
}

// threadPath returns the path of a thread's page.
func threadPath(id string) string { return "/threads/" + url.PathEscape(id) }
