// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// MailImportOptions are the options of a mail import; the zero value detects the type, and uses the
// file's own folders.
type MailImportOptions struct {
	Type    string // application/mbox, message/rfc822, application/x-tar or application/gzip; "" to detect it
	Folder  string // target for messages in the inbox or without a folder; other folders become its subfolders
	All     bool   // also import messages that already exist
	Quoting string // for an mbox: mboxrd, mboxo or mboxcl2; "" to detect it
}

// MailImportResult is the result of a mail import.
type MailImportResult struct {
	Imported int64           `json:"imported"`
	Skipped  int64           `json:"skipped"` // already there, or marked as deleted
	Failed   int64           `json:"failed"`
	Bytes    int64           `json:"bytes"`    // bytes of imported messages
	Failures []ImportFailure `json:"failures"` // at most 100
}

// ImportFailure is a message or folder that could not be imported.
type ImportFailure struct {
	Location string `json:"location"` // position in the file
	Detail   string `json:"detail"`   // for people
}

// ImportMailbox imports an mbox, a message, or a tar of these and of Maildirs, optionally
// compressed with gzip. The file may have any length: it is sent as it is read, without the limit
// of [WithTimeout]. If the import breaks off, a *[Problem] has the result so far in Import; a
// repeated import skips the imported messages. A file that can seek is resent automatically.
func (c *Client) ImportMailbox(ctx context.Context, id string, file io.Reader, o MailImportOptions) (*MailImportResult, error) {
	from, err := (&Attachment{Content: file}).source()
	if err != nil {
		return nil, err
	}
	q := url.Values{}
	set(q, "folder", o.Folder)
	set(q, "quoting", o.Quoting)
	if o.All {
		q.Set("dedup", "false")
	}
	media := o.Type
	if media == "" {
		media = "application/octet-stream"
	}
	return do[MailImportResult](ctx, c, call{
		method: http.MethodPost, path: "/mailboxes/{id}/import", id: id, query: q, again: true, long: true,
		body: &body{media: media, size: -1, parts: []part{{file: from, plain: true}}},
	})
}

// MailExportOptions are the options of a mail export; the zero value exports the whole mailbox as
// an mbox.
type MailExportOptions struct {
	Format string // mbox, or maildir for a tar of Maildirs; "" is mbox
	Folder string // only this folder
}

// MissingMessagesError ends an export that is complete except for some messages that the service
// can't read.
type MissingMessagesError struct{ Text string }

// Error returns their number, and the ids of the first.
func (e *MissingMessagesError) Error() string { return "mailstead: " + e.Text }

// exportStream is the stream of an export.
type exportStream struct{ *http.Response }

// Read implements io.Reader.
func (e exportStream) Read(p []byte) (int, error) {
	n, err := e.Body.Read(p)
	if errors.Is(err, io.EOF) {
		if text := e.Trailer.Get("Mailstead-Missing"); text != "" {
			err = &MissingMessagesError{text}
		}
	}
	return n, err
}

// Close implements io.Closer.
func (e exportStream) Close() error { return e.Body.Close() }

// ExportMailbox exports a mailbox as a stream, which the caller must close. It is complete only if
// it ends with io.EOF; with a [*MissingMessagesError], it is complete except for some messages. The
// limit of [WithTimeout] doesn't apply.
func (c *Client) ExportMailbox(ctx context.Context, id string, o MailExportOptions) (io.ReadCloser, error) {
	q := url.Values{}
	set(q, "format", o.Format)
	set(q, "folder", o.Folder)
	in := call{method: http.MethodGet, path: "/mailboxes/{id}/export", id: id, query: q}
	for attempt := 1; ; attempt++ {
		resp, err := c.open(ctx, in, http.Header{"Accept": {"application/mbox, application/x-tar, application/problem+json;q=0.9"}, "Te": {"trailers"}}) //nolint:bodyclose // the caller does
		if err == nil {
			return exportStream{resp}, nil
		}
		wait, ok := retryWait(attempt, err)
		if attempt >= c.attempts || !ok || ctx.Err() != nil || !repeatable(in, err) {
			return nil, err
		}
		if stopped := c.wait(ctx, wait); stopped != nil {
			return nil, fmt.Errorf("%w (%w)", err, stopped)
		}
	}
}
