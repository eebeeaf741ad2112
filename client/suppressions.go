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

// The reasons. Unsubscribed stops only messages that offer to unsubscribe, the
// others all mail of the API.
const (
	Bounce       Reason = "bounce"
	Complaint    Reason = "complaint"
	Unsubscribed Reason = "unsubscribe"
	Manual       Reason = "manual"
)

// Suppression is an address that your API mail does not go to.
type Suppression struct {
	ID              string    `json:"id"`
	Address         string    `json:"address"` // in lower case
	Reason          Reason    `json:"reason"`
	SourceMessageID string    `json:"source_message_id"` // the id of the sent message that led to it; "" if none did
	Diagnostic      string    `json:"diagnostic"`        // what the other side said
	Simulated       bool      `json:"simulated"`         // of a simulator address: shown here, and stops nothing
	CreatedAt       time.Time `json:"created_at"`
}

// SuppressionFilter says which entries are wanted; the zero value is all.
type SuppressionFilter struct {
	Reason  Reason
	Address string
}

func (f SuppressionFilter) query() url.Values {
	q := url.Values{}
	set(q, "reason", string(f.Reason))
	set(q, "address", f.Address)
	return q
}

// ListSuppressions returns a page of suppressed addresses, newest first.
func (c *Client) ListSuppressions(ctx context.Context, f SuppressionFilter, p Paging) (*Page[Suppression], error) {
	return list[Suppression](ctx, c, "/suppressions", f.query(), p)
}

// Suppressions walks through all suppressed addresses that fit, newest first.
// After an error it ends.
func (c *Client) Suppressions(ctx context.Context, f SuppressionFilter) iter.Seq2[Suppression, error] {
	return walk(func(p Paging) (*Page[Suppression], error) { return c.ListSuppressions(ctx, f, p) })
}

// AddSuppression puts an address on the list; one that is there already stays
// as it is. An empty reason is Manual.
func (c *Client) AddSuppression(ctx context.Context, address string, reason Reason) (*Suppression, error) {
	return post[Suppression](ctx, c, "/suppressions", "", struct {
		Address string `json:"address"`
		Reason  Reason `json:"reason,omitempty"`
	}{address, reason}, true)
}

// AddSuppressions puts up to 1,000 addresses on the list and returns their
// entries as they now stand, in the same order.
func (c *Client) AddSuppressions(ctx context.Context, addresses []string, reason Reason) ([]Suppression, error) {
	b, err := jsonBody(struct {
		Addresses []string `json:"addresses"`
		Reason    Reason   `json:"reason,omitempty"`
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

// GetSuppression shows an entry, by its id or by the address.
func (c *Client) GetSuppression(ctx context.Context, idOrAddress string) (*Suppression, error) {
	return do[Suppression](ctx, c, call{method: http.MethodGet, path: "/suppressions/{id}", id: idOrAddress})
}

// DeleteSuppression allows an address again. By the address it deletes all its
// entries, by an id that one.
func (c *Client) DeleteSuppression(ctx context.Context, idOrAddress string) error {
	return c.run(ctx, call{method: http.MethodDelete, path: "/suppressions/{id}", id: idOrAddress})
}

// Imported is what became of the rows of an import.
type Imported struct {
	Added    int         `json:"added"`    // new on the list
	Existing int         `json:"existing"` // there already
	Rejected int         `json:"rejected"`
	Errors   []LineError `json:"errors"` // what is wrong with the rejected, at most 100 of them
}

// LineError is what is wrong with a line of a file.
type LineError struct {
	Line    int    `json:"line"` // 1 for the first
	Code    string `json:"code"` // stable name of the rule
	Message string `json:"message"`
}

// ImportSuppressions adds the addresses of a CSV file of at most 16 MiB, such
// as the exports of this and other services. Rows that tell no reason get the
// one given; "" is Manual. A file that can seek is read again if the request
// has to be repeated.
func (c *Client) ImportSuppressions(ctx context.Context, file io.Reader, reason Reason) (*Imported, error) {
	from, err := (&Attachment{Content: file}).source()
	if err != nil {
		return nil, err
	}
	q := url.Values{}
	set(q, "reason", string(reason))
	return do[Imported](ctx, c, call{
		method: http.MethodPost, path: "/suppressions/import", query: q, again: true,
		body: &body{media: "text/csv; charset=utf-8", size: -1, parts: []part{{file: from, plain: true}}},
	})
}

// ExportSuppressions writes the whole list as CSV, oldest first. After an
// error the file is not whole.
func (c *Client) ExportSuppressions(ctx context.Context, to io.Writer) error {
	return c.run(ctx, call{method: http.MethodGet, path: "/suppressions/export", into: to})
}
