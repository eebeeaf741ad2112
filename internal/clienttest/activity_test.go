// SPDX-License-Identifier: Apache-2.0

package clienttest

// activity reads the entries of the preceding tests.
func (h *fixture) activity() {
	h.Helper()
	seen := map[string]bool{}
	for _, e := range collect(h, h.c.AllActivity(h.Context())) {
		seen[e.Action] = true
		if e.ID == "" || e.Summary == "" || e.Status == "begun" || e.CreatedAt.IsZero() || e.Actor.Type == "api_key" && (e.Actor.Name == "" || e.Actor.ID == "" || e.Actor.IP == "") {
			h.Errorf("an entry is %+v", e)
		}
	}
	for _, action := range []string{"createDomain", "createMailbox", "setMailboxPassword", "createAPIKey", "deleteAPIKey", "createWebhook", "importMailbox"} {
		if !seen[action] {
			h.Errorf("the activity has no %s", action)
		}
	}
}
