// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
)

// ExportFormat is the format of an export.
type ExportFormat string

// Formats of exports.
const (
	NDJSON ExportFormat = "ndjson" // a line of JSON for each entry
	CSV    ExportFormat = "csv"    // a row for each entry, after a row of names
)

// ExportMessages writes all sent messages that match, oldest first. After an error the file is
// incomplete.
func (c *Client) ExportMessages(ctx context.Context, f MessageFilter, format ExportFormat, to io.Writer) error {
	return c.export(ctx, call{path: "/outbound/messages/export", query: f.query()}, format, to)
}

// ExportMailboxMessages writes the list of all messages in a mailbox that match, oldest first,
// without content. After an error the file is incomplete.
func (c *Client) ExportMailboxMessages(ctx context.Context, mailbox string, f MailFilter, format ExportFormat, to io.Writer) error {
	return c.export(ctx, call{path: "/mailboxes/{id}/messages/export", id: mailbox, query: f.query()}, format, to)
}

// ExportEvents writes all events that match, oldest first. After an error the file is incomplete.
func (c *Client) ExportEvents(ctx context.Context, f EventFilter, format ExportFormat, to io.Writer) error {
	return c.export(ctx, call{path: "/events/export", query: f.query()}, format, to)
}

// ExportStats writes the periods of statistics, oldest first, without totals. After an error the
// file is incomplete.
func (c *Client) ExportStats(ctx context.Context, q StatsQuery, format ExportFormat, to io.Writer) error {
	return c.export(ctx, call{path: "/stats/export", query: q.query()}, format, to)
}

func (c *Client) export(ctx context.Context, in call, format ExportFormat, to io.Writer) error {
	if in.query == nil {
		in.query = url.Values{}
	}
	set(in.query, "format", string(format))
	in.method, in.into = http.MethodGet, to
	return c.run(ctx, in)
}
