// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/summary"
)

// FileResponse is a streamed response, such as a message of unknown origin. The caller calls Close.
type FileResponse struct {
	Name  string
	Media string
	Size  int64 // -1 if unknown
	Body  io.Reader
	io.Closer
}

// RawFile returns a whole message as a file.
func RawFile(id string, r *blob.Reader) *FileResponse {
	return &FileResponse{Name: id + ".eml", Media: "message/rfc822", Size: r.Size(), Body: r.All(), Closer: r}
}

// AttachmentFile returns the attachment n of a message, with a media type that is safe in browsers.
// It returns nil if the message has no such attachment. It closes r, unless it returns a file.
func AttachmentFile(index *message.Structure, r *blob.Reader, n string) (*FileResponse, error) {
	number, err := strconv.Atoi(n)
	if err == nil && strconv.Itoa(number) == n {
		f, body, ok, err := summary.OpenAttachment(r, index, number)
		if err != nil {
			_ = r.Close() // only read
			return nil, err
		}
		if ok {
			name := f.Filename
			if name == "" {
				name = fmt.Sprintf("attachment-%d", number)
			}
			return &FileResponse{Name: name, Media: safeContentType(f.ContentType), Size: -1, Body: body, Closer: r}, nil
		}
	}
	_ = r.Close() // only read
	return nil, nil
}

// Serve writes and closes the file. If reading fails, it cuts the connection, so that a partial
// file doesn't look complete.
func (f *FileResponse) Serve(w http.ResponseWriter, r *http.Request, log *slog.Logger) error {
	defer f.Close() //nolint:errcheck // only read
	to := &fileWriter{w: w, file: f}
	body := f.Body
	if r.Method == http.MethodHead {
		body = io.LimitReader(body, 4<<10) // enough to see that the file is readable; net/http buffers it
	}
	_, err := io.CopyBuffer(to, struct{ io.Reader }{body}, make([]byte, 32<<10))
	switch {
	case err == nil:
		to.writeHeader()
		return nil
	case !to.started:
		return err
	case to.writeErr != nil: // the client has gone
		panic(http.ErrAbortHandler)
	}
	AbortResponse(w, r, log, err)
	return nil
}

// fileWriteTimeout limits how long the client may take to read 32 KiB of a file.
const fileWriteTimeout = time.Minute

// fileWriter starts the response with the first bytes, so that an earlier failure becomes a
// problem. It extends the deadline while the client keeps reading.
type fileWriter struct {
	w        http.ResponseWriter
	file     *FileResponse
	started  bool
	writeErr error // error of a write
}

// writeHeader writes a header that keeps browsers from running the file or showing it as a page of
// the service.
func (f *fileWriter) writeHeader() {
	if f.started {
		return
	}
	f.started = true
	h := f.w.Header()
	h.Set("Content-Type", f.file.Media)
	h.Set("Content-Disposition", contentDisposition(f.file.Name))
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if f.file.Size >= 0 {
		h.Set("Content-Length", strconv.FormatInt(f.file.Size, 10))
	}
	f.w.WriteHeader(http.StatusOK)
}

func (f *fileWriter) Write(p []byte) (int, error) {
	f.writeHeader()
	_ = http.NewResponseController(f.w).SetWriteDeadline(time.Now().Add(fileWriteTimeout)) // the server has its own limit, too
	n, err := f.w.Write(p)
	f.writeErr = err
	return n, err
}

// contentDisposition returns a Content-Disposition (RFC 6266), never inline. It has the name twice:
// in ASCII and in UTF-8 (RFC 8187).
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

// safeMediaType returns the media type with which a message's file is served. It keeps the sender's
// type if browsers run no scripts in files of that type. All other files are served as bytes.
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

// safeContentType returns a harmless media type for the header.
func safeContentType(media string) string {
	if text := mime.FormatMediaType(safeMediaType(media), nil); text != "" {
		return text
	}
	return "application/octet-stream"
}
