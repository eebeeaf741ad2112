// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/account"
)

// fileResponse is an answer that is streamed, such as a message from anybody. Close is
// called when it is done with.
type fileResponse struct {
	name  string
	media string
	size  int64 // -1 if it is not known
	body  io.Reader
	io.Closer
}

// handleFile registers an operation that answers with a file.
func handleFile[I any](r *router, o operation, f func(ctx context.Context, p account.Principal, in *I) (*fileResponse, error)) {
	describe[I, []byte](r.doc, o)
	r.serve(o, func(w http.ResponseWriter, req *http.Request, p account.Principal) error {
		var in I
		if err := bind(req, &in); err != nil {
			return err
		}
		out, err := f(req.Context(), p, &in)
		if err != nil {
			return err
		}
		defer out.Close() //nolint:errcheck // only read
		return r.api.writeFile(w, req, out)
	})
}

// writeFile writes a file. One that breaks off must not look whole, so then the
// connection is cut.
func (a *API) writeFile(w http.ResponseWriter, r *http.Request, f *fileResponse) error {
	to := &fileWriter{w: w, file: f}
	body := f.body
	if r.Method == http.MethodHead {
		body = io.LimitReader(body, 4<<10) // enough to see that it can be read; net/http keeps it
	}
	_, err := io.CopyBuffer(to, struct{ io.Reader }{body}, make([]byte, 32<<10))
	if err == nil {
		to.writeHeader()
		return nil
	}
	if !to.started {
		return err
	}
	if r.Context().Err() == nil && to.writeErr == nil {
		a.Log.ErrorContext(r.Context(), "a file broke off", "request", requestID(r.Context()), "error", err)
	}
	panic(http.ErrAbortHandler)
}

// fileWriteTimeout is how long 32 KiB of a file may take to be read by the client.
const fileWriteTimeout = time.Minute

// fileWriter begins the answer with the first bytes, so that a failure before
// them is told as a problem, and lets a client that reads go on reading.
type fileWriter struct {
	w        http.ResponseWriter
	file     *fileResponse
	started  bool
	writeErr error // of writing
}

// writeHeader writes the header. Whatever the file is, no browser runs or shows it
// as a page of ours.
func (f *fileWriter) writeHeader() {
	if f.started {
		return
	}
	f.started = true
	h := f.w.Header()
	h.Set("Content-Type", f.file.media)
	h.Set("Content-Disposition", contentDisposition(f.file.name))
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if f.file.size >= 0 {
		h.Set("Content-Length", strconv.FormatInt(f.file.size, 10))
	}
	f.w.WriteHeader(http.StatusOK)
}

func (f *fileWriter) Write(p []byte) (int, error) {
	f.writeHeader()
	_ = http.NewResponseController(f.w).SetWriteDeadline(time.Now().Add(fileWriteTimeout)) // the server has a bound of its own, too
	n, err := f.w.Write(p)
	f.writeErr = err
	return n, err
}

// contentDisposition is a Content-Disposition (RFC 6266): never inline. The name is
// given twice, in ASCII and in UTF-8 (RFC 8187).
func contentDisposition(name string) string {
	var plain, extended strings.Builder
	for _, r := range name {
		if r < ' ' || r > '~' || r == '"' || r == '\\' || r == '%' {
			r = '_'
		}
		plain.WriteRune(r)
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("!#$&+-.^_`|~", c) >= 0:
			extended.WriteByte(c)
		default:
			const hex = "0123456789ABCDEF"
			extended.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	out := `attachment; filename="` + plain.String() + `"`
	if plain.String() != name {
		out += "; filename*=UTF-8''" + extended.String()
	}
	return out
}

// safeMediaType are the media types that a file of a message is answered with as
// its sender says; any other is answered as bytes. No script can be in what
// browsers make of these.
func safeMediaType(media string) string {
	typ, subtype, _ := strings.Cut(media, "/")
	switch typ {
	case "image":
		switch subtype {
		case "png", "jpeg", "gif", "webp", "bmp", "avif", "heic", "tiff":
			return media
		}
	case "audio", "video":
		return media
	case "text":
		switch subtype {
		case "plain", "csv", "calendar", "vcard":
			return media
		}
	case "message":
		if subtype == "rfc822" {
			return media
		}
	case "application":
		switch subtype {
		case "pdf", "zip", "gzip", "json", "msword", "rtf", "pgp-signature", "pkcs7-signature":
			return media
		}
		if strings.HasPrefix(subtype, "vnd.openxmlformats-officedocument.") || strings.HasPrefix(subtype, "vnd.oasis.opendocument.") {
			return media
		}
	}
	return "application/octet-stream"
}

// safeContentType is a harmless media type as a header has it.
func safeContentType(media string) string {
	if text := mime.FormatMediaType(safeMediaType(media), nil); text != "" {
		return text
	}
	return "application/octet-stream"
}
