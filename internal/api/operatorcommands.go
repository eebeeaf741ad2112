// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/queue/admin"
	"github.com/mailstead/mailstead/internal/web"
)

const (
	// maxCommandRows is the approximate number of rows that a request processes, so that its
	// response time stays limited for any selection.
	maxCommandRows = 10_000
	// maxDropWaitSeconds is the maximum wait of a drop, in seconds.
	maxDropWaitSeconds = 30
)

const pagingNote = " A request looks at about 10,000 deliveries; while `more` is true, make it again with `after` set to `next_cursor`."

func (a *API) queueCommandRoutes(r *router) {
	handle(r, operation{method: "POST", path: "/operator/queue/retry", id: "retryQueue", validatesFirst: true, scope: account.ScopeOperator,
		summary: "Try deliveries now", description: "What waits is due at once, and nodes begin again with destinations that they have put off. Of a single `message` what has failed is tried again too. " +
			"What is scheduled, held or being attempted is left as it is." + pagingNote}, a.retryQueue)
	handle(r, operation{method: "POST", path: "/operator/queue/hold", id: "holdQueue", validatesFirst: true, scope: account.ScopeOperator, mayConflict: true,
		summary: "Hold deliveries", description: "Nothing that is held is tried, and its time does not run out. By `destination` or `account` alone the hold stands: what is accepted later is held as well; " +
			"`once` holds only what is there. A delivery that a node is attempting is held after the attempt, unless that is final." + pagingNote}, a.holdQueue)
	handle(r, operation{method: "POST", path: "/operator/queue/release", id: "releaseQueue", validatesFirst: true, scope: account.ScopeOperator,
		summary: "Release held deliveries", description: "By `destination` or `account` alone, and for `all`, the active hold ends too, unless `once` is set. " +
			"Deliveries with another active hold stay held. The time that it was held is added to a delivery's expiry." + pagingNote}, a.releaseQueue)
	handle(r, operation{method: "POST", path: "/operator/queue/drop", id: "dropQueue", validatesFirst: true, scope: account.ScopeOperator,
		summary: "Drop deliveries", description: "They end as failed, with the reason in their reply and an event; senders of submissions get a report, unless `silent` is set. " +
			"An attempt that is under way keeps its outcome: a delivery that a node is attempting is held, and dropped if the attempt ends within `wait` seconds; drop what `leased` still counts again." + pagingNote}, a.dropQueue)
}

// QueueSelection selects the deliveries of a command. A delivery must match all given criteria.
type QueueSelection struct {
	Message     string `json:"message,omitempty" format:"uuid" doc:"Those of this message."`
	Destination string `json:"destination,omitempty" doc:"Those to this domain." example:"example.net"`
	Account     string `json:"account,omitempty" doc:"Those of this account: its id, or its e-mail address." example:"you@example.com"`
	Status      string `json:"status,omitempty" enum:"scheduled,queued,deferred,sending" doc:"Those in this state."`
	Sender      string `json:"sender,omitempty" doc:"Those from this address, or from any of this domain; in From or MAIL FROM." example:"you@example.com"`
	OlderThan   int    `json:"older_than,omitempty" minimum:"0" maximum:"315360000" doc:"Those that were accepted so many seconds ago at least." example:"14400"`
	Held        *bool  `json:"held,omitempty" doc:"Those that are held, or those that are not."`
	All         bool   `json:"all,omitempty" doc:"Everything; required when nothing is chosen, and not together with a choice."`
	DryRun      bool   `json:"dry_run,omitempty" doc:"Only count."`
	After       string `json:"after,omitempty" doc:"The next_cursor of the answer to the same order, to go on."`
}

type retryQueueRequest struct{ QueueSelection }

type holdQueueRequest struct {
	QueueSelection
	Detail string `json:"detail,omitempty" doc:"Why, for those who look at the queue; at most 500 bytes." example:"they asked us to wait"`
	Once   bool   `json:"once,omitempty" doc:"Hold only what is there."`
}

type releaseQueueRequest struct {
	QueueSelection
	Once bool `json:"once,omitempty" doc:"Release what is there, and keep the active hold."`
}

type dropQueueRequest struct {
	QueueSelection
	Detail string `json:"detail,omitempty" doc:"Why, for the accounts and senders; at most 500 bytes." example:"the domain has ceased to exist"`
	Silent bool   `json:"silent,omitempty" doc:"Send the senders of submissions no report."`
	Wait   int    `json:"wait,omitempty" minimum:"0" maximum:"30" doc:"For how many seconds to wait for attempts in progress." example:"10"`
}

type queueCommandResponse struct {
	Matched    int     `json:"matched" doc:"Deliveries that were chosen." example:"1200"`
	Changed    int     `json:"changed" doc:"Deliveries with which it was done; none in a dry run." example:"1195"`
	Leased     int     `json:"leased" doc:"Deliveries that nodes are attempting: they change after the attempt, unless that is final. A later part may count them again." example:"5"`
	StillHeld  int     `json:"still_held" doc:"Deliveries that were not released, since another active hold is on them." example:"0"`
	HasMore    bool    `json:"has_more" doc:"Whether the order goes on."`
	NextCursor *string `json:"next_cursor" doc:"Give it as after, with the same order, to go on; null at the end."`
}

func (a *API) retryQueue(ctx context.Context, p account.Principal, in *struct{ Body retryQueueRequest }) (queueCommandResponse, error) {
	return a.runQueueCommand(ctx, p, "retry", in.Body.QueueSelection, admin.Command{}, a.QueueAdmin.Retry)
}

func (a *API) holdQueue(ctx context.Context, p account.Principal, in *struct{ Body holdQueueRequest }) (queueCommandResponse, error) {
	return a.runQueueCommand(ctx, p, "hold", in.Body.QueueSelection, admin.Command{Reason: in.Body.Detail, ExistingOnly: in.Body.Once}, a.QueueAdmin.Hold)
}

func (a *API) releaseQueue(ctx context.Context, p account.Principal, in *struct{ Body releaseQueueRequest }) (queueCommandResponse, error) {
	return a.runQueueCommand(ctx, p, "release", in.Body.QueueSelection, admin.Command{ExistingOnly: in.Body.Once}, a.QueueAdmin.Release)
}

func (a *API) dropQueue(ctx context.Context, p account.Principal, in *struct{ Body dropQueueRequest }) (queueCommandResponse, error) {
	or := admin.Command{Reason: in.Body.Detail, Silent: in.Body.Silent, Wait: time.Duration(in.Body.Wait) * time.Second}
	if in.Body.Wait < 0 || in.Body.Wait > maxDropWaitSeconds {
		or.Wait = -1
	}
	return a.runQueueCommand(ctx, p, "drop", in.Body.QueueSelection, or, a.QueueAdmin.Drop)
}

// runQueueCommand runs part of a queue command and logs the key that gave it.
func (a *API) runQueueCommand(ctx context.Context, p account.Principal, verb string, c QueueSelection, or admin.Command,
	do func(context.Context, admin.Command) (admin.Result, error)) (queueCommandResponse, error) {
	var bad fault.FieldErrors
	if or.Wait < 0 {
		bad.Add("wait", "out_of_range", "Give 0 to %d seconds.", maxDropWaitSeconds)
	}
	var err error
	if or.Filter, err = a.queueFilter(ctx, &bad, c); err != nil {
		return queueCommandResponse{}, err
	}
	or.All, or.DryRun, or.After, or.Limit = c.All || len(bad) > 0 && or.Filter == (admin.Filter{}), c.DryRun, c.After, maxCommandRows
	if err := mergeFaults(&bad, or.Normalize()); err != nil {
		return queueCommandResponse{}, err
	}
	if err := bad.Err(); err != nil {
		return queueCommandResponse{}, err
	}
	if db.IsReadOnly(ctx) {
		return queueCommandResponse{}, nil
	}
	res, err := do(ctx, or)
	if !or.DryRun {
		a.Log.InfoContext(ctx, "an operator's order", "verb", verb, "key", p.Key, "request", web.RequestIDFromContext(ctx), "message", c.Message, "destination", or.Destination,
			"account", or.Account, "all", or.All, "matched", res.Matched, "changed", res.Changed, "leased", res.Leased, "error", err)
	}
	return queueCommandResponse{
		Matched: res.Matched, Changed: res.Changed, Leased: res.Leased, StillHeld: res.StillHeld, HasMore: res.Next != "", NextCursor: optionalString(res.Next),
	}, err
}
