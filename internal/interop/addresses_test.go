// SPDX-License-Identifier: Apache-2.0

package interop

// addresses tests aliases and app passwords.
func (c *checked) addresses() {
	type m = map[string]any
	bob := c.s.Dev.Mailboxes[1].ID.String()
	alias := c.id("POST", "/aliases", m{"address": "crew@demo.test", "targets": []string{"alice@demo.test", bob}}, 201)
	c.call("POST", "/aliases", m{"address": "crew@demo.test", "targets": []string{bob}}, 409)
	c.call("POST", "/aliases", m{"address": "*@demo.test", "targets": []string{"nobody@demo.test"}}, 422)
	c.call("GET", "/aliases?limit=1", nil, 200)
	c.call("GET", "/aliases/"+alias, nil, 200)
	c.call("PATCH", "/aliases/"+alias, m{"targets": []string{bob}}, 200)
	c.call("DELETE", "/aliases/"+alias, nil, 204)
	c.call("GET", "/aliases/"+alias, nil, 404)

	logins := "/mailboxes/" + bob
	app := c.id("POST", logins+"/app-passwords", m{"name": "Phone", "protocols": []string{"imap"}}, 201)
	c.call("POST", logins+"/app-passwords", m{"name": "", "protocols": []string{}}, 422)
	c.call("GET", logins+"/app-passwords?limit=1", nil, 200)
	c.call("DELETE", logins+"/app-passwords/"+app, nil, 204)
	c.call("DELETE", logins+"/app-passwords/"+app, nil, 404)
	c.call("GET", logins+"/sign-ins", nil, 200)
	c.call("GET", logins+"/sessions", nil, 200)

	c.call("PATCH", "/mailboxes/"+bob, m{"forward_to": []string{"bob@elsewhere.example.net"}, "keep_copy": true}, 200)
	c.call("PATCH", "/mailboxes/"+bob, m{"forward_to": []string{"bob@demo.test"}}, 422)
	c.call("PATCH", "/mailboxes/"+bob, m{"forward_to": []string{}}, 200)
	c.call("GET", logins+"/vacation", nil, 200)
	c.call("PUT", logins+"/vacation", m{"subject": "Away", "text": "Until Monday.", "starts_at": "2026-01-01T00:00:00Z", "ends_at": "2099-01-01T00:00:00Z", "interval_days": 3}, 200)
	c.call("PUT", logins+"/vacation", m{"interval_days": 91}, 422)
	c.call("DELETE", logins+"/vacation", nil, 204)
}
