// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/queue"
)

const (
	destinationsShown = 50
	// orderRows is how many rows one part of an order looks at, about.
	orderRows = 10_000
	// orderTime is for how long one press of a button works on an order, about.
	orderTime = 5 * time.Second
)

// rest is what one press of a button left of an order.
type rest struct{ Verb, Destination, After string }

func (d *Dashboard) queue(v *visit) (page, error) {
	asked := v.r.URL.Query()
	list, next, err := d.Operator.Destinations(v.ctx, "", asked.Get("after"), destinationsShown)
	if err != nil {
		return page{}, err
	}
	data := struct {
		List  []queue.Outlook
		Pager pager
		Rest  rest
	}{List: list}
	if next != "" {
		data.Pager.Older = "/operator/queue?" + query("after", next)
	}
	switch verb := asked.Get("continue"); verb {
	case "retry", "hold", "release":
		data.Rest = rest{verb, asked.Get("destination"), asked.Get("rest")}
	}
	return page{Template: "queue", Title: "Queue", Section: "queue", Data: data}, nil
}

// order carries out the order of a form about one destination, in parts, and says
// how far it came.
func (d *Dashboard) order(v *visit, verb, past string, do func(context.Context, queue.Order) (queue.Result, error)) (done, error) {
	to := v.text("destination")
	or := queue.Order{Filter: queue.Filter{Destination: to}, Reason: v.text("reason"), Most: orderRows, After: v.text("rest")}
	var changed, inHand, kept int
	for end := time.Now().Add(cmp.Or(d.OrderTime, orderTime)); ; {
		res, err := do(v.ctx, or)
		if err != nil {
			return done{}, err
		}
		changed, inHand, kept = changed+res.Changed, inHand+res.InHand, kept+res.Kept
		if or.After = res.Next; or.After == "" || !time.Now().Before(end) {
			break
		}
	}
	told := past + " " + counted(changed) + " to " + to
	if inHand > 0 {
		told += "; a node still works on " + counted(inHand) + ", and holds what it does not finish"
	}
	if kept > 0 {
		told += "; another hold keeps " + counted(kept)
	}
	if or.After == "" {
		return done{To: "/operator/queue", Told: told + "."}, nil
	}
	return done{To: "/operator/queue?" + query("continue", verb, "destination", to, "rest", or.After), Told: told + ". More are left."}, nil
}

// counted says how many deliveries there are.
func counted(n int) string {
	if n == 1 {
		return "1 delivery"
	}
	return count(int64(n)) + " deliveries"
}

func (d *Dashboard) retryQueue(v *visit) (done, error) {
	return d.order(v, "retry", "Retried", d.Operator.Retry)
}

func (d *Dashboard) holdQueue(v *visit) (done, error) {
	return d.order(v, "hold", "Held", d.Operator.Hold)
}

func (d *Dashboard) releaseQueue(v *visit) (done, error) {
	return d.order(v, "release", "Released", d.Operator.Release)
}
