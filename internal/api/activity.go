// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/db"
)

func (a *API) activityRoutes(r *router) {
	handle(r, operation{method: "GET", path: "/activity", id: "listActivity", scope: "activity.read",
		summary: "List the audit log", description: "Who changed what in the account, by API, dashboard or the operator's command line; who read mail in the dashboard; and failed sign-ins of its people. " +
			"An entry is written before its change, so no change lacks one. Sent messages have events instead. Entries are kept for 400 days. A key of one domain can't read it."}, a.listActivity)
}

type activityResponse struct {
	ID        db.ID                 `json:"id" doc:"The entry's id."`
	Actor     activityActorResponse `json:"actor" doc:"Who did it."`
	Action    string                `json:"action" doc:"A stable name: the id of an API operation, or a form of the dashboard; empty for an entry of an earlier release." example:"updateMailbox"`
	ObjectID  string                `json:"object_id" doc:"The id of what was changed or read; empty for none." example:"0192f0c1-7a6e-7c3a-b1f2-5a0d9e6c4b21"`
	Summary   string                `json:"summary" doc:"The same in a sentence." example:"Changed the mailbox ann@example.com (forward_to [ann@example.org])."`
	Status    string                `json:"status" enum:"begun,done,failed" doc:"begun: in progress, or the server stopped before it knew the outcome; failed: refused, or ended with an error after it may have changed something."`
	CreatedAt time.Time             `json:"created_at" doc:"When it began."`
}

type activityActorResponse struct {
	Type string  `json:"type" enum:"user,api_key,mailbox,operator,nobody" doc:"nobody is a client that failed to prove who it is."`
	ID   *db.ID  `json:"id" doc:"The id of the user, key or mailbox; null for others."`
	Name string  `json:"name" doc:"An address, or the name of a key, at that time." example:"shop"`
	IP   *string `json:"ip" doc:"The client's address; null for the command line." example:"192.0.2.7"`
}

func newActivityResponse(e audit.Entry) activityResponse {
	out := activityResponse{
		ID: e.ID, Actor: activityActorResponse{Type: e.Actor.Kind, Name: e.Actor.Name}, Action: e.Action, ObjectID: e.Object, Summary: e.Description, Status: e.State, CreatedAt: utcTime(e.At),
	}
	if e.Actor.ID != 0 {
		out.Actor.ID = &e.Actor.ID
	}
	if e.Actor.IP.IsValid() {
		out.Actor.IP = optionalString(e.Actor.IP.String())
	}
	return out
}

func (a *API) listActivity(ctx context.Context, p account.Principal, in *pageParams) (listResponse[activityResponse], error) {
	if p.Domain != "" {
		return listResponse[activityResponse]{}, errDomainRestricted
	}
	read := func(at db.Page) ([]audit.Entry, bool, error) { return a.Audit.List(ctx, p.Account, at) }
	return listPage(in, read, newActivityResponse, func(e audit.Entry) db.ID { return e.ID })
}
