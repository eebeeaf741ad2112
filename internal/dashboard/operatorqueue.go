// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/queue/admin"
)

const (
	destinationsPerPage = 50
	// maxCommandRows is the approximate number of rows in one part of a command.
	maxCommandRows = 10_000
	// defaultCommandTimeout is roughly how long one click works on a command.
	defaultCommandTimeout = 5 * time.Second
)

// queueRemainder is the rest of a command after one click.
type queueRemainder struct{ Verb, Destination, After string }

func (d *Dashboard) queue(v *requestContext) (page, error) {
	asked := v.r.URL.Query()
	list, next, err := d.QueueAdmin.Destinations(v.ctx, "", asked.Get("after"), destinationsPerPage)
	if err != nil {
		return page{}, err
	}
	data := struct {
		List  []admin.DestinationStatus
		Pager pager
		Rest  queueRemainder
	}{List: list}
	if next != "" {
		data.Pager.Older = "/operator/queue?" + encodeQuery("after", next)
	}
	switch verb := asked.Get("continue"); verb {
	case "retry", "hold", "release":
		data.Rest = queueRemainder{verb, asked.Get("destination"), asked.Get("rest")}
	}
	return page{Template: "queue", Title: "Queue", Section: "queue", Data: data}, nil
}

// runQueueCommand runs a form's command for one destination, in parts, and reports the progress.
func (d *Dashboard) runQueueCommand(v *requestContext, verb, past string, do func(context.Context, admin.Command) (admin.Result, error)) (actionResult, error) {
	to := v.formText("destination")
	or := admin.Command{Filter: admin.Filter{Destination: to}, Reason: v.formText("reason"), Limit: maxCommandRows, After: v.formText("rest")}
	var changed, inHand, kept int
	for end := time.Now().Add(cmp.Or(d.CommandTimeout, defaultCommandTimeout)); ; {
		res, err := do(v.ctx, or)
		if err != nil {
			return actionResult{}, err
		}
		changed, inHand, kept = changed+res.Changed, inHand+res.Leased, kept+res.StillHeld
		if or.After = res.Next; or.After == "" || !time.Now().Before(end) {
			break
		}
	}
	told := past + " " + formatDeliveryCount(changed) + " to " + to
	if inHand > 0 {
		told += "; a node still works on " + formatDeliveryCount(inHand) + ", and holds what it does not finish"
	}
	if kept > 0 {
		told += "; another hold keeps " + formatDeliveryCount(kept)
	}
	if or.After == "" {
		return actionResult{RedirectTo: "/operator/queue", Summary: told + "."}, nil
	}
	return actionResult{RedirectTo: "/operator/queue?" + encodeQuery("continue", verb, "destination", to, "rest", or.After), Summary: told + ". More are left."}, nil
}

// formatDeliveryCount describes a number of deliveries.
func formatDeliveryCount(n int) string {
	if n == 1 {
		return "1 delivery"
	}
	return formatCount(int64(n)) + " deliveries"
}

func (d *Dashboard) retryQueue(v *requestContext) (actionResult, error) {
	return d.runQueueCommand(v, "retry", "Retried", d.QueueAdmin.Retry)
}

func (d *Dashboard) holdQueue(v *requestContext) (actionResult, error) {
	return d.runQueueCommand(v, "hold", "Held", d.QueueAdmin.Hold)
}

func (d *Dashboard) releaseQueue(v *requestContext) (actionResult, error) {
	return d.runQueueCommand(v, "release", "Released", d.QueueAdmin.Release)
}
