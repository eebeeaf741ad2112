// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"net/http"
	"net/http/httptest"
	"time"
)

// webhooks tests all webhook operations.
func (c *checked) webhooks() {
	c.t.Helper()
	type m = map[string]any
	status := http.StatusNoContent
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer receiver.Close()
	hook := c.id("POST", "/webhooks", m{
		"url": receiver.URL, "events": []string{"bounce", "complaint"}, "description": "the till", "domains": []string{c.s.Dev.Domain.ID.String()},
	}, 201)
	c.call("POST", "/webhooks", m{"url": "ftp://x", "events": []string{"bounces"}, "mailboxes": []string{"x"}}, 422)
	c.call("GET", "/webhooks?limit=1", nil, 200)
	c.call("GET", "/webhooks/"+hook, nil, 200)
	c.call("POST", "/webhooks/"+hook+"/rotate-secret", nil, 200)
	c.call("POST", "/webhooks/"+hook+"/rotate-secret", m{"overlap_hours": 0}, 200)
	c.call("POST", "/webhooks/"+hook+"/rotate-secret", m{"overlap_hours": 25}, 422)
	c.call("POST", "/webhooks/"+hook+"/test", nil, 200)
	status = http.StatusInternalServerError
	sent := c.id("POST", "/webhooks/"+hook+"/test", m{"event": "complaint"}, 200)
	c.call("POST", "/webhooks/"+hook+"/test", m{"event": "all"}, 422)
	c.call("GET", "/webhooks/"+hook+"/deliveries?status=failed", nil, 200)
	c.call("GET", "/webhooks/"+hook+"/deliveries?status=lost", nil, 422)
	c.call("GET", "/webhooks/"+hook+"/deliveries/"+sent, nil, 200)
	c.call("POST", "/webhooks/"+hook+"/deliveries/"+sent+"/redeliver", nil, 200)
	c.call("GET", "/webhooks/"+hook+"/deliveries?status=pending", nil, 200)
	c.call("POST", "/webhooks/"+hook+"/replay?missing=true&created_after="+time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), nil, 200)
	c.call("POST", "/webhooks/"+hook+"/replay?created_after=yesterday", nil, 422)
	c.call("PATCH", "/webhooks/"+hook, m{"events": []string{"all"}, "domains": []string{}, "status": "disabled"}, 200)
	c.call("POST", "/webhooks/"+hook+"/deliveries/"+sent+"/redeliver", nil, 409)
	c.call("DELETE", "/webhooks/"+hook, nil, 204)
	c.call("DELETE", "/webhooks/"+hook, nil, 404)
}
