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

	r.view("/mailboxes", d.mailboxes)
	r.view("/mailboxes/new", d.newMailbox)
	r.act("/mailboxes", d.addMailbox, d.newMailbox)
	r.view("/mailboxes/{id}", d.mailbox)
	r.act("/mailboxes/{id}", d.changeMailbox, d.mailbox)
	r.act("/mailboxes/{id}/password", d.setMailboxPassword, d.mailbox)
	r.act("/mailboxes/{id}/suspend", d.suspendMailbox, d.mailbox)
	r.act("/mailboxes/{id}/resume", d.resumeMailbox, d.mailbox)
	r.act("/mailboxes/{id}/delete", d.deleteMailbox, d.mailbox)
	r.act("/mailboxes/{id}/restore", d.restoreMailbox, d.restorable)

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
}
