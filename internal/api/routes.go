// SPDX-License-Identifier: Apache-2.0

package api

// routes is the whole of the API. Every path with an {id} answers 404 for
// what belongs to another account; routes_test.go walks them all.
func (a *API) routes(r *router) {
	const created, noContent, accepted = 201, 204, 202

	handle(r, operation{"POST", "/api-keys", "createAPIKey", "api_keys.write", "Make an API key", created}, a.createKey)
	handle(r, operation{"GET", "/api-keys", "listAPIKeys", "api_keys.read", "List API keys", 0}, a.listKeys)
	handle(r, operation{"DELETE", "/api-keys/{id}", "deleteAPIKey", "api_keys.write", "Delete an API key", noContent}, a.deleteKey)

	handle(r, operation{"POST", "/domains", "createDomain", "domains.write", "Add a domain", created}, a.createDomain)
	handle(r, operation{"GET", "/domains", "listDomains", "domains.read", "List domains", 0}, a.listDomains)
	handle(r, operation{"GET", "/domains/{id}", "getDomain", "domains.read", "Show a domain with its DNS records", 0}, a.getDomain)
	handle(r, operation{"DELETE", "/domains/{id}", "deleteDomain", "domains.write", "Delete a domain", noContent}, a.deleteDomain)
	handle(r, operation{"POST", "/domains/{id}/verify", "verifyDomain", "domains.write", "Check the ownership record now", 0}, a.verifyDomain)
	handle(r, operation{"GET", "/domains/{id}/verify", "getDomainVerification", "domains.read", "Show the ownership record", 0}, a.showOwnership)
	handle(r, operation{"POST", "/domains/{id}/verify-dns", "verifyDomainDNS", "domains.write", "Check all DNS records now", 0}, a.verifyDNS)
	handle(r, operation{"GET", "/domains/{id}/zone", "getDomainZone", "domains.read", "The DNS records as a zone file to paste", 0}, a.domainZone)

	handle(r, operation{"POST", "/mailboxes", "createMailbox", "mailboxes.write", "Make a mailbox", created}, a.createMailbox)
	handle(r, operation{"GET", "/mailboxes", "listMailboxes", "mailboxes.read", "List mailboxes", 0}, a.listMailboxes)
	handle(r, operation{"GET", "/mailboxes/{id}", "getMailbox", "mailboxes.read", "Show a mailbox", 0}, a.getMailbox)
	handle(r, operation{"PATCH", "/mailboxes/{id}", "updateMailbox", "mailboxes.write", "Change a mailbox", 0}, a.updateMailbox)
	handle(r, operation{"DELETE", "/mailboxes/{id}", "deleteMailbox", "mailboxes.write", "Delete a mailbox; it can be restored for 30 days", noContent}, a.deleteMailbox)
	handle(r, operation{"POST", "/mailboxes/{id}/restore", "restoreMailbox", "mailboxes.write", "Restore a deleted mailbox", 0}, a.restoreMailbox)
	handle(r, operation{"POST", "/mailboxes/{id}/password", "setMailboxPassword", "mailboxes.write", "Set or generate a mailbox's password", 0}, a.setPassword)

	handleRaw[sendRequest, sendAnswer](r, operation{"POST", "/outbound/send", "send", "outbound.send", "Send an email", accepted}, a.send)
	handle(r, operation{"GET", "/outbound/messages", "listMessages", "messages.read", "List sent messages", 0}, a.listMessages)
	handle(r, operation{"GET", "/outbound/messages/{id}", "getMessage", "messages.read", "Show a sent message with its recipients and timeline", 0}, a.getMessage)

	handle(r, operation{"GET", "/events", "listEvents", "events.read", "List events, newest first", 0}, a.listEvents)
}
