// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Reason is why an address is on the suppression list.
type Reason string

// Values of Reason. Unsubscribed stops only messages that offer to unsubscribe, the others stop all
// API mail.
const (
	Bounce       Reason = "bounce"
	Complaint    Reason = "complaint"
	Unsubscribed Reason = "unsubscribe"
	Manual       Reason = "manual"
)

// Suppression is an address that the service doesn't send your API mail to.
type Suppression struct {
	ID         string    `json:"id"`
	Email      string    `json:"email"` // lower case
	Reason     Reason    `json:"reason"`
	Message    string    `json:"message"`    // id of the sent message that caused it; "" for none
	Diagnostic string    `json:"diagnostic"` // reply or report of the remote side
	Simulated  bool      `json:"simulated"`  // bounce or complaint of a simulator address: listed for inspection, stops nothing
	CreatedAt  time.Time `json:"created_at"`
}

// SuppressionFilter selects entries; the zero value selects all.
type SuppressionFilter struct {
	Reasons []Reason // any of these
	Email   string
}

func (f SuppressionFilter) query() url.Values {
	q := url.Values{}
	setList(q, "reason", f.Reasons)
	set(q, "email", f.Email)
	return q
}

// ListSuppressions returns a page of suppressed addresses, newest first.
func (c *Client) ListSuppressions(ctx context.Context, f SuppressionFilter, p Paging) (*Page[Suppression], error) {
	return list[Suppression](ctx, c, "/suppressions", f.query(), p)
}

// Suppressions iterates over all matching addresses, newest first. It stops after an error.
func (c *Client) Suppressions(ctx context.Context, f SuppressionFilter) iter.Seq2[Suppression, error] {
	return walk(func(p Paging) (*Page[Suppression], error) { return c.ListSuppressions(ctx, f, p) })
}

// AddSuppression adds an address to the list; an existing entry is not changed. An empty reason
// means Manual.
func (c *Client) AddSuppression(ctx context.Context, address string, reason Reason) (*Suppression, error) {
	return post[Suppression](ctx, c, "/suppressions", "", struct {
		Email  string `json:"email"`
		Reason Reason `json:"reason,omitempty"`
	}{address, reason}, true)
}

// AddSuppressions adds up to 1,000 addresses to the list and returns their current entries, in the
// same order.
func (c *Client) AddSuppressions(ctx context.Context, addresses []string, reason Reason) ([]Suppression, error) {
	b, err := jsonBody(struct {
		Emails []string `json:"emails"`
		Reason Reason   `json:"reason,omitempty"`
	}{addresses, reason})
	if err != nil {
		return nil, err
	}
	out, err := do[struct{ Data []Suppression }](ctx, c, call{method: http.MethodPost, path: "/suppressions/batch", body: b, again: true})
	if err != nil {
		return nil, err
	}
	return out.Data, nil
}

// GetSuppression returns an entry, by its id or by the address.
func (c *Client) GetSuppression(ctx context.Context, idOrAddress string) (*Suppression, error) {
	return do[Suppression](ctx, c, call{method: http.MethodGet, path: "/suppressions/{id}", id: idOrAddress})
}

// DeleteSuppression allows an address again. With an address it deletes all its entries, with an id
// only that one.
func (c *Client) DeleteSuppression(ctx context.Context, idOrAddress string) error {
	return c.run(ctx, call{method: http.MethodDelete, path: "/suppressions/{id}", id: idOrAddress})
}

// SuppressionImport is the result of an import.
type SuppressionImport struct {
	Added    int         `json:"added"`    // new entries
	Existing int         `json:"existing"` // existing entries
	Rejected int         `json:"rejected"`
	Errors   []LineError `json:"errors"` // errors of rejected lines, at most 100
}

// LineError is the error of a line in a file.
type LineError struct {
	Line    int    `json:"line"` // from 1
	Code    string `json:"code"` // stable code of the rule
	Message string `json:"message"`
}

// ImportSuppressions adds the addresses in a CSV file of at most 16 MiB, such as an export from
// this or another service. Rows without a reason get the given one; "" means Manual. A file that
// can seek is read again if the request must be repeated.
func (c *Client) ImportSuppressions(ctx context.Context, file io.Reader, reason Reason) (*SuppressionImport, error) {
	from, err := (&Attachment{Content: file}).source()
	if err != nil {
		return nil, err
	}
	q := url.Values{}
	set(q, "reason", string(reason))
	return do[SuppressionImport](ctx, c, call{
		method: http.MethodPost, path: "/suppressions/import", query: q, again: true,
		body: &body{media: "text/csv; charset=utf-8", size: -1, parts: []part{{file: from, plain: true}}},
	})
}

// ExportSuppressions writes the whole list as CSV, oldest first. After an error the file is
// incomplete.
func (c *Client) ExportSuppressions(ctx context.Context, to io.Writer) error {
	return c.run(ctx, call{method: http.MethodGet, path: "/suppressions/export", into: to})
}
