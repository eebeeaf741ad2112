// SPDX-License-Identifier: Apache-2.0

package api

// routes registers the whole API. Every path with an {id} responds with 404 for objects of other
// accounts.
func (a *API) routes(r *router) {
	const created, noContent = 201, 204

	handle(r, operation{method: "POST", path: "/domains", id: "createDomain", validatesFirst: true, scope: "domains.write", status: created, mayConflict: true,
		summary: "Add a domain", description: "The answer lists the DNS records to publish. They are checked by themselves, every minute at first; " +
			"mailboxes can be made once OWNERSHIP is verified, and mail sent once a DKIM record is verified too."}, a.createDomain)
	handle(r, operation{method: "GET", path: "/domains", id: "listDomains", scope: "domains.read",
		summary: "List domains", description: "Your domains with their records, newest first."}, a.listDomains)
	handle(r, operation{method: "GET", path: "/domains/{id}", id: "getDomain", scope: "domains.read",
		summary: "Show a domain with its DNS records", description: "For each record: what is expected, what was seen, and what is wrong."}, a.getDomain)
	handle(r, operation{method: "DELETE", path: "/domains/{id}", id: "deleteDomain", scope: "domains.write", status: noContent, mayConflict: true,
		summary: "Delete a domain", description: "It ceases to send and to receive at once. A domain with mailboxes or aliases can't be deleted."}, a.deleteDomain)
	handle(r, operation{method: "POST", path: "/domains/{id}/verify", id: "verifyDomain", scope: "domains.write",
		summary: "Check the ownership record now", description: "Asks the DNS for the TXT record that proves that the domain is yours."}, a.verifyDomain)
	handle(r, operation{method: "GET", path: "/domains/{id}/verify", id: "getDomainVerification", scope: "domains.read",
		summary: "Show the ownership record", description: "The TXT record that proves that the domain is yours, and whether it was seen."}, a.getDomainVerification)
	handle(r, operation{method: "POST", path: "/domains/{id}/verify-dns", id: "verifyDomainDNS", scope: "domains.write",
		summary: "Check all DNS records now", description: "Asks the DNS for every record and answers with what was seen."}, a.verifyDomainDNS)
	handle(r, operation{method: "GET", path: "/domains/{id}/zone", id: "getDomainZone", scope: "domains.read", responseMedia: "text/dns; charset=utf-8",
		summary: "The DNS records as a zone file", description: "To be pasted into a name server's zone file (RFC 1035 section 5)."}, a.getDomainZone)
	a.dkimRoutes(r)

	handle(r, operation{method: "POST", path: "/mailboxes", id: "createMailbox", validatesFirst: true, scope: "mailboxes.write", status: created, mayConflict: true,
		summary: "Make a mailbox", description: "Under a domain whose ownership is verified. A password that is left out is generated and shown in this answer only."}, a.createMailbox)
	handle(r, operation{method: "GET", path: "/mailboxes", id: "listMailboxes", scope: "mailboxes.read",
		summary: "List mailboxes", description: "Those that live, or those that can still be restored."}, a.listMailboxes)
	handle(r, operation{method: "GET", path: "/mailboxes/{id}", id: "getMailbox", scope: "mailboxes.read",
		summary: "Show a mailbox", description: "With its quota and how much of it is used."}, a.getMailbox)
	handle(r, operation{method: "PATCH", path: "/mailboxes/{id}", id: "updateMailbox", validatesFirst: true, scope: "mailboxes.write", mayConflict: true,
		summary: "Change a mailbox", description: "Only what is given is changed. A suspended mailbox can't be signed in to; its mail is kept. " +
			"Mail that is forwarded goes on as it came, with a return path of ours (SRS); what is spam, or fails its author's DMARC policy, is not forwarded but kept here, and so is what comes back in a circle."}, a.updateMailbox)
	handle(r, operation{method: "DELETE", path: "/mailboxes/{id}", id: "deleteMailbox", scope: "mailboxes.write", status: noContent,
		summary: "Delete a mailbox", description: "It can be restored for 30 days."}, a.deleteMailbox)
	handle(r, operation{method: "POST", path: "/mailboxes/{id}/restore", id: "restoreMailbox", scope: "mailboxes.write", mayConflict: true,
		summary: "Restore a deleted mailbox", description: "With all its mail, within 30 days, unless its address was given to another."}, a.restoreMailbox)
	handle(r, operation{method: "POST", path: "/mailboxes/{id}/password", id: "setMailboxPassword", validatesFirst: true, scope: "mailboxes.write",
		summary: "Set or generate a mailbox's password", description: "Sessions with the old one end at once. Without a body a password is generated and shown in this answer only."}, a.setMailboxPassword)

	a.clientSetupRoutes(r)
	a.aliasRoutes(r)
	a.mailboxAccessRoutes(r)
	a.vacationRoutes(r)

	a.mailRoutes(r)
	a.sendRoutes(r)
	a.templateRoutes(r)
	a.sendTemplateRoutes(r)
	a.messageRoutes(r)

	a.operatorRoutes(r)
	a.threadRoutes(r)
	a.sandboxRoutes(r)
	a.suppressionRoutes(r)

	a.eventRoutes(r)
	a.webhookRoutes(r)

	a.migrationRoutes(r)
	a.mailIORoutes(r)

	a.statsRoutes(r)

	a.limitRoutes(r)
	a.activityRoutes(r)
	handle(r, operation{method: "POST", path: "/api-keys", id: "createAPIKey", validatesFirst: true, scope: "api_keys.write", status: created,
		summary: "Make an API key", description: "The key is shown in this answer only. It can't be allowed more than the key that makes it."}, a.createAPIKey)
	handle(r, operation{method: "GET", path: "/api-keys", id: "listAPIKeys", scope: "api_keys.read",
		summary: "List API keys", description: "The keys themselves are not shown, only how each begins."}, a.listAPIKeys)
	handle(r, operation{method: "DELETE", path: "/api-keys/{id}", id: "deleteAPIKey", scope: "api_keys.write", status: noContent,
		summary: "Delete an API key", description: "It stops working at once."}, a.deleteAPIKey)
}
