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

// MailImport says what a file with mail is, and where it goes; the zero value
// finds out, and puts everything where it belongs.
type MailImport struct {
	Type    string // application/mbox, message/rfc822, application/x-tar or application/gzip; "" to find out
	Folder  string // for what is in the inbox, or in no folder; other folders of the file go below it
	All     bool   // import also what is there already
	Quoting string // of an mbox: mboxrd, mboxo or mboxcl2; "" to find out
}

// ImportedMail is what became of a file with mail.
type ImportedMail struct {
	Imported int64           `json:"imported"`
	Skipped  int64           `json:"skipped"` // there already, or marked as deleted
	Failed   int64           `json:"failed"`
	Bytes    int64           `json:"bytes"`    // of the imported messages
	Failures []ImportFailure `json:"failures"` // at most 100 of them
}

// ImportFailure is something of a file that could not be imported.
type ImportFailure struct {
	Place  string `json:"place"`  // where it stands in the file
	Reason string `json:"reason"` // in words
}

// ImportMailbox imports an mbox, a message, or a tar of these and of Maildirs,
// packed by gzip or not. The file may have any length: it is sent as it is
// read, and [WithTimeout] does not bound it. When the import breaks off, a
// *[Problem] tells in Import how far it came; sent again, what was imported is
// left out. A file that can seek is sent again by itself.
func (c *Client) ImportMailbox(ctx context.Context, id string, file io.Reader, o MailImport) (*ImportedMail, error) {
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
	return do[ImportedMail](ctx, c, call{
		method: http.MethodPost, path: "/mailboxes/{id}/import", id: id, query: q, again: true, long: true,
		body: &body{media: media, size: -1, parts: []part{{file: from, plain: true}}},
	})
}

// MailExport says how a mailbox is exported; the zero value is all of it, as an
// mbox.
type MailExport struct {
	Format string // mbox, or maildir for a tar of Maildirs; "" is mbox
	Folder string // only this one
}

// MissingError ends an export that is complete but for some messages, which the
// service can't read.
type MissingError struct{ Text string }

// Error says how many, and names the first by their ids.
func (e *MissingError) Error() string { return "mailstead: " + e.Text }

// exported is an export as it comes.
type exported struct{ *http.Response }

// Read is that of io.Reader.
func (e exported) Read(p []byte) (int, error) {
	n, err := e.Body.Read(p)
	if errors.Is(err, io.EOF) {
		if text := e.Trailer.Get("Mailstead-Missing"); text != "" {
			err = &MissingError{text}
		}
	}
	return n, err
}

// Close is that of io.Closer.
func (e exported) Close() error { return e.Body.Close() }

// ExportMailbox exports a mailbox as a stream, which the caller closes. Only if
// it ends with io.EOF it was whole; with a [*MissingError] it is complete but for
// some messages. [WithTimeout] does not bound it.
func (c *Client) ExportMailbox(ctx context.Context, id string, o MailExport) (io.ReadCloser, error) {
	q := url.Values{}
	set(q, "format", o.Format)
	set(q, "folder", o.Folder)
	in := call{method: http.MethodGet, path: "/mailboxes/{id}/export", id: id, query: q}
	for attempt := 1; ; attempt++ {
		resp, err := c.open(ctx, in, http.Header{"Accept": {"application/mbox, application/x-tar, application/problem+json;q=0.9"}, "Te": {"trailers"}}) //nolint:bodyclose // the caller does
		if err == nil {
			return exported{resp}, nil
		}
		wait, ok := pause(attempt, err)
		if attempt >= c.attempts || !ok || ctx.Err() != nil || !repeatable(in, err) {
			return nil, err
		}
		if stopped := c.wait(ctx, wait); stopped != nil {
			return nil, fmt.Errorf("%w (%w)", err, stopped)
		}
	}
}
