// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// What follows is for those who run the service. It needs a key with the scope
// operator, which `mailstead key create --scope operator` makes on the server,
// and reaches the queued mail of all accounts.

// QueueHold is a standing hold: mail to a destination or of an account is not
// tried, also what is still to come.
type QueueHold struct {
	ID          string    `json:"id"`
	Kind        string    `json:"kind"`        // destination or account
	Destination string    `json:"destination"` // "" for an account's
	AccountID   string    `json:"account_id"`  // "" for a destination's
	Reason      string    `json:"reason"`      // "" if none was given
	CreatedAt   time.Time `json:"created_at"`
}

// QueueDestination is what waits for a destination.
type QueueDestination struct {
	Destination string     `json:"destination"`
	Waiting     int        `json:"waiting"`      // at most 10,000 are counted
	MoreWaiting bool       `json:"more_waiting"` // than were counted
	Held        int        `json:"held"`
	MoreHeld    bool       `json:"more_held"`
	InHand      int        `json:"in_hand"`     // of nodes, at this moment
	OldestAt    *time.Time `json:"oldest_at"`   // nil if there is nothing
	NextTryAt   *time.Time `json:"next_try_at"` // nil if nothing waits
	Slowed      bool       `json:"slowed"`      // all that waits was tried or put off
	// The last answer that made something wait.
	SMTPCode     int        `json:"smtp_code"`
	EnhancedCode string     `json:"enhanced_code"`
	Reply        string     `json:"reply"`
	Remote       string     `json:"remote"`
	AnsweredAt   *time.Time `json:"answered_at"` // nil if there was none
	Hold         *QueueHold `json:"hold"`        // that it is under; nil for none
}

// QueueDelivery is a delivery that has not reached an end.
type QueueDelivery struct {
	Message       string     `json:"message"` // the message's id
	AccountID     string     `json:"account_id"`
	Recipient     string     `json:"recipient"`
	Destination   string     `json:"destination"`
	Status        State      `json:"status"`
	Held          bool       `json:"held"`
	Attempts      int        `json:"attempts"`
	NextAttemptAt *time.Time `json:"next_attempt_at"` // nil while it is held or in hand
	ExpiresAt     time.Time  `json:"expires_at"`
	SMTPCode      int        `json:"smtp_code"` // of the last answer
	EnhancedCode  string     `json:"enhanced_code"`
	Reply         string     `json:"reply"`
	Remote        string     `json:"remote"`
	From          string     `json:"from"`   // "" if the message is gone
	Sender        string     `json:"sender"` // MAIL FROM of a submission; "" for API mail
	Subject       string     `json:"subject"`
	MessageID     string     `json:"message_id"`
	Size          int        `json:"size"`
	CreatedAt     time.Time  `json:"created_at"`
}

// QueueMessage is a message of any account.
type QueueMessage struct {
	ID         string      `json:"id"`
	AccountID  string      `json:"account_id"`
	Status     State       `json:"status"`
	From       string      `json:"from"`   // "" if the message is gone
	Sender     string      `json:"sender"` // MAIL FROM of a submission; "" for API mail
	Subject    string      `json:"subject"`
	MessageID  string      `json:"message_id"`
	Size       int         `json:"size"`
	Recipients []Recipient `json:"recipients"`
	CreatedAt  time.Time   `json:"created_at"`
}

// QueueFilter chooses deliveries that have not reached an end; all of what is
// set must fit.
type QueueFilter struct {
	Message     string        `json:"message,omitempty"`
	Destination string        `json:"destination,omitempty"`
	Account     string        `json:"account,omitempty"` // an id or an e-mail address
	State       State         `json:"state,omitempty"`   // scheduled, queued, deferred or sending
	Sender      string        `json:"sender,omitempty"`  // an address or a domain
	OlderThan   time.Duration `json:"-"`                 // since they were accepted; to the second
	Held        *bool         `json:"held,omitempty"`    // those that are held, or those that are not; nil for both
}

func (f QueueFilter) query() url.Values {
	q := url.Values{}
	set(q, "message", f.Message)
	set(q, "destination", f.Destination)
	set(q, "account", f.Account)
	set(q, "state", string(f.State))
	set(q, "sender", f.Sender)
	if f.OlderThan != 0 {
		q.Set("older_than", strconv.FormatInt(seconds(f.OlderThan), 10))
	}
	if f.Held != nil {
		q.Set("held", strconv.FormatBool(*f.Held))
	}
	return q
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }

// QueueOrder is something to be done with deliveries.
type QueueOrder struct {
	QueueFilter
	All    bool   // everything; required when the filter is empty
	DryRun bool   // only count
	Reason string // of a hold or a drop
	// Once holds or releases only what is there; else a hold by destination or
	// account alone stands, and holds what is to come too.
	Once   bool
	Silent bool          // a drop sends the senders of submissions no report
	Wait   time.Duration // of a drop, for what nodes have in hand; up to 30 s
	After  string        // goes on: the NextCursor of the result of the same order
}

// QueueResult counts deliveries.
type QueueResult struct {
	Matched    int    `json:"matched"`
	Changed    int    `json:"changed"` // none in a dry run
	InHand     int    `json:"in_hand"` // of nodes: it happens when they let go, unless they reach an end
	Kept       int    `json:"kept"`    // not released, since another standing hold is on them
	More       bool   `json:"more"`    // the order goes on with NextCursor
	NextCursor string `json:"next_cursor"`
}

// ListQueueDestinations returns a page of destinations that mail waits for, by
// name; destination, unless "", is the only one wanted.
func (c *Client) ListQueueDestinations(ctx context.Context, destination string, p Paging) (*Page[QueueDestination], error) {
	q := url.Values{}
	set(q, "destination", destination)
	return list[QueueDestination](ctx, c, "/operator/queue/destinations", q, p)
}

// QueueDestinations walks through all destinations that mail waits for, by
// name. After an error it ends.
func (c *Client) QueueDestinations(ctx context.Context) iter.Seq2[QueueDestination, error] {
	return walk(func(p Paging) (*Page[QueueDestination], error) { return c.ListQueueDestinations(ctx, "", p) })
}

// ListQueueDeliveries returns a page of deliveries that have not reached an
// end. It may be short although the list goes on.
func (c *Client) ListQueueDeliveries(ctx context.Context, f QueueFilter, p Paging) (*Page[QueueDelivery], error) {
	return list[QueueDelivery](ctx, c, "/operator/queue/deliveries", f.query(), p)
}

// QueueDeliveries walks through all deliveries that fit. After an error it ends.
func (c *Client) QueueDeliveries(ctx context.Context, f QueueFilter) iter.Seq2[QueueDelivery, error] {
	return walk(func(p Paging) (*Page[QueueDelivery], error) { return c.ListQueueDeliveries(ctx, f, p) })
}

// GetQueueMessage shows a message of any account with its attempts.
func (c *Client) GetQueueMessage(ctx context.Context, id string) (*QueueMessage, error) {
	return do[QueueMessage](ctx, c, call{method: http.MethodGet, path: "/operator/queue/messages/{id}", id: id})
}

// ListQueueHolds returns all standing holds, the oldest first.
func (c *Client) ListQueueHolds(ctx context.Context) ([]QueueHold, error) {
	out, err := do[struct{ Data []QueueHold }](ctx, c, call{method: http.MethodGet, path: "/operator/queue/holds"})
	if err != nil {
		return nil, err
	}
	return out.Data, nil
}

// chosenQueue is a filter as the requests have it.
type chosenQueue struct {
	QueueFilter
	OlderThan int64  `json:"older_than,omitempty"`
	All       bool   `json:"all,omitempty"`
	DryRun    bool   `json:"dry_run,omitempty"`
	After     string `json:"after,omitempty"`
}

func (o QueueOrder) chosen() chosenQueue {
	return chosenQueue{o.QueueFilter, seconds(o.OlderThan), o.All, o.DryRun, o.After}
}

// RetryQueue makes what waits due now. Each call does a part of the order: go
// on while the result says More.
func (c *Client) RetryQueue(ctx context.Context, o QueueOrder) (*QueueResult, error) {
	return post[QueueResult](ctx, c, "/operator/queue/retry", "", o.chosen(), true)
}

// HoldQueue holds what is chosen until it is released. Each call does a part of
// the order: go on while the result says More.
func (c *Client) HoldQueue(ctx context.Context, o QueueOrder) (*QueueResult, error) {
	return post[QueueResult](ctx, c, "/operator/queue/hold", "", struct {
		chosenQueue
		Reason string `json:"reason,omitempty"`
		Once   bool   `json:"once,omitempty"`
	}{o.chosen(), o.Reason, o.Once}, true)
}

// ReleaseQueue ends holds. Each call does a part of the order: go on while the
// result says More.
func (c *Client) ReleaseQueue(ctx context.Context, o QueueOrder) (*QueueResult, error) {
	return post[QueueResult](ctx, c, "/operator/queue/release", "", struct {
		chosenQueue
		Once bool `json:"once,omitempty"`
	}{o.chosen(), o.Once}, true)
}

// DropQueue ends what is chosen as failed. Each call does a part of the order:
// go on while the result says More. What AnyLeased counts is held; drop it again.
func (c *Client) DropQueue(ctx context.Context, o QueueOrder) (*QueueResult, error) {
	return post[QueueResult](ctx, c, "/operator/queue/drop", "", struct {
		chosenQueue
		Reason string `json:"reason,omitempty"`
		Silent bool   `json:"silent,omitempty"`
		Wait   int64  `json:"wait,omitempty"`
	}{o.chosen(), o.Reason, o.Silent, seconds(o.Wait)}, true)
}

// OperatorDomain is a domain as operators see it.
type OperatorDomain struct {
	Name      string  `json:"name"`
	AccountID *string `json:"account_id"` // that holds it; nil for none
	Suspended bool    `json:"suspended"`
}

// GetOperatorDomain shows a domain to operators.
func (c *Client) GetOperatorDomain(ctx context.Context, name string) (*OperatorDomain, error) {
	return do[OperatorDomain](ctx, c, call{method: http.MethodGet, path: "/operator/domains/{id}", id: name})
}

// SuspendDomain suspends a domain, or ends that.
func (c *Client) SuspendDomain(ctx context.Context, name string, suspended bool) (*OperatorDomain, error) {
	b, err := jsonBody(struct {
		Suspended bool `json:"suspended"`
	}{suspended})
	if err != nil {
		return nil, err
	}
	return do[OperatorDomain](ctx, c, call{method: http.MethodPatch, path: "/operator/domains/{id}", id: name, body: b})
}

// Account is a customer of the service.
type Account struct {
	ID        string    `json:"id"`
	Email     string    `json:"email"`
	Name      string    `json:"name"`
	Status    string    `json:"status"` // active or suspended
	CreatedAt time.Time `json:"created_at"`
}

// ListAccounts returns a page of the accounts, the newest first.
func (c *Client) ListAccounts(ctx context.Context, p Paging) (*Page[Account], error) {
	return list[Account](ctx, c, "/operator/accounts", nil, p)
}

// Accounts walks through all accounts, the newest first. After an error it
// ends.
func (c *Client) Accounts(ctx context.Context) iter.Seq2[Account, error] {
	return walk(func(p Paging) (*Page[Account], error) { return c.ListAccounts(ctx, p) })
}

// CreateAccount makes an account; name may be empty.
func (c *Client) CreateAccount(ctx context.Context, email, name string) (*Account, error) {
	b, err := jsonBody(struct {
		Email string `json:"email"`
		Name  string `json:"name,omitempty"`
	}{email, name})
	if err != nil {
		return nil, err
	}
	return do[Account](ctx, c, call{method: http.MethodPost, path: "/operator/accounts", body: b})
}

// GetAccount shows an account.
func (c *Client) GetAccount(ctx context.Context, id string) (*Account, error) {
	return do[Account](ctx, c, call{method: http.MethodGet, path: "/operator/accounts/{id}", id: id})
}

// UpdateAccount suspends an account, or ends that: status is active or
// suspended.
func (c *Client) UpdateAccount(ctx context.Context, id, status string) (*Account, error) {
	b, err := jsonBody(struct {
		Status string `json:"status"`
	}{status})
	if err != nil {
		return nil, err
	}
	return do[Account](ctx, c, call{method: http.MethodPatch, path: "/operator/accounts/{id}", id: id, body: b})
}

// HostDNS is the service's own DNS records, which customers' records lead to.
type HostDNS struct {
	Host    string   `json:"host"`
	Records []Record `json:"records"` // required ones first
	Failed  int      `json:"failed"`  // required ones that are missing or wrong
}

// GetHostDNS checks the DNS records of the service itself.
func (c *Client) GetHostDNS(ctx context.Context) (*HostDNS, error) {
	return do[HostDNS](ctx, c, call{method: http.MethodGet, path: "/operator/dns"})
}
