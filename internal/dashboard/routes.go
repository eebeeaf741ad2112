// SPDX-License-Identifier: Apache-2.0

package dashboard

// routes is the list of all pages and of what their forms do.
func (d *Dashboard) routes(r *router) {
	r.viewFor(anybody, "/sign-in", d.signInForm)
	r.actFor(anybody, "/sign-in", d.signIn, d.signInForm)
	r.viewFor(anybody, "/sign-in/code", d.codeForm)
	r.actFor(anybody, "/sign-in/code", d.code, d.codeForm)
	r.actFor(anybody, "/sign-out", d.signOut, nil)
	r.viewFor(anybody, "/forgotten", d.forgottenForm)
	r.actFor(anybody, "/forgotten", d.forgotten, d.forgottenForm)
	r.viewFor(anybody, "/reset/{token}", d.resetForm)
	r.actFor(anybody, "/reset/{token}", d.reset, d.resetForm)
	r.viewFor(anybody, "/join/{token}", d.joinForm)
	r.actFor(anybody, "/join/{token}", d.join, d.joinForm)
	r.actFor(reading, "/join/{token}/accept", d.accept, d.joinForm)
	r.actFor(anybody, "/theme", d.theme, nil)

	r.view("/{$}", d.start)

	r.view("/domains", d.domains)
	r.act("/domains", d.addDomain, d.domains)
	r.view("/domains/{id}", d.domain)
	r.view("/domains/{id}/records", d.domainRecords)
	r.file("/domains/{id}/zone", d.zoneFile)
	r.act("/domains/{id}/check", d.checkDomain, d.domain)
	r.act("/domains/{id}/rotate", d.rotateKeys, d.domain)
	r.act("/domains/{id}/rotation", d.setRotation, d.domain)
	r.act("/domains/{id}/delete", d.deleteDomain, d.domain)

	d.mailboxRoutes(r)
	d.migrationRoutes(r)
	d.ownerRoutes(r)
	d.mailRoutes(r)
	d.programRoutes(r)
	d.docRoutes(r)

	r.view("/people", d.people)
	r.actFor(owning, "/people", d.invite, d.people)
	r.actFor(owning, "/people/invitations/{id}/withdraw", d.withdraw, d.people)
	r.actFor(owning, "/people/{id}/role", d.setRole, d.people)
	r.actFor(owning, "/people/{id}/remove", d.removeMember, d.people)
	r.view("/activity", d.activity)

	r.view("/profile", d.profile)
	r.actFor(reading, "/profile/name", d.rename, d.profile)
	r.actFor(reading, "/profile/password", d.changePassword, d.profile)
	r.actFor(reading, "/profile/accounts/{id}", d.lookAt, d.profile)
	r.actFor(reading, "/profile/sessions/{id}/end", d.endSession, d.profile)
	r.actFor(reading, "/profile/sessions/end", d.endOthers, d.profile)
	r.view("/profile/factor", d.factorForm)
	r.actFor(reading, "/profile/factor", d.enrol, d.factorForm)
	r.actFor(reading, "/profile/factor/off", d.unenrol, d.profile)
	r.actFor(reading, "/profile/recovery", d.newRecovery, d.profile)

	r.viewFor(operator, "/operator", d.accounts)
	r.actFor(operator, "/operator", d.addAccount, d.accounts)
	r.viewFor(operator, "/operator/accounts/{id}", d.showAccount)
	r.actFor(operator, "/operator/accounts/{id}/limits", d.setLimits, d.showAccount)
	r.actFor(operator, "/operator/accounts/{id}/suspend", d.suspendAccount, d.showAccount)
	r.actFor(operator, "/operator/accounts/{id}/link", d.linkAccount, d.showAccount)
	r.viewFor(operator, "/operator/queue", d.queue)
	r.actFor(operator, "/operator/queue/retry", d.retryQueue, d.queue)
	r.actFor(operator, "/operator/queue/hold", d.holdQueue, d.queue)
	r.actFor(operator, "/operator/queue/release", d.releaseQueue, d.queue)
}

// mailboxRoutes are the pages of addresses and who has them.
func (d *Dashboard) mailboxRoutes(r *router) {
	r.view("/mailboxes", d.mailboxes)
	r.viewFor(working, "/mailboxes/new", d.newMailbox)
	r.act("/mailboxes", d.addMailbox, d.newMailbox)
	r.view("/mailboxes/{id}", d.mailbox)
	r.act("/mailboxes/{id}", d.changeMailbox, d.mailbox)
	r.act("/mailboxes/{id}/password", d.setMailboxPassword, d.mailbox)
	r.act("/mailboxes/{id}/suspend", d.suspendMailbox, d.mailbox)
	r.act("/mailboxes/{id}/resume", d.resumeMailbox, d.mailbox)
	r.act("/mailboxes/{id}/delete", d.deleteMailbox, d.mailbox)
	r.act("/mailboxes/{id}/restore", d.restoreMailbox, d.restorable)
	r.view("/mailboxes/{id}/setup", d.clientSetup)
	r.actFor(reading, "/mailboxes/{id}/setup/check", d.checkSetup, d.clientSetup)
	r.file("/mailboxes/{id}/setup/profile", d.profileFile)
	r.act("/mailboxes/{id}/setup/profile", d.profileWithPassword, d.clientSetup)
	r.act("/mailboxes/{id}/setup/link", d.linkForPhone, d.clientSetup)
	r.view("/mailboxes/{id}/access", d.access)
	r.act("/mailboxes/{id}/access", d.addApp, d.access)
	r.act("/mailboxes/{id}/access/{app}/revoke", d.endApp, d.access)

	r.view("/aliases", d.aliases)
	r.act("/aliases", d.addAlias, d.aliases)
	r.view("/aliases/{id}", d.alias)
	r.act("/aliases/{id}", d.changeAlias, d.alias)
	r.act("/aliases/{id}/delete", d.deleteAlias, d.alias)
}

// ownerRoutes are for the owner of a mailbox, who signs in with its password, and
// for their phone.
func (d *Dashboard) ownerRoutes(r *router) {
	r.viewFor(anybody, "/mailbox", d.own)
	r.viewFor(anybody, "/mailbox/sign-in", d.ownerForm)
	r.actFor(anybody, "/mailbox/sign-in", d.ownerSignIn, d.ownerForm)
	r.actFor(anybody, "/mailbox/sign-out", d.ownerSignOut, nil)
	r.actFor(anybody, "/mailbox/check", d.ownCheck, d.own)
	r.actFor(anybody, "/mailbox/password", d.ownPassword, d.own)
	r.fileFor(anybody, "/mailbox/profile", d.ownProfile)
	r.actFor(anybody, "/mailbox/profile", d.ownProfileWithPassword, d.own)
	r.actFor(anybody, "/mailbox/link", d.ownLinkForPhone, d.own)
	r.viewFor(anybody, "/mailbox/access", d.ownAccess)
	r.actFor(anybody, "/mailbox/access", d.addOwnApp, d.ownAccess)
	r.actFor(anybody, "/mailbox/access/{app}/revoke", d.endOwnApp, d.ownAccess)
	r.fileFor(anybody, "/phone/{ticket}", d.phone)
	r.viewFor(anybody, "/phone/once/{token}", d.phoneOnce)
	r.actFor(anybody, "/phone/once/{token}", d.takeProfile, nil)
}

// programRoutes are what programs are set up with, and tried out.
func (d *Dashboard) programRoutes(r *router) {
	r.view("/webhooks", d.webhooks)
	r.viewFor(working, "/webhooks/new", d.newWebhook)
	r.act("/webhooks", d.addWebhook, d.newWebhook)
	r.view("/webhooks/{id}", d.webhook)
	r.viewFor(working, "/webhooks/{id}/edit", d.editWebhook)
	r.act("/webhooks/{id}/edit", d.changeWebhook, d.editWebhook)
	r.act("/webhooks/{id}/enable", d.enableWebhook, d.webhook)
	r.act("/webhooks/{id}/disable", d.disableWebhook, d.webhook)
	r.act("/webhooks/{id}/test", d.testWebhook, d.webhook)
	r.act("/webhooks/{id}/rotate", d.rotateWebhook, d.webhook)
	r.act("/webhooks/{id}/replay", d.replay, d.webhook)
	r.act("/webhooks/{id}/delete", d.deleteWebhook, d.webhook)
	r.view("/webhooks/{id}/deliveries/{delivery}", d.delivery)
	r.act("/webhooks/{id}/deliveries/{delivery}/redeliver", d.redeliver, d.delivery)

	r.view("/limits", d.limits)
	r.view("/sandbox", d.sandbox)
	r.view("/sandbox/{id}", d.capturedMessage)
	r.file("/sandbox/{id}/preview", d.capturedPreview)
	r.file("/sandbox/{id}/raw", d.capturedRaw)
	r.file("/sandbox/{id}/files/{n}", d.capturedFile)
	r.act("/sandbox/receive", d.receive, d.sandbox)
	r.act("/sandbox/clear", d.clearSandbox, d.sandbox)

	r.view("/keys", d.keys)
	r.viewFor(owning, "/keys/new", d.newKey)
	r.actFor(owning, "/keys", d.addKey, d.newKey)
	r.actFor(owning, "/keys/{id}/delete", d.deleteKey, d.keys)
}

// docRoutes are the manual, which anybody may read.
func (d *Dashboard) docRoutes(r *router) {
	r.viewFor(anybody, "/docs", d.docs)
	r.viewFor(anybody, "/docs/search", d.searchDocs)
	r.viewFor(anybody, "/docs/guides/{guide}", d.guide)
	r.viewFor(anybody, "/docs/api/{resource}", d.reference)
}

// mailRoutes are the pages of what is sent and received.
func (d *Dashboard) mailRoutes(r *router) {
	r.view("/messages", d.messages)
	r.view("/messages/{id}", d.message)
	r.view("/messages/{id}/progress", d.messageProgress)
	r.file("/messages/{id}/preview", d.messagePreview)
	r.file("/messages/{id}/raw", d.messageRaw)
	r.file("/messages/{id}/files/{n}", d.messageFile)
	r.act("/messages/{id}/cancel", d.cancelMessage, d.message)
	r.act("/messages/{id}/retry", d.retryMessage, d.message)
	r.act("/messages/{id}/time", d.rescheduleMessage, d.message)
	r.file("/received", d.received)
	r.view("/received/{box}/{id}", d.receivedMessage)
	r.file("/received/{box}/{id}/preview", d.receivedPreview)
	r.file("/received/{box}/{id}/raw", d.receivedRaw)
	r.file("/received/{box}/{id}/files/{n}", d.receivedFile)
	r.view("/threads/{id...}", d.thread)

	r.view("/templates", d.templates)
	r.view("/templates/new", d.newTemplate)
	r.act("/templates", d.addTemplate, d.newTemplate)
	r.actFor(reading, "/templates/preview", d.previewTemplate, nil)
	r.view("/templates/{id}", d.template)
	r.act("/templates/{id}", d.changeTemplate, d.template)
	r.view("/templates/{id}/versions", d.versions)
	r.view("/templates/{id}/versions/{n}", d.templateVersion)
	r.file("/templates/{id}/versions/{n}/preview", d.previewVersion)
	r.view("/templates/{id}/compare", d.compareVersions)
	r.view("/templates/{id}/test", d.testForm)
	r.act("/templates/{id}/test", d.sendTest, d.testForm)
	r.act("/templates/{id}/publish", d.publishTemplate, d.versions)
	r.act("/templates/{id}/duplicate", d.duplicateTemplate, d.template)
	r.act("/templates/{id}/delete", d.deleteTemplate, d.template)

	r.view("/suppressions", d.suppressions)
	r.act("/suppressions", d.suppress, d.suppressions)
	r.act("/suppressions/{id}/remove", d.unsuppress, d.suppressions)
	r.upload("/suppressions/import", maxImport, d.importSuppressions, d.suppressions)
	r.file("/suppressions/export", d.exportSuppressions)
}
