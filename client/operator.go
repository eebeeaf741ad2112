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

// The rest of this file is for operators. It needs a key with the scope operator, which gives
// access to the queued mail of all accounts. `mailstead key create --scope operator` creates one on
// the server.

// QueueHold is an active hold: it holds all mail to a destination or of an account, including
// future mail.
type QueueHold struct {
	ID          string    `json:"id"`
	Kind        string    `json:"kind"`        // destination or account
	Destination string    `json:"destination"` // "" for an account's
	AccountID   string    `json:"account_id"`  // "" for a destination's
	Detail      string    `json:"detail"`      // "" if none was given
	CreatedAt   time.Time `json:"created_at"`
}

// QueueDestination is the queue for a destination.
type QueueDestination struct {
	Destination   string     `json:"destination"`
	Waiting       int        `json:"waiting"`      // counted up to 10,000
	MoreWaiting   bool       `json:"more_waiting"` // there are more
	Held          int        `json:"held"`
	MoreHeld      bool       `json:"more_held"`
	Leased        int        `json:"leased"`          // attempts in progress on nodes
	OldestAt      *time.Time `json:"oldest_at"`       // nil if the queue is empty
	NextAttemptAt *time.Time `json:"next_attempt_at"` // nil if nothing waits
	AllDeferred   bool       `json:"all_deferred"`    // all waiting deliveries were attempted or postponed
	// The last reply that deferred a delivery.
	SMTPCode     int        `json:"smtp_code"`
	EnhancedCode string     `json:"enhanced_code"`
	Diagnostic   string     `json:"diagnostic"`
	RemoteMTA    string     `json:"remote_mta"`
	AnsweredAt   *time.Time `json:"answered_at"` // nil if there was none
	Hold         *QueueHold `json:"hold"`        // active hold; nil for none
}

// QueueDelivery is a delivery that is not final.
type QueueDelivery struct {
	Message       string     `json:"message"` // message id
	AccountID     string     `json:"account_id"`
	Recipient     string     `json:"recipient"`
	Destination   string     `json:"destination"`
	Status        State      `json:"status"`
	Held          bool       `json:"held"`
	Attempts      int        `json:"attempts"`
	NextAttemptAt *time.Time `json:"next_attempt_at"` // nil while it is held or in progress
	ExpiresAt     time.Time  `json:"expires_at"`
	SMTPCode      int        `json:"smtp_code"` // of the last reply
	EnhancedCode  string     `json:"enhanced_code"`
	Diagnostic    string     `json:"diagnostic"`
	RemoteMTA     string     `json:"remote_mta"`
	From          []Address  `json:"from"`   // empty if the message is deleted
	Sender        string     `json:"sender"` // MAIL FROM of a submission; "" for the API
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
	From       []Address   `json:"from"`   // empty if the message is deleted
	Sender     string      `json:"sender"` // MAIL FROM of a submission; "" for the API
	Subject    string      `json:"subject"`
	MessageID  string      `json:"message_id"`
	Size       int         `json:"size"`
	Recipients []Recipient `json:"recipients"`
	CreatedAt  time.Time   `json:"created_at"`
}

// QueueFilter selects deliveries that are not final; all fields that are set must match.
type QueueFilter struct {
	Message     string        `json:"message,omitempty"`
	Destination string        `json:"destination,omitempty"`
	Account     string        `json:"account,omitempty"` // id or e-mail address
	Status      State         `json:"status,omitempty"`  // scheduled, queued, deferred or sending
	Sender      string        `json:"sender,omitempty"`  // address or domain
	OlderThan   time.Duration `json:"-"`                 // time since they were accepted, in seconds
	Held        *bool         `json:"held,omitempty"`    // only held, or only others; nil for both
}

func (f QueueFilter) query() url.Values {
	q := url.Values{}
	set(q, "message", f.Message)
	set(q, "destination", f.Destination)
	set(q, "account", f.Account)
	set(q, "status", string(f.Status))
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

// QueueRequest is a command for deliveries.
type QueueRequest struct {
	QueueFilter
	All    bool   // all deliveries; required if the filter is empty
	DryRun bool   // only count
	Reason string // for a hold or a drop
	// Once holds or releases only existing deliveries; otherwise a hold by destination or account
	// alone also applies to future ones.
	Once   bool
	Silent bool          // a drop sends no reports to the senders of submissions
	Wait   time.Duration // for a drop: time to wait for attempts in progress, up to 30 s
	After  string        // continue: NextCursor of the previous result
}

// QueueResult counts deliveries.
type QueueResult struct {
	Matched    int    `json:"matched"`
	Changed    int    `json:"changed"`    // 0 in a dry run
	Leased     int    `json:"leased"`     // in progress: changed after the attempt, unless that is final
	StillHeld  int    `json:"still_held"` // not released because of another hold
	HasMore    bool   `json:"has_more"`   // continue with NextCursor
	NextCursor string `json:"next_cursor"`
}

// ListQueueDestinations returns a page of destinations with queued mail, by name. destination,
// unless "", selects only that one.
func (c *Client) ListQueueDestinations(ctx context.Context, destination string, p Paging) (*Page[QueueDestination], error) {
	q := url.Values{}
	set(q, "destination", destination)
	return list[QueueDestination](ctx, c, "/operator/queue/destinations", q, p)
}

// QueueDestinations iterates over all destinations with queued mail, by name. It stops after an
// error.
func (c *Client) QueueDestinations(ctx context.Context) iter.Seq2[QueueDestination, error] {
	return walk(func(p Paging) (*Page[QueueDestination], error) { return c.ListQueueDestinations(ctx, "", p) })
}

// ListQueueDeliveries returns a page of deliveries that are not final. A page may be short although
// the list continues.
func (c *Client) ListQueueDeliveries(ctx context.Context, f QueueFilter, p Paging) (*Page[QueueDelivery], error) {
	return list[QueueDelivery](ctx, c, "/operator/queue/deliveries", f.query(), p)
}

// QueueDeliveries iterates over all matching deliveries. It stops after an error.
func (c *Client) QueueDeliveries(ctx context.Context, f QueueFilter) iter.Seq2[QueueDelivery, error] {
	return walk(func(p Paging) (*Page[QueueDelivery], error) { return c.ListQueueDeliveries(ctx, f, p) })
}

// GetQueueMessage returns a message of any account with its attempts.
func (c *Client) GetQueueMessage(ctx context.Context, id string) (*QueueMessage, error) {
	return do[QueueMessage](ctx, c, call{method: http.MethodGet, path: "/operator/queue/messages/{id}", id: id})
}

// ListQueueHolds returns all active holds, oldest first.
func (c *Client) ListQueueHolds(ctx context.Context) ([]QueueHold, error) {
	out, err := do[struct{ Data []QueueHold }](ctx, c, call{method: http.MethodGet, path: "/operator/queue/holds"})
	if err != nil {
		return nil, err
	}
	return out.Data, nil
}

// queueRequestBody is a filter in the form of the requests.
type queueRequestBody struct {
	QueueFilter
	OlderThan int64  `json:"older_than,omitempty"`
	All       bool   `json:"all,omitempty"`
	DryRun    bool   `json:"dry_run,omitempty"`
	After     string `json:"after,omitempty"`
}

func (o QueueRequest) requestBody() queueRequestBody {
	return queueRequestBody{o.QueueFilter, seconds(o.OlderThan), o.All, o.DryRun, o.After}
}

// RetryQueue makes waiting deliveries due now. Each call processes a part: repeat it while the
// result has More.
func (c *Client) RetryQueue(ctx context.Context, o QueueRequest) (*QueueResult, error) {
	return post[QueueResult](ctx, c, "/operator/queue/retry", "", o.requestBody(), true)
}

// HoldQueue holds the selected deliveries until they are released. Each call processes a part:
// repeat it while the result has More.
func (c *Client) HoldQueue(ctx context.Context, o QueueRequest) (*QueueResult, error) {
	return post[QueueResult](ctx, c, "/operator/queue/hold", "", struct {
		queueRequestBody
		Detail string `json:"detail,omitempty"`
		Once   bool   `json:"once,omitempty"`
	}{o.requestBody(), o.Reason, o.Once}, true)
}

// ReleaseQueue releases holds. Each call processes a part: repeat it while the result has More.
func (c *Client) ReleaseQueue(ctx context.Context, o QueueRequest) (*QueueResult, error) {
	return post[QueueResult](ctx, c, "/operator/queue/release", "", struct {
		queueRequestBody
		Once bool `json:"once,omitempty"`
	}{o.requestBody(), o.Once}, true)
}

// DropQueue ends the selected deliveries as failed. Each call processes a part: repeat it while the
// result has More. Deliveries counted in Leased are held; drop them again.
func (c *Client) DropQueue(ctx context.Context, o QueueRequest) (*QueueResult, error) {
	return post[QueueResult](ctx, c, "/operator/queue/drop", "", struct {
		queueRequestBody
		Detail string `json:"detail,omitempty"`
		Silent bool   `json:"silent,omitempty"`
		Wait   int64  `json:"wait,omitempty"`
	}{o.requestBody(), o.Reason, o.Silent, seconds(o.Wait)}, true)
}

// OperatorDomain is a domain, for operators.
type OperatorDomain struct {
	Name      string  `json:"name"`
	AccountID *string `json:"account_id"` // account of the domain; nil for none
	Suspended bool    `json:"suspended"`
}

// GetOperatorDomain returns a domain, for operators.
func (c *Client) GetOperatorDomain(ctx context.Context, name string) (*OperatorDomain, error) {
	return do[OperatorDomain](ctx, c, call{method: http.MethodGet, path: "/operator/domains/{id}", id: name})
}

// SuspendDomain suspends a domain, or ends the suspension.
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

// ListAccounts returns a page of the accounts, newest first.
func (c *Client) ListAccounts(ctx context.Context, p Paging) (*Page[Account], error) {
	return list[Account](ctx, c, "/operator/accounts", nil, p)
}

// Accounts iterates over all accounts, newest first. It stops after an error.
func (c *Client) Accounts(ctx context.Context) iter.Seq2[Account, error] {
	return walk(func(p Paging) (*Page[Account], error) { return c.ListAccounts(ctx, p) })
}

// CreateAccount creates an account; name may be empty.
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

// GetAccount returns an account.
func (c *Client) GetAccount(ctx context.Context, id string) (*Account, error) {
	return do[Account](ctx, c, call{method: http.MethodGet, path: "/operator/accounts/{id}", id: id})
}

// UpdateAccount sets an account's status: active or suspended.
func (c *Client) UpdateAccount(ctx context.Context, id, status string) (*Account, error) {
	b, err := jsonBody(struct {
		Status string `json:"status"`
	}{status})
	if err != nil {
		return nil, err
	}
	return do[Account](ctx, c, call{method: http.MethodPatch, path: "/operator/accounts/{id}", id: id, body: b})
}

// HostDNS has the service's own DNS records, which customers' records refer to.
type HostDNS struct {
	Host    string   `json:"host"`
	Records []Record `json:"records"` // required ones first
	Failed  int      `json:"failed"`  // required records that are missing or wrong
}

// GetHostDNS checks the DNS records of the service itself.
func (c *Client) GetHostDNS(ctx context.Context) (*HostDNS, error) {
	return do[HostDNS](ctx, c, call{method: http.MethodGet, path: "/operator/dns"})
}
